package app;

import org.eclipse.jetty.alpn.server.ALPNServerConnectionFactory;
import org.eclipse.jetty.http.HttpHeader;
import org.eclipse.jetty.http2.server.HTTP2CServerConnectionFactory;
import org.eclipse.jetty.http2.server.HTTP2ServerConnectionFactory;
import org.eclipse.jetty.io.Content;
import org.eclipse.jetty.server.CustomRequestLog;
import org.eclipse.jetty.server.Handler;
import org.eclipse.jetty.server.HttpConfiguration;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.RequestLogWriter;
import org.eclipse.jetty.server.Response;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.server.SslConnectionFactory;
import org.eclipse.jetty.util.Callback;
import org.eclipse.jetty.util.ssl.SslContextFactory;

/** An HTTP/2 server: {@code Main RUN PORT http|https}. It logs each request to RUN/access.log. */
final class Main {
    public static void main(String[] arguments) throws Exception {
        String run = arguments[0];
        Server server = new Server();
        ServerConnector connector =
                arguments[2].equals("https") ? encrypted(server, run) : plain(server);
        connector.setHost("127.0.0.1");
        connector.setPort(Integer.parseInt(arguments[1]));
        server.addConnector(connector);
        server.setRequestLog(
                new CustomRequestLog(new RequestLogWriter(run + "/access.log"), "%H %s"));
        server.setHandler(
                new Handler.Abstract.NonBlocking() {
                    @Override
                    public boolean handle(Request request, Response response, Callback callback) {
                        response.getHeaders().put(HttpHeader.CONTENT_TYPE, "text/plain");
                        Content.Sink.write(response, true, "Hello World", callback);
                        return true;
                    }
                });
        server.setStopAtShutdown(true);
        server.start();
        server.join();
    }

    private static ServerConnector plain(Server server) {
        return new ServerConnector(
                server, new HTTP2CServerConnectionFactory(new HttpConfiguration()));
    }

    private static ServerConnector encrypted(Server server, String run) {
        SslContextFactory.Server tls = new SslContextFactory.Server();
        tls.setKeyStorePath(run + "/key.p12");
        tls.setKeyStorePassword("jetty");
        ALPNServerConnectionFactory alpn = new ALPNServerConnectionFactory("h2");
        alpn.setDefaultProtocol("h2");
        return new ServerConnector(
                server,
                new SslConnectionFactory(tls, "alpn"),
                alpn,
                new HTTP2ServerConnectionFactory(new HttpConfiguration()));
    }
}
