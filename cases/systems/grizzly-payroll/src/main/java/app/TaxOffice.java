package app;

import java.io.BufferedReader;
import java.io.IOException;
import org.apache.hc.client5.http.classic.methods.HttpGet;
import org.apache.hc.client5.http.impl.classic.CloseableHttpClient;
import org.apache.hc.client5.http.impl.classic.HttpClients;
import org.apache.hc.client5.http.impl.io.PoolingHttpClientConnectionManagerBuilder;
import org.apache.hc.core5.http.io.entity.EntityUtils;

/** A service that responds after 20 ms, and its client. */
final class TaxOffice {
    private final String url;
    private final CloseableHttpClient client;

    TaxOffice(int perRoute) throws IOException {
        Process process = new ProcessBuilder("python3", "../slow-upstream/upstream.py", "20")
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        BufferedReader output = process.inputReader();
        url = "http://127.0.0.1:" + output.readLine() + "/tax";
        client = HttpClients.custom()
                .setConnectionManager(PoolingHttpClientConnectionManagerBuilder.create()
                        .setMaxConnTotal(1000)
                        .setMaxConnPerRoute(perRoute)
                        .build())
                .build();
    }

    void ask() throws IOException {
        String tax = client.execute(new HttpGet(url), response -> EntityUtils.toString(response.getEntity()));
        if (!tax.equals("price")) {
            throw new IOException("unexpected response");
        }
    }
}
