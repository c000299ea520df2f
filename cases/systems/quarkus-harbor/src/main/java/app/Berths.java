package app;

import io.quarkus.arc.Lock;
import jakarta.enterprise.context.ApplicationScoped;

/** The berths of the harbor. */
@ApplicationScoped
public class Berths {
    /** Assigns a berth, which takes 10 ms. */
    void assign() throws InterruptedException {
        Thread.sleep(10);
    }

    /** Assigns a berth while Quarkus holds the bean's write lock. */
    @Lock
    void assignLocked() throws InterruptedException {
        assign();
    }
}
