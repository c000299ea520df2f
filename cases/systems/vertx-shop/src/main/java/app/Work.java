package app;

import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/** What a request does without Vert.x. */
final class Work {
    private Work() {
    }

    /** A blocking call that takes 20 ms. */
    static Object call() throws InterruptedException {
        Thread.sleep(20);
        return null;
    }

    /** Builds 128 pages of 1 KiB that replace older pages in the cache. */
    static void build(byte[][] cache, int at) {
        for (int page = 0; page < 128; page++) {
            cache[(at + page) % cache.length] = new byte[1024];
        }
    }

    static void hash() {
        try {
            var digest = MessageDigest.getInstance("SHA-512");
            byte[] sum = {1};
            for (int round = 0; round < 4000; round++) {
                sum = digest.digest(sum);
            }
        } catch (NoSuchAlgorithmException why) {
            throw new IllegalStateException(why);
        }
    }
}
