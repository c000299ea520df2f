package app;

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import jakarta.ws.rs.GET;
import jakarta.ws.rs.Produces;
import java.net.URI;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.glassfish.grizzly.http.server.HttpServer;
import org.glassfish.grizzly.http.server.NetworkListener;
import org.glassfish.grizzly.nio.transport.TCPNIOTransport;
import org.glassfish.grizzly.strategies.SameThreadIOStrategy;
import org.glassfish.grizzly.strategies.WorkerThreadIOStrategy;
import org.glassfish.grizzly.threadpool.ThreadPoolConfig;
import org.glassfish.jersey.grizzly2.httpserver.GrizzlyHttpServerFactory;
import org.glassfish.jersey.server.ResourceConfig;

/** A payroll service built on Grizzly and Jersey. See system.toml for the arguments. */
public final class Main {
    private final Map<String, String> options = new HashMap<>();

    /** What the service does before it responds to a request. */
    public interface Work {
        void run() throws Exception;
    }

    /** The only resource of the service. */
    @jakarta.ws.rs.Path("/")
    public static final class Payroll {
        private final Work work;

        public Payroll(Work work) {
            this.work = work;
        }

        @GET
        @Produces("text/plain")
        public String get() throws Exception {
            work.run();
            return "Hello World";
        }
    }

    public static void main(String[] args) throws Exception {
        new Main(args).serve();
    }

    private Main(String[] args) {
        for (int i = 0; i < args.length; i += 2) {
            options.put(args[i].substring(2), args[i + 1]);
        }
    }

    private String text(String name) {
        return options.get(name);
    }

    private int number(String name) {
        return Integer.parseInt(text(name));
    }

    private void serve() throws Exception {
        URI address = URI.create("http://" + text("host") + ":" + number("port") + "/");
        ResourceConfig resources = new ResourceConfig()
                .property("jersey.config.server.wadl.disableWadl", true)
                .register(new Payroll(handler(text("app"))));
        HttpServer server = GrizzlyHttpServerFactory.createHttpServer(address, resources, false);
        NetworkListener listener = server.getListeners().iterator().next();
        TCPNIOTransport transport = listener.getTransport();
        transport.setServerConnectionBackLog(1024);
        int threads = number("threads");
        transport.setWorkerThreadPoolConfig(ThreadPoolConfig.defaultConfig()
                .setPoolName("payroll")
                .setCorePoolSize(threads)
                .setMaxPoolSize(threads));
        transport.setIOStrategy(text("strategy").equals("same-thread")
                ? SameThreadIOStrategy.getInstance()
                : WorkerThreadIOStrategy.getInstance());
        server.start();
        // Grizzly's threads are daemon threads.
        Thread.currentThread().join();
    }

    private Work handler(String name) throws Exception {
        return switch (name) {
            case "hello" -> () -> { };
            case "pause" -> () -> Thread.sleep(20);
            case "hash" -> Payslips::hash;
            case "render" -> Payslips::render;
            case "keep" -> new Payslips(number("kept"))::replace;
            case "tariff" -> new Tariffs()::read;
            case "tariff-locked" -> new Tariffs()::readLocked;
            case "throttled" -> new Throttle(number("rate"))::pass;
            case "tax" -> new TaxOffice(number("per-route"))::ask;
            case "audit" -> new Audit(Path.of(text("audit")))::write;
            case "report" -> new Salaries(pool(), true)::report;
            case "find" -> new Salaries(pool(), Boolean.parseBoolean(text("index")))::find;
            case "add" -> new Salaries(pool(), true)::add;
            default -> throw new IllegalArgumentException("unknown app " + name);
        };
    }

    private HikariDataSource pool() {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl("jdbc:postgresql://" + text("store") + "/bars");
        config.setUsername("bars");
        config.setMaximumPoolSize(number("pool"));
        config.addDataSourceProperty("options", "-c synchronous_commit=" + text("synchronous-commit"));
        return new HikariDataSource(config);
    }
}
