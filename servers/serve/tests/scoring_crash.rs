//! Kills a scoring server under load, with its journal on disk or in Cassandra. Also makes the disk
//! or Cassandra fail.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use floodmark_serve::{NativeWorkload, Settings};
use floodmark_truth::store::StartedStore;
use serde_json::Value;
use support::process::{KillableServer, RandomDelay, run_child};
use support::{TestClient, TestResponse, settings};

const ROUNDS: u64 = 5;
const CLIENTS: usize = 8;
const REQUEST: &str = "POST /scoring HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{\"score\": 10}";

/// Entry point of the server process, which runs this test binary.
#[test]
#[ignore = "runs as the child of the other tests"]
fn child() {
    run_child(|journal| Settings {
        journal: journal.to_str().unwrap().parse().unwrap(),
        ..settings(NativeWorkload::Scoring)
    });
}

/// Returns the number in a response, and checks its total.
fn number(response: &TestResponse) -> u64 {
    let value: Value = serde_json::from_str(&response.body).unwrap();
    let number = value["numberOfTrials"].as_u64().unwrap();
    assert_eq!(value["totalScore"].as_f64().unwrap(), 10.0 * number as f64);
    number
}

/// Adds scores until the server dies. Returns the acknowledged numbers, and the number of other
/// scores that were sent.
fn post_until_it_dies(mut client: TestClient, posted: &AtomicU64) -> (Vec<u64>, u64) {
    let (mut numbers, mut unknown) = (Vec::new(), 0);
    loop {
        let sent = client.stream.write_all(REQUEST.as_bytes());
        match sent.ok().and_then(|()| client.try_response(true)) {
            Some(response) if response.status == 200 => {
                numbers.push(number(&response));
                posted.fetch_add(1, Ordering::Relaxed);
            }
            // The disk exceeded the server's time limit, so the outcome is unknown.
            Some(response) if response.status == 503 => unknown += 1,
            Some(response) => panic!("{response:?}"),
            None => return (numbers, unknown + 1),
        }
    }
}

/// Returns the setting for a journal in this directory.
fn in_directory(directory: &Path) -> PathBuf {
    format!("file:{}", directory.join("journal").display()).into()
}

#[test]
fn loses_no_acknowledged_score_over_many_kills() {
    let directory = tempfile::tempdir().unwrap();
    kill_servers(&in_directory(directory.path()));
}

#[test]
fn loses_no_acknowledged_score_in_cassandra() {
    let Some(mut store) = StartedStore::cassandra() else {
        return;
    };
    let journal = PathBuf::from(format!("cassandra:{}", store.address));
    kill_servers(&journal);
    let server = KillableServer::start(&journal);
    let mut client = TestClient::connect(server.address);
    let mut post = || {
        client.send(REQUEST);
        client.response()
    };
    let acknowledged = number(&post());
    // After a kill, Cassandra replays only writes that are at least 100 ms old.
    thread::sleep(Duration::from_millis(500));
    store.kill();
    for response in [post(), post()] {
        assert_eq!(response.status, 503, "{response:?}");
        assert_eq!(response.header("retry-after"), Some("1"));
        let start = "{\"error\": \"the journal has failed: cassandra:127.0.0.1:";
        assert!(response.body.starts_with(start), "{response:?}");
    }
    let text = server.stop();
    let words = "failed: the journal failed while the server was running: cassandra:";
    assert!(text.contains(words), "{text}");
    store.restart();
    let server = KillableServer::start(&journal);
    let mut client = TestClient::connect(server.address);
    client.send(REQUEST);
    // The refused scores were never sent to Cassandra.
    assert_eq!(number(&client.response()), acknowledged + 1);
}

/// Kills a server several times and checks the scores after each restart.
fn kill_servers(journal: &Path) {
    let mut random = RandomDelay::new();
    // Number of scores that the server recovered or acknowledged so far.
    let mut before = 0;
    for round in 0..ROUNDS {
        let server = KillableServer::start(journal);
        let results = server.kill_under_load(CLIENTS, &mut random, |_, client, posted| {
            post_until_it_dies(client, posted)
        });
        let unknown: u64 = results.iter().map(|(_, unknown)| unknown).sum();
        let mut numbers = Vec::from_iter(results.into_iter().flat_map(|(numbers, _)| numbers));
        numbers.sort_unstable();
        assert!(
            numbers.is_sorted_by(|a, b| a < b),
            "round {round}: a repeated number"
        );
        assert!(
            numbers[0] > before,
            "round {round}: {} ≤ {before}",
            numbers[0]
        );
        let acknowledged = *numbers.last().unwrap();
        let server = KillableServer::start(journal);
        let mut client = TestClient::connect(server.address);
        client.send(REQUEST);
        let next = number(&client.response());
        assert!(
            next > acknowledged,
            "round {round}: {next} after {acknowledged}"
        );
        // Requests without a response may be recorded, and nothing else.
        let gaps = numbers[0] - before - 1 + (next - 1 - acknowledged);
        let inner = acknowledged - numbers[0] + 1 - numbers.len() as u64;
        assert!(
            gaps + inner <= unknown,
            "round {round}: {gaps} + {inner} extra scores"
        );
        before = next;
    }
}

#[test]
fn refuses_scores_after_a_failed_write() {
    let directory = tempfile::tempdir().unwrap();
    let journal = in_directory(directory.path());
    let mut server = KillableServer::start(&journal);
    let mut client = TestClient::connect(server.address);
    let mut post = || {
        client.send(REQUEST);
        client.response()
    };
    assert_eq!(number(&post()), 1);
    server.fail_writes();
    let until = Instant::now() + Duration::from_secs(30);
    let mut acknowledged = 1;
    let refused = loop {
        let response = post();
        if response.status != 200 {
            break response;
        }
        acknowledged = number(&response);
        assert!(Instant::now() < until, "the disk never failed");
    };
    for response in [refused, post(), post()] {
        assert_eq!(response.status, 503, "{response:?}");
        assert_eq!(response.header("retry-after"), Some("1"));
        // Either a write fails, or the creation of the next segment.
        let start = "{\"error\": \"the journal has failed: cannot ";
        assert!(response.body.starts_with(start), "{response:?}");
    }
    let (before, after) = server.stop_failed();
    let words = "the journal failed while the server was running: cannot ";
    assert!(
        before.contains("noticed: ") && before.contains(words),
        "{before}"
    );
    assert!(after.contains(words), "{after}");
    let server = KillableServer::start(&journal);
    let mut client = TestClient::connect(server.address);
    client.send(REQUEST);
    // The refused scores may have been written, but none of them is synced.
    assert!(number(&client.response()) > acknowledged);
}
