//! Tests the server over HTTP/2 through raw sockets.
#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use floodmark_truth::scenario::{CloseAfter, Setting, SettingsChange};
use floodmark_truth::{Log, Scenario, TruthServer};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
const SETTINGS_ACK: &[u8] = b"\0\0\0\x04\x01\0\0\0\0";

fn start(scenario: Scenario) -> (TruthServer, TcpStream) {
    let server = TruthServer::start(scenario).unwrap();
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    let timeout = Duration::from_secs(30);
    stream.set_read_timeout(Some(timeout)).unwrap();
    (server, stream)
}

/// Returns the log after all connections are closed.
fn settled(server: TruthServer) -> Log {
    server.settle().unwrap();
    server.stop().unwrap()
}

/// Returns a request without a body: method GET, scheme http, and the path as a literal.
fn get(stream: u8, path: &str) -> Vec<u8> {
    let length = 4 + path.len() as u8;
    let head = [
        0,
        0,
        length,
        1,
        5,
        0,
        0,
        0,
        stream,
        0x82,
        0x86,
        0x04,
        length - 4,
    ];
    [&head, path.as_bytes()].concat()
}

/// Reads a frame. Returns its type, flags, stream and payload.
fn read_frame(stream: &mut TcpStream) -> (u8, u8, u8, Vec<u8>) {
    let mut header = [0; 9];
    stream.read_exact(&mut header).unwrap();
    let [0, high, low, kind, flags, 0, 0, 0, id] = header else {
        panic!("unexpected frame {header:?}");
    };
    let mut payload = vec![0; usize::from(high) << 8 | usize::from(low)];
    stream.read_exact(&mut payload).unwrap();
    (kind, flags, id, payload)
}

/// Reads frames until the end of a response. Returns the other frames.
fn read_response(stream: &mut TcpStream, id: u8) -> Vec<(u8, u8, u8, Vec<u8>)> {
    let mut others = Vec::new();
    loop {
        match read_frame(stream) {
            (0, 1, of, body) if of == id => {
                assert_eq!(body, b"Hello, World!");
                return others;
            }
            (1, _, of, head) if of == id => assert_eq!(head[0], 0x88, "status 200"),
            frame => others.push(frame),
        }
    }
}

fn scenario(settings: &[(u64, Setting)]) -> Scenario {
    let settings = settings.iter();
    let change = |&(after_ms, setting)| SettingsChange { after_ms, setting };
    Scenario {
        http2: Some(settings.map(change).collect()),
        ..Scenario::default()
    }
}

#[test]
fn logs_requests_that_arrive_byte_by_byte() {
    let (server, mut stream) = start(scenario(&[]));
    let bytes = [PREFACE, SETTINGS, SETTINGS_ACK, &get(1, "/items/42")].concat();
    for byte in &bytes {
        stream.write_all(&[*byte]).unwrap();
        std::thread::sleep(Duration::from_micros(200));
    }
    read_response(&mut stream, 1);
    drop(stream);
    let log = settled(server);
    assert_eq!(log.totals.bytes_in, bytes.len() as u64);
    let [request] = log.requests[..] else {
        panic!("{:?}", log.requests);
    };
    assert_eq!(request.number, Some(42));
    assert_eq!(
        u64::from(request.bytes_in),
        get(1, "/items/42").len() as u64
    );
    assert!(request.head_ns <= request.arrival_ns && request.arrival_ns <= request.departure_ns);
}

#[test]
fn ignores_streams_after_an_unannounced_shutdown() {
    let (server, mut stream) = start(Scenario {
        close_after: Some(CloseAfter {
            requests: 2,
            announced: false,
        }),
        ..scenario(&[])
    });
    let requests = [1, 3, 5, 7].map(|id| get(id, "/")).concat();
    stream
        .write_all(&[PREFACE, SETTINGS, &requests].concat())
        .unwrap();
    let mut others = read_response(&mut stream, 1);
    others.extend(read_response(&mut stream, 3));
    let go_away = (7, 0, 0, vec![0, 0, 0, 3, 0, 0, 0, 0]);
    while !others.contains(&go_away) {
        others.push(read_frame(&mut stream));
    }
    drop(stream);
    let log = settled(server);
    assert_eq!((log.totals.requests, log.totals.ignored_streams), (2, 2));
}

#[test]
fn changes_settings_on_time() {
    let (server, mut stream) = start(scenario(&[
        (0, Setting::MaxStreams(100)),
        (50, Setting::MaxStreams(1)),
    ]));
    stream.write_all(&[PREFACE, SETTINGS].concat()).unwrap();
    let mut limits = Vec::new();
    while limits.len() < 2 {
        if let (4, 0, 0, payload) = read_frame(&mut stream) {
            let limit = payload.chunks(6).find(|setting| setting[1] == 3).unwrap();
            limits.push(limit[5]);
            stream.write_all(SETTINGS_ACK).unwrap();
        }
    }
    assert_eq!(limits, [100, 1]);
    stream.write_all(&get(1, "/")).unwrap();
    read_response(&mut stream, 1);
    drop(stream);
    let log = settled(server);
    let [first, second] = log.settings[..] else {
        panic!("{:?}", log.settings);
    };
    assert_eq!(second.setting, Setting::MaxStreams(1));
    assert!(second.sent_ns - first.sent_ns >= 50_000_000);
    assert!(second.sent_ns <= second.acknowledged_ns);
}

#[test]
fn gives_new_credit_for_long_bodies() {
    const BODY: usize = 200_000;
    let (server, mut stream) = start(scenario(&[]));
    // The HEADERS frame of a POST to `/`; the body follows.
    let head = [0, 0, 3, 1, 4, 0, 0, 0, 1, 0x83, 0x86, 0x84];
    stream
        .write_all(&[PREFACE, SETTINGS, &head].concat())
        .unwrap();
    let (mut left, mut credit) = (BODY, 65_535);
    while left > 0 {
        let length = left.min(credit).min(16_384);
        if length == 0 {
            if let (8, _, 0, increment) = read_frame(&mut stream) {
                credit += u32::from_be_bytes(increment.try_into().unwrap()) as usize;
            }
            continue;
        }
        (left, credit) = (left - length, credit - length);
        let [.., high, low] = length.to_be_bytes();
        let header = [0, high, low, 0, u8::from(left == 0), 0, 0, 0, 1];
        stream.write_all(&header).unwrap();
        stream.write_all(&vec![b'x'; length]).unwrap();
    }
    read_response(&mut stream, 1);
    drop(stream);
    let log = settled(server);
    assert_eq!(log.totals.requests, 1);
    assert!(log.requests[0].bytes_in as usize > BODY);
}

#[test]
fn closes_a_connection_that_violates_the_protocol() {
    let (server, mut stream) = start(scenario(&[]));
    // A request on an even stream.
    let request = get(2, "/");
    stream
        .write_all(&[PREFACE, SETTINGS, &request].concat())
        .unwrap();
    let mut rest = Vec::new();
    // The end may be a reset, because the server may not have read all bytes.
    let _ = stream.read_to_end(&mut rest);
    let log = settled(server);
    assert_eq!((log.totals.requests, log.totals.bad_requests), (0, 1));
}
