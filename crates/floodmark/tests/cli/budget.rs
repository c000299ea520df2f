//! Tests of the number of connections: the default at a rate, and loads that need more ports or
//! files than the host allows.

use std::fs;

use floodmark_truth::Scenario;
use floodmark_truth::scenario::Service;

use crate::support::hostile::Listener;
use crate::support::{code, load, run, text, truth};

fn refused(listener: &Listener, arguments: &[&str]) -> String {
    let mut all = vec!["load", &listener.url];
    all.extend_from_slice(arguments);
    let output = run(&all);
    let printed = text(&output.stderr);
    assert_eq!(code(&output), 2, "{printed}");
    assert_eq!(printed.lines().count(), 1, "{printed}");
    assert!(printed.contains("--anyway"), "{printed}");
    assert_eq!(
        listener.accepted.load(std::sync::atomic::Ordering::Relaxed),
        0,
        "nothing was sent"
    );
    printed
}

#[test]
fn refuses_a_rate_beyond_the_ports() {
    let listener = Listener::silent();
    // A port is reusable after one second, so 100,000 connections per second need more than 64,512
    // ports.
    let printed = refused(
        &listener,
        &[
            "--fresh",
            "--close-first",
            "client",
            "-r",
            "100k",
            "-d",
            "2s",
        ],
    );
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let ends: Vec<u64> = range
        .split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect();
    let ports = floodmark_record::units::show_count(ends[1] - ends[0] + 1);
    for word in [
        "100,000 new connections per second",
        "TIME_WAIT",
        &ports,
        "--sources",
        "--close-first server",
    ] {
        assert!(printed.contains(word), "{word}: {printed}");
    }
}

#[test]
fn refuses_more_connections_than_ports_or_files() {
    let printed = refused(&Listener::silent(), &["-c", "999999"]);
    assert!(printed.contains("999,999 connections need"), "{printed}");
}

#[test]
fn a_rate_uses_the_connections_that_littles_law_requires() {
    let (_server, url) = truth(Scenario::from(Service::Fixed { delay_us: 200_000 }));
    let connections = |arguments: &str| {
        let load = load(&url, &Vec::from_iter(arguments.split(' ')));
        load.ends_with(0);
        load.run().plan.connections
    };
    // 400/s × 200 ms = 80 requests in flight. On a busy host, requests take longer.
    for load in ["-r 400 -d 500ms", "--ramp 0-400 -d 500ms"] {
        let sized = connections(load);
        assert!((160..320).contains(&sized), "{load}: {sized}");
    }
    for (load, expected) in [
        ("-r 400 -d 500ms -c 70", 70),
        // Without a short load, the service time is assumed to be 250 ms.
        ("-r 400 -d 500ms --warmup 0s", 200),
        ("-r 400 -n 200", 200),
        ("-r 400 -d 500ms --fresh", 200),
        ("-r 400 -d 500ms --agents local:2", 200),
        ("-r 50 -n 20", 50),
        // All requests of a burst may be in flight.
        ("--burst 300 --within 1s", 300),
    ] {
        assert_eq!(connections(load), expected, "{load}");
    }
    let printed = text(&run(&["load", &url, "-r", "400", "-n", "200"]).stdout);
    let line = "open, 400/s, up to 200 kept connections, ";
    assert!(printed.replace('\u{a0}', " ").contains(line), "{printed}");
}
