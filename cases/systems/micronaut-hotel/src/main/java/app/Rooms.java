package app;

import io.micronaut.context.annotation.Requires;
import io.micronaut.context.annotation.Value;
import jakarta.inject.Singleton;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.concurrent.ThreadLocalRandom;
import javax.sql.DataSource;

/** The rooms in PostgreSQL. */
@Requires(beans = DataSource.class)
@Singleton
class Rooms {
    private static final int COUNT = 10_000;

    private final DataSource pool;
    private final int updated;

    Rooms(DataSource pool, @Value("${hotel.rooms}") int updated) throws SQLException {
        this.pool = pool;
        this.updated = updated;
        try (Connection connection = pool.getConnection(); var statement = connection.createStatement()) {
            statement.execute("CREATE TABLE rooms AS SELECT id, 0 AS bookings"
                    + " FROM generate_series(1, " + COUNT + ") AS id");
            statement.execute("ALTER TABLE rooms ADD PRIMARY KEY (id)");
            statement.execute("VACUUM ANALYZE rooms");
        }
    }

    /** Sends a query that takes 20 ms. */
    void report() throws SQLException {
        try (Connection connection = pool.getConnection(); var statement = connection.createStatement()) {
            statement.execute("SELECT pg_sleep(0.02)");
        }
    }

    /** Updates a room in a transaction that takes 10 ms. */
    void book() throws SQLException, InterruptedException {
        try (Connection connection = pool.getConnection()) {
            connection.setAutoCommit(false);
            try (PreparedStatement statement =
                    connection.prepareStatement("UPDATE rooms SET bookings = bookings + 1 WHERE id = ?")) {
                statement.setInt(1, 1 + ThreadLocalRandom.current().nextInt(updated));
                statement.executeUpdate();
            }
            Thread.sleep(10);
            connection.commit();
        }
    }
}
