package floodmark.jvm;

import java.net.InetSocketAddress;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** What a server is told on its command line: pairs of {@code --name value}. What is wrong ends it with one line and code 2. */
public final class Options {
    private static final int WRONG_USAGE = 2;
    private static final int HIGHEST_PORT = 65535;

    private final Map<String, String> values;

    private Options(Map<String, String> values) {
        this.values = values;
    }

    /**
     * Reads the arguments. Every server has {@code --port} and {@code --host}, an address of this machine, 127.0.0.1 where none is given.
     *
     * @param own the further options of a server with their defaults; an empty default means that there is none
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

    /** The value of an option, never empty. */
    public String text(String name) {
        String value = values.get(name);
        if (value.isEmpty()) {
            throw refuse("--" + name + " is missing");
        }
        return value;
    }

    /** One of several words. */
    public String word(String name, List<String> words) {
        String value = text(name);
        if (!words.contains(value)) {
            throw refuse("--" + name + ": expected one of " + String.join(", ", words) + ", not \"" + value + "\"");
        }
        return value;
    }

    /** A whole number within bounds. */
    public int count(String name, int low, int high) {
        try {
            int count = Integer.parseInt(text(name));
            if (low <= count && count <= high) {
                return count;
            }
        } catch (NumberFormatException notANumber) {
            // Said below, as for one out of bounds.
        }
        throw refuse("--" + name + ": expected a whole number from " + low + " to " + high + ", not \"" + text(name) + "\"");
    }

    /** The port to listen on. */
    public int port() {
        return count("port", 1, HIGHEST_PORT);
    }

    /** An address of the form HOST:PORT, not looked up. */
    public InetSocketAddress address(String name) {
        String value = text(name);
        int colon = value.lastIndexOf(':');
        try {
            return InetSocketAddress.createUnresolved(value.substring(0, colon), Integer.parseInt(value.substring(colon + 1)));
        } catch (IllegalArgumentException | IndexOutOfBoundsException notAnAddress) {
            throw refuse("--" + name + ": expected HOST:PORT, like 127.0.0.1:9042, not \"" + value + "\"");
        }
    }

    /** Ends the server for wrong usage; the exception is for the compiler, which does not know that. */
    public static RuntimeException refuse(String what) {
        System.err.println(what);
        System.exit(WRONG_USAGE);
        return new IllegalArgumentException(what);
    }
}
