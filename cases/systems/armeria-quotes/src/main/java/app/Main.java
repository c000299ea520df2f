package app;

import com.linecorp.armeria.client.Endpoint;
import com.linecorp.armeria.client.WebClient;
import com.linecorp.armeria.client.limit.ConcurrencyLimitingClient;
import com.linecorp.armeria.common.HttpResponse;
import com.linecorp.armeria.common.HttpStatus;
import com.linecorp.armeria.common.MediaType;
import com.linecorp.armeria.common.SessionProtocol;
import com.linecorp.armeria.server.Server;
import com.linecorp.armeria.server.ServiceRequestContext;
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/** A quote service on Armeria. */
public final class Main {
    private static final Map<String, String> OPTIONS = new HashMap<>();
    private static final Object TURN = new Object();

    private Main() {
    }

    /** Work that may block or fail. */
    private interface BlockingCall {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        for (int at = 0; at < arguments.length; at += 2) {
            OPTIONS.put(arguments[at].substring(2), arguments[at + 1]);
        }
        var work = work(OPTIONS.get("handler"));
        Server.builder()
                .http(new InetSocketAddress(OPTIONS.get("host"), number("port")))
                .blockingTaskExecutor(number("blocking"))
                .maxNumRequestsPerConnection(number("requests"))
                .gracefulShutdownTimeoutMillis(0, 0)
                .service("/", (context, request) -> HttpResponse.of(work.apply(context).handle((done, why) -> why == null
                        ? HttpResponse.of(HttpStatus.OK, MediaType.PLAIN_TEXT_UTF_8, "Hello World")
                        : HttpResponse.of(HttpStatus.INTERNAL_SERVER_ERROR, MediaType.PLAIN_TEXT_UTF_8, why.toString()))))
                .build()
                .start()
                .join();
    }

    private static int number(String name) {
        return Integer.parseInt(OPTIONS.get(name));
    }

    /** Returns what a request does. */
    private static Function<ServiceRequestContext, CompletionStage<?>> work(String handler) throws Exception {
        switch (handler) {
            case "hello":
                return context -> CompletableFuture.completedFuture(null);
            case "timer":
                return context -> {
                    var done = new CompletableFuture<Void>();
                    context.eventLoop().schedule(() -> done.complete(null), 20, TimeUnit.MILLISECONDS);
                    return done;
                };
            case "sleep":
                return blocking(() -> Thread.sleep(20));
            case "sleep-on-event-loop":
                return context -> run(() -> Thread.sleep(20), Runnable::run);
            case "turns":
                return blocking(() -> {
                    synchronized (TURN) {
                        Thread.sleep(20);
                    }
                });
            case "price":
                return price();
            case "report":
                return report();
            default:
                throw new IllegalArgumentException("unknown handler " + handler);
        }
    }

    private static Function<ServiceRequestContext, CompletionStage<?>> blocking(BlockingCall call) {
        return context -> run(call, context.blockingTaskExecutor());
    }

    private static CompletionStage<?> run(BlockingCall call, Executor executor) {
        return CompletableFuture.runAsync(() -> {
            try {
                call.run();
            } catch (Exception why) {
                throw new IllegalStateException(why);
            }
        }, executor);
    }

    /** Asks the upstream for a price. The upstream responds after 50 ms, and ends with this process. */
    private static Function<ServiceRequestContext, CompletionStage<?>> price() throws Exception {
        var command = new ProcessBuilder("python3", "../slow-upstream/upstream.py", "50");
        var process = command.redirectError(ProcessBuilder.Redirect.INHERIT).start();
        int port = Integer.parseInt(process.inputReader().readLine());
        var client = WebClient.builder(SessionProtocol.H1C, Endpoint.of("127.0.0.1", port))
                .decorator(ConcurrencyLimitingClient.newDecorator(number("calls")))
                .build();
        return context -> client.get("/price").aggregate();
    }

    /** Sends PostgreSQL a query that takes 20 ms. */
    private static Function<ServiceRequestContext, CompletionStage<?>> report() {
        var config = new HikariConfig();
        config.setJdbcUrl("jdbc:postgresql://" + OPTIONS.get("store") + "/bars");
        config.setUsername("bars");
        config.setMaximumPoolSize(number("pool"));
        var pool = new HikariDataSource(config);
        return blocking(() -> {
            try (var connection = pool.getConnection(); var statement = connection.createStatement()) {
                statement.execute("SELECT pg_sleep(0.02)");
            }
        });
    }
}
