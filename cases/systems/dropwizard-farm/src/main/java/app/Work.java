package app;

/** The work of one request. */
interface Work {
    void run() throws Throwable;
}
