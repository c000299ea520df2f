//! Kills a server process at random moments under load, and restarts it with the same state file.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::collections::HashSet;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use floodmark_serve::{Limits, NativeWorkload, Settings, serve};
use support::{TestClient, settings};

const STATE: &str = "FLOODMARK_TEST_STATE";
const ROUNDS: u64 = 15;
/// Block size; small, so that most kills interrupt a reservation.
const BLOCK: u64 = 64;

/// Entry point of the server process, which runs this test binary.
#[test]
#[ignore = "runs as the child of the other test"]
fn child() {
    let state = PathBuf::from(env::var_os(STATE).expect("started by the other test"));
    let settings = Settings {
        state: Some(state),
        limits: Limits {
            reserve: NonZeroU64::new(BLOCK).unwrap(),
            ..Limits::default()
        },
        ..settings(NativeWorkload::Dispatcher)
    };
    serve(settings, std::future::pending(), |at| {
        println!("\nlistening on {at}");
        std::io::stdout().flush().unwrap();
    })
    .unwrap();
}

/// A server process that is killed on drop.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn start(state: &Path) -> (KillOnDrop, SocketAddr) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["child", "--exact", "--ignored", "--nocapture"])
        .env(STATE, state)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let child = KillOnDrop(child);
    let address = output
        .lines()
        .find_map(|line| Some(line.ok()?.strip_prefix("listening on ")?.parse().unwrap()))
        .expect("the server started");
    (child, address)
}

fn take_until_it_dies(address: SocketAddr, taken: &AtomicU64) -> Vec<u64> {
    let mut client = TestClient::connect(address);
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
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut random = seed.subsec_nanos() | 1;
    let mut seen = HashSet::new();
    let mut highest = 0;
    for round in 0..ROUNDS {
        let (server, address) = start(&state);
        let taken = Arc::new(AtomicU64::new(0));
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let taken = Arc::clone(&taken);
                thread::spawn(move || take_until_it_dies(address, &taken))
            })
            .collect();
        // Kill the server only under load, even if the disk is slow.
        let until = Instant::now() + Duration::from_secs(30);
        while taken.load(Ordering::Relaxed) == 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        // Marsaglia's xorshift picks a random moment.
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        thread::sleep(Duration::from_micros(u64::from(random % 150_000)));
        drop(server);
        let before = highest;
        for client in clients {
            for number in client.join().unwrap() {
                assert!(seen.insert(number), "round {round} repeated {number}");
                assert!(number > before, "{number} is not above {before}");
                highest = highest.max(number);
            }
        }
        assert!(highest > before, "no number was taken in round {round}");
    }
    let most = seen.len() as u64 + ROUNDS * (BLOCK + BLOCK / 2 + 4);
    assert!(highest <= most, "each gap is at most a block and a half");
}
