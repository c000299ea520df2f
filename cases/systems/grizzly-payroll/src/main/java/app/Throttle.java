package app;

import com.google.common.util.concurrent.RateLimiter;

/** Delays requests above a rate. */
final class Throttle {
    private final RateLimiter limiter;

    Throttle(int rate) {
        limiter = RateLimiter.create(rate);
    }

    void pass() {
        limiter.acquire();
    }
}
