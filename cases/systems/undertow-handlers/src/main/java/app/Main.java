package app;

import io.undertow.Undertow;
import io.undertow.server.HttpHandler;
import io.undertow.server.HttpServerExchange;
import io.undertow.server.handlers.BlockingHandler;
import io.undertow.server.handlers.RequestLimitingHandler;
import io.undertow.util.Headers;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.zip.GZIPOutputStream;
import javax.crypto.SecretKeyFactory;
import javax.crypto.spec.PBEKeySpec;
import org.xnio.Options;

/** An account service: one handler on embedded Undertow. */
public final class Main {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int at = 0; at < arguments.length; at += 2) {
            options.put(arguments[at].substring(2), arguments[at + 1]);
        }
        var server = Undertow.builder()
                .addHttpListener(number(options, "port"), options.get("host"))
                .setSocketOption(Options.BACKLOG, 1024);
        if (number(options, "io-threads") > 0) {
            server.setIoThreads(number(options, "io-threads"));
        }
        if (number(options, "workers") > 0) {
            server.setWorkerThreads(number(options, "workers"));
        }
        server.setHandler(handler(options, new Accounts(options))).build().start();
    }

    private static HttpHandler handler(Map<String, String> options, Accounts accounts) {
        if (number(options, "executor") > 0) {
            ExecutorService executor = Executors.newFixedThreadPool(number(options, "executor"));
            return exchange -> exchange.dispatch(executor, accounts);
        }
        HttpHandler handler = switch (options.getOrDefault("run-on", "worker")) {
            case "worker" -> new BlockingHandler(accounts);
            case "io" -> accounts;
            default -> throw new IllegalArgumentException("--run-on: expected worker or io");
        };
        int requests = number(options, "requests");
        return requests == 0 ? handler : new RequestLimitingHandler(requests, 10_000, handler);
    }

    private static int number(Map<String, String> options, String name) {
        return Integer.parseInt(options.getOrDefault(name, "0"));
    }

    private static final class Accounts implements HttpHandler {
        private static final int PAGE = 1024;

        private final int sleep;
        private final int hash;
        private final int gzip;
        private final int gzipLevel;
        private final int pages;
        private final boolean sync;
        private final FileChannel audit;
        private final byte[][] cache;
        private final byte[] history;
        private volatile Object last;

        Accounts(Map<String, String> options) throws Exception {
            sleep = number(options, "sleep");
            hash = number(options, "hash");
            gzip = number(options, "gzip");
            gzipLevel = number(options, "gzip-level");
            pages = number(options, "pages");
            sync = Boolean.parseBoolean(options.get("sync"));
            audit = !Boolean.parseBoolean(options.get("audit")) ? null
                    : FileChannel.open(Path.of(options.get("folder"), "audit.log"),
                            StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            cache = new byte[number(options, "cache")][];
            for (int at = 0; at < cache.length; at++) {
                cache[at] = new byte[PAGE];
            }
            var lines = new StringBuilder();
            for (int id = 0; lines.length() < gzip * 1024; id++) {
                lines.append(id).append(",payment of ").append(id * 7919L % 1000).append(" EUR to account ")
                        .append(id * 104729L % 100000).append('\n');
            }
            history = lines.toString().getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public void handleRequest(HttpServerExchange exchange) throws Exception {
            if (sleep > 0) {
                Thread.sleep(sleep);
            }
            if (hash > 0) {
                last = hash("a password");
            }
            if (gzip > 0) {
                last = archive();
            }
            if (pages > 0) {
                last = report();
            }
            if (audit != null) {
                log(exchange);
            }
            exchange.getResponseHeaders().put(Headers.CONTENT_TYPE, "text/plain");
            exchange.getResponseSender().send("Hello World");
        }

        private byte[] hash(String password) throws Exception {
            var key = new PBEKeySpec(password.toCharArray(), new byte[16], hash, 256);
            return SecretKeyFactory.getInstance("PBKDF2WithHmacSHA256").generateSecret(key).getEncoded();
        }

        private byte[] archive() throws IOException {
            var bytes = new ByteArrayOutputStream();
            try (var out = new Gzip(bytes, gzipLevel)) {
                out.write(history);
            }
            return bytes.toByteArray();
        }

        /** Builds the pages of a report, and replaces a cached page by the last of them. */
        private List<byte[]> report() {
            List<byte[]> built = new ArrayList<>();
            for (int page = 0; page < pages; page++) {
                built.add(new byte[PAGE]);
            }
            cache[ThreadLocalRandom.current().nextInt(cache.length)] = built.get(pages - 1);
            return built;
        }

        private synchronized void log(HttpServerExchange exchange) throws IOException {
            String line = exchange.getRequestMethod() + " " + exchange.getRequestPath() + "\n";
            audit.write(ByteBuffer.wrap(line.getBytes(StandardCharsets.UTF_8)));
            if (sync) {
                audit.force(false);
            }
        }
    }

    private static final class Gzip extends GZIPOutputStream {
        Gzip(OutputStream out, int level) throws IOException {
            super(out);
            def.setLevel(level);
        }
    }
}
