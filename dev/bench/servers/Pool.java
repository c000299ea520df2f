// Responds after holding one of PERMITS permits for MS milliseconds: Pool.java PORT PERMITS MS.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;

class Pool {
    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        Semaphore permits = new Semaphore(Integer.parseInt(arguments[1]), true);
        long ms = Long.parseLong(arguments[2]);
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 1024);
        byte[] body = "ok\n".getBytes();
        server.createContext("/", exchange -> {
            permits.acquireUninterruptibly();
            try {
                Thread.sleep(ms);
            } catch (InterruptedException error) {
                throw new RuntimeException(error);
            } finally {
                permits.release();
            }
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.setExecutor(Executors.newCachedThreadPool());
        server.start();
    }
}
