import java.io.IOException;
import java.math.BigDecimal;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.LocalDate;
import java.time.format.DateTimeFormatter;
import java.util.Arrays;
import java.util.Base64;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Queue;
import java.util.TreeMap;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.LongStream;

/** A server with a configurable fault: a selector reads requests, a thread pool responds. See ../README.md. */
final class Faulty {
    private static final List<String> FLAGS = List.of("two-writes", "log", "upstream-fresh");
    private static final Map<String, Double> OPTIONS = new HashMap<>(Map.ofEntries(
        Map.entry("threads", 64.0), Map.entry("sleep", 0.0), Map.entry("lock", 0.0), Map.entry("burn", 0.0), Map.entry("body", 11.0),
        Map.entry("close-after", 0.0), Map.entry("backlog", 1024.0), Map.entry("accept-sleep", 0.0), Map.entry("max-connections", 0.0),
        Map.entry("limit", 0.0), Map.entry("errors", 0.0), Map.entry("upstream", -1.0), Map.entry("upstream-pool", 64.0),
        Map.entry("upstream-fresh", 0.0), Map.entry("allocate", 0.0), Map.entry("keep", 0.0), Map.entry("work", 0.0),
        Map.entry("two-writes", 0.0), Map.entry("log", 0.0)));

    private static final AtomicLong NUMBER = new AtomicLong();
    private static final Object LOCK = new Object();
    private static final Queue<Connection> READY = new ConcurrentLinkedQueue<>();
    private static final Queue<Connection> GONE = new ConcurrentLinkedQueue<>();
    private static Selector selector;
    private static ServerSocketChannel listener;
    private static ExecutorService pool;
    private static BlockingQueue<Socket> store;
    private static int storePort;
    private static byte[][] kept;
    /** Receives results, so that the compiler cannot remove the work. */
    private static volatile int worked;
    private static double tokens;
    private static long filled = System.nanoTime();
    private static int open;

    /** A connection with one request at a time. */
    private static final class Connection {
        final SocketChannel channel;
        final ByteBuffer read = ByteBuffer.allocate(16 * 1024);
        int answered;
        boolean closes;

        Connection(SocketChannel channel) {
            this.channel = channel;
        }

        /** Takes a request from the input; returns whether there was a complete one. */
        boolean take() {
            String text = new String(read.array(), 0, read.position(), StandardCharsets.ISO_8859_1);
            int end = text.indexOf("\r\n\r\n");
            if (end < 0) {
                return false;
            }
            closes = text.substring(0, end).toLowerCase().contains("connection: close");
            read.flip().position(end + 4);
            read.compact();
            return true;
        }
    }

    /** A small shop page: renders, parses, sorts, sums and hashes text. */
    private static final class Work {
        private static final Pattern FIELD = Pattern.compile("\"(\\w+)\":(?:\"([^\"]*)\"|([-\\d.]+))");

        record Item(long id, String name, BigDecimal price, LocalDate since) {
        }

        static int page(long number) {
            List<Item> items = LongStream.range(number, number + 8).mapToObj(Work::item).toList();
            String text = items.stream().map(Work::render).collect(Collectors.joining(",", "[", "]"));
            Map<String, BigDecimal> sums = new TreeMap<>();
            List<Item> again = Arrays.stream(text.substring(1, text.length() - 1).split("(?<=\\}),")).map(Work::parse)
                .sorted(Comparator.comparing(Item::price).thenComparing(Item::name).reversed()).toList();
            again.forEach(item -> sums.merge(item.name().substring(0, 1), item.price(), BigDecimal::add));
            try {
                byte[] hash = MessageDigest.getInstance("SHA-256").digest((text + sums).getBytes(StandardCharsets.UTF_8));
                return Base64.getEncoder().encodeToString(hash).hashCode();
            } catch (NoSuchAlgorithmException error) {
                throw new IllegalStateException(error);
            }
        }

        private static Item item(long id) {
            return new Item(id, Long.toString(id * 7919, 36), BigDecimal.valueOf(id * 31 % 10_000, 2), LocalDate.ofEpochDay(id % 20_000));
        }

        private static String render(Item item) {
            return String.format(Locale.ROOT, "{\"id\":%d,\"name\":\"%s\",\"price\":%.2f,\"since\":\"%s\"}",
                item.id(), item.name(), item.price(), DateTimeFormatter.ISO_DATE.format(item.since()));
        }

        private static Item parse(String text) {
            Map<String, String> fields = new HashMap<>();
            Matcher field = FIELD.matcher(text);
            while (field.find()) {
                fields.put(field.group(1), field.group(2) == null ? field.group(3) : field.group(2));
            }
            return new Item(Long.parseLong(fields.get("id")), fields.get("name"), new BigDecimal(fields.get("price")),
                LocalDate.parse(fields.get("since"), DateTimeFormatter.ISO_DATE));
        }
    }

    private Faulty() {
    }

    private static double of(String name) {
        return OPTIONS.get(name);
    }

    public static void main(String[] words) throws IOException {
        int port = Integer.parseInt(words[0]);
        String host = "127.0.0.1";
        for (int i = 1; i < words.length; i++) {
            String name = words[i].substring(2);
            if (name.equals("host")) {
                host = words[++i];
            } else if (OPTIONS.containsKey(name)) {
                OPTIONS.put(name, FLAGS.contains(name) ? 1.0 : Double.parseDouble(words[++i]));
            } else {
                throw new IllegalArgumentException("unknown option " + words[i]);
            }
        }
        tokens = of("limit") / 10;
        kept = new byte[(int) of("keep")][];
        pool = Executors.newFixedThreadPool((int) of("threads"));
        if (of("upstream") >= 0) {
            openStore((long) of("upstream"), (int) of("upstream-pool"));
        }
        selector = Selector.open();
        listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress(host, port), (int) of("backlog"));
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select(Faulty::on);
            for (Connection connection; (connection = READY.poll()) != null;) {
                next(connection);
            }
            while (GONE.poll() != null) {
                closed();
            }
        }
    }

    private static void on(SelectionKey key) {
        try {
            if (key.isAcceptable()) {
                accept();
            } else if (key.isReadable()) {
                Connection connection = (Connection) key.attachment();
                if (connection.channel.read(connection.read) < 0) {
                    connection.channel.close();
                    closed();
                } else {
                    next(connection);
                }
            }
        } catch (IOException gone) {
            key.cancel();
            pause(10);
        }
    }

    private static void accept() throws IOException {
        pause((long) of("accept-sleep"));
        SocketChannel channel;
        try {
            channel = listener.accept();
        } catch (IOException full) {
            // Retry later, because no file descriptor is free.
            pause(10);
            return;
        }
        if (channel == null) {
            return;
        }
        channel.configureBlocking(false);
        channel.setOption(StandardSocketOptions.TCP_NODELAY, of("two-writes") == 0);
        channel.register(selector, SelectionKey.OP_READ, new Connection(channel));
        open++;
        if (of("max-connections") > 0 && open >= of("max-connections")) {
            listener.keyFor(selector).interestOps(0);
        }
    }

    private static void closed() {
        open--;
        listener.keyFor(selector).interestOps(SelectionKey.OP_ACCEPT);
    }

    /** Passes a request to the pool, or continues reading. */
    private static void next(Connection connection) {
        SelectionKey key = connection.channel.keyFor(selector);
        if (key == null || !key.isValid()) {
            return;
        }
        if (connection.take()) {
            key.interestOps(0);
            pool.execute(() -> reply(connection));
        } else {
            key.interestOps(SelectionKey.OP_READ);
        }
    }

    private static void reply(Connection connection) {
        int status = answer(NUMBER.incrementAndGet());
        connection.answered++;
        boolean last = connection.closes || of("close-after") > 0 && connection.answered >= of("close-after");
        byte[] body = status == 200 ? filled((int) of("body")) : "refused".getBytes(StandardCharsets.US_ASCII);
        String head = "HTTP/1.1 " + status + (status == 200 ? " OK" : status == 429 ? " Too Many Requests" : " Internal Server Error")
            + "\r\nContent-Type: text/plain\r\nContent-Length: " + body.length + "\r\n" + (last ? "Connection: close\r\n" : "") + "\r\n";
        byte[] top = head.getBytes(StandardCharsets.US_ASCII);
        try {
            if (of("two-writes") > 0) {
                write(connection.channel, top);
                write(connection.channel, body);
            } else {
                byte[] whole = Arrays.copyOf(top, top.length + body.length);
                System.arraycopy(body, 0, whole, top.length, body.length);
                write(connection.channel, whole);
            }
            if (last) {
                connection.channel.close();
                GONE.add(connection);
            } else {
                READY.add(connection);
            }
        } catch (IOException gone) {
            GONE.add(connection);
        }
        selector.wakeup();
    }

    private static void write(SocketChannel channel, byte[] bytes) throws IOException {
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        while (buffer.hasRemaining()) {
            if (channel.write(buffer) == 0) {
                pause(1);
            }
        }
    }

    private static byte[] filled(int length) {
        byte[] bytes = new byte[length];
        Arrays.fill(bytes, (byte) 'x');
        return bytes;
    }

    /** Handles a request; returns its status. */
    private static int answer(long number) {
        if (of("limit") > 0 && !take()) {
            return 429;
        }
        pause((long) of("sleep"));
        burn((long) (of("burn") * 1e6));
        if (of("lock") > 0) {
            synchronized (LOCK) {
                pause((long) of("lock"));
            }
        }
        if (store != null) {
            ask();
        }
        allocate((int) (of("allocate") * 1024), number);
        for (int i = 0; i < of("work"); i++) {
            worked = Work.page(number + i);
        }
        if (of("log") > 0) {
            System.out.println("response number " + number + " sent with status 200, logged by a line with the length of a usual access log.");
        }
        return of("errors") > 0 && number % 100 < of("errors") ? 500 : 200;
    }

    /** A token bucket with a burst of a tenth of its rate. */
    private static synchronized boolean take() {
        long now = System.nanoTime();
        tokens = Math.min(of("limit") / 10, tokens + (now - filled) / 1e9 * of("limit"));
        filled = now;
        if (tokens < 1) {
            return false;
        }
        tokens -= 1;
        return true;
    }

    private static void burn(long ns) {
        if (ns > 0) {
            var threads = java.lang.management.ManagementFactory.getThreadMXBean();
            long end = threads.getCurrentThreadCpuTime() + ns;
            while (threads.getCurrentThreadCpuTime() < end) {
                Thread.onSpinWait();
            }
        }
    }

    /** Allocates garbage in pieces of 1 KiB, some of which stays for a while. */
    private static void allocate(int bytes, long number) {
        for (int i = 0; i < bytes / 1024; i++) {
            byte[] piece = new byte[1024];
            if (kept.length > 0) {
                kept[(int) ((number * 31 + i) % kept.length)] = piece;
            }
        }
    }

    /** The upstream process: it responds to a line after a delay. */
    private static void openStore(long afterMs, int connections) throws IOException {
        Process behind = new ProcessBuilder("python3", "servers/store.py", Long.toString(afterMs))
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        storePort = Integer.parseInt(behind.inputReader(StandardCharsets.US_ASCII).readLine());
        store = new ArrayBlockingQueue<>(connections);
        for (int i = 0; i < connections && of("upstream-fresh") == 0; i++) {
            store.add(toStore());
        }
    }

    private static Socket toStore() throws IOException {
        Socket socket = new Socket(InetAddress.getLoopbackAddress(), storePort);
        socket.setTcpNoDelay(true);
        return socket;
    }

    private static void ask() {
        try {
            if (of("upstream-fresh") > 0) {
                try (Socket socket = toStore()) {
                    ask(socket);
                }
            } else {
                Socket socket = store.take();
                ask(socket);
                store.add(socket);
            }
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static void ask(Socket socket) throws IOException {
        socket.getOutputStream().write("ask\n".getBytes(StandardCharsets.US_ASCII));
        if (socket.getInputStream().read(new byte[64]) < 0) {
            throw new IOException("the store is gone");
        }
    }

    private static void pause(long ms) {
        if (ms > 0) {
            try {
                Thread.sleep(ms);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
