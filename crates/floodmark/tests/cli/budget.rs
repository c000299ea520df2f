//! What the machine cannot give is refused with the arithmetic, before anything is sent.

use std::fs;

use crate::support::hostile::Listener;
use crate::support::{code, run, text};

fn refused(listener: &Listener, arguments: &[&str]) -> String {
    let mut all = vec!["load", &listener.url];
    all.extend_from_slice(arguments);
    let output = run(&all);
    let said = text(&output.stderr);
    assert_eq!(code(&output), 2, "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("--anyway"), "{said}");
    assert_eq!(
        listener.accepted.load(std::sync::atomic::Ordering::Relaxed),
        0,
        "nothing was sent"
    );
    said
}

#[test]
fn a_rate_that_the_ports_cannot_carry() {
    let listener = Listener::silent();
    // More than any machine's 64,512 ports carry, even if each is free again after a second.
    let said = refused(
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
        "100,000/s",
        "TIME_WAIT",
        &ports,
        "--sources",
        "--close-first server",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[test]
fn more_connections_than_ports_or_files() {
    let said = refused(&Listener::silent(), &["-c", "999999"]);
    assert!(said.contains("999,999 connections need"), "{said}");
}
