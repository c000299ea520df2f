package app;

import io.dropwizard.core.setup.Environment;
import java.sql.SQLException;
import java.util.concurrent.ThreadLocalRandom;
import javax.sql.DataSource;

/** The eggs of 10,000 animals in PostgreSQL. */
final class Barn {
    private static final int ANIMALS = 10_000;

    private final DataSource pool;

    Barn(Settings settings, Environment environment) throws SQLException {
        pool = settings.database.build(environment.metrics(), "barn");
        try (var connection = pool.getConnection(); var statement = connection.createStatement()) {
            statement.execute("CREATE TABLE eggs (id bigserial PRIMARY KEY, animal integer)");
        }
    }

    /** Runs a query that takes 20 ms. */
    void report() throws SQLException {
        try (var connection = pool.getConnection();
                var statement = connection.prepareStatement("SELECT pg_sleep(0.02)")) {
            statement.execute();
        }
    }

    /** Inserts an egg. */
    void lay() throws SQLException {
        try (var connection = pool.getConnection();
                var statement = connection.prepareStatement("INSERT INTO eggs (animal) VALUES (?)")) {
            statement.setInt(1, 1 + ThreadLocalRandom.current().nextInt(ANIMALS));
            statement.executeUpdate();
        }
    }
}
