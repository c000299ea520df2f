package app;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** Payslips, some of which are kept in memory. */
final class Payslips {
    private final byte[][] kept;
    private final AtomicInteger next = new AtomicInteger();

    Payslips(int count) {
        kept = new byte[count][1024];
    }

    /** Builds 512 payslips of 1 KiB, which replace older ones. */
    void replace() {
        for (int i = 0; i < 512; i++) {
            kept[Math.floorMod(next.getAndIncrement(), kept.length)] = new byte[1024];
        }
    }

    /** Hashes the payslips of a department. */
    static void hash() throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        byte[] sum = new byte[32];
        for (int i = 0; i < 10_000; i++) {
            sum = digest.digest(sum);
        }
    }

    /** Renders and signs the payslips of five employees. */
    static void render() throws Exception {
        for (int employee = 1; employee <= 5; employee++) {
            int number = employee;
            String page = IntStream.rangeClosed(1, 12)
                    .mapToObj(month -> String.format("month %02d of %d: %,.2f%n", month, number, 3000.5 + month))
                    .collect(Collectors.joining("; ", "<pre>", "</pre>"));
            MessageDigest.getInstance("SHA-256").digest(page.getBytes(StandardCharsets.UTF_8));
        }
    }
}
