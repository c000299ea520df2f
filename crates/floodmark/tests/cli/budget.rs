//! Tests that floodmark refuses loads that need more ports or files than the host allows.

use std::fs;

use crate::support::hostile::Listener;
use crate::support::{code, run, text};

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
