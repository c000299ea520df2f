package floodmark.jvm;

/** The beginning and the early end of a server, said as every system says it. */
public final class Service {
    private static final int NOT_STARTED = 3;

    private Service() {}

    /** Says that requests are answered from now on. */
    public static void listening(String host, int port) {
        System.out.println("listening on " + host + ":" + port);
    }

    /** Ends the server that cannot start, with one line that says why. */
    public static void failed(String what, Throwable why) {
        Throwable cause = why;
        while (cause.getCause() != null && cause.getCause() != cause) {
            cause = cause.getCause();
        }
        failed(what + ": " + cause);
    }

    /** The same where nothing was thrown. */
    public static void failed(String what) {
        System.err.println(what);
        // Not exit: a hook of a half-started library could hang.
        Runtime.getRuntime().halt(NOT_STARTED);
    }
}
