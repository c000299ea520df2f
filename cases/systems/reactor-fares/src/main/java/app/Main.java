package app;

import io.r2dbc.pool.ConnectionPool;
import io.r2dbc.pool.ConnectionPoolConfiguration;
import io.r2dbc.postgresql.PostgresqlConnectionConfiguration;
import io.r2dbc.postgresql.PostgresqlConnectionFactory;
import io.r2dbc.spi.Connection;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import java.util.function.Supplier;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;
import reactor.netty.http.client.HttpClient;
import reactor.netty.http.server.HttpServer;
import reactor.netty.resources.ConnectionProvider;

/** A fare service on Reactor Netty. See system.toml for the arguments. */
public final class Main {
    private static final int FARES = 50_000;

    private final Map<String, String> options = new HashMap<>();

    public static void main(String[] args) throws IOException {
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

    private void serve() throws IOException {
        Supplier<Mono<Void>> work = handler(options.get("handler"));
        HttpServer.create()
                .host(options.get("host"))
                .port(number("port"))
                .maxKeepAliveRequests(number("requests"))
                .handle((request, response) -> response.header("Content-Type", "text/plain")
                        .header("Content-Length", "11")
                        .sendString(Mono.defer(work).thenReturn("Hello World")))
                .bindNow()
                .onDispose()
                .block();
    }

    private Supplier<Mono<Void>> handler(String name) throws IOException {
        return switch (name) {
            case "hello" -> Mono::empty;
            case "delay" -> () -> Mono.delay(Duration.ofMillis(20)).then();
            case "blocking" -> () -> Mono.<Void>fromRunnable(Main::block).subscribeOn(Schedulers.boundedElastic());
            case "blocking-on-loop" -> () -> Mono.fromRunnable(Main::block);
            case "hash" -> () -> Mono.fromRunnable(Main::hash);
            case "pages" -> pages(number("pages"));
            case "price" -> price();
            case "report" -> query(connection -> execute(connection, "SELECT pg_sleep(0.02)"));
            case "find" -> query(connection ->
                    execute(connection, "SELECT price FROM fares WHERE id = " + random(FARES)));
            case "find-by-code" -> query(connection ->
                    execute(connection, "SELECT price FROM fares WHERE code = 'fare-" + random(FARES) + "'"));
            case "sell" -> query(connection -> sell(connection, random(FARES)));
            case "sell-one" -> query(connection -> sell(connection, 1));
            default -> throw new IllegalArgumentException("unknown handler " + name);
        };
    }

    private static int random(int count) {
        return 1 + ThreadLocalRandom.current().nextInt(count);
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

    /** Returns work that builds 128 pages of 1 KiB, which replace older pages in a cache. */
    private static Supplier<Mono<Void>> pages(int count) {
        byte[][] cache = new byte[count][1024];
        AtomicInteger next = new AtomicInteger();
        return () -> Mono.fromRunnable(() -> {
            for (int page = 0; page < 128; page++) {
                cache[Math.floorMod(next.getAndIncrement(), count)] = new byte[1024];
            }
        });
    }

    /** Starts the upstream, which responds after 50 ms and ends with this process. */
    private Supplier<Mono<Void>> price() throws IOException {
        String upstream = "../slow-upstream/upstream.py";
        Process process = new ProcessBuilder(List.of("python3", upstream, "50")).start();
        String port = new BufferedReader(new InputStreamReader(process.getInputStream())).readLine();
        ConnectionProvider connections = ConnectionProvider.builder("prices")
                .maxConnections(number("connections"))
                .pendingAcquireMaxCount(-1)
                .build();
        HttpClient client = HttpClient.create(connections).baseUrl("http://127.0.0.1:" + port);
        return () -> client.get().uri("/price").responseContent().aggregate().asString().then();
    }

    /** Connects to PostgreSQL, and returns work that uses one connection of the pool. */
    private Supplier<Mono<Void>> query(Function<Connection, Mono<Void>> query) {
        String[] store = options.get("store").split(":");
        PostgresqlConnectionConfiguration address = PostgresqlConnectionConfiguration.builder()
                .host(store[0])
                .port(Integer.parseInt(store[1]))
                .username("bars")
                .database("bars")
                .build();
        ConnectionPool pool = new ConnectionPool(
                ConnectionPoolConfiguration.builder(new PostgresqlConnectionFactory(address))
                        .initialSize(number("pool"))
                        .maxSize(number("pool"))
                        .build());
        Function<Function<Connection, Mono<Void>>, Mono<Void>> use =
                body -> Mono.usingWhen(pool.create(), body, Connection::close);
        for (String statement : List.of(
                "CREATE TABLE fares AS SELECT id, 'fare-' || id AS code, 0 AS price, 0 AS sold"
                        + " FROM generate_series(1, " + FARES + ") AS id",
                "ALTER TABLE fares ADD PRIMARY KEY (id)",
                "VACUUM ANALYZE fares")) {
            use.apply(connection -> execute(connection, statement)).block();
        }
        return () -> use.apply(query);
    }

    private static Mono<Void> execute(Connection connection, String statement) {
        return Flux.from(connection.createStatement(statement).execute())
                .flatMap(result -> result.map((row, metadata) -> 0))
                .then();
    }

    /** Updates a fare in a transaction that takes 10 ms. */
    private static Mono<Void> sell(Connection connection, int fare) {
        return Mono.from(connection.beginTransaction())
                .then(execute(connection, "UPDATE fares SET sold = sold + 1 WHERE id = " + fare))
                .then(Mono.delay(Duration.ofMillis(10)))
                .then(Mono.from(connection.commitTransaction()));
    }
}
