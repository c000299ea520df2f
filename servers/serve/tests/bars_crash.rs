//! Kills a server of bars under load, and makes its disk fail.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use floodmark_serve::{NativeWorkload, Settings, StoreSetting};
use serde_json::Value;
use support::process::{KillableServer, RandomDelay, run_child};
use support::{TestClient, TestResponse, settings};

const ROUNDS: u64 = 10;
const CLIENTS: usize = 8;

/// Names of bars by id.
type BarNames = BTreeMap<i64, String>;

/// Entry point of the server process, which runs this test binary.
#[test]
#[ignore = "runs as the child of the other tests"]
fn child() {
    run_child(|path| Settings {
        store: Some(StoreSetting::Embedded(path)),
        ..settings(NativeWorkload::Bars)
    });
}

fn request(name: &str) -> String {
    let body = format!("{{\"name\": \"{name}\"}}");
    format!(
        "POST /bars HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn bar(value: &Value) -> (i64, String) {
    let name = value["name"].as_str().unwrap();
    (value["id"].as_i64().unwrap(), name.to_owned())
}

/// Returns the bar in a response.
fn stored(response: &TestResponse) -> (i64, String) {
    bar(&serde_json::from_str(&response.body).unwrap())
}

/// Lists the bars. Each id must occur once.
fn list(address: SocketAddr) -> BarNames {
    let response = TestClient::connect(address).get("/bars");
    assert_eq!(response.status, 200, "{response:?}");
    let bars: Vec<Value> = serde_json::from_str(&response.body).unwrap();
    let names: BarNames = bars.iter().map(bar).collect();
    assert_eq!(names.len(), bars.len());
    names
}

/// Adds bars until the server dies. Returns the acknowledged bars, and the names of the other bars
/// that were sent.
fn post_until_it_dies(
    mut client: TestClient,
    prefix: &str,
    posted: &AtomicU64,
) -> (BarNames, Vec<String>) {
    let (mut acknowledged, mut unknown) = (BarNames::new(), Vec::new());
    for number in 0.. {
        let name = format!("{prefix}-{number}");
        let sent = client.stream.write_all(request(&name).as_bytes());
        match sent.ok().and_then(|()| client.try_response(true)) {
            Some(response) if response.status == 201 => {
                let (id, stored) = stored(&response);
                assert_eq!(stored, name);
                acknowledged.insert(id, name);
                posted.fetch_add(1, Ordering::Relaxed);
            }
            // The disk exceeded the server's time limit, so the outcome is unknown.
            Some(response) if response.status == 503 => unknown.push(name),
            Some(response) => panic!("{response:?}"),
            None => {
                unknown.push(name);
                break;
            }
        }
    }
    (acknowledged, unknown)
}

#[test]
fn loses_no_acknowledged_bar_over_many_kills() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bars.redb");
    let mut random = RandomDelay::new();
    // Bars that the server listed or acknowledged so far.
    let mut before = BarNames::new();
    for round in 0..ROUNDS {
        // Kill a server while it opens or creates the file.
        let mut starting = KillableServer::spawn(&path);
        random.sleep(Duration::from_millis(60));
        starting.kill().unwrap();
        starting.wait().unwrap();
        let server = KillableServer::start(&path);
        assert_eq!(list(server.address), before, "round {round}");
        let results = server.kill_under_load(CLIENTS, &mut random, |n, client, posted| {
            post_until_it_dies(client, &format!("{round}-{n}"), posted)
        });
        let mut unknown = Vec::new();
        let mut number = before.len();
        for (acknowledged, names) in results {
            number += acknowledged.len();
            before.extend(acknowledged);
            unknown.extend(names);
        }
        assert_eq!(before.len(), number, "round {round}: a repeated id");
        let server = KillableServer::start(&path);
        let after = list(server.address);
        for (id, name) in &before {
            assert_eq!(after.get(id), Some(name), "round {round}: bar {id}");
        }
        // Requests without a response may be stored, each once, and nothing else.
        for (id, name) in after.iter().filter(|(id, _)| !before.contains_key(id)) {
            let sent = unknown.iter().position(|sent| sent == name);
            let sent = sent.unwrap_or_else(|| panic!("round {round}: bar {id} {name:?}"));
            unknown.swap_remove(sent);
        }
        before = after;
    }
}

#[test]
fn refuses_bars_after_a_failed_write() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bars.redb");
    let mut server = KillableServer::start(&path);
    let mut client = TestClient::connect(server.address);
    let mut post = |name: &str| {
        client.send(request(name));
        client.response()
    };
    let mut acknowledged = BarNames::from([stored(&post("first"))]);
    server.fail_writes();
    let until = Instant::now() + Duration::from_secs(30);
    let refused = loop {
        let response = post("next");
        if response.status != 201 {
            break response;
        }
        acknowledged.extend([stored(&response)]);
        assert!(Instant::now() < until, "the disk never failed");
    };
    for response in [refused, post("later"), post("later")] {
        assert_eq!(response.status, 503, "{response:?}");
        assert_eq!(response.header("retry-after"), Some("1"));
        let start = "{\"error\": \"the store has failed: ";
        assert!(response.body.starts_with(start), "{response:?}");
    }
    let (before, after) = server.stop_failed();
    let words = "bars.redb: the store failed while the server was running: ";
    assert!(
        before.contains("noticed: ") && before.contains(words),
        "{before}"
    );
    assert!(after.contains(words), "{after}");
    let server = KillableServer::start(&path);
    let mut after = list(server.address);
    // The refused bar may be stored, but no later one.
    after.retain(|id, _| acknowledged.contains_key(id));
    assert_eq!(after, acknowledged);
    assert!(list(server.address).values().all(|name| name != "later"));
}
