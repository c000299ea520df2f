package app;

import io.smallrye.common.annotation.Blocking;
import jakarta.enterprise.context.ApplicationScoped;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import org.eclipse.microprofile.faulttolerance.Asynchronous;
import org.eclipse.microprofile.faulttolerance.Bulkhead;

/** The cranes of the harbor. */
@ApplicationScoped
public class Cranes {
    /**
     * Lifts a container, which takes 20 ms. A system property sets the
     * number of cranes. Further containers wait for a crane.
     */
    @Asynchronous
    @Blocking
    @Bulkhead(value = 64, waitingTaskQueue = 10_000)
    CompletionStage<Void> lift() {
        try {
            Thread.sleep(20);
            return CompletableFuture.completedStage(null);
        } catch (InterruptedException e) {
            return CompletableFuture.failedStage(e);
        }
    }
}
