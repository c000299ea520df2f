"""Prints Envoy's configuration as JSON.

Usage: configure.py HOST PORT UPSTREAM-PORT [NAME=VALUE]...

system.toml describes the names. Settings without a value are off.
"""
import json
import sys

host, port, upstream_port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
options = dict(option.split("=", 1) for option in sys.argv[4:])


def number(name):
    return int(options.get(name, 0))


API = "type.googleapis.com/envoy.extensions"

# Computes a signature, which the upstream could check.
LUA = """
function envoy_on_request(handle)
  local sum = 5381
  for i = 1, 100000 do
    sum = (sum * 33 + i) % 4294967296
  end
  handle:headers():add("x-signature", tostring(sum))
end
"""


def typed(kind, **config):
    return {"@type": f"{API}.{kind}", **config}


def extension(name, kind, **config):
    return {"name": name, "typed_config": typed(kind, **config)}


def share(percent):
    return {"numerator": percent, "denominator": "HUNDRED"}


def filters():
    if number("delay"):
        fault = {"delay": {"fixed_delay": f"{number('delay') / 1000}s", "percentage": share(100)}}
        if number("abort"):
            fault["abort"] = {"http_status": 503, "percentage": share(number("abort"))}
        yield extension("fault", "filters.http.fault.v3.HTTPFault", **fault)
    if number("rate"):
        yield extension(
            "rate",
            "filters.http.local_ratelimit.v3.LocalRateLimit",
            stat_prefix="rate",
            token_bucket={
                "max_tokens": number("rate") // 10,
                "tokens_per_fill": number("rate") // 10,
                "fill_interval": "0.1s",
            },
            filter_enabled={"default_value": share(100)},
            filter_enforced={"default_value": share(100)},
        )
    if options.get("lua") == "on":
        yield extension(
            "lua", "filters.http.lua.v3.Lua", default_source_code={"inline_string": LUA}
        )
    if number("level"):
        # The client accepts compressed responses, but does not say so.
        yield extension(
            "accept",
            "filters.http.header_mutation.v3.HeaderMutation",
            mutations={
                "request_mutations": [
                    {
                        "append": {
                            "header": {"key": "accept-encoding", "value": "gzip"},
                            "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
                        }
                    }
                ]
            },
        )
        yield extension(
            "compressor",
            "filters.http.compressor.v3.Compressor",
            compressor_library=extension(
                "gzip",
                "compression.gzip.compressor.v3.Gzip",
                compression_level=f"COMPRESSION_LEVEL_{number('level')}",
                window_bits=15,
                memory_level=8,
            ),
        )
    yield extension("router", "filters.http.router.v3.Router")


def network_filters():
    if number("connections"):
        yield extension(
            "limit",
            "filters.network.connection_limit.v3.ConnectionLimit",
            stat_prefix="limit",
            max_connections=number("connections"),
        )
    http = {}
    if number("requests"):
        http["max_requests_per_connection"] = number("requests")
    route = {"cluster": "upstream", "timeout": "15s"}
    if number("retries"):
        route["retry_policy"] = {
            "retry_on": "5xx",
            "num_retries": number("retries"),
            "retry_back_off": {"base_interval": "0.2s", "max_interval": "0.2s"},
        }
    yield extension(
        "http",
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="http",
        common_http_protocol_options=http,
        http_filters=list(filters()),
        route_config={
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "include_request_attempt_count": True,
                    "routes": [{"match": {"prefix": "/"}, "route": route}],
                }
            ]
        },
    )


def address(host, port):
    return {"socket_address": {"address": host, "port_value": port}}


def cluster():
    protocol = {"explicit_http_config": {"http_protocol_options": {}}}
    if number("upstream-requests"):
        protocol["common_http_protocol_options"] = {
            "max_requests_per_connection": number("upstream-requests")
        }
    many = 100_000
    config = {
        "name": "upstream",
        "type": "STATIC",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": typed(
                "upstreams.http.v3.HttpProtocolOptions", **protocol
            )
        },
        "circuit_breakers": {
            "thresholds": [
                {
                    "max_connections": number("upstream-connections") or many,
                    "max_pending_requests": many,
                    "max_requests": many,
                    "max_retries": many,
                }
            ]
        },
        "load_assignment": {
            "cluster_name": "upstream",
            "endpoints": [
                {"lb_endpoints": [{"endpoint": {"address": address("127.0.0.1", upstream_port)}}]}
            ],
        },
    }
    if options["upstream"] == "tls":
        # Without session keys, Envoy does not resume TLS sessions.
        config["transport_socket"] = extension(
            "tls", "transport_sockets.tls.v3.UpstreamTlsContext", max_session_keys=0
        )
    return config


listener = {
    "name": "main",
    "address": address(host, port),
    "filter_chains": [{"filters": list(network_filters())}],
}
json.dump({"static_resources": {"listeners": [listener], "clusters": [cluster()]}}, sys.stdout)
