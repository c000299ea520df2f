package app;

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.eclipse.jetty.client.HttpClient;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.server.handler.QoSHandler;
import org.eclipse.jetty.util.thread.QueuedThreadPool;

/** An order service: one servlet on embedded Jetty. */
public final class Main {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int at = 0; at < arguments.length; at += 2) {
            options.put(arguments[at].substring(2), arguments[at + 1]);
        }
        var server = new Server(new QueuedThreadPool(number(options, "threads", 200)));
        var connector = new ServerConnector(server);
        connector.setHost(options.getOrDefault("host", "127.0.0.1"));
        connector.setPort(number(options, "port", 0));
        connector.setAcceptQueueSize(1024);
        server.addConnector(connector);

        var context = new ServletContextHandler("/");
        context.addServlet(new ServletHolder(new Orders(options)), "/");
        int requests = number(options, "requests", 0);
        if (requests > 0) {
            var limit = new QoSHandler(context);
            limit.setMaxRequestCount(requests);
            server.setHandler(limit);
        } else {
            server.setHandler(context);
        }
        server.setStopAtShutdown(true);
        server.start();
        if (options.containsKey("until-stdin-closes")) {
            System.out.println(connector.getLocalPort());
            System.in.transferTo(System.err);
            System.exit(0);
        }
        server.join();
    }

    static int number(Map<String, String> options, String name, int byDefault) {
        String value = options.get(name);
        return value == null ? byDefault : Integer.parseInt(value);
    }

    private static final class Orders extends HttpServlet {
        private final int sleep;
        private final int lock;
        private final Stock stock;

        Orders(Map<String, String> options) throws Exception {
            sleep = number(options, "sleep", 0);
            lock = number(options, "lock", 0);
            int upstream = number(options, "upstream", 0);
            stock = upstream == 0 ? null : new Stock(upstream, number(options, "connections", 64));
        }

        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
            try {
                if (sleep > 0) {
                    Thread.sleep(sleep);
                }
                if (lock > 0) {
                    reserve();
                }
                if (stock != null) {
                    stock.ask();
                }
            } catch (Exception why) {
                response.sendError(503, why.toString());
                return;
            }
            response.setContentType("text/plain");
            response.getOutputStream().print("Hello World");
        }

        private synchronized void reserve() throws InterruptedException {
            Thread.sleep(lock);
        }
    }

    /** A client of the stock service, which runs in a second process. */
    private static final class Stock {
        private final HttpClient client = new HttpClient();
        private final String url;

        Stock(int sleep, int connections) throws Exception {
            var command = new ProcessBuilder(
                    "java", "-Xmx128m", "-cp", System.getProperty("java.class.path"), "app.Main",
                    "--sleep", Integer.toString(sleep), "--until-stdin-closes", "yes");
            // The stock service ends when its stdin is closed, so it doesn't outlive this process.
            Process process = command.redirectError(ProcessBuilder.Redirect.INHERIT).start();
            url = "http://127.0.0.1:" + process.inputReader().readLine() + "/";
            client.setMaxConnectionsPerDestination(connections);
            client.start();
        }

        void ask() throws Exception {
            int status = client.GET(url).getStatus();
            if (status != 200) {
                throw new IOException("the stock service responded with status " + status);
            }
        }
    }
}
