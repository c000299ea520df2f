//! Every fault does what it says, seen through raw sockets, and the log counts each of them.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use floodmark_truth::cases::awake::Awake;
use floodmark_truth::log::{ClosedBy, Kind};
use floodmark_truth::scenario::{Change, CloseAfter, Fault, Service, Share, Stall};
use floodmark_truth::{Log, Scenario, Server};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: t\r\n\r\n";
const GET_AND_CLOSE: &[u8] = b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";

fn start(scenario: Scenario) -> Server {
    Server::start(scenario).unwrap()
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream
}

/// Reads one answer with a declared length.
fn answer(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer).unwrap();
        assert_ne!(n, 0, "closed after {:?}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&buffer[..n]);
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.split("Content-Length: ").nth(1).unwrap();
            let length: usize = length.lines().next().unwrap().parse().unwrap();
            if body.len() >= length {
                assert_eq!(body.len(), length);
                return text.into_owned();
            }
        }
    }
}

fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(GET).unwrap();
    answer(stream)
}

fn always(fault: Fault) -> Scenario {
    Scenario {
        faults: vec![Share { share: 1.0, fault }],
        ..Scenario::default()
    }
}

/// Sends one request and reads until the connection ends: what came, and the error it ended with.
fn until_end(server: &Server) -> (String, Option<std::io::ErrorKind>) {
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
fn plain_answers_are_counted_to_the_byte() {
    let server = start(Scenario::default());
    let mut stream = connect(&server);
    let mut received = 0;
    for _ in 0..100 {
        let text = ask(&mut stream);
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("Hello, World!"));
        received += text.len() as u64;
    }
    drop(stream);
    let log = settled(server, |log| log.closed(ClosedBy::Client) == 1);
    assert_eq!(log.totals.requests, 100);
    assert_eq!(log.count(Kind::Answer), 100);
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

/// Stops the server when it has seen the end of every connection.
fn settled(server: Server, seen: impl Fn(&Log) -> bool) -> Log {
    server.settle().unwrap();
    let log = server.stop().unwrap();
    assert!(seen(&log), "{:?}", log.totals);
    log
}

/// A go in which the server waited for a CPU for more than this share of the time says nothing of its times.
const RUN_DELAY_SHARE: f64 = 0.02;

/// How often a go may be disturbed.
const DISTURBED: usize = 100;

/// Holds what `go` says of the times in its log; a miss is repeated only while that very log shows that the server had no CPU.
fn in_time(mut go: impl FnMut() -> (Log, Result<(), String>)) {
    let mut last = String::new();
    for _ in 0..DISTURBED {
        let (log, held) = go();
        let Err(missed) = held else {
            return;
        };
        let wall_ns = (log.stopped_ns - log.started_ns) as f64;
        let waited = log.run_delay_ns as f64 / wall_ns;
        last = format!("{missed}; it waited {:.2} % for a CPU", waited * 100.0);
        assert!(waited > RUN_DELAY_SHARE, "{last}");
    }
    panic!("{last}, as in each of {DISTURBED} goes");
}

/// How much later than due the median answer left, ns, of 60 one after the other, and the log.
fn median_lateness_ns(delay_us: u64) -> (Log, u64) {
    let server = start(Scenario {
        service: Service::Fixed { delay_us },
        ..Scenario::default()
    });
    let mut stream = connect(&server);
    for _ in 0..60 {
        let begin = Instant::now();
        ask(&mut stream);
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
fn a_fixed_delay_is_kept_to_50_us() {
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
fn nothing_is_answered_or_accepted_during_a_stall() {
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
        ask(&mut stream);
        std::thread::sleep(Duration::from_millis(100));
        let mut other = connect(&server);
        ask(&mut other);
        ask(&mut stream);
        let log = server.stop().unwrap();
        let first = log.requests[0].arrival_ns;
        assert!(ms(log.requests[1].arrival_ns - first) >= 250.0);
        assert!(ms(log.connections[1].accepted_ns - first) >= 250.0);
        let stall = log.stalls[0];
        assert_eq!((stall.begin_ns - first) / 1_000_000, 50);
        assert!(ms(stall.end_ns - first) >= 250.0 && stall.end_ns <= log.requests[1].arrival_ns);
        let answered = ms(log.requests[1].departure_ns - first);
        let held = answered < 270.0;
        (
            log,
            held.then_some(())
                .ok_or(format!("answered after {answered} ms")),
        )
    });
}

#[test]
fn exponential_service_is_one_queue() {
    let mean_us = 500.0;
    let server = start(Scenario {
        service: Service::Exponential { mean_us },
        ..Scenario::default()
    });
    let mut streams: Vec<TcpStream> = (0..20).map(|_| connect(&server)).collect();
    for _ in 0..20 {
        for stream in &mut streams {
            stream.write_all(GET).unwrap();
        }
        for stream in &mut streams {
            answer(stream);
        }
    }
    let log = server.stop().unwrap();
    let departures: Vec<u64> = log.requests.iter().map(|r| r.departure_ns).collect();
    assert!(departures.is_sorted(), "answers leave in order of arrival");
    // Busy from the first arrival of each round. The mean of 20 services has a standard deviation of 22 %, the median of 20 such
    // means one of 6 %; a round in which the machine was busy does not move it.
    let mut free = 0;
    let mut means: Vec<f64> = Vec::new();
    for round in log.requests.chunks(20) {
        let mut busy = 0;
        for r in round {
            busy += r.departure_ns - r.arrival_ns.max(free);
            free = r.departure_ns;
        }
        means.push(busy as f64 / 20.0 / 1e3);
    }
    means.sort_by(f64::total_cmp);
    let median = (means[9] + means[10]) / 2.0;
    assert!((0.8..1.2).contains(&(median / mean_us)), "{median} µs");
}

#[test]
fn shares_of_faults_are_logged_exactly() {
    let server = start(Scenario {
        faults: vec![Share {
            share: 0.3,
            fault: Fault::Status { code: 503 },
        }],
        ..Scenario::default()
    });
    let mut stream = connect(&server);
    let answers: Vec<String> = (0..500).map(|_| ask(&mut stream)).collect();
    let log = server.stop().unwrap();
    let shed = answers.iter().filter(|a| a.starts_with("HTTP/1.1 503 "));
    assert_eq!(log.count(Kind::Status), shed.count() as u64);
    assert!(log.count(Kind::Status).abs_diff(150) < 40);
    for (entry, text) in log.requests.iter().zip(&answers) {
        assert_eq!(entry.kind == Kind::Status, text.contains(" 503 "));
    }
}

#[test]
fn a_rejection_does_not_wait_for_the_delay() {
    let server = start(Scenario {
        service: Service::Fixed {
            delay_us: 20_000_000,
        },
        ..always(Fault::Status { code: 503 })
    });
    let begin = Instant::now();
    ask(&mut connect(&server));
    assert!(begin.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_wrong_body_has_the_right_length() {
    let server = start(always(Fault::WrongBody));
    let text = ask(&mut connect(&server));
    assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with("\r\n\r\n#############"));
}

#[test]
fn a_truncated_body_ends_with_fin() {
    let server = start(always(Fault::TruncatedBody));
    let (text, end) = until_end(&server);
    assert!(text.contains("Content-Length: 13") && text.ends_with("\r\n\r\nHello,"));
    assert_eq!(end, None);
    let log = settled(server, |log| log.closed(ClosedBy::Server) == 1);
    assert_eq!(log.totals.bytes_out, text.len() as u64);
}

#[test]
fn resets_come_before_or_within_the_answer() {
    let server = start(always(Fault::ResetBefore));
    let (text, end) = until_end(&server);
    assert_eq!(
        (text.as_str(), end),
        ("", Some(std::io::ErrorKind::ConnectionReset))
    );
    settled(server, |log| {
        log.closed(ClosedBy::ServerReset) == 1 && log.totals.bytes_out == 0
    });

    let server = start(always(Fault::ResetWithin));
    let (text, end) = until_end(&server);
    assert!(text.ends_with("\r\n\r\nHello,"), "{text}");
    assert_eq!(end, Some(std::io::ErrorKind::ConnectionReset));
    settled(server, |log| log.closed(ClosedBy::ServerReset) == 1);
}

#[test]
fn a_close_before_the_answer_is_a_fin() {
    let server = start(always(Fault::CloseBefore));
    assert_eq!(until_end(&server), (String::new(), None));
}

#[test]
fn no_answer_never_comes() {
    let server = start(always(Fault::NoAnswer));
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
fn a_drip_comes_in_pieces() {
    let server = start(always(Fault::Drip {
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
    // The first piece may be late on a busy machine, and the last one then is not.
    assert!((750.0..5_000.0).contains(&spread), "{spread} ms");
}

#[test]
fn continue_comes_first() {
    let server = start(always(Fault::Continue { gap_us: 30_000 }));
    let mut stream = connect(&server);
    stream.write_all(GET).unwrap();
    let mut buffer = [0; 25];
    stream.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"HTTP/1.1 100 Continue\r\n\r\n");
    assert!(answer(&mut stream).starts_with("HTTP/1.1 200 OK"));
    let entry = server.stop().unwrap().requests[0];
    assert!(ms(entry.departure_ns - entry.arrival_ns) >= 30.0);
}

#[test]
fn garbage_is_no_http() {
    let server = start(always(Fault::Garbage));
    let (text, end) = until_end(&server);
    assert!(!text.starts_with("HTTP") && !text.is_empty());
    assert_eq!(end, None);
}

#[test]
fn connections_close_after_k_requests() {
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
            assert!(!ask(&mut stream).contains("Connection: close"));
            assert!(!ask(&mut stream).contains("Connection: close"));
            assert_eq!(ask(&mut stream).contains("Connection: close"), announced);
            assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
        }
        let log = settled(server, |log| log.closed(ClosedBy::Server) == 4);
        assert_eq!((log.totals.requests, log.totals.accepted), (12, 4));
        assert!(log.connections.iter().all(|c| c.requests == 3));
    }
}

#[test]
fn a_request_to_close_is_met() {
    let server = start(Scenario::default());
    let mut stream = connect(&server);
    stream.write_all(GET_AND_CLOSE).unwrap();
    assert!(answer(&mut stream).contains("Connection: close"));
    assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
    settled(server, |log| log.closed(ClosedBy::Server) == 1);
}

#[test]
fn a_change_comes_when_it_is_due() {
    let server = start(Scenario {
        service: Service::Fixed { delay_us: 300_000 },
        change: Some(Change {
            at_ms: 800,
            service: Service::Fixed { delay_us: 1_000 },
        }),
        ..Scenario::default()
    });
    let mut stream = connect(&server);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(1_500) {
        ask(&mut stream);
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
fn bodies_may_be_large_and_requests_may_come_together() {
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
    let each = answer(&mut stream).len();
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
fn large_answers_are_sent_whole() {
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
fn the_log_ends_at_its_cap_and_the_totals_go_on() {
    let server = start(Scenario {
        log_cap: 10,
        ..Scenario::default()
    });
    let mut stream = connect(&server);
    for _ in 0..25 {
        ask(&mut stream);
    }
    let log = server.stop().unwrap();
    assert_eq!((log.requests.len(), log.totals.requests), (10, 25));
}

#[test]
fn what_is_no_request_is_cut_off() {
    let server = start(Scenario::default());
    let mut stream = connect(&server);
    stream.write_all(b"\x16\x03\x01\x00\x05hello").unwrap();
    assert_eq!(stream.read(&mut [0; 10]).unwrap_or(0), 0);
    settled(server, |log| {
        log.totals.bad_requests == 1 && log.totals.requests == 0
    });
}
