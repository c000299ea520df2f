package app;

import com.fasterxml.jackson.annotation.JsonProperty;
import io.dropwizard.client.HttpClientConfiguration;
import io.dropwizard.core.Configuration;
import io.dropwizard.db.DataSourceFactory;

/** The settings in config.yml. */
public final class Settings extends Configuration {
    /** What a request does. */
    @JsonProperty
    String app;

    /** Maximum number of tractors in use at a time. */
    @JsonProperty
    int tractors;

    /** Maximum number of requests for eggs per second. */
    @JsonProperty
    int eggs;

    /** Number of crops that are kept in memory. */
    @JsonProperty
    int kept;

    /** URL of the upstream. */
    @JsonProperty
    String weather;

    @JsonProperty
    HttpClientConfiguration upstream;

    @JsonProperty
    DataSourceFactory database;
}
