"""Prints Envoy's configuration as JSON: configure.py RUN PORT http|https UPSTREAM-PORT."""
import json
import sys

run, port, scheme, upstream = sys.argv[1:]
API = "type.googleapis.com/envoy.extensions"


def extension(name, kind, **config):
    return {"name": name, "typed_config": {"@type": f"{API}.{kind}", **config}}


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": int(port)}}


http = extension(
    "http",
    "filters.network.http_connection_manager.v3.HttpConnectionManager",
    stat_prefix="http",
    codec_type="HTTP2",
    access_log=[
        extension(
            "log",
            "access_loggers.file.v3.FileAccessLog",
            path=f"{run}/access.log",
            log_format={
                "text_format_source": {"inline_string": "%PROTOCOL% %RESPONSE_CODE%\n"}
            },
        )
    ],
    http_filters=[extension("router", "filters.http.router.v3.Router")],
    route_config={
        "virtual_hosts": [
            {
                "name": "all",
                "domains": ["*"],
                "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "upstream"}}],
            }
        ]
    },
)
chain = {"filters": [http]}
if scheme == "https":
    files = {
        "certificate_chain": {"filename": f"{run}/cert.pem"},
        "private_key": {"filename": f"{run}/key.pem"},
    }
    chain["transport_socket"] = extension(
        "tls",
        "transport_sockets.tls.v3.DownstreamTlsContext",
        common_tls_context={"alpn_protocols": ["h2"], "tls_certificates": [files]},
    )
cluster = {
    "name": "upstream",
    "type": "STATIC",
    "load_assignment": {
        "cluster_name": "upstream",
        "endpoints": [
            {"lb_endpoints": [{"endpoint": {"address": address(upstream)}}]}
        ],
    },
}
listener = {"name": "edge", "address": address(port), "filter_chains": [chain]}
print(json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}}))
