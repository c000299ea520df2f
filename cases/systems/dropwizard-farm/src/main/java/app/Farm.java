package app;

import io.dropwizard.client.HttpClientBuilder;
import io.dropwizard.configuration.EnvironmentVariableSubstitutor;
import io.dropwizard.configuration.SubstitutingSourceProvider;
import io.dropwizard.core.Application;
import io.dropwizard.core.setup.Bootstrap;
import io.dropwizard.core.setup.Environment;
import io.github.resilience4j.bulkhead.Bulkhead;
import io.github.resilience4j.bulkhead.BulkheadConfig;
import io.github.resilience4j.ratelimiter.RateLimiter;
import io.github.resilience4j.ratelimiter.RateLimiterConfig;
import io.github.resilience4j.ratelimiter.RequestNotPermitted;
import jakarta.ws.rs.ClientErrorException;
import java.time.Duration;
import org.apache.hc.client5.http.classic.methods.HttpGet;
import org.apache.hc.client5.http.impl.classic.CloseableHttpClient;
import org.apache.hc.core5.http.io.entity.EntityUtils;

/** A farm's service on Dropwizard. config.yml describes the environment variables. */
public final class Farm extends Application<Settings> {
    public static void main(String[] arguments) throws Exception {
        new Farm().run(arguments);
    }

    @Override
    public void initialize(Bootstrap<Settings> bootstrap) {
        bootstrap.setConfigurationSourceProvider(new SubstitutingSourceProvider(
                bootstrap.getConfigurationSourceProvider(), new EnvironmentVariableSubstitutor(true)));
    }

    @Override
    public void run(Settings settings, Environment environment) throws Exception {
        environment.jersey().register(new Resource(work(settings, environment)));
    }

    private static Work work(Settings settings, Environment environment) throws Exception {
        return switch (settings.app) {
            case "hello" -> () -> {};
            case "milk" -> () -> Thread.sleep(20);
            case "gate" -> () -> Thread.sleep(10);
            case "gate-synchronized" -> synchronizedGate();
            case "tractor" -> tractor(settings.tractors);
            case "eggs" -> eggs(settings.eggs);
            case "almanac" -> Fields::almanac;
            case "signature" -> Fields::signature;
            case "harvest" -> new Fields(settings.kept)::harvest;
            case "weather" -> weather(settings, environment);
            case "report" -> new Barn(settings, environment)::report;
            case "lay" -> new Barn(settings, environment)::lay;
            default -> throw new IllegalArgumentException("unknown application " + settings.app);
        };
    }

    /** Returns work of 10 ms that one request at a time can run. */
    private static Work synchronizedGate() {
        Object gate = new Object();
        return () -> {
            synchronized (gate) {
                Thread.sleep(10);
            }
        };
    }

    /** Returns work of 20 ms that needs one of {@code tractors} tractors. */
    private static Work tractor(int tractors) {
        BulkheadConfig config = BulkheadConfig.custom()
                .maxConcurrentCalls(tractors)
                .maxWaitDuration(Duration.ofSeconds(10))
                .build();
        Bulkhead bulkhead = Bulkhead.of("tractors", config);
        return () -> bulkhead.executeCheckedSupplier(() -> {
            Thread.sleep(20);
            return null;
        });
    }

    /** Returns work of 10 ms that responds with status 429 beyond {@code rate} requests per second. */
    private static Work eggs(int rate) {
        RateLimiterConfig config = RateLimiterConfig.custom()
                .limitForPeriod(rate)
                .limitRefreshPeriod(Duration.ofSeconds(1))
                .timeoutDuration(Duration.ZERO)
                .build();
        RateLimiter limiter = RateLimiter.of("eggs", config);
        return () -> {
            try {
                limiter.executeCheckedSupplier(() -> {
                    Thread.sleep(10);
                    return null;
                });
            } catch (RequestNotPermitted e) {
                throw new ClientErrorException(429, e);
            }
        };
    }

    /** Returns work that calls the upstream. */
    private static Work weather(Settings settings, Environment environment) {
        CloseableHttpClient client =
                new HttpClientBuilder(environment).using(settings.upstream).build("weather");
        return () -> client.execute(
                new HttpGet(settings.weather), response -> EntityUtils.toString(response.getEntity()));
    }
}
