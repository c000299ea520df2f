//! Tests TLS over real sockets.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use floodmark_serve::{Limits, NativeWorkload, Settings};
use hyper::Request;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{
    AlertDescription, CipherSuite, ClientConfig, ClientConnection, Error, HandshakeKind,
    RootCertStore, StreamOwned, SupportedProtocolVersion,
};
use support::{TestClient, TestServer, settings};
use tokio::runtime::Builder;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

static CERTIFIED: LazyLock<Arc<CertifiedKey>> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let key = ring::sign::any_supported_type(&key).unwrap();
    Arc::new(CertifiedKey::new(vec![made.cert.der().clone()], key))
});

/// Number of bytes of [`hello`] that form an incomplete ClientHello.
const PART: usize = 50;

fn with_limits(limits: Limits) -> TestServer {
    TestServer::start(Settings {
        tls: Some(Arc::clone(&CERTIFIED)),
        limits,
        ..settings(NativeWorkload::Hello)
    })
}

fn server() -> TestServer {
    with_limits(Limits::default())
}

/// Returns a client configuration that verifies the certificate and offers these protocols.
fn offering(alpn: &[&str], version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    let mut config = client_config(ring::default_provider(), version);
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

fn client_config(
    provider: CryptoProvider,
    version: &'static SupportedProtocolVersion,
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CERTIFIED.cert[0].clone()).unwrap();
    ClientConfig::builder_with_provider(provider.into())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

fn name() -> ServerName<'static> {
    "127.0.0.1".try_into().unwrap()
}

type TlsClient = TestClient<StreamOwned<ClientConnection, TcpStream>>;

fn connect(server: &TestServer, config: &Arc<ClientConfig>) -> TlsClient {
    let session = ClientConnection::new(Arc::clone(config), name()).unwrap();
    TestClient::over(StreamOwned::new(session, server.connect().stream))
}

fn connect_http1(server: &TestServer) -> TlsClient {
    connect(server, &offering(&["http/1.1"], &TLS13))
}

fn connect_http2(server: &TestServer) -> TlsClient {
    let mut client = connect(server, &offering(&["h2"], &TLS13));
    // The preface and empty SETTINGS.
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    client
}

/// Reads HTTP/2 frames until the TLS session ends, and acknowledges each PING. Returns whether the
/// last frame was a GOAWAY.
fn ends_after_goaway(mut client: TlsClient) -> bool {
    const PING: u8 = 6;
    const GOAWAY: u8 = 7;
    let mut last = None;
    loop {
        let mut header = [0; 9];
        // A connection that ends without a close_notify alert is an error in rustls.
        if client.stream.read(&mut header[..1]).unwrap() == 0 {
            return last == Some(GOAWAY);
        }
        client.stream.read_exact(&mut header[1..]).unwrap();
        let [high, middle, low, kind, flags, ..] = header;
        let length = u32::from_be_bytes([0, high, middle, low]);
        let mut payload = vec![0; length as usize];
        client.stream.read_exact(&mut payload).unwrap();
        if kind == PING && flags == 0 {
            client.send([&[0, 0, 8, PING, 1, 0, 0, 0, 0], &payload[..]].concat());
        }
        last = Some(kind);
    }
}

/// Returns a session and the first bytes of its handshake.
fn hello() -> (ClientConnection, Vec<u8>) {
    let mut bytes = Vec::new();
    let mut session = ClientConnection::new(offering(&[], &TLS13), name()).unwrap();
    session.write_tls(&mut bytes).unwrap();
    (session, bytes)
}

#[test]
fn serves_http1_to_clients_that_offer_it_or_nothing() {
    let server = server();
    for version in [&TLS12, &TLS13] {
        for alpn in [&["http/1.1"][..], &["x", "http/1.1"], &[]] {
            let mut client = connect(&server, &offering(alpn, version));
            for _ in 0..3 {
                assert_eq!(client.get("/").body, "Hello World", "{alpn:?}");
            }
            let session = &client.stream.conn;
            assert_eq!(session.protocol_version(), Some(version.version));
            let selected = (!alpn.is_empty()).then_some(&b"http/1.1"[..]);
            assert_eq!(session.alpn_protocol(), selected);
        }
    }
    let summary = server.stop();
    assert_eq!((summary.accepted, summary.answered), (6, 18));
}

#[test]
fn serves_http2_to_clients_that_offer_it() {
    let server = server();
    let address = server.address;
    let test = async {
        for version in [&TLS12, &TLS13] {
            let connector = TlsConnector::from(offering(&["http/1.1", "h2"], version));
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let stream = connector.connect(name(), stream).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            let (mut requests, connection) = h2::client::handshake(stream).await.unwrap();
            let ended = tokio::spawn(connection);
            let responses = (0..3).map(|_| {
                let request = Request::get(format!("https://{address}/"))
                    .body(())
                    .unwrap();
                requests.send_request(request, true).unwrap().0
            });
            for response in responses.collect::<Vec<_>>() {
                let response = response.await.unwrap();
                assert_eq!(response.status(), 200);
                let body = response.into_body().data().await.unwrap().unwrap();
                assert_eq!(body, "Hello World");
            }
            drop(requests);
            ended.await.unwrap().unwrap();
        }
    };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let limited = async { timeout(Duration::from_secs(60), test).await.unwrap() };
    runtime.block_on(limited);
    let summary = server.stop();
    assert_eq!((summary.accepted, summary.answered), (2, 6));
}

#[test]
fn selects_the_same_cipher_suite_for_all_clients() {
    let server = server();
    let mut reversed = ring::default_provider();
    reversed.cipher_suites.reverse();
    for config in [
        offering(&[], &TLS13),
        Arc::new(client_config(reversed, &TLS13)),
    ] {
        let mut client = connect(&server, &config);
        assert_eq!(client.get("/").status, 200);
        let suite = client.stream.conn.negotiated_cipher_suite().unwrap();
        assert_eq!(suite.suite(), CipherSuite::TLS13_AES_256_GCM_SHA384);
    }
}

#[test]
fn resumes_sessions() {
    let server = server();
    for version in [&TLS12, &TLS13] {
        let config = offering(&["http/1.1"], version);
        for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let mut client = connect(&server, &config);
            assert_eq!(client.get("/").status, 200);
            assert_eq!(client.stream.conn.handshake_kind(), Some(expected));
        }
    }
}

#[test]
fn refuses_plain_http() {
    let server = server();
    let mut client = server.connect();
    let response = client.get("/");
    assert_eq!(response.status, 400);
    assert_eq!(
        response.body,
        r#"{"error": "this port serves https; use an https URL"}"#
    );
    assert!(client.is_closed());
    // The preface of HTTP/2.
    let mut client = server.connect();
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(client.response().status, 400);
    assert_eq!(server.stop().answered, 0);
}

#[test]
fn refuses_invalid_handshakes_with_an_alert() {
    let server = server();
    let mut client = server.connect();
    client.send([0x16; 2000]);
    let mut received = Vec::new();
    client.stream.read_to_end(&mut received).unwrap();
    assert_eq!(received[0], 0x15, "{received:?}");
    let mut client = connect(&server, &offering(&["spdy/3"], &TLS13));
    let error = client.stream.write_all(b"GET").unwrap_err();
    let error: Box<Error> = error.into_inner().unwrap().downcast().unwrap();
    assert_eq!(
        *error,
        Error::AlertReceived(AlertDescription::NoApplicationProtocol)
    );
    // HTTP/2 requires ALPN.
    let mut client = connect(&server, &offering(&[], &TLS13));
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert!(client.is_closed());
    assert_eq!(connect_http1(&server).get("/").status, 200);
}

#[test]
fn incomplete_handshakes_delay_nobody() {
    let server = server();
    let began = Instant::now();
    let (_, hello) = hello();
    let mut slow: Vec<_> = (0..50).map(|_| server.connect()).collect();
    for client in &mut slow {
        client.send(&hello[..PART]);
    }
    assert_eq!(connect_http1(&server).get("/").body, "Hello World");
    assert!(
        began.elapsed() < Limits::default().request,
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn handshakes_have_a_time_limit() {
    let limit = Duration::from_millis(1500);
    let idle = Duration::from_secs(6);
    let server = with_limits(Limits {
        request: limit,
        idle,
        ..Limits::default()
    });
    let began = Instant::now();
    let (_, hello) = hello();
    let mut slow = [server.connect(), server.connect()];
    for client in &mut slow {
        client.send(&hello[..PART]);
    }
    let mut silent = server.connect();
    // Receiving one byte at a time does not extend the limit.
    for byte in &hello[PART..] {
        let sent = slow[0].stream.write_all(&[*byte]);
        if sent.is_err() || began.elapsed() > Duration::from_secs(5) {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    // The server had not read all bytes from the first client when it closed the connection.
    let ended = slow[0].stream.read(&mut [0; 1]);
    assert!(matches!(ended, Ok(0)) || ended.unwrap_err().kind() == ErrorKind::ConnectionReset);
    assert!(slow[1].is_closed());
    assert!(began.elapsed() > limit, "{:?}", began.elapsed());
    assert!(began.elapsed() < idle, "{:?}", began.elapsed());
    assert!(silent.is_closed());
    assert!(began.elapsed() > idle, "{:?}", began.elapsed());
}

#[test]
fn the_idle_time_begins_after_the_handshake() {
    let server = with_limits(Limits {
        idle: Duration::from_secs(6),
        ..Limits::default()
    });
    let (mut session, hello) = hello();
    let mut stream = server.connect().stream;
    stream.write_all(&hello[..PART]).unwrap();
    thread::sleep(Duration::from_secs(4));
    stream.write_all(&hello[PART..]).unwrap();
    session.complete_io(&mut stream).unwrap();
    assert!(!session.is_handshaking());
    // The server closes an idle connection at most 1.1 s after the limit.
    thread::sleep(Duration::from_secs(4));
    let mut client = TestClient::over(StreamOwned::new(session, stream));
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn ends_the_session_before_the_connection() {
    let server = server();
    // A connection that ends without a close_notify alert is an error in rustls.
    let mut last = connect_http1(&server);
    last.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!(last.response().body, "Hello World");
    assert!(last.is_closed());
    let mut invalid = connect_http1(&server);
    invalid.send("invalid\r\n\r\n");
    assert_eq!(invalid.response().status, 400);
    assert!(invalid.is_closed());
    let impatient = with_limits(Limits {
        idle: Duration::from_secs(2),
        ..Limits::default()
    });
    let mut idle = connect_http1(&impatient);
    assert_eq!(idle.get("/").status, 200);
    assert!(idle.is_closed());
    assert!(ends_after_goaway(connect_http2(&impatient)));
    let client = connect_http2(&server);
    let ending = server.begin_stop();
    assert!(ends_after_goaway(client));
    ending.join().unwrap().unwrap();
}

#[test]
fn finishes_requests_at_shutdown() {
    let server = server();
    let mut handshake = server.connect();
    handshake.send(&hello().1[..PART]);
    let mut idle = connect_http1(&server);
    assert_eq!(idle.get("/").status, 200);
    let mut client = connect_http1(&server);
    client.send("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab");
    client.stream.flush().unwrap();
    thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    let ending = server.begin_stop();
    thread::sleep(Duration::from_millis(200));
    client.send("cd");
    let response = client.response();
    assert_eq!(response.body, "Hello World");
    assert_eq!(response.header("connection"), Some("close"));
    assert!(client.is_closed() && idle.is_closed() && handshake.is_closed());
    let summary = ending.join().unwrap().unwrap();
    assert!(
        began.elapsed() < Limits::default().grace,
        "{:?}",
        began.elapsed()
    );
    // The incomplete handshake counts like an incomplete request.
    assert_eq!(
        (summary.accepted, summary.answered, summary.cut_at_end),
        (3, 2, 1)
    );
}
