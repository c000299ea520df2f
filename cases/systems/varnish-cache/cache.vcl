vcl 4.1;

import vsthrottle;

backend application {
    .host = "127.0.0.1";
    # start.sh sets the port.
    .port = "UPSTREAM";
    .max_connections = {max-connections};
}

sub vcl_recv {
    if (vsthrottle.is_denied("site", {rate}, 1s)) {
        return (synth(429, "Too Many Requests"));
    }
    set req.http.X-Mode = "{mode}";
    if (req.http.X-Mode == "pass") {
        return (pass);
    }
    return (hash);
}

sub vcl_backend_fetch {
    set bereq.http.Connection = "{upstream-connection}";
    return (fetch);
}

sub vcl_backend_response {
    if (bereq.http.X-Mode == "private") {
        # Don't cache the response. The mistake: the response is not marked as uncacheable.
        set beresp.ttl = 0s;
        set beresp.grace = 0s;
    } else {
        set beresp.ttl = 1h;
    }
    return (deliver);
}

sub vcl_deliver {
    set resp.http.Connection = "{connection}";
    return (deliver);
}
