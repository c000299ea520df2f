package app;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** Containers, some of which are kept in memory. */
final class Containers {
    private static final byte[][] YARD = new byte[Integer.getInteger("app.kept")][];
    private static final AtomicInteger NEXT = new AtomicInteger();

    private Containers() {}

    /** Renders and hashes the manifest of 60 containers. */
    static void manifest() throws Exception {
        String page = IntStream.rangeClosed(1, 60)
                .mapToObj(i -> String.format("<li>container %06d: %,.2f t%n", i * 7919, 3000.5 / i))
                .collect(Collectors.joining("", "<ul>", "</ul>"));
        MessageDigest.getInstance("SHA-256").digest(page.getBytes(StandardCharsets.UTF_8));
    }

    /** Computes the number of a seal. */
    static void seal() throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        byte[] sum = new byte[32];
        for (int i = 0; i < 10_000; i++) {
            sum = digest.digest(sum);
        }
    }

    /** Stores 512 containers of 1 KiB, which replace older ones in the yard. */
    static void store() {
        for (int i = 0; i < 512; i++) {
            YARD[Math.floorMod(NEXT.getAndIncrement(), YARD.length)] = new byte[1024];
        }
    }
}
