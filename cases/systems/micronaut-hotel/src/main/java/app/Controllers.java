package app;

import io.micronaut.context.annotation.Requires;
import io.micronaut.context.annotation.Value;
import io.micronaut.http.MediaType;
import io.micronaut.http.annotation.Controller;
import io.micronaut.http.annotation.Get;
import io.micronaut.http.client.HttpClient;
import io.micronaut.http.client.annotation.Client;
import io.micronaut.scheduling.TaskExecutors;
import io.micronaut.scheduling.annotation.ExecuteOn;
import java.nio.charset.StandardCharsets;
import java.sql.SQLException;
import java.time.Duration;
import java.util.zip.Deflater;
import org.reactivestreams.Publisher;
import reactor.core.publisher.Mono;

/** One controller for each value of the property hotel.app. */
final class Controllers {
    private static final String BODY = "Hello World";

    private Controllers() { }

    /** Returns an HTML table with 1,000 rooms. */
    private static String table() {
        StringBuilder table = new StringBuilder("<table>");
        for (int room = 1; room <= 1000; room++) {
            table.append("<tr><td>room ").append(room)
                    .append("<td>").append(60 + room * 7919 % 101).append(" EUR")
                    .append("<td>").append(room * 31 % 7).append(" nights");
        }
        return table.append("</table>").toString();
    }

    @Requires(property = "hotel.app", value = "hello")
    @Controller
    static class Hello {
        @Get(produces = MediaType.TEXT_PLAIN)
        String index() {
            return BODY;
        }
    }

    @Requires(property = "hotel.app", value = "timer")
    @Controller
    static class Timer {
        @Get(produces = MediaType.TEXT_PLAIN)
        Publisher<String> index() {
            return Mono.delay(Duration.ofMillis(20)).thenReturn(BODY);
        }
    }

    @Requires(property = "hotel.app", value = "page")
    @Controller
    static class Page {
        @Get(produces = MediaType.TEXT_PLAIN)
        String index() {
            if (table().length() < 1000) {
                throw new IllegalStateException("short table");
            }
            return BODY;
        }
    }

    @Requires(property = "hotel.app", value = "export")
    @Controller
    static class Export {
        private final int level;

        Export(@Value("${hotel.level}") int level) {
            this.level = level;
        }

        @Get(produces = MediaType.TEXT_PLAIN)
        String index() {
            byte[] compressed = new byte[65_536];
            Deflater deflater = new Deflater(level);
            try {
                deflater.setInput(table().getBytes(StandardCharsets.UTF_8));
                deflater.finish();
                if (deflater.deflate(compressed) < 1000) {
                    throw new IllegalStateException("short export");
                }
            } finally {
                deflater.end();
            }
            return BODY;
        }
    }

    @Requires(property = "hotel.app", value = "pay")
    @Controller
    static class Pay {
        @ExecuteOn(TaskExecutors.BLOCKING)
        @Get(produces = MediaType.TEXT_PLAIN)
        String index() throws InterruptedException {
            Thread.sleep(20);
            return BODY;
        }
    }

    @Requires(property = "hotel.app", value = "price")
    @Controller
    static class Price {
        private final HttpClient client;

        Price(@Client("prices") HttpClient client) {
            this.client = client;
        }

        @Get(produces = MediaType.TEXT_PLAIN)
        Publisher<String> index() {
            return Mono.from(client.retrieve("/price")).thenReturn(BODY);
        }
    }

    @Requires(property = "hotel.app", value = "report")
    @Controller
    static class Report {
        private final Rooms rooms;

        Report(Rooms rooms) {
            this.rooms = rooms;
        }

        @ExecuteOn(TaskExecutors.BLOCKING)
        @Get(produces = MediaType.TEXT_PLAIN)
        String index() throws SQLException {
            rooms.report();
            return BODY;
        }
    }

    @Requires(property = "hotel.app", value = "book")
    @Controller
    static class Book {
        private final Rooms rooms;

        Book(Rooms rooms) {
            this.rooms = rooms;
        }

        @ExecuteOn(TaskExecutors.BLOCKING)
        @Get(produces = MediaType.TEXT_PLAIN)
        String index() throws SQLException, InterruptedException {
            rooms.book();
            return BODY;
        }
    }
}
