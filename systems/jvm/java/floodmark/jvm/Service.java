package floodmark.jvm;

/** Prints start and early end of a server, in the same way for all systems. */
public final class Service {
    private static final int NOT_STARTED = 3;

    private Service() {}

    /** Prints that the server accepts requests. */
    public static void listening(String host, int port) {
        System.out.println("listening on " + host + ":" + port);
    }

    /** Ends a server that can't start, with a one-line reason. */
    public static void failed(String what, Throwable why) {
        Throwable cause = why;
        while (cause.getCause() != null && cause.getCause() != cause) {
            cause = cause.getCause();
        }
        failed(what + ": " + cause);
    }

    /** Ends a server that can't start, without an exception. */
    public static void failed(String what) {
        System.err.println(what);
        // Halt, because a shutdown hook of a half-started library could hang.
        Runtime.getRuntime().halt(NOT_STARTED);
    }
}
