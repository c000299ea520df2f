//! Tests of mixes and templates over real sockets. A server keeps every request it receives, and
//! the tests compare these requests with the plan.

#![allow(clippy::unwrap_used, reason = "tests")]

#[macro_use]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::plans::{closed_plan, open_plan, with_mix};
use common::run;
use common::server::{RESPONSE, serve};
use floodmark_record::plan::{Arrivals, Backend, CloseFirst, ConnectionUse, Expect, Plan};
use floodmark_record::{Counts, TimeKind};
use floodmark_stats::Histogram;

on_both_backends! {
    sends_every_number_once_in_exact_shares
    resends_the_same_request
    numbers_continue_after_the_warm_up
    judges_each_request_by_its_own_rules
    counts_unsent_requests_for_their_group
}

/// Received requests.
type Log = Arc<Mutex<Vec<String>>>;

/// Reads one request with its body.
fn read(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut one = [0; 2048];
    loop {
        if let Some(head) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let length = text
                .lines()
                .find_map(|l| l.strip_prefix("Content-Length: "));
            let length: usize = length.map_or(0, |length| length.parse().unwrap());
            if bytes.len() >= head + 4 + length {
                assert_eq!(bytes.len(), head + 4 + length, "extra bytes: {text}");
                return Some(text);
            }
        }
        match stream.read(&mut one) {
            Ok(n) if n > 0 => bytes.extend_from_slice(&one[..n]),
            _ => return None,
        }
    }
}

/// Starts a server that keeps all requests.
/// `response` receives a request and the number of earlier requests on the same connection. It
/// returns the response, or `None` to close the connection.
fn logging(response: fn(&str, usize) -> Option<Vec<u8>>) -> (SocketAddr, Log) {
    let log = Log::default();
    let kept = Arc::clone(&log);
    let address = serve(move |mut stream, _| {
        let mut before = 0;
        while let Some(request) = read(&mut stream) {
            kept.lock().unwrap().push(request.clone());
            let responded =
                response(&request, before).is_some_and(|a| stream.write_all(&a).is_ok());
            if !responded || request.contains("Connection: close") {
                return;
            }
            before += 1;
        }
    });
    (address, log)
}

fn hello(_: &str, _: usize) -> Option<Vec<u8>> {
    Some(RESPONSE.to_vec())
}

/// Returns `plan` with a mix of three GET requests per PUT request.
/// GET requests contain the number in their path. PUT requests contain all placeholders.
fn mixed(backend: Backend, address: SocketAddr, plan: Plan) -> Plan {
    let mut plan = with_mix(plan, &[3, 1]);
    plan.backend = backend;
    plan.target.address = address.into();
    let requests = &mut plan.mix.as_mut().unwrap().requests;
    requests[0].path = "/get/{seq}".to_owned();
    requests[1].path = "/put/{rand:5-9}".to_owned();
    let put = &mut requests[1].request;
    put.method = "PUT".to_owned();
    put.headers = vec![("X-Id".to_owned(), "{uuid}".to_owned())];
    put.body = br#"{"id":{seq},"a":{"b":{}}}"#.to_vec().into();
    plan
}

/// Returns the number in a request that [`mixed`] defined.
fn number(request: &str) -> u64 {
    let text = match request.strip_prefix("GET /get/") {
        Some(rest) => rest.split(' ').next().unwrap(),
        None => {
            assert!(request.starts_with("PUT /put/"), "{request}");
            let body = request.split_once(r#"{"id":"#).unwrap().1;
            body.strip_suffix(r#","a":{"b":{}}}"#).unwrap()
        }
    };
    text.parse().unwrap()
}

fn uuid(request: &str) -> Option<&str> {
    request.lines().find_map(|line| line.strip_prefix("X-Id: "))
}

fn sends_every_number_once_in_exact_shares(backend: Backend) {
    let open = open_plan(Arrivals::Poisson, 20_000.0, None, Some(1200));
    for (connection_use, plan) in [
        (ConnectionUse::Kept, closed_plan(7, 1200)),
        (ConnectionUse::Fresh, closed_plan(7, 1200)),
        (
            ConnectionUse::Kept,
            Plan {
                connections: 9,
                ..open
            },
        ),
    ] {
        let (address, log) = logging(hello);
        let run = run(mixed(
            backend,
            address,
            Plan {
                threads: 3,
                connection_use,
                ..plan
            },
        ));
        assert_eq!(run.end.counts.ok, 1200);
        assert_eq!(run.end.next_number, 1201);
        let log = log.lock().unwrap();
        let numbers: BTreeSet<u64> = log.iter().map(|request| number(request)).collect();
        assert!(numbers.into_iter().eq(1..=1200));
        assert_eq!(log.len(), 1200);
        let uuids: Vec<&str> = log.iter().filter_map(|request| uuid(request)).collect();
        assert_eq!(uuids.len(), 300, "one request in four");
        assert_eq!(uuids.iter().collect::<BTreeSet<_>>().len(), 300);
        let bytes: usize = log.iter().map(String::len).sum();
        assert_eq!(run.end.bytes_sent, bytes as u64);
        for (group, n) in [(0, 900), (1, 300)] {
            let counts = of_group(&run.rows, group);
            assert_eq!((counts.ok, counts.intended), (n, n));
            for kind in [TimeKind::Response, TimeKind::Service, TimeKind::Blocked] {
                let times = Histogram::decode(&run.end.groups[group][&kind]).unwrap();
                assert_eq!(times.count(), n);
            }
        }
    }
}

/// Adds up one group's counts over a whole run.
fn of_group(rows: &[floodmark_record::SecondRow], group: usize) -> Counts {
    let mut counts = Counts::default();
    rows.iter()
        .for_each(|row| counts.merge(&row.groups[group].counts));
    assert_eq!(counts.balance(), Ok(()));
    counts
}

fn resends_the_same_request(backend: Backend) {
    // The server closes each connection instead of sending a second response.
    let (address, log) =
        logging(|request, before| (before == 0).then(|| hello(request, 0)).flatten());
    let run = run(mixed(backend, address, closed_plan(3, 400)));
    assert_eq!(run.end.counts.ok, 400);
    let log = log.lock().unwrap();
    let mut seen: BTreeMap<u64, Vec<&String>> = BTreeMap::new();
    log.iter()
        .for_each(|request| seen.entry(number(request)).or_default().push(request));
    assert!(seen.keys().copied().eq(1..=400));
    let twice: Vec<_> = seen.values().filter(|all| all.len() > 1).collect();
    assert_eq!(twice.len() as u64, run.end.counts.reconnects);
    assert!(twice.len() > 100, "{}", twice.len());
    for all in twice {
        assert_eq!((all.len(), all[0]), (2, all[1]));
    }
}

fn numbers_continue_after_the_warm_up(backend: Backend) {
    let (address, log) = logging(hello);
    let plan = Plan {
        threads: 2,
        warmup: Duration::from_millis(100),
        ..closed_plan(4, 100)
    };
    let run = run(mixed(backend, address, plan));
    let warmup = run.end.warmup_counts.unwrap();
    let log = log.lock().unwrap();
    let numbers: BTreeSet<u64> = log.iter().map(|request| number(request)).collect();
    assert_eq!(numbers.len() as u64, warmup.sent + 100, "no repetitions");
    assert_eq!(numbers.last(), Some(&(run.end.next_number - 1)));
    assert_eq!(numbers.len(), log.len());
    // The times of groups cover only the measurement, not the warm-up.
    let times = run
        .end
        .groups
        .iter()
        .map(|kinds| &kinds[&TimeKind::Service]);
    let times: u64 = times
        .map(|text| Histogram::decode(text).unwrap().count())
        .sum();
    assert_eq!(times, 100);
}

fn judges_each_request_by_its_own_rules(backend: Backend) {
    let (address, _) = logging(|request, _| {
        Some(if request.starts_with("HEAD") {
            b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n".to_vec()
        } else if request.starts_with("GET /2") {
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone".to_vec()
        } else {
            RESPONSE.to_vec()
        })
    });
    let mut plan = with_mix(closed_plan(3, 400), &[1, 1, 1, 1]);
    plan.backend = backend;
    plan.target.address = address.into();
    let requests = &mut plan.mix.as_mut().unwrap().requests;
    requests[1].request.method = "HEAD".to_owned();
    requests[2].expect = vec![Expect::Status(404), Expect::Body("none".to_owned())];
    requests[3].expect = vec![Expect::Body("other".to_owned())];
    let run = run(plan);
    assert_eq!((run.end.counts.ok, run.end.counts.wrong), (300, 100));
    assert_eq!(run.end.counts.malformed, 0);
    assert_eq!(
        of_group(&run.rows, 2).statuses,
        BTreeMap::from([(404, 100)])
    );
    assert_eq!(of_group(&run.rows, 3).wrong, 100);
    assert!(run.end.groups[3].contains_key(&TimeKind::Error));
    assert!(!run.end.groups[3].contains_key(&TimeKind::Response));
}

fn counts_unsent_requests_for_their_group(backend: Backend) {
    // The server never responds, so only two requests are sent on two connections.
    let (address, log) = logging(|_, _| Some(Vec::new()));
    let open = open_plan(Arrivals::Constant, 1000.0, Some(0.4), None);
    let run = run(mixed(
        backend,
        address,
        Plan {
            connections: 2,
            close_first: CloseFirst::Client,
            drain: false,
            ..open
        },
    ));
    let counts = &run.end.counts;
    assert_eq!((counts.intended, counts.sent, counts.unsent), (400, 2, 398));
    let groups = [0, 1].map(|group| of_group(&run.rows, group));
    assert_eq!(groups.clone().map(|c| c.intended), [300, 100]);
    assert_eq!(groups[0].unsent + groups[1].unsent, 398);
    assert_eq!(log.lock().unwrap().len(), 2);
}
