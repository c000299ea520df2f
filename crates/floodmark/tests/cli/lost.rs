//! Tests of requests that the server executes before it closes the connection without a response.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use floodmark_record::Record;
use floodmark_record::capacity::TrialOutcome;

use crate::support::hostile::Listener;
use crate::support::{load, run, text, valid};

/// Starts a server that responds with the number of the request, but closes each connection instead
/// of responding to its fourth request. Returns the server and the number of executed POSTs.
fn losing() -> (Listener, Arc<AtomicU64>) {
    let (posts, all) = (Arc::<AtomicU64>::default(), AtomicU64::new(0));
    let count = Arc::clone(&posts);
    let listener = Listener::start(move |mut stream| {
        for served in 1..=4 {
            let Some(head) = read_head(&mut stream) else {
                return;
            };
            let is_post = head.starts_with(b"POST ");
            count.fetch_add(is_post.into(), Ordering::Relaxed);
            let number = all.fetch_add(1, Ordering::Relaxed).to_string();
            let length = number.len();
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{number}");
            if served == 4 || stream.write_all(response.as_bytes()).is_err() {
                return;
            }
        }
    });
    (listener, posts)
}

fn read_head(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut piece) {
            Ok(n @ 1..) => head.extend_from_slice(&piece[..n]),
            _ => return None,
        }
    }
    Some(head)
}

#[test]
fn a_lost_post_of_a_mix_is_a_reset_of_its_request() {
    let (listener, posts) = losing();
    let directory = tempfile::tempdir().unwrap();
    let mix = directory.path().join("mix.toml");
    let of =
        |name: &str| format!("[[request]]\nname = \"{name}\"\nmethod = \"{name}\"\npath = \"/\"\n");
    fs::write(&mix, of("GET") + &of("POST")).unwrap();
    let load = load(
        &listener.url,
        &["--mix", mix.to_str().unwrap(), "-n", "200", "-c", "2"],
    );
    load.ends_with(0);
    let run = load.run();
    let [get, post] = &run.groups[..] else {
        panic!("{:?}", run.groups);
    };
    assert_eq!(posts.load(Ordering::Relaxed), post.requests.sent);
    assert!(post.requests.reset > 0, "{post:?}");
    assert_eq!(post.requests.reconnects, 0, "{post:?}");
    assert_eq!(
        (get.requests.reset, get.requests.ok),
        (0, get.requests.sent)
    );
    assert!(get.requests.reconnects > 0, "{get:?}");
    assert_eq!(run.requests.reset, post.requests.reset);
}

#[test]
fn lost_posts_meet_a_fail_if_condition() {
    for (method, expected) in [("POST", 1), ("GET", 0)] {
        let (listener, posts) = losing();
        let arguments = [
            "-X",
            method,
            "-n",
            "40",
            "-c",
            "2",
            "--fail-if",
            "errors > 5%",
        ];
        let load = load(&listener.url, &arguments);
        load.ends_with(expected);
        let counts = load.counts();
        assert_eq!(counts.reset > 0, method == "POST", "{counts:?}");
        let executed = if method == "POST" { 40 } else { 0 };
        assert_eq!(posts.load(Ordering::Relaxed), executed);
    }
}

#[test]
fn a_check_sees_each_lost_post_once() {
    let (listener, posts) = losing();
    let arguments = ["-X", "POST", "-n", "40", "-c", "2", "--check", "sequence"];
    let load = load(&listener.url, &arguments);
    load.ends_with(0);
    let (counts, checks) = (load.counts(), &load.run().checks);
    assert!((9..=10).contains(&counts.reset), "{counts:?}");
    assert_eq!(posts.load(Ordering::Relaxed), 40);
    assert_eq!(checks.len(), 1, "{checks:?}");
    // The lost numbers were not returned, so no other request has them.
    assert_eq!(checks[0].held, Some(true), "{checks:?}");
}

#[test]
fn no_rate_meets_an_error_objective_if_posts_are_lost() {
    let (listener, _) = losing();
    let arguments = [
        "-X",
        "POST",
        "--slo",
        "errors < 5%",
        "--budget",
        "15s",
        "-c",
        "4",
        "--json",
        "-",
    ];
    let output = run(&[&["capacity", &listener.url][..], &arguments].concat());
    let value = serde_json::from_slice(&output.stdout);
    let value = value.unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    let record: Record = valid(value);
    let result = record.capacity.unwrap();
    let outcomes = result.trials.iter().map(|trial| trial.outcome);
    let (missed, others): (Vec<_>, Vec<_>) =
        outcomes.partition(|outcome| *outcome == TrialOutcome::Miss);
    assert!(!missed.is_empty(), "{result:?}");
    assert!(!others.contains(&TrialOutcome::Pass), "{result:?}");
    assert!(result.levels.is_empty(), "{result:?}");
}
