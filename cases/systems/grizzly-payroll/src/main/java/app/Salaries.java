package app;

import com.zaxxer.hikari.HikariDataSource;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.concurrent.ThreadLocalRandom;

/** The salaries of 50,000 employees in PostgreSQL. */
final class Salaries {
    private static final int EMPLOYEES = 50_000;

    private final HikariDataSource pool;

    Salaries(HikariDataSource pool, boolean hasIndex) throws SQLException {
        this.pool = pool;
        try (Connection connection = pool.getConnection(); var statement = connection.createStatement()) {
            statement.execute("CREATE TABLE salaries AS SELECT id, 'employee-' || id AS name, 0 AS hours"
                    + " FROM generate_series(1, " + EMPLOYEES + ") AS id");
            statement.execute("ALTER TABLE salaries ADD PRIMARY KEY (id)");
            if (hasIndex) {
                statement.execute("CREATE INDEX ON salaries (name)");
            }
            statement.execute("VACUUM ANALYZE salaries");
        }
    }

    private static int employee() {
        return 1 + ThreadLocalRandom.current().nextInt(EMPLOYEES);
    }

    /** Runs a query that takes 20 ms. */
    void report() throws SQLException {
        try (Connection connection = pool.getConnection();
                PreparedStatement statement = connection.prepareStatement("SELECT pg_sleep(0.02)")) {
            statement.execute();
        }
    }

    /** Finds an employee by name. */
    void find() throws SQLException {
        try (Connection connection = pool.getConnection();
                PreparedStatement statement =
                        connection.prepareStatement("SELECT hours FROM salaries WHERE name = ?")) {
            statement.setString(1, "employee-" + employee());
            statement.executeQuery().next();
        }
    }

    /** Adds an hour of work. */
    void add() throws SQLException {
        try (Connection connection = pool.getConnection();
                PreparedStatement statement =
                        connection.prepareStatement("UPDATE salaries SET hours = hours + 1 WHERE id = ?")) {
            statement.setInt(1, employee());
            statement.executeUpdate();
        }
    }
}
