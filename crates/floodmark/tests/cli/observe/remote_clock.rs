//! Tests of observations from a host whose clock is not synchronized.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use super::{named, start_observe};
use crate::support::{Serve, load, signal, wait_for};

/// Copies an observer's lines and makes them look like those of a host without NTP.
fn copy_as_remote(from: impl BufRead, to: &Path) {
    let mut file = fs::File::create(to).unwrap();
    for line in from.lines().map_while(Result::ok) {
        let mut line: serde_json::Value = serde_json::from_str(&line).unwrap();
        if let Some(clocks) = line.get_mut("clocks") {
            clocks["boot_id"] = "another host".into();
            clocks["synchronised"] = false.into();
        }
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

#[test]
fn names_the_unsynchronized_clock_and_keeps_the_run() {
    let server = Serve::start(&["hello"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    let mut observe = start_observe(&server, &["--out", "-"]);
    let lines = BufReader::new(observe.stdout.take().unwrap());
    let copy = file.clone();
    let copying = std::thread::spawn(move || copy_as_remote(lines, &copy));
    wait_for("a second", || {
        let text = fs::read_to_string(&file).ok()?;
        text.contains("\"line\":\"second\"").then_some(())
    });
    let load = load(&server.url, &["-n", "1000", "--with", named(&file)]);
    signal(observe.id(), libc::SIGINT);
    observe.wait().unwrap();
    copying.join().unwrap();

    load.ends_with(0);
    let run = load.run();
    assert!(run.server.is_none() && run.remote.is_none());
    let named = |line: &&String| line.contains("not synchronized (NTP)");
    assert_eq!(
        run.missing.iter().filter(named).count(),
        1,
        "{:?}",
        run.missing
    );
}
