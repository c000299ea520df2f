//! HTTPS tests with both backends and rustls servers on loopback.

#![allow(clippy::unwrap_used, reason = "tests")]

#[macro_use]
mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use common::plans::{closed_plan, open_plan};
use common::server::{RESPONSE, read_request, respond_to_all, serve};
use common::tls::{Authority, Identity, SUITES, Valid, requiring_certificates, server};
use common::{Run, input, try_input};
use floodmark_load::tls::{self, chooses_http2};
use floodmark_load::worker::StopFlag;
use floodmark_record::TimeKind;
use floodmark_record::events::EndReason;
use floodmark_record::plan::{Arrivals, Backend, CloseFirst, ConnectionUse, Http, Http2, Plan};
use floodmark_record::tls::{TlsCredentials, TlsPlan, Trust};
use floodmark_record::worker_input::WorkerInput;
use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
use rustls::{HandshakeKind, ServerConfig, ServerConnection, Stream};

on_both_backends! {
    every_suite_carries_kept_and_fresh_connections
    resumes_sessions_if_both_sides_allow_it
    responses_and_requests_of_any_size_arrive_complete
    the_open_model_works_over_https
    a_client_that_closes_first_sends_close_notify
    a_truncated_response_is_an_error
    a_modified_record_makes_the_response_malformed
    names_an_alert
    renews_keys_within_a_run
    responds_to_close_notify
    names_the_reason_for_a_refused_certificate
    insecure_mode_accepts_any_certificate
    accepts_a_ca_certificate_in_the_file
    names_a_server_that_requires_a_certificate
    sends_a_client_certificate_on_request
    names_the_reason_for_a_rejected_client_certificate
    names_other_handshake_failures
    a_server_that_knows_http2_chooses_it
    refuses_a_server_that_does_not_choose_http2
    names_servers_that_cannot_speak_http2_over_tls
    a_handshake_that_hangs_times_out
}

static AUTHORITY: LazyLock<Authority> = LazyLock::new(Authority::new);
static IDENTITY: LazyLock<Identity> = LazyLock::new(|| AUTHORITY.issue(&["localhost"], Valid::Now));

fn config() -> ServerConfig {
    server(&IDENTITY, &SUITES, true)
}

/// A server that speaks TLS on each connection, and records the kind of each handshake.
struct Server {
    address: SocketAddr,
    shaken: Arc<Mutex<Vec<HandshakeKind>>>,
}

type Tls<'a> = Stream<'a, ServerConnection, TcpStream>;

impl Server {
    /// Starts a server that calls `speak` for each connection.
    /// If the connection is then still intact, the server sends close_notify.
    fn start(config: ServerConfig, speak: impl Fn(&mut Tls<'_>) + Send + Sync + 'static) -> Self {
        let config = Arc::new(config);
        let shaken = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&shaken);
        let address = serve(move |mut tcp, _| {
            let mut connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            while connection.is_handshaking() {
                if connection.complete_io(&mut tcp).is_err() {
                    return;
                }
            }
            seen.lock()
                .unwrap()
                .push(connection.handshake_kind().unwrap());
            speak(&mut Stream::new(&mut connection, &mut tcp));
            connection.send_close_notify();
            let _ = connection.complete_io(&mut tcp);
        });
        Server { address, shaken }
    }

    /// Starts a server that responds to all requests.
    fn responding(config: ServerConfig) -> Self {
        Self::start(config, |stream| respond_to_all(stream, &AtomicU64::new(0)))
    }

    fn resumed(&self) -> u64 {
        let shaken = self.shaken.lock().unwrap();
        shaken
            .iter()
            .filter(|kind| **kind == HandshakeKind::Resumed)
            .count() as u64
    }
}

/// Returns `plan` with TLS.
fn secured(backend: Backend, address: SocketAddr, plan: Plan) -> WorkerInput {
    let mut plan = Plan {
        backend,
        tls: Some(TlsPlan {
            server_name: "localhost".to_owned(),
            trust: Trust::File,
            resumption: true,
            client_certificate_sha256: None,
        }),
        ..plan
    };
    plan.target.address = address.into();
    WorkerInput {
        credentials: TlsCredentials {
            anchors: vec![AUTHORITY.anchor()],
            identity: None,
        },
        ..input(plan)
    }
}

fn fresh(requests: u64) -> Plan {
    Plan {
        connection_use: ConnectionUse::Fresh,
        ..closed_plan(2, requests)
    }
}

fn run(input: WorkerInput) -> Run {
    let run = try_input(input, &StopFlag::default()).unwrap();
    assert!(run.end.tls.is_some());
    run
}

fn times(run: &Run, kind: TimeKind) -> u64 {
    let decode = |text: &String| floodmark_stats::Histogram::decode(text).unwrap().count();
    run.rows
        .iter()
        .filter_map(|row| row.histograms.get(&kind))
        .map(decode)
        .sum()
}

fn every_suite_carries_kept_and_fresh_connections(backend: Backend) {
    for suite in SUITES {
        let server = Server::responding(server(&IDENTITY, &[suite], true));
        for (plan, connections) in [(closed_plan(3, 200), 3), (fresh(20), 20)] {
            let run = run(secured(backend, server.address, plan));
            let counts = &run.end.counts;
            assert_eq!(counts.ok, counts.intended, "{suite:?}: {:?}", run.end);
            let tls = run.end.tls.as_ref().unwrap();
            assert_eq!(
                (run.end.connects, tls.handshakes),
                (connections, connections)
            );
            assert_eq!(times(&run, TimeKind::Connect), connections);
            assert_eq!(times(&run, TimeKind::Handshake), connections);
            assert_eq!(tls.negotiated.len(), 1);
            let (name, n) = tls.negotiated.first_key_value().unwrap();
            assert_eq!(*n, connections);
            let suite = format!("{:?}", suite.suite());
            assert!(
                suite.ends_with(name.split(' ').next_back().unwrap()),
                "{name}"
            );
            assert!(tls.wire_bytes_sent > run.end.bytes_sent);
            assert!(tls.wire_bytes_received > run.end.bytes_received);
            assert_eq!(tls.failure, None);
        }
    }
}

fn resumes_sessions_if_both_sides_allow_it(backend: Backend) {
    for suite in [SUITES[0], SUITES[3]] {
        for (ours, theirs) in [(true, true), (false, true), (true, false)] {
            let server = Server::responding(server(&IDENTITY, &[suite], theirs));
            let mut input = secured(backend, server.address, fresh(30));
            input.plan.tls.as_mut().unwrap().resumption = ours;
            let run = run(input);
            assert_eq!(run.end.counts.ok, 30);
            let tls = run.end.tls.unwrap();
            assert_eq!((tls.handshakes, tls.resumed), (30, server.resumed()));
            if ours && theirs {
                // Only connections that started before the end of the first handshake have no
                // session to resume.
                assert!(tls.resumed >= 26, "{suite:?}: {}", tls.resumed);
            } else {
                assert_eq!(tls.resumed, 0);
            }
        }
    }
}

fn responses_and_requests_of_any_size_arrive_complete(backend: Backend) {
    for (suite, fragment) in [(0, None), (3, None), (2, Some(100)), (5, Some(1000))] {
        let mut config = server(&IDENTITY, &[SUITES[suite]], true);
        config.max_fragment_size = fragment;
        let server = Server::start(config, |stream| {
            // The server sends the body back.
            let mut bytes = Vec::new();
            let mut buffer = vec![0; 70_000];
            while let Ok(n @ 1..) = stream.read(&mut buffer) {
                bytes.extend_from_slice(&buffer[..n]);
                let head = bytes.windows(4).position(|four| four == b"\r\n\r\n");
                let Some(head) = head.map(|at| at + 4) else {
                    continue;
                };
                let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
                let length = text.split_once("content-length: ").unwrap().1;
                let length: usize = length.split_once('\r').unwrap().0.parse().unwrap();
                if bytes.len() == head + length {
                    let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                    stream.write_all(response.as_bytes()).unwrap();
                    stream.write_all(&bytes[head..]).unwrap();
                    bytes.clear();
                }
            }
        });
        for length in [1, 16_384, 16_385, 700_000] {
            let mut input = secured(backend, server.address, closed_plan(2, 6));
            let body: String = (0..length)
                .map(|i| (b'a' + (i % 23) as u8) as char)
                .collect();
            input.plan.request.method = "POST".to_owned();
            input.plan.request.body = body.clone().into_bytes().into();
            input.plan.expect = vec![floodmark_record::plan::Expect::Body(body)];
            input.plan.timeout = Duration::from_secs(30);
            let run = run(input);
            assert_eq!(run.end.counts.ok, 6, "{length}: {:?}", run.end);
        }
    }
}

fn the_open_model_works_over_https(backend: Backend) {
    let server = Server::responding(config());
    for connection_use in [ConnectionUse::Kept, ConnectionUse::Fresh] {
        let plan = Plan {
            connection_use,
            threads: 2,
            timeout: Duration::from_secs(30),
            ..open_plan(Arrivals::Constant, 100.0, None, Some(60))
        };
        let run = run(secured(backend, server.address, plan));
        assert_eq!(run.end.counts.ok, 60, "{:?}", run.end);
    }
}

fn a_client_that_closes_first_sends_close_notify(backend: Backend) {
    let ends = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&ends);
    let server = Server::start(config(), move |stream| {
        respond_to_all(stream, &AtomicU64::new(0));
        // rustls returns 0 after close_notify, and an error if the stream ends without
        // close_notify.
        let end = stream.read(&mut [0; 10]).map_err(|error| error.kind());
        seen.lock().unwrap().push(end);
    });
    let plan = Plan {
        close_first: CloseFirst::Client,
        ..fresh(8)
    };
    let run = run(secured(backend, server.address, plan));
    assert_eq!(run.end.counts.ok, 8, "{:?}", run.end);
    let all = || (ends.lock().unwrap().len() == 8).then_some(());
    common::wait_for("the server's ends", all);
    assert_eq!(*ends.lock().unwrap(), vec![Ok(0); 8]);
}

fn a_truncated_response_is_an_error(backend: Backend) {
    // A response without a length ends when the connection ends. Only close_notify shows that the
    // response is complete.
    for whole in [true, false] {
        let server = Server::start(config(), move |stream| {
            read_request(stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf of").unwrap();
            if !whole {
                stream.flush().unwrap();
                stream.sock.shutdown(Shutdown::Write).unwrap();
            }
        });
        let run = run(secured(backend, server.address, fresh(3)));
        let counts = &run.end.counts;
        if whole {
            assert_eq!((counts.ok, counts.malformed), (3, 0), "{:?}", run.end);
        } else {
            assert_eq!((counts.ok, counts.malformed), (0, 3), "{:?}", run.end);
            assert_eq!(run.end.errors["tls_closed_without_notify"], 3);
        }
    }
}

fn a_modified_record_makes_the_response_malformed(backend: Backend) {
    for after in [0, 20] {
        let server = Server::start(config(), move |stream| {
            read_request(stream);
            stream.write_all(&RESPONSE[..after]).unwrap();
            stream.flush().unwrap();
            stream.conn.writer().write_all(&RESPONSE[after..]).unwrap();
            let mut record = Vec::new();
            stream.conn.write_tls(&mut record).unwrap();
            *record.last_mut().unwrap() ^= 1;
            stream.sock.write_all(&record).unwrap();
            let _ = stream.sock.read(&mut [0; 100]);
        });
        let run = run(secured(backend, server.address, closed_plan(1, 3)));
        assert_eq!(run.end.counts.malformed, 3, "{after}: {:?}", run.end);
        assert_eq!(run.end.errors["tls_bad_record"], 3);
    }
}

fn names_an_alert(backend: Backend) {
    for (after, outcome) in [(0, "reset"), (20, "malformed")] {
        let server = Server::start(config(), move |stream| {
            read_request(stream);
            stream.write_all(&RESPONSE[..after]).unwrap();
            stream.flush().unwrap();
            // A record that fails to decrypt makes rustls send an alert.
            let mut garbage = vec![23, 3, 3, 0, 40];
            garbage.extend([7; 40]);
            stream.conn.read_tls(&mut garbage.as_slice()).unwrap();
            assert!(stream.conn.process_new_packets().is_err());
            while stream.conn.wants_write() {
                stream.conn.write_tls(stream.sock).unwrap();
            }
            let _ = stream.sock.read(&mut [0; 100]);
        });
        let run = run(secured(backend, server.address, fresh(3)));
        let counts = &run.end.counts;
        let counted = [("reset", counts.reset), ("malformed", counts.malformed)];
        assert!(counted.contains(&(outcome, 3)), "{:?}", run.end);
        assert_eq!(run.end.errors["tls_alert_bad_record_mac"], 3);
    }
}

fn renews_keys_within_a_run(backend: Backend) {
    let server = Server::start(server(&IDENTITY, &SUITES[..1], true), |stream| {
        while read_request(stream) {
            stream.conn.refresh_traffic_keys().unwrap();
            stream.write_all(RESPONSE).unwrap();
        }
    });
    let run = run(secured(backend, server.address, closed_plan(2, 100)));
    assert_eq!(run.end.counts.ok, 100, "{:?}", run.end);
    assert_eq!(run.end.connects, 2);
}

fn responds_to_close_notify(backend: Backend) {
    let server = Server::start(config(), |stream| {
        read_request(stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nall").unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        // The server does not close the connection before the client sends close_notify.
        assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
    });
    let mut plan = fresh(4);
    plan.timeout = Duration::from_secs(30);
    let run = run(secured(backend, server.address, plan));
    assert_eq!(run.end.counts.ok, 4, "{:?}", run.end);
    assert!(run.took.as_secs() < 25, "{:?}", run.took);
}

/// Checks that all connections fail with the error `name`, and that the run ends because no server
/// is reachable.
fn refused_as(input: WorkerInput, name: &str, words: &str) {
    let run = run(input);
    let counts = &run.end.counts;
    assert_eq!((counts.sent, run.end.connects), (0, 0), "{:?}", run.end);
    assert!(run.end.errors.contains_key(name), "{name}: {:?}", run.end);
    assert_eq!(run.end.reason, EndReason::ServerGone);
    let tls = run.end.tls.unwrap();
    assert_eq!(tls.handshakes, 0);
    let failure = tls.failure.unwrap();
    assert!(failure.contains(words), "{failure}");
}

fn certificates() -> [(Identity, &'static str, &'static str); 6] {
    let by = |authority: Authority| authority.issue(&["localhost"], Valid::Now);
    [
        (
            by(Authority::named("a stranger")),
            "tls_unknown_issuer",
            "not signed by a trusted authority",
        ),
        (
            by(Authority::new()),
            "tls_unknown_issuer",
            "but its signature is invalid",
        ),
        (
            AUTHORITY.issue(&["other.example", "127.0.0.1"], Valid::Now),
            "tls_wrong_name",
            "valid for other.example, 127.0.0.1, not for localhost",
        ),
        (
            AUTHORITY.issue(&["localhost"], Valid::NoLonger),
            "tls_certificate_expired",
            "days ago",
        ),
        (
            AUTHORITY.issue(&["localhost"], Valid::NotYet),
            "tls_certificate_not_valid_yet",
            "not valid yet",
        ),
        (
            Authority::named("a stranger").itself(),
            "tls_certificate_is_an_authority",
            "belongs to a certificate authority",
        ),
    ]
}

fn names_the_reason_for_a_refused_certificate(backend: Backend) {
    for (identity, name, words) in certificates() {
        for suite in [SUITES[0], SUITES[3]] {
            let server = Server::responding(server(&identity, &[suite], true));
            let input = secured(backend, server.address, closed_plan(2, 10));
            refused_as(input, name, words);
        }
    }
}

/// As `openssl req -x509` creates it.
fn accepts_a_ca_certificate_in_the_file(backend: Backend) {
    let server = Server::responding(server(&AUTHORITY.itself(), &SUITES, true));
    let mut input = secured(backend, server.address, closed_plan(2, 10));
    assert_eq!(run(input.clone()).end.counts.ok, 10);
    input.plan.tls.as_mut().unwrap().server_name = "other.example".to_owned();
    refused_as(
        input,
        "tls_wrong_name",
        "valid for localhost, not for other.example",
    );
}

fn names_a_server_that_requires_a_certificate(backend: Backend) {
    let identity = AUTHORITY.issue(&["localhost"], Valid::Now);
    for suite in [SUITES[0], SUITES[3]] {
        let config = requiring_certificates(&AUTHORITY, &identity, &[suite]);
        let server = Server::responding(config);
        let run = run(secured(backend, server.address, closed_plan(2, 10)));
        let name = "tls_alert_certificate_required";
        assert!(run.end.errors.contains_key(name), "{:?}", run.end);
        assert_eq!(run.end.counts.ok, 0);
    }
}

/// Returns the input with a client certificate.
fn certified(mut input: WorkerInput, identity: &Identity) -> WorkerInput {
    input.credentials.identity = Some(identity.of_client());
    input
}

fn sends_a_client_certificate_on_request(backend: Backend) {
    for suite in [SUITES[0], SUITES[3]] {
        for algorithm in [
            &PKCS_ECDSA_P256_SHA256,
            &PKCS_ECDSA_P384_SHA384,
            &PKCS_ED25519,
        ] {
            let client = AUTHORITY.issue_client(algorithm, Valid::Now);
            let config = requiring_certificates(&AUTHORITY, &IDENTITY, &[suite]);
            let server = Server::responding(config);
            let input = secured(backend, server.address, fresh(20));
            let run = run(certified(input, &client));
            assert_eq!(run.end.counts.ok, 20, "{:?}", run.end);
            let tls = run.end.tls.unwrap();
            // A resumed session contains the client's certificate.
            assert!(tls.resumed > 0 && tls.resumed == server.resumed());
            assert_eq!(tls.certificate_requests + tls.resumed, tls.handshakes);
            assert_eq!(tls.certificates_sent, tls.certificate_requests);
        }
    }
    let client = AUTHORITY.issue_client(&PKCS_ED25519, Valid::Now);
    let server = Server::responding(config());
    let input = secured(backend, server.address, closed_plan(2, 10));
    let tls = run(certified(input, &client)).end.tls.unwrap();
    assert_eq!((tls.certificate_requests, tls.certificates_sent), (0, 0));
}

fn names_the_reason_for_a_rejected_client_certificate(backend: Backend) {
    let issued = |valid| AUTHORITY.issue_client(&PKCS_ECDSA_P256_SHA256, valid);
    let stranger = Authority::named("a stranger");
    for (client, name, words) in [
        (
            stranger.issue_client(&PKCS_ECDSA_P256_SHA256, Valid::Now),
            "tls_alert_unknown_ca",
            "does not trust the authority",
        ),
        (
            issued(Valid::NoLonger),
            "tls_alert_certificate_expired",
            "expired or not valid yet",
        ),
        (
            AUTHORITY.issue(&["localhost"], Valid::Now),
            "tls_alert_bad_certificate",
            "its type is not supported",
        ),
    ] {
        for suite in [SUITES[0], SUITES[3]] {
            let config = requiring_certificates(&AUTHORITY, &IDENTITY, &[suite]);
            let server = Server::responding(config);
            let input = secured(backend, server.address, closed_plan(2, 10));
            let run = run(certified(input, &client));
            assert_eq!(run.end.counts.ok, 0);
            assert!(run.end.errors.contains_key(name), "{name}: {:?}", run.end);
            let failure = run.end.tls.unwrap().failure.unwrap();
            assert!(
                failure.contains("rejects the client certificate"),
                "{failure}"
            );
            assert!(failure.contains(words), "{failure}");
        }
    }
}

fn insecure_mode_accepts_any_certificate(backend: Backend) {
    for (identity, ..) in certificates() {
        let server = Server::responding(server(&identity, &SUITES, true));
        let mut input = secured(backend, server.address, closed_plan(2, 10));
        input.plan.tls.as_mut().unwrap().trust = Trust::Nothing;
        input.credentials.anchors.clear();
        assert_eq!(run(input).end.counts.ok, 10);
    }
}

fn names_other_handshake_failures(backend: Backend) {
    let mut other = config();
    other.alpn_protocols = vec![b"h2".to_vec()];
    let other = Server::responding(other);
    let mut same = config();
    same.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let same = Server::responding(same);
    let ok = run(secured(backend, same.address, closed_plan(1, 5)));
    assert_eq!(ok.end.counts.ok, 5);
    let plain = serve(|mut stream, _| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    let mail = serve(|mut stream, _| {
        let _ = stream.write_all(b"220 mail.example ESMTP\r\n");
        let _ = stream.read(&mut [0; 4096]);
    });
    let silent = serve(|mut stream, _| {
        let _ = stream.read(&mut [0; 4096]);
    });
    for (address, name, words) in [
        (other.address, "tls_alpn_refused", ""),
        (plain, "tls_answered_in_plain_http", "plain HTTP"),
        (mail, "tls_not_spoken", "does not speak TLS"),
        (silent, "tls_closed_in_handshake", "during the handshake"),
    ] {
        let input = secured(backend, address, closed_plan(2, 10));
        refused_as(input, name, words);
    }
}

/// Returns a server configuration with these application protocols.
fn speaking(suite: usize, protocols: &[&[u8]]) -> ServerConfig {
    let mut config = server(&IDENTITY, &[SUITES[suite]], true);
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    config
}

/// Returns `plan` with TLS and HTTP/2.
fn secured_http2(backend: Backend, address: SocketAddr, plan: Plan) -> WorkerInput {
    let http = Http::V2(Http2::default());
    secured(backend, address, Plan { http, ..plan })
}

fn a_server_that_knows_http2_chooses_it(backend: Backend) {
    for suite in [0, 3] {
        for protocols in [&[&b"h2"[..]][..], &[b"http/1.1", b"h2"]] {
            let chosen = Arc::new(Mutex::new(Vec::new()));
            let seen = Arc::clone(&chosen);
            let server = Server::start(speaking(suite, protocols), move |stream| {
                let protocol = stream.conn.alpn_protocol().map(<[u8]>::to_vec);
                seen.lock().unwrap().push(protocol);
                let _ = stream.read(&mut [0; 4096]);
            });
            let run = run(secured_http2(backend, server.address, closed_plan(1, 1)));
            assert!(run.end.tls.unwrap().handshakes > 0);
            let chosen = chosen.lock().unwrap();
            assert!(!chosen.is_empty());
            let is_http2 = |protocol: &Option<Vec<u8>>| protocol.as_deref() == Some(b"h2");
            assert!(chosen.iter().all(is_http2), "{chosen:?}");
        }
    }
}

fn refuses_a_server_that_does_not_choose_http2(backend: Backend) {
    for suite in [0, 3] {
        // The first server chooses no protocol, and the second server sends an alert.
        for protocols in [&[][..], &[&b"http/1.1"[..]]] {
            let server = Server::responding(speaking(suite, protocols));
            let input = secured_http2(backend, server.address, closed_plan(2, 10));
            let words = "the server does not support HTTP/2 over TLS (ALPN)";
            refused_as(input, "tls_http2_not_chosen", words);
        }
    }
}

/// Returns the first message of a TLS 1.2 server, with the cipher suite and protocol that it chose.
fn server_hello(suite: [u8; 2], protocol: &[u8]) -> Vec<u8> {
    let sized = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes(), bytes].concat();
    let name = [&[protocol.len() as u8], protocol].concat();
    let alpn = [&[0, 16], &sized(&sized(&name))[..]].concat();
    let hello = [&[3, 3], &[7; 32][..], &[0], &suite, &[0], &sized(&alpn)].concat();
    let message = [&[2, 0], &sized(&hello)[..]].concat();
    [&[22, 3, 3], &sized(&message)[..]].concat()
}

fn names_servers_that_cannot_speak_http2_over_tls(backend: Backend) {
    // TLS_RSA_WITH_AES_128_CBC_SHA is prohibited (RFC 9113, appendix A).
    let (allowed, prohibited) = ([0xc0, 0x2f], [0, 0x2f]);
    for (bytes, name) in [
        (server_hello(allowed, b"http/1.1"), "tls_http2_not_chosen"),
        (server_hello(prohibited, b"h2"), "tls_protocol_violation"),
        // A server that has only prohibited suites.
        (vec![21, 3, 3, 0, 2, 2, 40], "tls_alert_handshake_failure"),
        // HTTP/2 without TLS: SETTINGS.
        (b"\0\0\0\x04\0\0\0\0\0".to_vec(), "tls_not_spoken"),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            "tls_answered_in_plain_http",
        ),
    ] {
        let server = serve(move |mut stream, _| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(&bytes);
            // Wait until the client has read the bytes.
            let _ = stream.read(&mut [0; 4096]);
        });
        let input = secured_http2(backend, server, closed_plan(2, 10));
        refused_as(input, name, "");
    }
}

#[test]
fn the_server_chooses_the_version_of_http() {
    let plan = TlsPlan {
        server_name: "localhost".to_owned(),
        trust: Trust::Nothing,
        resumption: true,
        client_certificate_sha256: None,
    };
    let tls = tls::Tls::new(&plan, &TlsCredentials::default()).unwrap();
    let timeout = Duration::from_millis(500);
    for suite in [0, 3] {
        for (protocols, expected) in [
            (&[&b"h2"[..], b"http/1.1"][..], true),
            (&[b"http/1.1", b"h2"], false),
            (&[b"http/1.1"], false),
            (&[], false),
        ] {
            let server = Server::responding(speaking(suite, protocols));
            let is_http2 = chooses_http2(&tls, &server.address.into(), timeout).unwrap();
            assert_eq!(is_http2, expected, "{protocols:?}");
        }
    }
    let plain = serve(|mut stream, _| stream.write_all(b"HTTP/1.1 400 Bad\r\n\r\n").unwrap());
    let silent = serve(|mut stream, _| while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {});
    for address in [plain, silent] {
        let begin = Instant::now();
        assert!(chooses_http2(&tls, &address.into(), timeout).is_err());
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
}

fn a_handshake_that_hangs_times_out(backend: Backend) {
    let address = serve(|mut stream, _| while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {});
    let mut plan = fresh(4);
    plan.timeout = Duration::from_millis(200);
    let run = run(secured(backend, address, plan));
    assert_eq!(run.end.counts.sent, 0);
    assert!(
        run.end.errors.contains_key("tls_handshake_timed_out"),
        "{:?}",
        run.end
    );
    assert!(times(&run, TimeKind::Connect) > 0);
}
