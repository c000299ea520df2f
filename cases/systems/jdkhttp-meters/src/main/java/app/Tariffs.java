package app;

import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsServer;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.util.concurrent.Executors;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;

/** An HTTPS service in this process, and its client. */
final class Tariffs {
    private static final char[] PASSWORD = "changeit".toCharArray();
    private static final byte[] BODY = "price".getBytes(StandardCharsets.UTF_8);

    private final KeyStore keys;
    private final boolean keepAlive = Boolean.parseBoolean(System.getProperty("http.keepAlive"));
    private final SSLSocketFactory sockets;
    private final URL url;

    Tariffs(Path keyStore) throws IOException, GeneralSecurityException {
        keys = KeyStore.getInstance(keyStore.toFile(), PASSWORD);
        sockets = clientContext().getSocketFactory();
        HttpsServer server =
                HttpsServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 1024);
        server.setHttpsConfigurator(new HttpsConfigurator(serverContext()));
        server.setExecutor(Executors.newFixedThreadPool(64));
        server.createContext("/", exchange -> {
            try (exchange) {
                exchange.sendResponseHeaders(200, BODY.length);
                exchange.getResponseBody().write(BODY);
            }
        });
        server.start();
        url = new URL("https://localhost:" + server.getAddress().getPort() + "/price");
    }

    private SSLContext serverContext() throws GeneralSecurityException {
        KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        factory.init(keys, PASSWORD);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(factory.getKeyManagers(), null, null);
        return context;
    }

    private SSLContext clientContext() throws GeneralSecurityException {
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(keys);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, factory.getTrustManagers(), null);
        return context;
    }

    void read() throws IOException, GeneralSecurityException {
        HttpsURLConnection connection = (HttpsURLConnection) url.openConnection();
        // A context of its own prevents TLS session resumption.
        connection.setSSLSocketFactory(keepAlive ? sockets : clientContext().getSocketFactory());
        try (InputStream body = connection.getInputStream()) {
            body.readAllBytes();
        }
    }
}
