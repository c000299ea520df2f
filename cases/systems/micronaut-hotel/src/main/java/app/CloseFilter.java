package app;

import io.micronaut.context.annotation.Requires;
import io.micronaut.http.MutableHttpResponse;
import io.micronaut.http.annotation.ResponseFilter;
import io.micronaut.http.annotation.ServerFilter;

/** Closes the client's connection after each response. */
@Requires(property = "hotel.connection", value = "close")
@ServerFilter("/**")
final class CloseFilter {
    @ResponseFilter
    void close(MutableHttpResponse<?> response) {
        response.header("Connection", "close");
    }
}
