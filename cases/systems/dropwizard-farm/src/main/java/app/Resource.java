package app;

import jakarta.ws.rs.GET;
import jakarta.ws.rs.Path;
import jakarta.ws.rs.Produces;

/** The farm's only resource. */
@Path("/")
@Produces("text/plain")
public final class Resource {
    private final Work work;

    Resource(Work work) {
        this.work = work;
    }

    @GET
    public String get() throws Throwable {
        work.run();
        return "Hello World";
    }
}
