package app;

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.RoundingMode;
import java.net.URL;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.LocalDate;
import java.time.format.DateTimeFormatter;
import java.time.format.FormatStyle;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.net.SSLHostConfig;
import org.apache.tomcat.util.net.SSLHostConfigCertificate;

/** A billing service: one servlet on embedded Tomcat. */
public final class Main {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int at = 0; at < arguments.length; at += 2) {
            options.put(arguments[at].substring(2), arguments[at + 1]);
        }
        var connector = new Connector("org.apache.coyote.http11.Http11NioProtocol");
        connector.setPort(number(options, "port"));
        connector.setProperty("address", options.get("host"));
        connector.setProperty("minSpareThreads", "4");
        connector.setProperty("maxThreads", options.get("threads"));
        connector.setProperty("maxConnections", options.get("max-connections"));
        connector.setProperty("acceptCount", options.get("accept-count"));
        connector.setProperty("maxKeepAliveRequests", options.get("keep-alive-requests"));

        var tomcat = new Tomcat();
        tomcat.setBaseDir(options.get("folder"));
        tomcat.setConnector(connector);
        Connector https = null;
        if (!options.get("https").equals("none")) {
            https = httpsConnector(options.get("host"));
            tomcat.getService().addConnector(https);
        }
        var context = tomcat.addContext("", new File(options.get("folder")).getAbsolutePath());
        var billing = new Billing(options);
        Tomcat.addServlet(context, "billing", billing);
        context.addServletMappingDecoded("/", "billing");
        Tomcat.addServlet(context, "rates", new Rates());
        context.addServletMappingDecoded("/rates", "rates");
        tomcat.start();
        if (https != null) {
            String url = "https://127.0.0.1:" + https.getLocalPort() + "/rates";
            billing.rates = new RatesClient(url, options.get("https").equals("kept"));
        }
        tomcat.getServer().await();
    }

    private static Connector httpsConnector(String host) {
        var connector = new Connector("org.apache.coyote.http11.Http11NioProtocol");
        connector.setPort(0);
        connector.setProperty("address", host);
        connector.setProperty("maxKeepAliveRequests", "-1");
        connector.setProperty("SSLEnabled", "true");
        connector.setScheme("https");
        connector.setSecure(true);
        var tls = new SSLHostConfig();
        var certificate = new SSLHostConfigCertificate(tls, SSLHostConfigCertificate.Type.RSA);
        certificate.setCertificateKeystoreFile(new File("target/service.p12").getAbsolutePath());
        certificate.setCertificateKeystorePassword("changeit");
        tls.addCertificate(certificate);
        connector.addSslHostConfig(tls);
        return connector;
    }

    private static int number(Map<String, String> options, String name) {
        return Integer.parseInt(options.get(name));
    }

    private static final class Billing extends HttpServlet {
        private final int sleep;
        private final int invoices;
        private final Semaphore printers;
        private volatile Object last;
        private volatile RatesClient rates;

        Billing(Map<String, String> options) {
            sleep = number(options, "sleep");
            invoices = number(options, "invoices");
            printers = new Semaphore(number(options, "permits"));
        }

        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
            if (sleep > 0) {
                print();
            }
            if (rates != null) {
                last = rates.get();
            }
            if (invoices > 0) {
                last = IntStream.range(0, invoices).mapToObj(Billing::invoice).collect(Collectors.joining("\n"));
            }
            response.setContentType("text/plain");
            response.getOutputStream().print("Hello World");
        }

        private void print() throws IOException {
            printers.acquireUninterruptibly();
            try {
                Thread.sleep(sleep);
            } catch (InterruptedException why) {
                throw new IOException(why);
            } finally {
                printers.release();
            }
        }

        private static String invoice(int number) {
            var due = LocalDate.of(2024, 1, 1).plusDays(number * 37L % 365);
            Map<String, BigDecimal> totals = IntStream.range(0, 30).boxed().collect(Collectors.groupingBy(
                    line -> "VAT " + line % 3 * 10 + " %",
                    Collectors.reducing(BigDecimal.ZERO, line -> price(number, line), BigDecimal::add)));
            String lines = totals.entrySet().stream()
                    .sorted(Comparator.comparing(Map.Entry<String, BigDecimal>::getValue).reversed())
                    .map(total -> String.format(Locale.GERMANY, "%-12s %,14.2f EUR", total.getKey(), total.getValue()))
                    .collect(Collectors.joining("\n"));
            String head = "Invoice {number}, due {due}"
                    .replaceAll("\\{number\\}", String.format("%06d", number))
                    .replaceAll("\\{due\\}", due.format(DateTimeFormatter.ofLocalizedDate(FormatStyle.LONG)));
            return head + "\n" + lines;
        }

        private static BigDecimal price(int number, int line) {
            return BigDecimal.valueOf(number * 7919L % 10_000 + line, 2)
                    .multiply(BigDecimal.valueOf(119, 2)).setScale(2, RoundingMode.HALF_UP);
        }
    }

    /** Exchange rates, which the billing service reads over HTTPS. */
    private static final class Rates extends HttpServlet {
        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
            response.setContentType("application/json");
            response.getOutputStream().print("{\"USD\": 1.08}");
        }
    }

    private static final class RatesClient {
        private final URL url;
        private final boolean keep;
        private final SSLSocketFactory sockets;

        RatesClient(String url, boolean keep) throws IOException, GeneralSecurityException {
            this.url = new URL(url);
            this.keep = keep;
            sockets = sockets();
        }

        /** Returns sockets that trust the service's certificate. */
        private static SSLSocketFactory sockets() throws IOException, GeneralSecurityException {
            var trusted = KeyStore.getInstance(KeyStore.getDefaultType());
            trusted.load(null);
            try (var file = new FileInputStream("target/service.pem")) {
                trusted.setCertificateEntry("service", CertificateFactory.getInstance("X.509").generateCertificate(file));
            }
            var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(trusted);
            var context = SSLContext.getInstance("TLS");
            context.init(null, trust.getTrustManagers(), null);
            return context.getSocketFactory();
        }

        byte[] get() throws IOException {
            try {
                var connection = (HttpsURLConnection) url.openConnection();
                connection.setSSLSocketFactory(keep ? sockets : sockets());
                try (var body = connection.getInputStream()) {
                    return body.readAllBytes();
                } finally {
                    if (!keep) {
                        connection.disconnect();
                    }
                }
            } catch (GeneralSecurityException why) {
                throw new IOException(why);
            }
        }
    }
}
