package app;

import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.jdbc.core.RowMapper;
import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.transaction.support.TransactionTemplate;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** A guide to bars: each request returns the bars of one city. */
@SpringBootApplication
@RestController
public class Bars {
    /** The table contains 100,000 bars in 5,001 cities. */
    private static final int CITIES = 5000;

    private static final RowMapper<Bar> BAR = (row, number) -> new Bar(row.getInt("id"), row.getString("name"));

    private final JdbcClient database;
    private final TransactionTemplate transaction;
    private final Query query;
    private final int pause;

    Bars(JdbcClient database, TransactionTemplate transaction, @Value("${query}") Query query,
            @Value("${pause}") int pause) {
        this.database = database;
        this.transaction = transaction;
        this.query = query;
        this.pause = pause;
        if (query == Query.SCAN) {
            database.sql("DROP INDEX bar_city").update();
        }
    }

    public static void main(String[] arguments) {
        SpringApplication.run(Bars.class, arguments);
    }

    /** How a request reads its bars. */
    enum Query {
        /** With one query that uses an index. */
        INDEX,
        /** With one query for the identifiers, and one query for each bar. */
        EACH,
        /** With one query that uses no index. */
        SCAN,
        /** With a slow query. */
        SLOW,
        /** In a transaction that also counts a visit to one of the bars. */
        COUNT,
        /** In a transaction that also counts a visit to the same bar each time. */
        COUNT_ONE
    }

    record Bar(int id, String name) {}

    @GetMapping("/bars")
    List<Bar> bars() throws InterruptedException {
        int city = ThreadLocalRandom.current().nextInt(CITIES);
        return switch (query) {
            case INDEX, SCAN -> find(city);
            case EACH -> database.sql("SELECT id FROM bar WHERE city = ? ORDER BY id").param(city)
                    .query(Integer.class).list().stream().map(this::one).toList();
            case SLOW -> database.sql("SELECT id, name FROM bar, pg_sleep(0.02) WHERE city = ? ORDER BY id")
                    .param(city).query(BAR).list();
            case COUNT -> count(city);
            case COUNT_ONE -> count(1);
        };
    }

    private List<Bar> find(int city) {
        return database.sql("SELECT id, name FROM bar WHERE city = ? ORDER BY id").param(city).query(BAR).list();
    }

    private Bar one(int id) {
        return database.sql("SELECT id, name FROM bar WHERE id = ?").param(id).query(BAR).single();
    }

    private List<Bar> count(int city) {
        return transaction.execute(status -> {
            database.sql("UPDATE bar SET visits = visits + 1 WHERE id = ?").param(city * 20 + 1).update();
            pause();
            return find(city);
        });
    }

    /** Stands for a call to another service within the transaction. */
    private void pause() {
        try {
            Thread.sleep(pause);
        } catch (InterruptedException why) {
            throw new IllegalStateException(why);
        }
    }
}
