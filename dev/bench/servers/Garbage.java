// Single-threaded server that keeps the data of the last KEPT responses, so the collector must copy
// live objects: Garbage.java PORT KEPT OBJECTS. A request allocates OBJECTS objects of 1 kB.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.ArrayDeque;
import java.util.concurrent.Executors;

class Garbage {
    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        int kept = Integer.parseInt(arguments[1]);
        int objects = Integer.parseInt(arguments[2]);
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 1024);
        byte[] body = "ok\n".getBytes();
        ArrayDeque<byte[][]> sessions = new ArrayDeque<>();
        server.createContext("/", exchange -> {
            byte[][] session = new byte[objects][];
            for (int i = 0; i < objects; i++) {
                session[i] = new byte[1000];
            }
            sessions.add(session);
            if (sessions.size() > kept) {
                sessions.remove();
            }
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.setExecutor(Executors.newSingleThreadExecutor());
        server.start();
    }
}
