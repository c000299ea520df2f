//! Tests services through raw sockets.
#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

mod support;

use std::io::Write;
use std::net::TcpStream;

use floodmark_truth::Scenario;
use floodmark_truth::scenario::{ResponseFault, Service};
use floodmark_truth::service::Limiter;

use support::{GET, connect, exchange, response, start};

#[test]
fn exponential_service_is_one_queue() {
    let mean_us = 500.0;
    let server = start(Scenario {
        service: Service::Exponential {
            mean_us,
            servers: 1,
        },
        ..Scenario::default()
    });
    let mut streams: Vec<TcpStream> = (0..20).map(|_| connect(&server)).collect();
    for _ in 0..20 {
        for stream in &mut streams {
            stream.write_all(GET).unwrap();
        }
        for stream in &mut streams {
            response(stream);
        }
    }
    let log = server.stop().unwrap();
    let departures: Vec<u64> = log.requests.iter().map(|r| r.departure_ns).collect();
    assert!(
        departures.is_sorted(),
        "responses are sent in order of arrival"
    );
    // The server is busy from the first arrival of each round. The mean of 20 service times has a
    // standard deviation of 22 %. The median of 20 such means has a standard deviation of 6 %. One
    // disturbed round does not change the median.
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
fn a_limiter_rejects_requests_above_its_rate() {
    let server = start(Scenario::from(Service::Limiter(Limiter {
        rate_per_s: 0.001,
        burst: 3,
        delay_us: 0,
    })));
    let mut stream = connect(&server);
    let is_ok: Vec<bool> = (0..5)
        .map(|_| exchange(&mut stream).starts_with("HTTP/1.1 200 "))
        .collect();
    assert_eq!(is_ok, [true, true, true, false, false]);
    let log = server.stop().unwrap();
    assert_eq!(log.count(Some(ResponseFault::Status { code: 503 })), 2);
}
