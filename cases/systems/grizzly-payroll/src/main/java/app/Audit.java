package app;

import java.io.IOException;
import java.nio.file.Path;
import java.util.logging.FileHandler;
import java.util.logging.Logger;
import java.util.logging.SimpleFormatter;

/** The audit log, on java.util.logging. */
final class Audit {
    private final Logger logger = Logger.getLogger("audit");

    Audit(Path file) throws IOException {
        FileHandler handler = new FileHandler(file.toString(), true);
        handler.setFormatter(new SimpleFormatter());
        logger.setUseParentHandlers(false);
        logger.addHandler(handler);
    }

    void write() {
        logger.info("payslip read");
    }
}
