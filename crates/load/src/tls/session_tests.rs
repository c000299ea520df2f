//! Handshake and records against a rustls server in memory.

use std::io::{Read, Write};
use std::sync::{Arc, LazyLock};

use floodmark_record::tls::{TlsPlan, Trust};
use proptest::prelude::*;
use rustls::{ServerConfig, ServerConnection, SupportedCipherSuite};

use super::super::config::Tls;
use super::super::handshake::{Handshake, Shaken};
use super::super::testing::{Authority, Identity, SUITES, Valid, server};
use super::*;

static AUTHORITY: LazyLock<Authority> = LazyLock::new(Authority::new);
static IDENTITY: LazyLock<Identity> = LazyLock::new(|| AUTHORITY.issue(&["localhost"], Valid::Now));

fn client() -> Tls {
    let plan = TlsPlan {
        server_name: "localhost".to_owned(),
        trust: Trust::File,
        resumption: true,
    };
    Tls::new(&plan, &[AUTHORITY.anchor()]).unwrap()
}

fn config(suite: SupportedCipherSuite) -> ServerConfig {
    server(&IDENTITY, &[suite], true)
}

/// A client's connection and its server's.
struct Pair {
    session: Session,
    server: ServerConnection,
    sealed: SealedBuffers,
    partials: PartialBuffers,
    plain: Vec<u8>,
    resumed: bool,
}

impl Pair {
    /// Shakes hands, what the server says being cut by `cut`.
    fn new(tls: &Tls, config: ServerConfig, mut cut: impl FnMut() -> usize) -> Self {
        let mut server = ServerConnection::new(Arc::new(config)).unwrap();
        let mut handshake = Handshake::begin(tls.for_thread(), tls.name.clone()).unwrap();
        loop {
            tell(&mut server, &handshake.outgoing());
            let said = said(&mut server);
            let mut said = said.as_slice();
            let mut over = false;
            while !said.is_empty() && !over {
                let (piece, rest) = said.split_at(cut().clamp(1, said.len()));
                over = handshake.feed(piece).unwrap();
                said = rest;
            }
            if over {
                let shaken = handshake.finish().unwrap();
                return Self::stand(shaken, server, said);
            }
        }
    }

    fn stand(shaken: Shaken, mut server: ServerConnection, behind: &[u8]) -> Self {
        tell(&mut server, &shaken.outgoing);
        assert!(!server.is_handshaking());
        let mut pair = Pair {
            session: shaken.session,
            server,
            sealed: SealedBuffers::default(),
            partials: PartialBuffers::default(),
            plain: Vec::new(),
            resumed: shaken.resumed,
        };
        pair.feed(&shaken.behind).unwrap();
        pair.feed(behind).unwrap();
        pair
    }

    fn feed(&mut self, data: &[u8]) -> Result<(), Failure> {
        self.session.feed(data, &mut self.plain, &mut self.partials)
    }

    /// What the server reads of what the client says.
    fn send(&mut self, plain: &[u8]) -> Vec<u8> {
        let sealed = self
            .session
            .seal(Content::Data, plain, &mut self.sealed)
            .unwrap();
        let mut read = Vec::new();
        for piece in sealed.chunks(4000) {
            tell(&mut self.server, piece);
            let mut buffer = [0; 8192];
            while let Ok(n) = self.server.reader().read(&mut buffer) {
                read.extend_from_slice(&buffer[..n]);
            }
        }
        read
    }
}

fn tell(server: &mut ServerConnection, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        server.read_tls(&mut bytes).unwrap();
        server.process_new_packets().unwrap();
    }
}

fn said(server: &mut ServerConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut bytes).unwrap();
    }
    bytes
}

fn whole() -> usize {
    usize::MAX
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// However the stream is cut, and however small its records, the same bytes come out, both ways.
    #[test]
    fn cutting_changes_nothing(
        suite in 0..SUITES.len(),
        fragment in prop_oneof![Just(None), (40usize..200).prop_map(Some), Just(Some(16_389))],
        said_parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9_000), 0..4),
        sent_parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20_000), 0..3),
        cuts in prop::collection::vec(prop_oneof![1usize..8, 1usize..2000, 1usize..60_000], 1..40),
    ) {
        let mut cuts = cuts.iter().copied().cycle();
        let mut cut = || cuts.next().unwrap();
        let mut config = config(SUITES[suite]);
        config.max_fragment_size = fragment;
        let mut pair = Pair::new(&client(), config, &mut cut);
        pair.server.set_buffer_limit(None);
        let expected = said_parts.concat();
        for part in &said_parts {
            pair.server.writer().write_all(part).unwrap();
        }
        pair.server.send_close_notify();
        let stream = said(&mut pair.server);
        let mut stream = stream.as_slice();
        while !stream.is_empty() {
            let (piece, rest) = stream.split_at(cut().min(stream.len()));
            pair.feed(piece).unwrap();
            stream = rest;
        }
        prop_assert!(pair.plain == expected, "{} bytes of {}", pair.plain.len(), expected.len());
        prop_assert!(pair.session.ended && pair.session.partial.is_none());
        for part in &sent_parts {
            let read = pair.send(part);
            prop_assert!(&read == part);
        }
    }

    /// Whatever bit is changed, nothing of that record comes out, and what came before stays.
    #[test]
    fn a_changed_record_does_not_open(suite in 0..SUITES.len(), at in 0usize..1000, bit in 0u32..8) {
        let mut pair = Pair::new(&client(), config(SUITES[suite]), whole);
        let before = said(&mut pair.server);
        pair.feed(&before).unwrap();
        pair.server.writer().write_all(b"before").unwrap();
        let mut stream = said(&mut pair.server);
        let first = stream.len();
        pair.server.writer().write_all(b"a record that is changed on its way").unwrap();
        stream.extend(said(&mut pair.server));
        // The type of a record of TLS 1.2, and any version, is authenticated; the length decides where it ends.
        let place = first + HEADER + at % (stream.len() - first - HEADER);
        stream[place] ^= 1 << bit;
        let failure = pair.feed(&stream).unwrap_err();
        prop_assert_eq!(failure.name, "tls_bad_record");
        prop_assert!(failure.garbled);
        prop_assert_eq!(pair.plain.as_slice(), b"before");
    }
}

#[test]
fn bytes_that_are_no_record_have_names() {
    let name = |begin: &[u8; HEADER]| Header::read(*begin).unwrap_err().name;
    assert_eq!(name(b"HTTP/"), "tls_answered_in_plain_http");
    assert_eq!(name(b"220 s"), "tls_not_spoken");
    assert_eq!(name(&[23, 9, 9, 0, 1]), "tls_not_spoken");
    assert_eq!(name(&[23, 3, 3, 255, 255]), "tls_record_too_long");
}

#[test]
fn a_session_is_resumed_once_its_ticket_came() {
    for suite in SUITES {
        let tls = client();
        let store = rustls::server::ServerSessionMemoryCache::new(10);
        let client = tls.for_thread();
        let mut resumed = Vec::new();
        for _ in 0..3 {
            let mut config = config(suite);
            config.session_storage = Arc::clone(&store) as _;
            let mut server = ServerConnection::new(Arc::new(config)).unwrap();
            let name = tls.name.clone();
            let mut handshake = Handshake::begin(Arc::clone(&client), name).unwrap();
            loop {
                tell(&mut server, &handshake.outgoing());
                if handshake.feed(&said(&mut server)).unwrap() {
                    break;
                }
            }
            let mut pair = Pair::stand(handshake.finish().unwrap(), server, &[]);
            let tickets = said(&mut pair.server);
            pair.feed(&tickets).unwrap();
            resumed.push(pair.resumed);
        }
        assert_eq!(resumed, [false, true, true], "{suite:?}");
    }
}

#[test]
fn keys_are_renewed_when_the_server_asks_for_it() {
    for suite in &SUITES[..3] {
        let mut pair = Pair::new(&client(), config(*suite), whole);
        for round in 0..3 {
            pair.server.refresh_traffic_keys().unwrap();
            pair.server.writer().write_all(b"under new keys").unwrap();
            let stream = said(&mut pair.server);
            pair.feed(&stream).unwrap();
            assert_eq!(pair.plain, b"under new keys", "round {round}");
            pair.plain.clear();
            assert!(pair.session.owes_update, "the server asked for ours too");
            assert_eq!(pair.send(b"so are these"), b"so are these");
            assert!(!pair.session.owes_update);
        }
    }
}

#[test]
fn worn_keys_are_renewed_before_the_next_record() {
    let mut pair = Pair::new(&client(), config(SUITES[0]), whole);
    assert!(!pair.session.write.worn());
    pair.session.write.wear_out();
    assert!(pair.session.write.worn());
    // The server cannot follow so many records at once; that the new keys are fresh shows that they were taken.
    let sealed = pair
        .session
        .seal(Content::Data, b"x", &mut pair.sealed)
        .unwrap();
    assert!(!pair.session.write.worn());
    let plainly = pair.session.write.sealed_length(1);
    assert_eq!(sealed.len(), plainly + pair.session.write.sealed_length(5));
}

#[test]
fn alerts_are_named() {
    for suite in SUITES {
        let mut pair = Pair::new(&client(), config(suite), whole);
        let tickets = said(&mut pair.server);
        pair.feed(&tickets).unwrap();
        // Any record that does not open makes the server say so.
        let mut bytes = Header::new(Content::Data, 40).bytes.to_vec();
        bytes.extend([7; 40]);
        pair.server.read_tls(&mut bytes.as_slice()).unwrap();
        assert!(pair.server.process_new_packets().is_err());
        let alert = said(&mut pair.server);
        let failure = pair.feed(&alert).unwrap_err();
        assert_eq!(failure.name, "tls_alert_bad_record_mac", "{suite:?}");
        assert!(!failure.garbled);
    }
}

#[test]
fn nothing_counts_behind_close_notify() {
    let mut pair = Pair::new(&client(), config(SUITES[0]), whole);
    pair.server.writer().write_all(b"all").unwrap();
    pair.server.send_close_notify();
    let mut stream = said(&mut pair.server);
    stream.extend(b"HTTP/1.1 200 OK");
    pair.feed(&stream).unwrap();
    assert!(pair.session.ended);
    assert_eq!(pair.plain, b"all");
}

#[test]
fn buffers_go_round() {
    let mut pair = Pair::new(&client(), config(SUITES[0]), whole);
    let mut last = None;
    let first = pair
        .session
        .seal(Content::Data, b"request", &mut pair.sealed)
        .unwrap();
    let place = first.as_ptr();
    pair.sealed.handed(first, &mut last);
    let second = pair
        .session
        .seal(Content::Data, b"request", &mut pair.sealed)
        .unwrap();
    assert_eq!(second.as_ptr(), place, "nobody held it");
    let held = Rc::clone(&second);
    pair.sealed.handed(second, &mut last);
    let third = pair.sealed.take(held.len());
    assert_ne!(third.as_ptr(), place, "the backend holds the other");
    let third_held = Rc::clone(&third);
    pair.sealed.handed(third, &mut last);
    drop(held);
    let fourth = pair.sealed.take(third_held.len());
    assert_eq!(fourth.as_ptr(), place, "the backend has let go of it");
}
