//! Kills a server process at random moments under load, and restarts it with the same state file.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::collections::HashSet;
use std::io::Write;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use floodmark_serve::{Limits, NativeWorkload, Settings};
use support::process::{KillableServer, RandomDelay, run_child};
use support::{TestClient, settings};

const ROUNDS: u64 = 15;
/// Block size; small, so that most kills interrupt a reservation.
const BLOCK: u64 = 64;

/// Entry point of the server process, which runs this test binary.
#[test]
#[ignore = "runs as the child of the other test"]
fn child() {
    run_child(|state| Settings {
        state: Some(state),
        limits: Limits {
            reserve: NonZeroU64::new(BLOCK).unwrap(),
            ..Limits::default()
        },
        ..settings(NativeWorkload::Dispatcher)
    });
}

fn take_until_it_dies(mut client: TestClient, taken: &AtomicU64) -> Vec<u64> {
    let mut numbers = Vec::new();
    let request = b"GET /dispatcher HTTP/1.1\r\nHost: x\r\n\r\n";
    while client.stream.write_all(request).is_ok() {
        match client.try_response(true) {
            // The status is 503 if the disk takes longer than the server waits.
            Some(response) if response.status == 503 => {}
            Some(response) => {
                numbers.push(response.body.parse().unwrap());
                taken.fetch_add(1, Ordering::Relaxed);
            }
            None => break,
        }
    }
    numbers
}

#[test]
fn repeats_no_number_over_many_kills() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let mut random = RandomDelay::new();
    let mut seen = HashSet::new();
    let mut highest = 0;
    for round in 0..ROUNDS {
        let server = KillableServer::start(&state);
        let results = server.kill_under_load(4, &mut random, |_, client, taken| {
            take_until_it_dies(client, taken)
        });
        let before = highest;
        for number in results.into_iter().flatten() {
            assert!(seen.insert(number), "round {round} repeated {number}");
            assert!(number > before, "{number} is not above {before}");
            highest = highest.max(number);
        }
        assert!(highest > before, "no number was taken in round {round}");
    }
    let most = seen.len() as u64 + ROUNDS * (BLOCK + BLOCK / 2 + 4);
    assert!(highest <= most, "each gap is at most a block and a half");
}

#[test]
fn hands_out_only_reserved_numbers_after_a_failed_write() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let mut server = KillableServer::start(&state);
    let mut client = TestClient::connect(server.address);
    let mut take = || {
        client.send("GET /dispatcher HTTP/1.1\r\nHost: x\r\n\r\n");
        client.response()
    };
    assert_eq!(take().body, "1");
    server.fail_writes();
    let refused = (2..=4 * BLOCK).find(|number| {
        let response = take();
        assert!(
            response.status == 503 || response.body == number.to_string(),
            "{response:?}"
        );
        response.status == 503
    });
    let refused = refused.expect("a write failed");
    for _ in 0..3 {
        let response = take();
        assert_eq!(response.status, 503, "{response:?}");
        assert_eq!(response.header("retry-after"), Some("1"));
    }
    let (before, after) = server.stop_failed();
    let words = "the state file failed while the server was running: ";
    assert!(
        before.contains("noticed: ") && before.contains(words),
        "{before}"
    );
    assert!(after.contains(words), "{after}");
    let server = KillableServer::start(&state);
    let mut client = TestClient::connect(server.address);
    let next: u64 = client.get("/dispatcher").body.parse().unwrap();
    assert!(next >= refused, "{next}");
}
