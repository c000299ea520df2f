package app;

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import io.helidon.common.configurable.ThreadPoolSupplier;
import io.helidon.common.http.Http;
import io.helidon.common.http.MediaType;
import io.helidon.faulttolerance.Bulkhead;
import io.helidon.webclient.WebClient;
import io.helidon.webserver.Routing;
import io.helidon.webserver.ServerRequest;
import io.helidon.webserver.ServerResponse;
import io.helidon.webserver.WebServer;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** The appointments of a clinic on Helidon. See system.toml for the arguments. */
public final class Main {
    private static final int APPOINTMENTS = 10_000;
    private static final int PER_DAY = 20;

    private final Map<String, String> options = new HashMap<>();
    private final ScheduledExecutorService timers = Executors.newSingleThreadScheduledExecutor();

    public static void main(String[] args) throws SQLException, UnknownHostException {
        new Main(args).serve();
    }

    private Main(String[] args) {
        for (int i = 0; i < args.length; i += 2) {
            options.put(args[i].substring(2), args[i + 1]);
        }
    }

    private int number(String name) {
        return Integer.parseInt(options.get(name));
    }

    private void serve() throws SQLException, UnknownHostException {
        Supplier<CompletionStage<?>> work = handler(options.get("app"));
        boolean close = options.get("connection").equals("close");
        WebServer.builder(Routing.builder().get("/", (request, response) -> respond(work, close, request, response)))
                .bindAddress(InetAddress.getByName(options.get("host")))
                .port(number("port"))
                .workersCount(number("workers"))
                .build()
                .start()
                .await();
    }

    private static void respond(
            Supplier<CompletionStage<?>> work, boolean close, ServerRequest request, ServerResponse response) {
        work.get().whenComplete((result, error) -> {
            if (error != null) {
                request.next(error);
                return;
            }
            if (close) {
                response.headers().put(Http.Header.CONNECTION, "close");
            }
            response.headers().contentType(MediaType.TEXT_PLAIN);
            response.send("Hello World");
        });
    }

    private Supplier<CompletionStage<?>> handler(String name) throws SQLException {
        return switch (name) {
            case "hello" -> () -> CompletableFuture.completedFuture(null);
            case "timer" -> this::timer;
            case "lab" -> lab();
            case "insurance" -> {
                ExecutorService threads = threads();
                yield () -> CompletableFuture.runAsync(Main::block, threads);
            }
            case "hash" -> () -> {
                hash();
                return CompletableFuture.completedFuture(null);
            };
            case "drug" -> drug();
            case "day" -> day();
            default -> throw new IllegalArgumentException("unknown app " + name);
        };
    }

    private CompletionStage<Void> timer() {
        Executor delayed = task -> timers.schedule(task, 20, TimeUnit.MILLISECONDS);
        return CompletableFuture.runAsync(() -> { }, delayed);
    }

    private Supplier<CompletionStage<?>> lab() {
        Bulkhead bulkhead = Bulkhead.builder().limit(number("bulkhead")).queueLength(10_000).build();
        return () -> bulkhead.invoke(this::timer);
    }

    private ExecutorService threads() {
        return ThreadPoolSupplier.builder()
                .corePoolSize(number("threads"))
                .maxPoolSize(number("threads"))
                .build()
                .get();
    }

    /** Blocks the thread for 20 ms. */
    private static void block() {
        try {
            Thread.sleep(20);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Uses CPU time. */
    private static void hash() {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            byte[] sum = new byte[32];
            for (int i = 0; i < 10_000; i++) {
                sum = digest.digest(sum);
            }
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }

    private Supplier<CompletionStage<?>> drug() {
        WebClient client = WebClient.builder()
                .baseUri(options.get("upstream"))
                .keepAlive(Boolean.parseBoolean(options.get("upstream-keep-alive")))
                .build();
        return () -> client.get().path("/price").request(String.class);
    }

    /** Connects to PostgreSQL, and returns work that reads the appointments of a random day. */
    private Supplier<CompletionStage<?>> day() throws SQLException {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl("jdbc:postgresql://" + options.get("store") + "/bars");
        config.setUsername("bars");
        config.setMaximumPoolSize(number("pool"));
        HikariDataSource pool = new HikariDataSource(config);
        try (Connection connection = pool.getConnection(); var statement = connection.createStatement()) {
            statement.execute("CREATE TABLE appointments AS SELECT id, 'patient ' || id AS patient"
                    + " FROM generate_series(0, " + (APPOINTMENTS - 1) + ") AS id");
            statement.execute("ALTER TABLE appointments ADD PRIMARY KEY (id)");
            statement.execute("VACUUM ANALYZE appointments");
        }
        ExecutorService threads = threads();
        int batch = number("batch");
        return () -> CompletableFuture.runAsync(() -> readDay(pool, batch), threads);
    }

    private static void readDay(HikariDataSource pool, int batch) {
        int first = ThreadLocalRandom.current().nextInt(APPOINTMENTS / PER_DAY) * PER_DAY;
        String query = "SELECT patient FROM appointments WHERE id >= ? AND id < ?";
        try (Connection connection = pool.getConnection();
                PreparedStatement statement = connection.prepareStatement(query)) {
            for (int id = first; id < first + PER_DAY; id += batch) {
                statement.setInt(1, id);
                statement.setInt(2, Math.min(id + batch, first + PER_DAY));
                try (ResultSet patients = statement.executeQuery()) {
                    while (patients.next()) {
                        patients.getString(1);
                    }
                }
            }
        } catch (SQLException e) {
            throw new IllegalStateException(e);
        }
    }
}
