//! Several agents send exactly the load of one process.

use std::process::Command;
use std::sync::{Arc, Mutex};

use floodmark_truth::Scenario;

use super::{start, start_as};
use crate::support::hostile::{Listener, answer_each};
use crate::support::{Load, Serve, finish, floodmark, limited, load, run, text, truth};

/// 2,000 Poisson arrivals.
pub const OPEN: [&str; 8] = [
    "-r",
    "1000",
    "--arrivals",
    "poisson",
    "--seed",
    "7",
    "-n",
    "2000",
];

/// Loads a server that notes the number (`{seq}`) of each request. Returns the numbers in ascending
/// order, and the load.
pub fn numbers(agents: &str, arguments: &[&str]) -> (Vec<u64>, Load) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let listener = Listener::start(move |stream| {
        answer_each(stream, |request| {
            let number = request.split_ascii_whitespace().nth(1).unwrap();
            noted.lock().unwrap().push(number[1..].parse().unwrap());
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".into()
        });
    });
    let directory = tempfile::tempdir().unwrap();
    let mix = directory.path().join("mix.toml");
    std::fs::write(&mix, "[[request]]\nname = \"n\"\npath = \"/{seq}\"\n").unwrap();
    let arguments = [arguments, &["--mix", mix.to_str().unwrap()]].concat();
    let load = start(&listener.url, agents, &arguments).end();
    let mut numbers = std::mem::take(&mut *seen.lock().unwrap());
    numbers.sort_unstable();
    (numbers, load)
}

#[test]
fn each_arrival_is_sent_by_one_agent() {
    // A request's number follows from its arrival, and so does its intended time.
    let warm = [&OPEN[..], &["--warmup", "500ms"]].concat();
    for agents in [1u64, 2, 4] {
        let (seen, load) = numbers(&format!("local:{agents}"), &OPEN);
        load.ends_with(0);
        assert!(seen.into_iter().eq(1..=2000));
        assert_eq!(load.counts().ok, 2000);
        let sent = load.run().agents.iter().map(|agent| agent.requests.sent);
        assert_eq!(sent.clone().sum::<u64>(), 2000);
        assert!(sent.clone().all(|sent| sent > 2000 / agents / 2));
    }
    let (seen, load) = numbers("local:3", &warm);
    load.ends_with(0);
    let warmup = load.run().warmup.as_ref().unwrap().requests.sent;
    assert_eq!(load.counts().ok, 2000);
    assert!(seen.into_iter().eq(1..=2000 + warmup));
}

#[test]
fn agents_send_the_load_of_one_process() {
    let arguments = ["-r", "1000", "--arrivals", "poisson", "--warmup", "500ms"];
    let arguments = [&arguments[..], &["-d", "2s", "--seed", "7"]].concat();
    let counts = |load: &Load| {
        let warmup = load.run().warmup.as_ref().unwrap().requests.clone();
        (load.counts().clone(), warmup)
    };
    let (_server, url) = truth(Scenario::default());
    let alone = load(&url, &arguments);
    alone.ends_with(0);
    for agents in ["local:1", "local:2", "local:4"] {
        let (server, url) = truth(Scenario::default());
        let load = start(&url, agents, &arguments).end();
        load.ends_with(0);
        server.settle().unwrap();
        let log = server.stop().unwrap();
        assert_eq!(counts(&load), counts(&alone), "{agents}");
        let (measured, warmup) = counts(&load);
        assert_eq!(measured.sent + warmup.sent, log.totals.requests);
        assert_eq!(load.run().response_time_us.count, measured.ok);
    }
}

#[test]
fn totals_are_divided_exactly() {
    for (agents, arguments, requests, connections) in [
        ("local:2", &["-n", "1001", "-c", "7"][..], 1001, 7),
        ("local:4", &["-n", "1001", "-c", "9", "-t", "2"], 1001, 9),
        ("local:3", &["-n", "7", "-c", "3", "--fresh"], 7, 7),
        (
            "local:4",
            &["-r", "500", "-d", "1s", "-c", "5", "--hold"],
            500,
            5,
        ),
    ] {
        let (server, url) = truth(Scenario::default());
        let load = start(&url, agents, arguments).end();
        load.ends_with(0);
        server.settle().unwrap();
        let log = server.stop().unwrap();
        assert_eq!(load.counts().ok, requests, "{agents} {arguments:?}");
        assert_eq!(load.counts().intended, requests);
        assert_eq!(log.totals.requests, requests);
        assert_eq!(log.totals.accepted, connections, "{agents} {arguments:?}");
        assert_eq!(load.run().connections.opened, connections);
        assert_eq!(load.run().bytes.received, log.totals.bytes_out);
    }
}

#[test]
fn a_mix_keeps_its_shares() {
    let (server, url) = truth(Scenario::default());
    let directory = tempfile::tempdir().unwrap();
    let mix = directory.path().join("mix.toml");
    let text = "[[request]]\nname = \"a\"\nweight = 3\npath = \"/a\"\n\n[[request]]\nname = \"b\"\nweight = 1\npath = \"/b\"\n";
    std::fs::write(&mix, text).unwrap();
    let load = start(
        &url,
        "local:3",
        &["-n", "400", "-c", "6", "--mix", mix.to_str().unwrap()],
    )
    .end();
    load.ends_with(0);
    drop(server);
    let groups = load.run().groups.iter();
    let counts = Vec::from_iter(groups.map(|group| (group.name.as_str(), group.requests.ok)));
    assert_eq!(counts, [("a", 300), ("b", 100)]);
    let times = load
        .run()
        .groups
        .iter()
        .map(|group| group.response_time_us.count);
    assert_eq!(Vec::from_iter(times), [300, 100]);
}

#[test]
fn a_sequence_holds_over_four_agents() {
    let server = Serve::start(&["dispatcher"]);
    let url = format!("{}/dispatcher", server.url);
    let arguments = ["--burst", "20000", "--within", "2s", "--check", "sequence"];
    let load = start(&url, "local:4", &arguments).end();
    load.ends_with(0);
    let check = &load.run().checks[0];
    assert_eq!(check.held, Some(true), "{}", check.detail);
    assert!(check.detail.contains("20,000"), "{}", check.detail);
    let left = std::fs::read_dir(load.directory.path().join("result")).unwrap();
    let left = left.filter(|file| {
        let name = file.as_ref().unwrap().file_name();
        name.to_string_lossy().contains("agent")
    });
    assert_eq!(
        left.count(),
        0,
        "the agents' own files remain after the merge"
    );
}

#[test]
fn anyway_also_applies_to_the_agents() {
    let (_server, url) = truth(Scenario::default());
    // Each agent has 64 files left for connections.
    let few_files = |command: &mut Command| limited(command, 128, 128);
    let many = ["-n", "400", "-c", "200", "--backend", "epoll"];
    let agents = ["load", &url, "--agents", "local:2"];
    let mut refused = floodmark(&[&agents[..], &many].concat());
    few_files(&mut refused);
    let output = finish(refused.spawn().unwrap());
    let printed = text(&output.stderr);
    assert_eq!(crate::support::code(&output), 2, "{printed}");
    assert!(printed.contains("add --anyway"), "{printed}");

    // The server is a thread of this process, so monitoring it would open files for all tests.
    let arguments = [&many[..], &["--anyway", "--no-watch"]].concat();
    let load = start_as(&url, "local:2", &arguments, few_files).end();
    assert!(load.counts().ok > 0, "{}", load.stderr());
    assert!(load.run().agents.iter().all(|agent| agent.lost.is_none()));
}

#[test]
fn refuses_what_cannot_be_divided() {
    let url = "http://127.0.0.1:1/";
    for (arguments, part) in [
        (
            &["--agents", "local:4", "-c", "3"][..],
            "each of the 4 agents needs a connection",
        ),
        (
            &["--agents", "local:2", "--agents-min", "3"],
            "--agents has only 2",
        ),
        (
            &["--agents", "local:2", "--copy"],
            "only hosts that are reached through ssh",
        ),
        (&["--agents", "rack:2"], "unknown place \"rack\" for agents"),
        (&["--agents-min", "1"], "--agents"),
    ] {
        let output = run(&[&["load", url], arguments].concat());
        let printed = text(&output.stderr);
        assert_eq!(crate::support::code(&output), 2, "{printed}");
        assert!(printed.contains(part), "{arguments:?}: {printed}");
    }
}
