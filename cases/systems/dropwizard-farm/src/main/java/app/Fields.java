package app;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** The fields of the farm, and the crops that are kept in memory. */
final class Fields {
    private final byte[][] crops;
    private final AtomicInteger next = new AtomicInteger();

    Fields(int kept) {
        crops = new byte[kept][];
    }

    /** Renders and hashes an almanac of 60 days. */
    static void almanac() throws Exception {
        String page = IntStream.rangeClosed(1, 60)
                .mapToObj(day -> String.format("<tr><td>%03d<td>%,.1f mm%n", day, 9000.5 / day))
                .collect(Collectors.joining("", "<table>", "</table>"));
        MessageDigest.getInstance("SHA-256").digest(page.getBytes(StandardCharsets.UTF_8));
    }

    /** Computes the signature of a delivery. */
    static void signature() throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        byte[] sum = new byte[32];
        for (int i = 0; i < 10_000; i++) {
            sum = digest.digest(sum);
        }
    }

    /** Stores 512 crops of 1 KiB, which replace older ones. */
    void harvest() {
        for (int i = 0; i < 512; i++) {
            crops[Math.floorMod(next.getAndIncrement(), crops.length)] = new byte[1024];
        }
    }
}
