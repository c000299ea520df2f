package app;

import org.eclipse.jetty.http2.server.HTTP2CServerConnectionFactory;
import org.eclipse.jetty.io.Content;
import org.eclipse.jetty.server.Handler;
import org.eclipse.jetty.server.HttpConfiguration;
import org.eclipse.jetty.server.HttpConnectionFactory;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Response;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.util.Callback;

/** Main HOST PORT SLEEP STREAMS: a service on Jetty that speaks HTTP/1.1 and HTTP/2 without TLS. */
public final class Main {
    public static void main(String[] arguments) throws Exception {
        var server = new Server();
        var configuration = new HttpConfiguration();
        var http2 = new HTTP2CServerConnectionFactory(configuration);
        http2.setMaxConcurrentStreams(Integer.parseInt(arguments[3]));
        var connector = new ServerConnector(server, new HttpConnectionFactory(configuration), http2);
        connector.setHost(arguments[0]);
        connector.setPort(Integer.parseInt(arguments[1]));
        server.addConnector(connector);
        long sleep = Long.parseLong(arguments[2]);
        server.setHandler(new Handler.Abstract() {
            @Override
            public boolean handle(Request request, Response response, Callback callback) throws Exception {
                Thread.sleep(sleep);
                Content.Sink.write(response, true, "Hello World", callback);
                return true;
            }
        });
        server.start();
        server.join();
    }
}
