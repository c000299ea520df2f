//! Tests that the dispatcher hands out every number once, in order per connection, across restarts.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::fs;
use std::num::{NonZeroU64, NonZeroUsize};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::{Duration, Instant};

use floodmark_serve::{Limits, NativeWorkload, ServeError, Settings, StateError, serve};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use support::{TestClient, TestServer, settings};

fn durable(path: &std::path::Path, block: u64) -> Settings {
    Settings {
        state: Some(path.to_owned()),
        limits: Limits {
            reserve: NonZeroU64::new(block).unwrap(),
            ..Limits::default()
        },
        ..settings(NativeWorkload::Dispatcher)
    }
}

/// Takes `each` numbers on every connection, and uses the connections concurrently. Returns a list
/// of numbers per connection.
fn take(server: &TestServer, connections: usize, each: usize) -> Vec<Vec<u64>> {
    let threads: Vec<_> = (0..connections)
        .map(|_| {
            let mut client: TestClient = server.connect();
            thread::spawn(move || {
                let mut numbers = Vec::new();
                while numbers.len() < each {
                    let response = client.get("/dispatcher");
                    // The status is 503 if the disk takes longer than the server waits.
                    if response.status != 503 {
                        numbers.push(response.body.parse().unwrap());
                    }
                }
                numbers
            })
        })
        .collect();
    threads.into_iter().map(|t| t.join().unwrap()).collect()
}

fn assert_sequence(taken: &[Vec<u64>], first: u64) {
    for one in taken {
        assert!(
            one.is_sorted_by(|a, b| a < b),
            "numbers increase on each connection"
        );
    }
    let mut all = taken.concat();
    all.sort_unstable();
    let expected: Vec<u64> = (first..first + all.len() as u64).collect();
    assert_eq!(all, expected);
}

#[test]
fn connections_on_several_threads_get_every_number_once() {
    let server = TestServer::start(Settings {
        threads: NonZeroUsize::new(3),
        ..settings(NativeWorkload::Dispatcher)
    });
    assert_sequence(&take(&server, 16, 500), 1);
    assert_eq!(server.stop().next_number, Some(8001));
}

#[test]
fn a_graceful_restart_continues_with_the_next_number() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let mut first = 1;
    for _ in 0..3 {
        let server = TestServer::start(durable(&path, 50));
        assert_sequence(&take(&server, 4, 60), first);
        first += 240;
        assert_eq!(server.stop().next_number, Some(first));
    }
}

#[test]
fn refuses_a_second_server_on_the_same_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let server = TestServer::start(durable(&path, 50));
    let second = serve(durable(&path, 50), std::future::pending(), |_| panic!());
    let error = second.unwrap_err();
    assert!(matches!(error, ServeError::State(StateError::Locked(_))));
    assert!(error.to_string().contains("in use by another server"));
    assert_eq!(take(&server, 1, 1), [[1]]);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn refuses_what_is_not_a_regular_file_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let name = |name| directory.path().join(name);
    mknodat(CWD, name("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = UnixListener::bind(name("socket")).unwrap();
    symlink(name("missing"), name("link")).unwrap();
    for (path, kind) in [
        (name("fifo"), "a FIFO"),
        (name("socket"), "a socket"),
        (name("link"), "a broken symbolic link"),
        (directory.path().to_owned(), "a directory"),
        ("/dev/null".into(), "a device"),
    ] {
        let refused = serve(durable(&path, 50), std::future::pending(), |_| panic!());
        let error = refused.unwrap_err().to_string();
        let path = path.canonicalize().unwrap_or(path);
        let start = format!("{}: {kind}, not a regular file; ", path.display());
        assert!(error.starts_with(&start), "{error}");
    }
    assert!(!name("missing").exists());
}

#[test]
fn refuses_a_read_only_file_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    TestServer::start(durable(&path, 50)).stop();
    let bytes = fs::read(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let error = serve(durable(&path, 50), std::future::pending(), |_| panic!()).unwrap_err();
    assert!(error.to_string().contains("chmod u+rw"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn a_removed_state_file_ends_the_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let server = TestServer::start(durable(&path, 20));
    fs::remove_file(&path).unwrap();
    let mut client = server.connect();
    for expected in 1..=20 {
        assert_eq!(client.get("/dispatcher").body, expected.to_string());
    }
    assert_eq!(client.get("/dispatcher").status, 503);
    let error = server.begin_stop().join().unwrap().unwrap_err();
    assert!(error.to_string().contains("removed or replaced"), "{error}");
}

#[test]
fn refuses_a_damaged_file_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    TestServer::start(durable(&path, 50)).stop();
    let mut bytes = fs::read(&path).unwrap();
    let digit = bytes.iter().position(|b| *b == b'x').unwrap() + 3;
    bytes[digit] ^= 1;
    let second = digit + bytes.len() / 2;
    bytes[second] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = serve(durable(&path, 50), std::future::pending(), |_| panic!()).unwrap_err();
    assert!(error.to_string().contains("state: damaged"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn a_moved_state_file_gives_503_and_no_unreserved_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    fs::create_dir(&home).unwrap();
    let server = TestServer::start(durable(&home.join("state"), 20));
    let away = directory.path().join("away");
    fs::rename(&home, &away).unwrap();
    let mut client = server.connect();
    for expected in 1..=20 {
        assert_eq!(client.get("/dispatcher").body, expected.to_string());
    }
    for _ in 0..3 {
        let response = client.get("/dispatcher");
        assert_eq!(
            (response.status, response.header("retry-after")),
            (503, Some("1"))
        );
        assert!(response.body.starts_with("{\"error\": "), "{response:?}");
    }
    fs::rename(&away, &home).unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    let response = loop {
        let response = client.get("/dispatcher");
        if response.status == 200 {
            break response;
        }
        assert!(Instant::now() < until, "never recovered");
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(response.body, "21", "the refusals left no gap");
    assert_eq!(server.stop().next_number, Some(22));
}
