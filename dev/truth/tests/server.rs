//! Tests each fault through raw sockets, and checks the fault's count in the log.
#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

mod support;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use floodmark_truth::cases::Awake;
use floodmark_truth::log::ClosedBy;
use floodmark_truth::scenario::{
    CloseAfter, FaultShare, ResponseFault, Service, ServiceChange, Stall,
};
use floodmark_truth::{Log, Scenario, TruthServer};

use support::{GET, connect, exchange, response, start};

const GET_AND_CLOSE: &[u8] = b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";

fn always(fault: ResponseFault) -> Scenario {
    Scenario {
        faults: vec![FaultShare { share: 1.0, fault }],
        ..Scenario::default()
    }
}

/// Sends one request and reads until the connection is closed. Returns the text and the final
/// error, if any.
fn until_end(server: &TruthServer) -> (String, Option<std::io::ErrorKind>) {
    let mut stream = connect(server);
    stream.write_all(GET).unwrap();
    let mut bytes = Vec::new();
    let end = stream.read_to_end(&mut bytes).err().map(|e| e.kind());
    (String::from_utf8_lossy(&bytes).into_owned(), end)
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[test]
fn counts_normal_responses_to_the_byte() {
    let server = start(Scenario::default());
    let mut stream = connect(&server);
    let mut received = 0;
    for _ in 0..100 {
        let text = exchange(&mut stream);
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("Hello, World!"));
        received += text.len() as u64;
    }
    drop(stream);
    let log = settled(server, |log| log.closed(ClosedBy::Client) == 1);
    assert_eq!(log.totals.requests, 100);
    assert_eq!(log.count(None), 100);
    assert_eq!(log.totals.bytes_in, 100 * GET.len() as u64);
    assert_eq!(log.totals.bytes_out, received);
    assert_eq!(log.requests.len(), 100);
    let entry = log.requests[42];
    assert_eq!(u64::from(entry.bytes_in), GET.len() as u64);
    assert_eq!(u64::from(entry.bytes_out), received / 100);
    assert!(log.requests.iter().all(|r| r.readable_ns <= r.arrival_ns
        && r.arrival_ns <= r.first_byte_ns
        && r.first_byte_ns <= r.departure_ns));
    assert_eq!(log.connections[0].requests, 100);
}

/// Stops the server after all its connections are closed, and checks its log.
fn settled(server: TruthServer, seen: impl Fn(&Log) -> bool) -> Log {
    server.settle().unwrap();
    let log = server.stop().unwrap();
    assert!(seen(&log), "{:?}", log.totals);
    log
}

/// Fraction of an attempt for which the server may wait for a CPU before the attempt is disturbed.
const RUN_DELAY_SHARE: f64 = 0.02;

/// Maximum number of disturbed attempts.
const MAX_DISTURBED: usize = 100;

/// Runs an attempt that checks times. A failed attempt is repeated only if the log shows that the
/// server waited for a CPU.
fn in_time(mut attempt: impl FnMut() -> (Log, Result<(), String>)) {
    let mut last = String::new();
    for _ in 0..MAX_DISTURBED {
        let (log, held) = attempt();
        let Err(missed) = held else { return };
        let waited = log.run_delay_ns as f64 / (log.stopped_ns - log.started_ns) as f64;
        last = format!(
            "{missed}; the server waited for a CPU for {:.2} % of the time",
            waited * 100.0
        );
        assert!(waited > RUN_DELAY_SHARE, "{last}");
    }
    panic!("all {MAX_DISTURBED} attempts were disturbed: {last}");
}

/// Returns the log and the median lateness of 60 consecutive responses, in ns.
fn median_lateness_ns(delay_us: u64) -> (Log, u64) {
    let server = start(Scenario {
        service: Service::Fixed { delay_us },
        ..Scenario::default()
    });
    let mut stream = connect(&server);
    for _ in 0..60 {
        let begin = Instant::now();
        exchange(&mut stream);
        assert!(begin.elapsed() >= Duration::from_micros(delay_us));
    }
    let log = server.stop().unwrap();
    let late = log
        .requests
        .iter()
        .map(|r| r.service_ns().unwrap() - delay_us * 1000);
    let mut late: Vec<u64> = late.collect();
    late.sort_unstable();
    (log, late[30])
}

#[test]
fn keeps_a_fixed_delay_within_50_us() {
    let _awake = Awake::keep();
    for delay_us in [1_000, 10_000] {
        in_time(|| {
            let (log, late) = median_lateness_ns(delay_us);
            let held = late < 50_000;
            (log, held.then_some(()).ok_or(format!("{late} ns late")))
        });
    }
}

#[test]
fn does_nothing_during_a_stall() {
    in_time(|| {
        let server = start(Scenario {
            stall: Some(Stall {
                first_ms: 50,
                every_ms: 10_000,
                length_ms: 200,
            }),
            ..Scenario::default()
        });
        let mut stream = connect(&server);
        exchange(&mut stream);
        std::thread::sleep(Duration::from_millis(100));
        let mut other = connect(&server);
        exchange(&mut other);
        exchange(&mut stream);
        let log = server.stop().unwrap();
        let first = log.requests[0].arrival_ns;
        assert!(ms(log.requests[1].arrival_ns - first) >= 250.0);
        assert!(ms(log.connections[1].accepted_ns - first) >= 250.0);
        let stall = log.stalls[0];
        assert_eq!((stall.begin_ns - first) / 1_000_000, 50);
        assert!(ms(stall.end_ns - first) >= 250.0 && stall.end_ns <= log.requests[1].arrival_ns);
        let elapsed = ms(log.requests[1].departure_ns - first);
        let held = elapsed < 270.0;
        (
            log,
            held.then_some(())
                .ok_or(format!("response after {elapsed} ms")),
        )
    });
}

#[test]
fn logs_shares_of_faults_exactly() {
    let fault = ResponseFault::Status { code: 503 };
    let server = start(Scenario {
        faults: vec![FaultShare { share: 0.3, fault }],
        ..Scenario::default()
    });
    let mut stream = connect(&server);
    let responses: Vec<String> = (0..500).map(|_| exchange(&mut stream)).collect();
    let log = server.stop().unwrap();
    let rejected = responses.iter().filter(|a| a.starts_with("HTTP/1.1 503 "));
    assert_eq!(log.count(Some(fault)), rejected.count() as u64);
    assert!(log.count(Some(fault)).abs_diff(150) < 40);
    for (entry, text) in log.requests.iter().zip(&responses) {
        assert_eq!(entry.fault.is_some(), text.contains(" 503 "));
    }
}

#[test]
fn rejects_without_delay() {
    let server = start(Scenario {
        service: Service::Fixed {
            delay_us: 20_000_000,
        },
        ..always(ResponseFault::Status { code: 503 })
    });
    let begin = Instant::now();
    exchange(&mut connect(&server));
    assert!(begin.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_wrong_body_has_the_right_length() {
    let server = start(always(ResponseFault::WrongBody));
    let text = exchange(&mut connect(&server));
    assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with("\r\n\r\n#############"));
}

#[test]
fn a_truncated_body_ends_with_fin() {
    let server = start(always(ResponseFault::TruncatedBody));
    let (text, end) = until_end(&server);
    assert!(text.contains("Content-Length: 13") && text.ends_with("\r\n\r\nHello,"));
    assert_eq!(end, None);
    let log = settled(server, |log| log.closed(ClosedBy::Server) == 1);
    assert_eq!(log.totals.bytes_out, text.len() as u64);
}

#[test]
fn resets_before_or_within_the_response() {
    let server = start(always(ResponseFault::ResetBefore));
    let (text, end) = until_end(&server);
    assert_eq!(
        (text.as_str(), end),
        ("", Some(std::io::ErrorKind::ConnectionReset))
    );
    settled(server, |log| {
        log.closed(ClosedBy::ServerReset) == 1 && log.totals.bytes_out == 0
    });

    let server = start(always(ResponseFault::ResetWithin));
    let (text, end) = until_end(&server);
    assert!(text.ends_with("\r\n\r\nHello,"), "{text}");
    assert_eq!(end, Some(std::io::ErrorKind::ConnectionReset));
    settled(server, |log| log.closed(ClosedBy::ServerReset) == 1);
}

#[test]
fn closes_with_fin_before_the_response() {
    let server = start(always(ResponseFault::CloseBefore));
    assert_eq!(until_end(&server), (String::new(), None));
}

#[test]
fn sends_no_response() {
    let server = start(always(ResponseFault::NoResponse));
    let mut stream = connect(&server);
    stream.write_all(GET).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let error = stream.read(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    drop(stream);
    let log = settled(server, |log| log.closed(ClosedBy::Client) == 1);
    assert_eq!(log.requests[0].departure_ns, 0);
    assert_eq!(log.requests[0].service_ns(), None);
}

#[test]
fn drips_in_pieces() {
    let server = start(always(ResponseFault::Drip {
        pieces: 5,
        gap_us: 250_000,
    }));
    let mut stream = connect(&server);
    stream.write_all(GET).unwrap();
    let begin = Instant::now();
    let mut buffer = [0; 4096];
    let mut reads = Vec::new();
    let mut body = Vec::new();
    while !body.ends_with(b"Hello, World!") {
        let n = stream.read(&mut buffer).unwrap();
        reads.push(begin.elapsed());
        body.extend_from_slice(&buffer[..n]);
    }
    assert_eq!(reads.len(), 5);
    assert!(
        reads[4] - reads[0] >= Duration::from_millis(750),
        "{reads:?}"
    );
    let entry = server.stop().unwrap().requests[0];
    let spread = ms(entry.departure_ns - entry.first_byte_ns);
    // On a busy host, the first piece may be late even if the last piece is on time.
    assert!((750.0..5_000.0).contains(&spread), "{spread} ms");
}

#[test]
fn sends_continue_before_the_response() {
    let server = start(always(ResponseFault::Continue { gap_us: 30_000 }));
    let mut stream = connect(&server);
    stream.write_all(GET).unwrap();
    let mut buffer = [0; 25];
    stream.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"HTTP/1.1 100 Continue\r\n\r\n");
    assert!(response(&mut stream).starts_with("HTTP/1.1 200 OK"));
    let entry = server.stop().unwrap().requests[0];
    assert!(ms(entry.departure_ns - entry.arrival_ns) >= 30.0);
}

#[test]
fn garbage_is_not_http() {
    let server = start(always(ResponseFault::Garbage));
    let (text, end) = until_end(&server);
    assert!(!text.starts_with("HTTP") && !text.is_empty());
    assert_eq!(end, None);
}

#[test]
fn closes_connections_after_k_requests() {
    for announced in [true, false] {
        let server = start(Scenario {
            close_after: Some(CloseAfter {
                requests: 3,
                announced,
            }),
            ..Scenario::default()
        });
        for _ in 0..4 {
            let mut stream = connect(&server);
            assert!(!exchange(&mut stream).contains("Connection: close"));
            assert!(!exchange(&mut stream).contains("Connection: close"));
            assert_eq!(
                exchange(&mut stream).contains("Connection: close"),
                announced
            );
            assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
        }
        let log = settled(server, |log| log.closed(ClosedBy::Server) == 4);
        assert_eq!((log.totals.requests, log.totals.accepted), (12, 4));
        assert!(log.connections.iter().all(|c| c.requests == 3));
    }
}

#[test]
fn honors_connection_close() {
    let server = start(Scenario::default());
    let mut stream = connect(&server);
    stream.write_all(GET_AND_CLOSE).unwrap();
    assert!(response(&mut stream).contains("Connection: close"));
    assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
    settled(server, |log| log.closed(ClosedBy::Server) == 1);
}

#[test]
fn changes_service_on_time() {
    let server = start(Scenario {
        service: Service::Fixed { delay_us: 300_000 },
        change: Some(ServiceChange {
            at_ms: 800,
            service: Service::Fixed { delay_us: 1_000 },
        }),
        ..Scenario::default()
    });
    let mut stream = connect(&server);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(1_500) {
        exchange(&mut stream);
    }
    let log = server.stop().unwrap();
    let first = log.requests[0].arrival_ns;
    for entry in &log.requests {
        let slow = entry.service_ns().unwrap() >= 300_000_000;
        assert_eq!(slow, ms(entry.arrival_ns - first) < 800.0);
    }
    assert!(log.requests.len() > 5);
}

#[test]
fn accepts_large_bodies_and_pipelined_requests() {
    let server = start(Scenario::default());
    let mut stream = connect(&server);
    let body = vec![b'x'; 1_000_000];
    write!(
        stream,
        "POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .unwrap();
    stream.write_all(&body).unwrap();
    let each = response(&mut stream).len();
    stream.write_all(&GET.repeat(3)).unwrap();
    let mut received = 0;
    while received < 3 * each {
        received += stream.read(&mut [0; 4096]).unwrap();
    }
    let log = server.stop().unwrap();
    assert_eq!(log.totals.requests, 4);
    assert_eq!(log.requests[0].bytes_in, 1_000_000 + 44);
    let each: u64 = log.requests.iter().map(|r| u64::from(r.bytes_in)).sum();
    assert_eq!(each, log.totals.bytes_in);
    assert_eq!(
        received as u64,
        log.totals.bytes_out - u64::from(log.requests[0].bytes_out)
    );
}

#[test]
fn sends_large_responses_completely() {
    let server = start(Scenario {
        body: "0123456789".repeat(1_000_000),
        ..Scenario::default()
    });
    let mut stream = connect(&server);
    stream.write_all(GET_AND_CLOSE).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert!(bytes.len() > 10_000_000);
    let log = settled(server, |log| log.totals.bytes_out == bytes.len() as u64);
    assert_eq!(u64::from(log.requests[0].bytes_out), bytes.len() as u64);
}

#[test]
fn closes_after_an_invalid_request() {
    let server = start(Scenario::default());
    let mut stream = connect(&server);
    stream.write_all(b"\x16\x03\x01\x00\x05hello").unwrap();
    assert_eq!(stream.read(&mut [0; 10]).unwrap_or(0), 0);
    settled(server, |log| {
        log.totals.bad_requests == 1 && log.totals.requests == 0
    });
}
