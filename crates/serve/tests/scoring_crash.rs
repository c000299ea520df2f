//! Kills a scoring server under load, and makes its disk fail.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use floodmark_serve::{JournalSetting, NativeWorkload, ServeError, Settings, serve};
use serde_json::Value;
use support::{TestClient, TestResponse, settings};

const JOURNAL: &str = "FLOODMARK_TEST_JOURNAL";
const ROUNDS: u64 = 5;
const CLIENTS: u64 = 8;
const REQUEST: &str = "POST /scoring HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{\"score\": 10}";

/// Entry point of the server process, which runs this test binary. After a line on stdin, files
/// cannot grow beyond a few bytes. At the end of stdin, the server stops.
#[test]
#[ignore = "runs as the child of the other tests"]
fn child() {
    let folder = PathBuf::from(env::var_os(JOURNAL).expect("started by another test"));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    thread::spawn(move || {
        for line in std::io::stdin().lines() {
            line.unwrap();
            let limit = libc::rlimit {
                rlim_cur: 100,
                rlim_max: 100,
            };
            // SAFETY: the calls get valid arguments. Without a handler, the signal would end the
            // process.
            unsafe {
                libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
            }
        }
        stop.send(()).unwrap();
    });
    let settings = Settings {
        journal: JournalSetting::File(folder),
        ..settings(NativeWorkload::Scoring)
    };
    let shutdown = async {
        let _ = stopped.await;
    };
    let served = serve(settings, shutdown, |at| {
        println!("\nlistening on {at}");
        std::io::stdout().flush().unwrap();
    });
    match served {
        Ok(_) => println!("stopped"),
        Err(ServeError::JournalFailed(cause)) => println!("failed: {cause}"),
        Err(error) => panic!("{error}"),
    }
}

/// A server process that is killed on drop.
struct ScoringProcess {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    address: SocketAddr,
}

impl Drop for ScoringProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

fn start(folder: &Path) -> ScoringProcess {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["child", "--exact", "--ignored", "--nocapture"])
        .env(JOURNAL, folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let address = (&mut output)
        .lines()
        .find_map(|line| Some(line.ok()?.strip_prefix("listening on ")?.parse().unwrap()))
        .expect("the server started");
    ScoringProcess {
        child,
        output,
        address,
    }
}

/// Returns the number in a response, and checks its total.
fn number(response: &TestResponse) -> u64 {
    let value: Value = serde_json::from_str(&response.body).unwrap();
    let number = value["numberOfTrials"].as_u64().unwrap();
    assert_eq!(value["totalScore"].as_f64().unwrap(), 10.0 * number as f64);
    number
}

fn post_until_it_dies(address: SocketAddr, posted: &AtomicU64) -> Vec<u64> {
    let mut client = TestClient::connect(address);
    let mut numbers = Vec::new();
    while client.stream.write_all(REQUEST.as_bytes()).is_ok() {
        match client.try_response(true) {
            Some(response) if response.status == 200 => {
                numbers.push(number(&response));
                posted.fetch_add(1, Ordering::Relaxed);
            }
            Some(response) => panic!("{response:?}"),
            None => break,
        }
    }
    numbers
}

#[test]
fn loses_no_acknowledged_score_over_many_kills() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut random = seed.subsec_nanos() | 1;
    // Number of scores that the server recovered or acknowledged so far.
    let mut before = 0;
    for round in 0..ROUNDS {
        let server = start(&journal);
        let address = server.address;
        let posted = Arc::new(AtomicU64::new(0));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let posted = Arc::clone(&posted);
                thread::spawn(move || post_until_it_dies(address, &posted))
            })
            .collect();
        // Kill the server only under load, even if the disk is slow.
        let until = Instant::now() + Duration::from_secs(30);
        while posted.load(Ordering::Relaxed) == 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        // Marsaglia's xorshift picks a random moment.
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        thread::sleep(Duration::from_micros(u64::from(random % 300_000)));
        drop(server);
        let answers = clients.into_iter().map(|client| client.join().unwrap());
        let mut numbers = Vec::from_iter(answers.flatten());
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
        let server = start(&journal);
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
            gaps + inner <= CLIENTS,
            "round {round}: {gaps} + {inner} extra scores"
        );
        before = next;
    }
}

#[test]
fn refuses_scores_after_a_failed_write() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let mut server = start(&journal);
    let mut client = TestClient::connect(server.address);
    let mut post = || {
        client.send(REQUEST);
        client.response()
    };
    assert_eq!(number(&post()), 1);
    let mut stdin = server.child.stdin.take().unwrap();
    stdin.write_all(b"fail\n").unwrap();
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
    drop(stdin);
    let mut text = String::new();
    while server.output.read_line(&mut text).unwrap() > 0 {}
    assert!(text.contains("failed: cannot "), "{text}");
    drop(server);
    let server = start(&journal);
    let mut client = TestClient::connect(server.address);
    client.send(REQUEST);
    // The refused scores may have been written, but none of them is synced.
    assert!(number(&client.response()) > acknowledged);
}
