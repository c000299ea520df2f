package app;

import io.micronaut.runtime.Micronaut;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.List;

/** The bookings of a hotel on Micronaut. See system.toml for the properties. */
public final class Application {
    private Application() { }

    public static void main(String[] args) throws IOException {
        if (System.getProperty("hotel.app").equals("price")) {
            System.setProperty("micronaut.http.services.prices.url", startUpstream());
        }
        String store = System.getProperty("hotel.store");
        if (!store.isEmpty()) {
            System.setProperty("datasources.default.url", "jdbc:postgresql://" + store + "/bars");
            System.setProperty("datasources.default.username", "bars");
            System.setProperty("datasources.default.password", "");
            System.setProperty("datasources.default.maximum-pool-size", System.getProperty("hotel.pool"));
            // Applications without a store start too.
            System.setProperty("datasources.default.initialization-fail-timeout", "-1");
        }
        Micronaut.run(Application.class, args);
    }

    /** Starts the upstream, which responds after 20 ms and ends with this process, and returns its URL. */
    private static String startUpstream() throws IOException {
        String upstream = "../slow-upstream/upstream.py";
        Process process = new ProcessBuilder(List.of("python3", upstream, "20")).start();
        return "http://127.0.0.1:" + new BufferedReader(new InputStreamReader(process.getInputStream())).readLine();
    }
}
