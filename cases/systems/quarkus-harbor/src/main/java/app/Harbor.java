package app;

import io.smallrye.common.annotation.Blocking;
import io.smallrye.common.annotation.NonBlocking;
import jakarta.inject.Inject;
import jakarta.ws.rs.GET;
import jakarta.ws.rs.Path;
import jakarta.ws.rs.Produces;
import jakarta.ws.rs.container.ContainerRequestContext;
import java.net.URI;
import java.util.concurrent.CompletionStage;
import org.eclipse.microprofile.rest.client.inject.RestClient;
import org.jboss.resteasy.reactive.server.ServerRequestFilter;

/** A harbor's services. Each path is an application; see system.toml. */
@Path("/")
@Produces("text/plain")
@Blocking
public class Harbor {
    private static final String RESPONSE = "Hello World";
    private static final URI APP = URI.create("/" + System.getProperty("app"));

    @Inject
    Berths berths;

    @Inject
    Cranes cranes;

    @Inject
    Freight freight;

    @Inject
    Pilots pilots;

    @Inject
    @RestClient
    Customs customs;

    /** Sends requests for `/` to the application that a system property names. */
    @ServerRequestFilter(preMatching = true, nonBlocking = true)
    public void select(ContainerRequestContext request) {
        request.setRequestUri(APP);
    }

    @GET
    @Path("hello")
    public String hello() {
        return RESPONSE;
    }

    @GET
    @Path("pause")
    public String pause() throws InterruptedException {
        Thread.sleep(20);
        return RESPONSE;
    }

    /** Runs on one of Vert.x's event loops. */
    @GET
    @Path("pause-event-loop")
    @NonBlocking
    public String pauseEventLoop() throws InterruptedException {
        return pause();
    }

    @GET
    @Path("berth")
    public String berth() throws InterruptedException {
        berths.assign();
        return RESPONSE;
    }

    @GET
    @Path("berth-locked")
    public String berthLocked() throws InterruptedException {
        berths.assignLocked();
        return RESPONSE;
    }

    @GET
    @Path("crane")
    public CompletionStage<String> crane() {
        return cranes.lift().thenApply(lifted -> RESPONSE);
    }

    @GET
    @Path("pilot")
    public String pilot() throws InterruptedException {
        pilots.order();
        return RESPONSE;
    }

    @GET
    @Path("customs")
    public String customs() {
        customs.clear();
        return RESPONSE;
    }

    @GET
    @Path("manifest")
    public String manifest() throws Exception {
        Containers.manifest();
        return RESPONSE;
    }

    @GET
    @Path("seal")
    public String seal() throws Exception {
        Containers.seal();
        return RESPONSE;
    }

    @GET
    @Path("yard")
    public String yard() {
        Containers.store();
        return RESPONSE;
    }

    @GET
    @Path("report")
    public String report() throws Exception {
        freight.report();
        return RESPONSE;
    }

    @GET
    @Path("load")
    public String load() throws Exception {
        freight.load();
        return RESPONSE;
    }

    @GET
    @Path("find")
    public String find() throws Exception {
        freight.find();
        return RESPONSE;
    }
}
