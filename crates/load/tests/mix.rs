//! Mixes and templates on the wire: a server keeps every request that it gets, and they are what was asked for.

#![allow(clippy::unwrap_used, reason = "tests")]

#[macro_use]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use common::plans::{closed_plan, open_plan, with_mix};
use common::run;
use common::server::{ANSWER, serve};
use floodmark_record::plan::{Arrivals, Backend, CloseFirst, ConnectionUse, Expect, Plan};
use floodmark_record::{Counts, TimeKind};
use floodmark_stats::Histogram;

on_both_backends! {
    every_number_is_sent_once_in_exact_shares
    a_request_that_is_sent_again_is_the_same
    numbers_go_on_after_the_warm_up
    each_request_is_judged_and_read_by_its_own_rules
    what_is_not_sent_counts_for_its_group
}

/// Requests as they came.
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
                assert_eq!(bytes.len(), head + 4 + length, "nothing follows: {text}");
                return Some(text);
            }
        }
        match stream.read(&mut one) {
            Ok(n) if n > 0 => bytes.extend_from_slice(&one[..n]),
            _ => return None,
        }
    }
}

/// A server that keeps all requests and answers as `answer` says, having been told how many came before on the connection; none to close.
fn logging(answer: fn(&str, usize) -> Option<Vec<u8>>) -> (SocketAddr, Log) {
    let log = Log::default();
    let kept = Arc::clone(&log);
    let address = serve(move |mut stream, _| {
        let mut before = 0;
        while let Some(request) = read(&mut stream) {
            kept.lock().unwrap().push(request.clone());
            let answered = answer(&request, before).is_some_and(|a| stream.write_all(&a).is_ok());
            if !answered || request.contains("Connection: close") {
                return;
            }
            before += 1;
        }
    });
    (address, log)
}

fn hello(_: &str, _: usize) -> Option<Vec<u8>> {
    Some(ANSWER.to_vec())
}

/// Three parts of GET with the number in the path, one of POST with all that can be filled in.
fn mixed(backend: Backend, address: SocketAddr, plan: Plan) -> Plan {
    let mut plan = with_mix(plan, &[3, 1]);
    plan.backend = backend;
    plan.target.address = address.into();
    let requests = &mut plan.mix.as_mut().unwrap().requests;
    requests[0].path = "/get/{seq}".to_owned();
    requests[1].path = "/post/{rand:5-9}".to_owned();
    let post = &mut requests[1].request;
    post.method = "POST".to_owned();
    post.headers = vec![("X-Id".to_owned(), "{uuid}".to_owned())];
    post.body = br#"{"id":{seq},"a":{"b":{}}}"#.to_vec();
    plan
}

/// The number in a request of [`mixed`].
fn number(request: &str) -> u64 {
    let text = match request.strip_prefix("GET /get/") {
        Some(rest) => rest.split(' ').next().unwrap(),
        None => {
            assert!(request.starts_with("POST /post/"), "{request}");
            let body = request.split_once(r#"{"id":"#).unwrap().1;
            body.strip_suffix(r#","a":{"b":{}}}"#).unwrap()
        }
    };
    text.parse().unwrap()
}

fn uuid(request: &str) -> Option<&str> {
    request.lines().find_map(|line| line.strip_prefix("X-Id: "))
}

fn every_number_is_sent_once_in_exact_shares(backend: Backend) {
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
        assert_eq!(uuids.len(), 300, "the share of one in four");
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

/// What came of a group over a whole run.
fn of_group(rows: &[floodmark_record::SecondRow], group: usize) -> Counts {
    let mut counts = Counts::default();
    rows.iter()
        .for_each(|row| counts.merge(&row.groups[group].counts));
    assert_eq!(counts.balance(), Ok(()));
    counts
}

fn a_request_that_is_sent_again_is_the_same(backend: Backend) {
    // Each connection is closed in place of a second answer.
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

fn numbers_go_on_after_the_warm_up(backend: Backend) {
    let (address, log) = logging(hello);
    let plan = Plan {
        threads: 2,
        warmup_s: 0.1,
        ..closed_plan(4, 100)
    };
    let run = run(mixed(backend, address, plan));
    let warmup = run.end.warmup_counts.unwrap();
    let log = log.lock().unwrap();
    let numbers: BTreeSet<u64> = log.iter().map(|request| number(request)).collect();
    assert_eq!(numbers.len() as u64, warmup.sent + 100, "none came twice");
    assert_eq!(numbers.last(), Some(&(run.end.next_number - 1)));
    assert_eq!(numbers.len(), log.len());
    // Times of groups are of the measurement alone.
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

fn each_request_is_judged_and_read_by_its_own_rules(backend: Backend) {
    let (address, _) = logging(|request, _| {
        Some(if request.starts_with("HEAD") {
            b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n".to_vec()
        } else if request.starts_with("GET /2") {
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone".to_vec()
        } else {
            ANSWER.to_vec()
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

fn what_is_not_sent_counts_for_its_group(backend: Backend) {
    // Nothing is answered, so with two connections only two requests are ever sent.
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
