package app;

import io.smallrye.faulttolerance.api.RateLimit;
import io.smallrye.faulttolerance.api.RateLimitException;
import jakarta.enterprise.context.ApplicationScoped;
import jakarta.ws.rs.core.Response;
import java.time.temporal.ChronoUnit;
import org.jboss.resteasy.reactive.server.ServerExceptionMapper;

/** The pilots of the harbor. */
@ApplicationScoped
public class Pilots {
    /** Orders a pilot in 10 ms. A system property sets the maximum number of orders per second. */
    @RateLimit(value = 1_000_000, window = 1, windowUnit = ChronoUnit.SECONDS)
    void order() throws InterruptedException {
        Thread.sleep(10);
    }

    /** Maps rejected orders to status 429. */
    public static class Rejections {
        @ServerExceptionMapper
        public Response map(RateLimitException e) {
            return Response.status(429).build();
        }
    }
}
