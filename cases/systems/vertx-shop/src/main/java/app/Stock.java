package app;

import io.vertx.core.Future;
import io.vertx.core.VerticleBase;

/** Handles one message at a time, on a worker thread. */
final class Stock extends VerticleBase {
    @Override
    public Future<?> start() {
        return vertx.eventBus().consumer("stock", message -> {
            try {
                Work.call();
            } catch (InterruptedException why) {
                Thread.currentThread().interrupt();
            }
            message.reply("");
        }).completion();
    }
}
