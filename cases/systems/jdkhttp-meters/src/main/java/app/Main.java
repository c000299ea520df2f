package app;

import com.sun.net.httpserver.Filter;
import com.sun.net.httpserver.HttpContext;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import io.github.bucket4j.Bucket;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.security.MessageDigest;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.ReentrantLock;

/** A service for meter readings on the HTTP server of the JDK. See system.toml for the arguments. */
public final class Main {
    private static final int METERS = 50_000;
    private static final byte[] BODY = "Hello World".getBytes(StandardCharsets.UTF_8);

    private final Map<String, String> options = new HashMap<>();

    /** What the service does before it responds to a request. */
    private interface Work {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
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

    private void serve() throws Exception {
        Work work = handler(options.get("app"));
        InetAddress host = InetAddress.getByName(options.get("host"));
        HttpServer server = HttpServer.create(new InetSocketAddress(host, number("port")), 1024);
        HttpContext context = server.createContext("/", exchange -> respond(work, exchange));
        if (number("rate") > 0) {
            context.getFilters().add(new RateLimit(number("rate")));
        }
        if (number("threads") > 0) {
            server.setExecutor(Executors.newFixedThreadPool(number("threads")));
        }
        server.start();
    }

    private static void respond(Work work, HttpExchange exchange) throws IOException {
        try (exchange) {
            work.run();
            exchange.getResponseHeaders().set("Content-Type", "text/plain");
            exchange.sendResponseHeaders(200, BODY.length);
            try (OutputStream body = exchange.getResponseBody()) {
                body.write(BODY);
            }
        } catch (IOException e) {
            throw e;
        } catch (Exception e) {
            throw new IOException(e);
        }
    }

    private Work handler(String name) throws Exception {
        return switch (name) {
            case "hello" -> () -> { };
            case "sleep" -> () -> Thread.sleep(20);
            case "turns" -> turns();
            case "hash" -> Main::hash;
            case "journal" -> journal();
            case "cache" -> cache();
            case "tariff" -> new Tariffs(Path.of("target/tariffs.p12"))::read;
            case "find" -> find();
            default -> throw new IllegalArgumentException("unknown app " + name);
        };
    }

    private static Work turns() {
        ReentrantLock lock = new ReentrantLock();
        return () -> {
            lock.lock();
            try {
                Thread.sleep(10);
            } finally {
                lock.unlock();
            }
        };
    }

    /** Uses CPU time. */
    private static void hash() throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        byte[] sum = new byte[32];
        for (int i = 0; i < 10_000; i++) {
            sum = digest.digest(sum);
        }
    }

    private Work journal() throws IOException {
        FileChannel journal = FileChannel.open(
                Path.of(options.get("journal")), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        ReentrantLock lock = new ReentrantLock();
        AtomicInteger written = new AtomicInteger();
        int lines = number("lines");
        return () -> {
            String line = Instant.now() + " meter " + (1 + ThreadLocalRandom.current().nextInt(METERS)) + "\n";
            lock.lock();
            try {
                journal.write(ByteBuffer.wrap(line.getBytes(StandardCharsets.UTF_8)));
                if (written.incrementAndGet() % lines == 0) {
                    journal.force(false);
                }
            } finally {
                lock.unlock();
            }
        };
    }

    /** Returns work that builds 512 readings of 1 KiB, which replace older readings in a cache. */
    private Work cache() {
        int size = number("readings");
        byte[][] cache = new byte[size][1024];
        AtomicInteger next = new AtomicInteger();
        return () -> {
            for (int i = 0; i < 512; i++) {
                cache[Math.floorMod(next.getAndIncrement(), size)] = new byte[1024];
            }
        };
    }

    /** Connects to PostgreSQL, and returns work that finds a meter by its serial number. */
    private Work find() throws Exception {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl("jdbc:postgresql://" + options.get("store") + "/bars");
        config.setUsername("bars");
        config.setMaximumPoolSize(number("pool"));
        HikariDataSource pool = new HikariDataSource(config);
        try (Connection connection = pool.getConnection(); var statement = connection.createStatement()) {
            statement.execute("CREATE TABLE meters AS SELECT 'meter-' || id AS serial, 0 AS reading"
                    + " FROM generate_series(1, " + METERS + ") AS id");
            if (Boolean.parseBoolean(options.get("index"))) {
                statement.execute("CREATE INDEX ON meters (serial)");
            }
            statement.execute("VACUUM ANALYZE meters");
        }
        return () -> {
            try (Connection connection = pool.getConnection();
                    PreparedStatement statement =
                            connection.prepareStatement("SELECT reading FROM meters WHERE serial = ?")) {
                statement.setString(1, "meter-" + (1 + ThreadLocalRandom.current().nextInt(METERS)));
                statement.executeQuery().next();
            }
        };
    }

    /** Responds with status 429 to requests above a rate. */
    private static final class RateLimit extends Filter {
        private final Bucket bucket;

        RateLimit(int rate) {
            bucket = Bucket.builder()
                    .addLimit(limit -> limit.capacity(rate).refillGreedy(rate, Duration.ofSeconds(1)))
                    .build();
        }

        @Override
        public void doFilter(HttpExchange exchange, Chain chain) throws IOException {
            if (bucket.tryConsume(1)) {
                chain.doFilter(exchange);
            } else {
                exchange.sendResponseHeaders(429, -1);
                exchange.close();
            }
        }

        @Override
        public String description() {
            return "rate limit";
        }
    }
}
