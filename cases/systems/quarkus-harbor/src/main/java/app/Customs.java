package app;

import jakarta.ws.rs.GET;
import jakarta.ws.rs.Path;
import org.eclipse.microprofile.rest.client.inject.RegisterRestClient;

/** The customs office, which responds after 20 ms. */
@Path("/clear")
@RegisterRestClient(configKey = "customs")
public interface Customs {
    @GET
    String clear();
}
