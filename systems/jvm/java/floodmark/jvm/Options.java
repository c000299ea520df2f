package floodmark.jvm;

import java.net.InetSocketAddress;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Command line of a server: pairs of {@code --name value}. An error ends it with one line and code 2. */
public final class Options {
    private static final int WRONG_USAGE = 2;
    private static final int HIGHEST_PORT = 65535;

    private final Map<String, String> values;

    private Options(Map<String, String> values) {
        this.values = values;
    }

    /**
     * Parses the arguments. Every server has {@code --port} and {@code --host}, a local address (default: 127.0.0.1).
     *
     * @param own further options of a server with their defaults; an empty default means none
     */
    public static Options read(String[] arguments, Map<String, String> own) {
        Map<String, String> values = new TreeMap<>(own);
        values.put("host", "127.0.0.1");
        values.put("port", "");
        for (int at = 0; at < arguments.length; at += 2) {
            String name = arguments[at].startsWith("--") ? arguments[at].substring(2) : "";
            if (!values.containsKey(name)) {
                throw refuse("unknown option \"" + arguments[at] + "\"; there are --" + String.join(", --", values.keySet()));
            }
            if (at + 1 == arguments.length) {
                throw refuse("--" + name + " needs a value");
            }
            values.put(name, arguments[at + 1]);
        }
        return new Options(values);
    }

    /** Returns the value of an option, never empty. */
    public String text(String name) {
        String value = values.get(name);
        if (value.isEmpty()) {
            throw refuse("--" + name + " is missing");
        }
        return value;
    }

    /** Returns an option that is one of several words. */
    public String word(String name, List<String> words) {
        String value = text(name);
        if (!words.contains(value)) {
            throw refuse("--" + name + ": expected one of " + String.join(", ", words) + ", not \"" + value + "\"");
        }
        return value;
    }

    /** Returns an option that is an integer within bounds. */
    public int count(String name, int low, int high) {
        try {
            int count = Integer.parseInt(text(name));
            if (low <= count && count <= high) {
                return count;
            }
        } catch (NumberFormatException notANumber) {
            // Reported below, like a number out of bounds.
        }
        throw refuse("--" + name + ": expected an integer from " + low + " to " + high + ", not \"" + text(name) + "\"");
    }

    /** Returns the port to listen on. */
    public int port() {
        return count("port", 1, HIGHEST_PORT);
    }

    /** Returns an unresolved address of the form HOST:PORT. */
    public InetSocketAddress address(String name) {
        String value = text(name);
        int colon = value.lastIndexOf(':');
        try {
            return InetSocketAddress.createUnresolved(value.substring(0, colon), Integer.parseInt(value.substring(colon + 1)));
        } catch (IllegalArgumentException | IndexOutOfBoundsException notAnAddress) {
            throw refuse("--" + name + ": expected HOST:PORT, like 127.0.0.1:9042, not \"" + value + "\"");
        }
    }

    /** Ends the server for wrong usage; declares an exception only for the compiler. */
    public static RuntimeException refuse(String what) {
        System.err.println(what);
        System.exit(WRONG_USAGE);
        return new IllegalArgumentException(what);
    }
}
