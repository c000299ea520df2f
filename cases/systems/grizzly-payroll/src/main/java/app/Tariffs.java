package app;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Tariffs, each of which takes 10 ms to compute. */
final class Tariffs {
    private final Map<String, Long> tariffs = new ConcurrentHashMap<>();

    void read() throws InterruptedException {
        tariffs.put("2026", compute());
    }

    /** The map locks the key while the tariff is computed. */
    void readLocked() {
        tariffs.compute("2026", (year, old) -> {
            try {
                return compute();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        });
    }

    private static long compute() throws InterruptedException {
        Thread.sleep(10);
        return System.nanoTime();
    }
}
