package app;

import io.vertx.core.DeploymentOptions;
import io.vertx.core.Future;
import io.vertx.core.ThreadingModel;
import io.vertx.core.VerticleBase;
import io.vertx.core.Vertx;
import io.vertx.core.VertxOptions;
import io.vertx.core.http.HttpClient;
import io.vertx.core.http.HttpClientResponse;
import io.vertx.core.http.HttpMethod;
import io.vertx.core.http.HttpServerOptions;
import io.vertx.core.http.PoolOptions;
import io.vertx.pgclient.PgConnectOptions;
import io.vertx.sqlclient.Pool;
import io.vertx.sqlclient.Tuple;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Supplier;

/** A shop: one verticle on Vert.x. */
public final class Main extends VerticleBase {
    private static final int ITEMS = 20_000;
    private static final Map<String, String> OPTIONS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        for (int at = 0; at < arguments.length; at += 2) {
            OPTIONS.put(arguments[at].substring(2), arguments[at + 1]);
        }
        var vertx = Vertx.vertx(new VertxOptions().setWorkerPoolSize(number("workers")));
        var worker = new DeploymentOptions().setThreadingModel(ThreadingModel.WORKER);
        vertx.deployVerticle(new Stock(), worker)
                .compose(id -> vertx.deployVerticle(new Main()))
                .onFailure(why -> {
                    why.printStackTrace();
                    System.exit(1);
                });
    }

    private static int number(String name) {
        return Integer.parseInt(OPTIONS.get(name));
    }

    @Override
    public Future<?> start() throws Exception {
        Supplier<Future<?>> work = work(OPTIONS.get("handler"));
        var options = new HttpServerOptions().setAcceptBacklog(1024);
        return vertx.createHttpServer(options)
                .requestHandler(request -> work.get().onComplete(
                        done -> request.response().putHeader("content-type", "text/plain").end("Hello World"),
                        why -> request.response().setStatusCode(500).end(why.toString())))
                .listen(number("port"), OPTIONS.get("host"));
    }

    /** Returns what a request does. */
    private Supplier<Future<?>> work(String handler) throws Exception {
        switch (handler) {
            case "hello":
                return Future::succeededFuture;
            case "sleep":
                return () -> vertx.timer(20);
            case "blocking":
                return () -> vertx.executeBlocking(Work::call, false);
            case "worker-verticle":
                return () -> vertx.eventBus().request("stock", "");
            case "pages":
                var cache = new byte[number("pages")][];
                for (int at = 0; at < cache.length; at += 128) {
                    Work.build(cache, at);
                }
                return () -> {
                    Work.build(cache, ThreadLocalRandom.current().nextInt(cache.length));
                    return Future.succeededFuture();
                };
            case "hash":
                return () -> {
                    Work.hash();
                    return Future.succeededFuture();
                };
            case "price":
                return price();
            case "report":
                var reports = store();
                return () -> reports.query("SELECT pg_sleep(0.02)").execute();
            case "find", "find-by-code":
                var items = store();
                String column = handler.equals("find") ? "id" : "code";
                String sql = "SELECT amount FROM items WHERE " + column + " = $1";
                return () -> items.preparedQuery(sql).execute(Tuple.of(1 + ThreadLocalRandom.current().nextInt(ITEMS)));
            case "reserve":
                return reserve(ITEMS);
            case "reserve-one":
                return reserve(1);
            default:
                throw new IllegalArgumentException("unknown handler " + handler);
        }
    }

    /** Asks the upstream for a price. The upstream responds after 50 ms, and ends with this process. */
    private Supplier<Future<?>> price() throws Exception {
        var command = new ProcessBuilder("python3", "../slow-upstream/upstream.py", "50");
        var process = command.redirectError(ProcessBuilder.Redirect.INHERIT).start();
        int port = Integer.parseInt(process.inputReader().readLine());
        HttpClient client = vertx.createHttpClient(new PoolOptions().setHttp1MaxSize(number("connections")));
        return () -> client.request(HttpMethod.GET, port, "127.0.0.1", "/price")
                .compose(request -> request.send().compose(HttpClientResponse::body));
    }

    /** Returns a pool of connections to a database with the table items. */
    private Pool store() {
        String[] address = OPTIONS.get("store").split(":");
        var options = new PgConnectOptions().setHost(address[0]).setPort(Integer.parseInt(address[1]))
                .setUser("bars").setDatabase("bars").setCachePreparedStatements(true);
        var size = new io.vertx.sqlclient.PoolOptions().setMaxSize(number("pool"));
        var pool = Pool.pool(vertx, options, size);
        pool.query("CREATE TABLE items AS SELECT id, id AS code, 0 AS amount, repeat('x', 200) AS text"
                        + " FROM generate_series(1, " + ITEMS + ") AS id").execute()
                .compose(done -> pool.query("ALTER TABLE items ADD PRIMARY KEY (id)").execute())
                .compose(done -> pool.query("VACUUM ANALYZE items").execute())
                .onFailure(Throwable::printStackTrace);
        return pool;
    }

    /** Updates one of the first items in a transaction that takes 10 ms. */
    private Supplier<Future<?>> reserve(int items) {
        var pool = store();
        String sql = "UPDATE items SET amount = amount + 1 WHERE id = $1";
        return () -> pool.withTransaction(connection -> connection.preparedQuery(sql)
                .execute(Tuple.of(1 + ThreadLocalRandom.current().nextInt(items)))
                .compose(done -> vertx.timer(10)));
    }
}
