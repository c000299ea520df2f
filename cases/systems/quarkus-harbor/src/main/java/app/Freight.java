package app;

import io.agroal.api.AgroalDataSource;
import io.quarkus.runtime.StartupEvent;
import jakarta.enterprise.context.ApplicationScoped;
import jakarta.enterprise.event.Observes;
import jakarta.inject.Inject;
import java.sql.SQLException;
import java.util.concurrent.ThreadLocalRandom;

/** 50,000 containers in PostgreSQL. */
@ApplicationScoped
public class Freight {
    private static final int CONTAINERS = 50_000;

    @Inject
    AgroalDataSource pool;

    void createTable(@Observes StartupEvent event) throws SQLException {
        if (!System.getProperty("app.store").contains(":")) {
            return;
        }
        try (var connection = pool.getConnection(); var statement = connection.createStatement()) {
            statement.execute("CREATE TABLE freight AS SELECT id, 'owner-' || id AS owner, 0 AS loads"
                    + " FROM generate_series(1, " + CONTAINERS + ") AS id");
            statement.execute("ALTER TABLE freight ADD PRIMARY KEY (id)");
            if (Boolean.getBoolean("app.index")) {
                statement.execute("CREATE INDEX ON freight (owner)");
            }
            statement.execute("VACUUM ANALYZE freight");
        }
    }

    /** Runs a query that takes 20 ms. */
    void report() throws SQLException {
        try (var connection = pool.getConnection();
                var statement = connection.prepareStatement("SELECT pg_sleep(0.02)")) {
            statement.execute();
        }
    }

    /** Loads a container. */
    void load() throws SQLException {
        try (var connection = pool.getConnection();
                var statement = connection.prepareStatement("UPDATE freight SET loads = loads + 1 WHERE id = ?")) {
            statement.setInt(1, 1 + ThreadLocalRandom.current().nextInt(CONTAINERS));
            statement.executeUpdate();
        }
    }

    /** Finds a container by its owner. */
    void find() throws SQLException {
        try (var connection = pool.getConnection();
                var statement = connection.prepareStatement("SELECT loads FROM freight WHERE owner = ?")) {
            statement.setString(1, "owner-" + (1 + ThreadLocalRandom.current().nextInt(CONTAINERS)));
            statement.executeQuery().next();
        }
    }
}
