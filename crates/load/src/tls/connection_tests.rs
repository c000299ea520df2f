//! Handshakes and records against an in-memory rustls server.

use std::io::{Cursor, Read, Write};
use std::sync::LazyLock;

use floodmark_record::plan::{Http, Http2};
use floodmark_record::tls::{TlsCredentials, TlsPlan, Trust};
use proptest::prelude::*;
use rustls::server::Acceptor;
use rustls::{ServerConfig, ServerConnection, SupportedCipherSuite};

use super::super::config::Tls;
use super::super::testing::{Authority, Identity, SUITES, Valid, server};
use super::*;

static AUTHORITY: LazyLock<Authority> = LazyLock::new(Authority::new);
static IDENTITY: LazyLock<Identity> = LazyLock::new(|| AUTHORITY.issue(&["localhost"], Valid::Now));

fn config(suite: SupportedCipherSuite) -> ServerConfig {
    server(&IDENTITY, &[suite], true)
}

fn tls() -> Tls {
    let plan = TlsPlan {
        server_name: "localhost".to_owned(),
        trust: Trust::File,
        resumption: true,
        client_certificate_sha256: None,
    };
    let anchors = vec![AUTHORITY.anchor()];
    let credentials = TlsCredentials {
        anchors,
        identity: None,
    };
    Tls::new(&plan, &credentials).unwrap()
}

fn begin(tls: &Tls) -> TlsConnection {
    let (config, sender) = tls.for_thread();
    TlsConnection::begin(config, tls.name.clone(), sender).unwrap()
}

/// The client's end and the server's end of a connection.
struct Pair {
    client: TlsConnection,
    server: ServerConnection,
    records: Vec<u8>,
    plain: Vec<u8>,
}

impl Pair {
    /// Completes a handshake. `cut` returns the sizes of the pieces in which the server's output
    /// arrives.
    fn new(config: ServerConfig, mut cut: impl FnMut() -> usize) -> Self {
        let mut pair = Pair {
            client: begin(&tls()),
            server: ServerConnection::new(Arc::new(config)).unwrap(),
            records: Vec::new(),
            plain: Vec::new(),
        };
        while !pair.client.is_established || pair.server.is_handshaking() {
            let outgoing = pair.client.outgoing();
            pair.pass_to_server(&outgoing);
            let written = pair.server_records();
            pair.receive_in_pieces(&written, &mut cut);
        }
        pair
    }

    fn receive(&mut self, data: &[u8]) -> Result<(), TlsFailure> {
        self.client
            .receive(data, &mut self.records, &mut self.plain)
    }

    fn receive_in_pieces(&mut self, mut stream: &[u8], mut cut: impl FnMut() -> usize) {
        while !stream.is_empty() {
            let (piece, rest) = stream.split_at(cut().clamp(1, stream.len()));
            self.receive(piece).unwrap();
            stream = rest;
        }
    }

    /// Passes `bytes` to the server. Returns the plaintext that the server reads.
    fn pass_to_server(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        for mut piece in bytes.chunks(4000) {
            while !piece.is_empty() {
                self.server.read_tls(&mut piece).unwrap();
                self.server.process_new_packets().unwrap();
            }
            let _ = self.server.reader().read_to_end(&mut plain);
        }
        plain
    }

    fn server_records(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.server.wants_write() {
            self.server.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    fn encrypted_by_server(&mut self, plain: &[u8]) -> Vec<u8> {
        self.server.writer().write_all(plain).unwrap();
        self.server_records()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// All bytes arrive unchanged in both directions, regardless of how the stream is split and how
    /// small its records are.
    #[test]
    fn reads_records_at_any_split(
        suite in 0..SUITES.len(),
        fragment in prop_oneof![Just(None), (40usize..200).prop_map(Some), Just(Some(16_389))],
        responses in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9_000), 0..4),
        requests in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20_000), 0..3),
        cuts in prop::collection::vec(prop_oneof![1usize..8, 1usize..2000, 1usize..60_000], 1..40),
    ) {
        let mut cuts = cuts.iter().copied().cycle();
        let mut cut = || cuts.next().unwrap();
        let mut config = config(SUITES[suite]);
        config.max_fragment_size = fragment;
        let mut pair = Pair::new(config, &mut cut);
        pair.server.set_buffer_limit(None);
        let expected = responses.concat();
        for response in &responses {
            pair.server.writer().write_all(response).unwrap();
        }
        pair.server.send_close_notify();
        let stream = pair.server_records();
        pair.receive_in_pieces(&stream, &mut cut);
        prop_assert!(pair.plain == expected, "{} bytes of {}", pair.plain.len(), expected.len());
        prop_assert!(pair.client.has_ended && pair.client.partial.is_empty());
        for request in &requests {
            let records = pair.client.encrypt(request);
            prop_assert!(&pair.pass_to_server(&records) == request);
        }
    }

    /// A changed bit invalidates its record, but not the data before the record.
    #[test]
    fn rejects_a_modified_record(suite in 0..SUITES.len(), at in 0usize..1000, bit in 0u32..8) {
        let mut pair = Pair::new(config(SUITES[suite]), || usize::MAX);
        let mut stream = pair.encrypted_by_server(b"before");
        let first = stream.len();
        stream.extend(pair.encrypted_by_server(b"a record that is modified in transit"));
        // Change no bit in the header. TLS authenticates the record type (in TLS 1.2) and the
        // version, and the length determines the end of the record.
        let header = 5;
        let place = first + header + at % (stream.len() - first - header);
        stream[place] ^= 1 << bit;
        let failure = pair.receive(&stream).unwrap_err();
        prop_assert_eq!(failure.name, "tls_bad_record");
        prop_assert!(failure.garbled);
        prop_assert_eq!(pair.plain.as_slice(), b"before");
    }
}

#[test]
fn offers_the_planned_version_of_http() {
    let http1 = tls().with_http(Http::V1);
    let http2 = tls().with_http(Http::V2(Http2::default()));
    for (tls, name) in [(tls(), "http/1.1"), (http1, "http/1.1"), (http2, "h2")] {
        let mut acceptor = Acceptor::default();
        let hello = begin(&tls).outgoing();
        acceptor.read_tls(&mut Cursor::new(hello)).unwrap();
        let accepted = acceptor.accept().unwrap().unwrap();
        let hello = accepted.client_hello();
        let offered: Vec<&[u8]> = hello.alpn().unwrap().collect();
        assert_eq!(offered, [name.as_bytes()]);
    }
}

/// All TLS 1.2 suites use ephemeral keys and AEAD, as HTTP/2 requires (RFC 9113, section 9.2.2).
#[test]
fn offers_no_prohibited_suite() {
    let mut acceptor = Acceptor::default();
    let hello = begin(&tls()).outgoing();
    acceptor.read_tls(&mut Cursor::new(hello)).unwrap();
    let accepted = acceptor.accept().unwrap().unwrap();
    let suites = accepted.client_hello().cipher_suites().to_vec();
    assert!(suites.len() > 3);
    for suite in suites {
        let name = format!("{suite:?}");
        let is_aead = name.contains("_GCM_") || name.contains("_POLY1305_");
        let is_signal = name == "TLS_EMPTY_RENEGOTIATION_INFO_SCSV";
        let is_ephemeral = name.starts_with("TLS13_") || name.starts_with("TLS_ECDHE_");
        assert!(is_aead && is_ephemeral || is_signal, "{name}");
    }
}

#[test]
fn names_bytes_that_are_not_a_record() {
    for (bytes, name) in [
        (b"HTTP/1.1 400", "tls_answered_in_plain_http"),
        (b"220 mail.exa", "tls_not_spoken"),
        (&[23, 9, 9, 0, 1, 0, 0, 0, 0, 0, 0, 0], "tls_not_spoken"),
        (
            &[23, 3, 3, 255, 255, 0, 0, 0, 0, 0, 0, 0],
            "tls_record_too_long",
        ),
    ] {
        let mut pair = Pair::new(config(SUITES[0]), || usize::MAX);
        assert_eq!(pair.receive(bytes).unwrap_err().name, name);
    }
}

#[test]
fn renews_keys_at_the_servers_request() {
    for suite in &SUITES[..3] {
        let mut pair = Pair::new(config(*suite), || usize::MAX);
        for round in 0..3 {
            pair.server.refresh_traffic_keys().unwrap();
            let records = pair.encrypted_by_server(b"under new keys");
            pair.receive(&records).unwrap();
            assert_eq!(pair.plain, b"under new keys", "round {round}");
            pair.plain.clear();
            // The server has also requested new keys from the client.
            let records = pair.client.encrypt(b"a request");
            assert_eq!(pair.pass_to_server(&records), b"a request");
        }
    }
}

#[test]
fn ignores_data_after_close_notify() {
    let mut pair = Pair::new(config(SUITES[0]), || usize::MAX);
    let mut stream = pair.encrypted_by_server(b"all");
    pair.server.send_close_notify();
    stream.extend(pair.server_records());
    stream.extend(b"HTTP/1.1 200 OK");
    pair.receive(&stream).unwrap();
    pair.receive(b"more").unwrap();
    assert!(pair.client.has_ended);
    assert_eq!(pair.plain, b"all");
}

#[test]
fn sends_close_notify_once() {
    let mut pair = Pair::new(config(SUITES[0]), || usize::MAX);
    let records = pair.client.close();
    pair.server.read_tls(&mut records.as_slice()).unwrap();
    assert!(pair.server.process_new_packets().unwrap().peer_has_closed());
    assert_eq!(pair.client.close(), b"");
}
