//! Tests that `bars` keeps its goodput when requests arrive faster than PostgreSQL completes them.
#![cfg(feature = "postgresql")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;
#[path = "support/postgresql.rs"]
mod support_postgresql;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use floodmark_serve::{NativeWorkload, Settings};
use serde_json::{Value, json};
use support::{TestClient, TestServer, settings};
use support_postgresql::TestPostgresql;

/// Time per inserted row in PostgreSQL, in ms.
const ROW_MS: u32 = 5;
/// Number of closed-model clients, enough to keep the store busy.
const CLOSED_CLIENTS: usize = 20;
/// Maximum queueing delay.
const MAX_WAIT: Duration = Duration::from_millis(300);
/// Number of open-model clients, which together send up to 10 times the capacity. Each client sends
/// at fixed times, or later if its previous request is still in flight.
const OPEN_CLIENTS: usize = 400;
const OPEN_INTERVAL: Duration = Duration::from_millis(200);
/// Time after which a response is useless.
const TIMEOUT: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(5);

/// Numbers of requests by outcome. Each request is either stored or refused.
#[derive(Debug, Default)]
struct Outcomes {
    /// Stored bars whose response arrived within the window and the timeout.
    good: usize,
    /// Names of all stored bars.
    stored: BTreeSet<String>,
    refused: usize,
}

/// Sends inserts on several connections during the window, and waits for all responses.
fn load(address: SocketAddr, clients: usize, interval: Option<Duration>, phase: &str) -> Outcomes {
    let begin = Instant::now();
    let client = |client: usize| {
        let mut connection = TestClient::connect(address);
        let mut outcomes = Outcomes::default();
        // Stagger the clients' start times.
        let mut next = begin + interval.unwrap_or_default() * client as u32 / clients as u32;
        for number in 0.. {
            thread::sleep(next.saturating_duration_since(Instant::now()));
            next += interval.unwrap_or_default();
            let sent = Instant::now();
            if sent.duration_since(begin) > WINDOW {
                break;
            }
            let name = format!("{phase}-{client}-{number}");
            let body = json!({ "name": name }).to_string();
            connection.send(format!(
                "POST /bars HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ));
            let response = connection.response();
            match response.status {
                201 => {
                    let is_good = sent.elapsed() <= TIMEOUT && begin.elapsed() <= WINDOW;
                    outcomes.good += usize::from(is_good);
                    outcomes.stored.insert(name);
                }
                503 => {
                    assert_eq!(response.header("retry-after"), Some("1"));
                    assert!(response.body.contains("overloaded"), "{response:?}");
                    outcomes.refused += 1;
                }
                _ => panic!("{response:?}"),
            }
        }
        outcomes
    };
    let client = &client;
    let clients = thread::scope(|scope| {
        let threads = (0..clients).map(|n| scope.spawn(move || client(n)));
        let threads = Vec::from_iter(threads);
        let outcomes = threads.into_iter().map(|thread| thread.join().unwrap());
        Vec::from_iter(outcomes)
    });
    let mut total = Outcomes::default();
    for mut outcomes in clients {
        total.good += outcomes.good;
        total.stored.append(&mut outcomes.stored);
        total.refused += outcomes.refused;
    }
    total
}

fn stored_names(address: SocketAddr) -> BTreeSet<String> {
    let response = TestClient::connect(address).get("/bars");
    let bars: Vec<Value> = serde_json::from_str(&response.body).unwrap();
    let names = bars
        .iter()
        .map(|bar| bar["name"].as_str().unwrap().to_owned());
    names.collect()
}

#[test]
fn keeps_its_goodput_under_overload() {
    let Some(store) = TestPostgresql::start_slow(ROW_MS) else {
        return;
    };
    let mut settings = Settings {
        store: Some(store.url("bars", "bars").parse().unwrap()),
        ..settings(NativeWorkload::Bars)
    };
    settings.limits.max_wait = MAX_WAIT;
    let server = TestServer::start(settings);
    let capacity = load(server.address, CLOSED_CLIENTS, None, "capacity");
    assert_eq!(capacity.refused, 0);
    let most = WINDOW.as_millis() / u128::from(ROW_MS);
    // Commits and other programs on this host take the rest of the time.
    assert!(
        (most / 4..=most).contains(&(capacity.good as u128)),
        "{} of {most}",
        capacity.good
    );

    let interval = Some(OPEN_INTERVAL);
    let overload = load(server.address, OPEN_CLIENTS, interval, "overload");
    let sent = overload.refused + overload.stored.len();
    assert!(
        sent > 2 * capacity.good,
        "sent {sent}, refused {}, capacity {}",
        overload.refused,
        capacity.good
    );
    assert!(
        5 * overload.good >= 3 * capacity.good,
        "goodput {}, capacity {}, refused {}",
        overload.good,
        capacity.good,
        overload.refused
    );
    let acknowledged = &capacity.stored | &overload.stored;
    assert_eq!(stored_names(server.address), acknowledged);
    server.stop();
}
