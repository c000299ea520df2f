//! Plans the version of HTTP, and rejects settings that conflict with it.

use floodmark_record::plan::{CloseFirst, ConnectionUse, Http, Http2};
use floodmark_record::units::plural;

use crate::negotiation::Negotiated;
use crate::spec::{HttpVersion, Origin, PlanSpec};

/// Maximum number of requests in flight on an HTTP/2 connection.
pub const MAX_STREAMS: u64 = Http2::MAX_STREAMS as u64;

/// Minimum flow-control window of a stream, in bytes. HTTP/2 cannot set the window of a connection
/// below 65,535 (RFC 9113, section 6.9.2).
pub const MIN_WINDOW: u64 = 4 << 10;

/// Maximum flow-control window of a stream, in bytes.
pub const MAX_WINDOW: u64 = Http2::MAX_WINDOW_BYTES as u64;

const _: () = {
    let windows = Http2::CONNECTION_WINDOWS as u64;
    assert!(MIN_WINDOW * windows >= 65_535 && MAX_WINDOW * windows < 1 << 31);
};

/// Maximum size of the table that the server uses to compress headers, in bytes. Each connection
/// has memory for a table of this size.
pub const MAX_TABLE: u64 = 64 << 10;

/// Returns the version of HTTP and its settings. `negotiated` is the server's choice, if there was
/// a negotiation.
///
/// # Errors
/// A setting conflicts with the version of HTTP or the number of streams.
pub fn plan(
    spec: &PlanSpec,
    connection_use: ConnectionUse,
    negotiated: Option<&Negotiated>,
) -> Result<Http, String> {
    let load = &spec.load;
    match negotiated {
        Some(negotiated @ (Negotiated::PlainHttp | Negotiated::Http1 | Negotiated::Failed(_))) => {
            if spec.load.grpc.is_some() {
                let http = spec.name("http");
                return Err(format!("{negotiated}, but gRPC needs HTTP/2; use {http} 2"));
            }
            return Ok(Http::V1);
        }
        None if load.http() == HttpVersion::V1 => {
            return refuse_http2_keys(spec).map(|()| Http::V1);
        }
        Some(Negotiated::Http2) | None => {}
    }
    let value = |given: Option<u64>, default: u32| given.map_or(default, |n| n as u32);
    let default = Http2::default();
    let settings = Http2 {
        streams: value(load.streams, default.streams),
        window_bytes: value(load.h2_window, default.window_bytes),
        table_bytes: value(load.h2_table, default.table_bytes),
        ..default
    };
    refuse_conflicts(spec, connection_use, settings.streams.into())?;
    Ok(Http::V2(settings))
}

/// Returns the peer that closes used connections first.
pub fn close_first(spec: &PlanSpec, http: Http) -> CloseFirst {
    match (http, spec.load.close_first) {
        (Http::V1, given) => given.unwrap_or(CloseFirst::Server),
        (Http::V2(_), Some(CloseFirst::Reset)) => CloseFirst::Reset,
        // Only HTTP/1.1 has a header that asks the server to close.
        (Http::V2(_), _) => CloseFirst::Client,
    }
}

/// Returns the setting that selects HTTP/2, or `HTTP/2` if the server chose it.
fn http2(spec: &PlanSpec) -> &'static str {
    match (spec.load.http, spec.origin) {
        (Some(HttpVersion::Auto), _) => "HTTP/2",
        (_, Origin::CommandLine) => "--http 2",
        (_, Origin::File) => "http = \"2\"",
    }
}

/// Rejects settings that have no effect on HTTP/1.1.
fn refuse_http2_keys(spec: &PlanSpec) -> Result<(), String> {
    let keys = ["streams", "h2-window", "h2-table"];
    match spec.load.given().find(|key| keys.contains(key)) {
        None => Ok(()),
        Some(key) => {
            let (key, needed) = (spec.name(key), http2(spec));
            Err(format!(
                "{key} needs {needed}; add {needed} or remove {key}"
            ))
        }
    }
}

/// Rejects settings that contradict HTTP/2 or its number of streams.
fn refuse_conflicts(
    spec: &PlanSpec,
    connection_use: ConnectionUse,
    streams: u64,
) -> Result<(), String> {
    let limit = match connection_use {
        ConnectionUse::Kept => None,
        ConnectionUse::Fresh => Some((1, "fresh")),
        ConnectionUse::PerConnection(n) => Some((n, "requests-per-connection")),
    };
    if limit.is_some() && spec.load.close_first == Some(CloseFirst::Server) {
        let name = spec.name("close-first");
        return Err(format!(
            "{name} server conflicts with {}, because HTTP/2 has no `Connection: close`; use {name} client or {name} reset",
            http2(spec)
        ));
    }
    let name = spec.name("streams");
    if let Some((limit, key)) = limit.filter(|(limit, _)| *limit < streams) {
        let requests = plural(limit, "request");
        return Err(format!(
            "{name} {streams} conflicts with {}: each connection serves at most {requests}; use {name} {limit}, or allow more requests per connection",
            spec.name(key)
        ));
    }
    if spec.load.check.is_some() && streams > 1 {
        let check = spec.name("check");
        return Err(format!(
            "{check} conflicts with {name} {streams}, because responses on a connection can arrive in any order; use {name} 1"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{CheckKind, LoadSpec};

    fn spec(load: LoadSpec) -> PlanSpec {
        PlanSpec {
            load,
            ..PlanSpec::default()
        }
    }

    fn http2_load() -> LoadSpec {
        LoadSpec {
            http: Some(HttpVersion::V2),
            ..LoadSpec::default()
        }
    }

    #[test]
    fn plans_settings_with_their_defaults() {
        let of = |load| plan(&spec(load), ConnectionUse::Kept, None);
        assert_eq!(of(LoadSpec::default()), Ok(Http::V1));
        assert_eq!(of(http2_load()), Ok(Http::V2(Http2::default())));
        let load = LoadSpec {
            streams: Some(MAX_STREAMS),
            h2_window: Some(MAX_WINDOW),
            h2_table: Some(0),
            ..http2_load()
        };
        let settings = Http2 {
            streams: 1000,
            window_bytes: 64 << 20,
            table_bytes: 0,
            ..Http2::default()
        };
        assert_eq!(of(load), Ok(Http::V2(settings)));
    }

    #[test]
    fn refuses_settings_of_http2_without_it() {
        let load = LoadSpec {
            http: Some(HttpVersion::V1),
            h2_table: Some(0),
            ..LoadSpec::default()
        };
        let of_file = PlanSpec {
            origin: Origin::File,
            ..spec(load.clone())
        };
        assert_eq!(
            plan(&spec(load), ConnectionUse::Kept, None).unwrap_err(),
            "--h2-table needs --http 2; add --http 2 or remove --h2-table"
        );
        assert_eq!(
            plan(&of_file, ConnectionUse::Kept, None).unwrap_err(),
            "`h2-table` needs http = \"2\"; add http = \"2\" or remove `h2-table`"
        );
    }

    #[test]
    fn a_later_choice_of_http_1_1_removes_the_settings_of_http2() {
        let settings = LoadSpec {
            streams: Some(10),
            h2_window: Some(MIN_WINDOW),
            h2_table: Some(0),
            ..http2_load()
        };
        let mut load = settings.clone();
        load.override_with(&LoadSpec {
            http: Some(HttpVersion::V1),
            ..LoadSpec::default()
        });
        assert_eq!(plan(&spec(load), ConnectionUse::Kept, None), Ok(Http::V1));
        let mut load = settings.clone();
        load.override_with(&LoadSpec {
            streams: Some(20),
            ..LoadSpec::default()
        });
        let expected = LoadSpec {
            streams: Some(20),
            ..settings
        };
        assert_eq!(load, expected);
    }

    #[test]
    fn the_server_closes_first_only_with_http_1_1() {
        let by = |close_first| {
            let given = spec(LoadSpec {
                close_first,
                ..http2_load()
            });
            let version_2 = plan(&given, ConnectionUse::Fresh, None);
            let version_2 = version_2.map(|http| super::close_first(&given, http));
            (super::close_first(&given, Http::V1), version_2.ok())
        };
        use CloseFirst::{Client, Reset, Server};
        assert_eq!(by(None), (Server, Some(Client)));
        assert_eq!(by(Some(Server)), (Server, None));
        assert_eq!(by(Some(Client)), (Client, Some(Client)));
        assert_eq!(by(Some(Reset)), (Reset, Some(Reset)));
    }

    #[test]
    fn refuses_more_streams_than_requests_per_connection() {
        let with = |streams, connection_use| {
            let streams = Some(streams);
            let given = spec(LoadSpec {
                streams,
                ..http2_load()
            });
            plan(&given, connection_use, None).map(|http| http.streams())
        };
        assert_eq!(with(1, ConnectionUse::Fresh), Ok(1));
        assert_eq!(with(5, ConnectionUse::PerConnection(5)), Ok(5));
        assert_eq!(
            with(2, ConnectionUse::Fresh).unwrap_err(),
            "--streams 2 conflicts with --fresh: each connection serves at most 1 request; use --streams 1, or allow more requests per connection"
        );
        assert!(with(6, ConnectionUse::PerConnection(5)).is_err());
    }

    #[test]
    fn refuses_a_check_of_concurrent_streams() {
        let with = |streams| {
            let given = spec(LoadSpec {
                streams: Some(streams),
                check: Some(CheckKind::Sequence),
                ..http2_load()
            });
            plan(&given, ConnectionUse::Kept, None)
        };
        assert!(with(1).is_ok());
        let message = with(2).unwrap_err();
        assert!(message.starts_with("--check conflicts with --streams 2"));
    }

    #[test]
    fn uses_the_version_that_the_server_chose() {
        let load = LoadSpec {
            http: Some(HttpVersion::Auto),
            streams: Some(8),
            ..LoadSpec::default()
        };
        let chosen = |load: LoadSpec, connection_use, negotiated: Negotiated| {
            plan(&spec(load), connection_use, Some(&negotiated))
        };
        let kept = ConnectionUse::Kept;
        assert_eq!(chosen(load.clone(), kept, Negotiated::Http1), Ok(Http::V1));
        let streams = chosen(load.clone(), kept, Negotiated::Http2).map(|http| http.streams());
        assert_eq!(streams, Ok(8));
        let closing = LoadSpec {
            close_first: Some(CloseFirst::Server),
            streams: None,
            ..load
        };
        assert_eq!(
            chosen(
                closing.clone(),
                ConnectionUse::Fresh,
                Negotiated::Failed(String::new())
            ),
            Ok(Http::V1)
        );
        let conflict = chosen(closing, ConnectionUse::Fresh, Negotiated::Http2).unwrap_err();
        assert!(conflict.contains("conflicts with HTTP/2"), "{conflict}");
    }
}
