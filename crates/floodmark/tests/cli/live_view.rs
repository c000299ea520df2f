//! The live view on a pseudo-terminal.

use std::time::{Duration, Instant};

use floodmark_truth::Scenario;
use floodmark_truth::scenario::Service;

use crate::support::pty::{OnTerminal, TerminalSetup};
use crate::support::{Serve, truth, wait_for};

/// Shows the alternate screen.
const ENTER: &str = "\x1b[?1049h";
/// Shows the normal screen.
const LEAVE: &str = "\x1b[?1049l";
/// Clears the screen.
const CLEAR: &str = "\x1b[2J";

fn start_load(server: &Serve, setup: &TerminalSetup) -> OnTerminal {
    OnTerminal::start(&["load", &server.url, "-r", "1000", "-d", "60s"], setup)
}

/// Splits the output into the view and the text after it.
pub(crate) fn split(shown: &str) -> (&str, &str) {
    assert_eq!(shown.matches(LEAVE).count(), 1, "{shown:?}");
    let (view, after) = shown.split_once(LEAVE).unwrap();
    assert!(view.contains(ENTER) && !after.contains(ENTER), "{shown:?}");
    (view, after)
}

#[test]
fn shows_figures_at_once_and_q_ends_and_reports() {
    let server = Serve::start(&["hello"]);
    let begin = Instant::now();
    let mut load = start_load(&server, &TerminalSetup::default());
    load.wait_for("200:");
    // Other tests may slow this one down.
    assert!(begin.elapsed() < Duration::from_secs(5));
    // Percentiles and CPU follow after the first second.
    for word in ["µs", "server", "others"] {
        load.wait_for(word);
    }
    load.keys("p");
    load.wait_for("paused");
    load.keys("pq");
    let (code, shown) = load.end();
    assert_eq!(code, 130, "{shown}");
    let (view, after) = split(&shown);
    assert!(!view.contains("validity"), "{view:?}");
    assert!(
        after.contains("throughput") && after.contains("validity"),
        "{after}"
    );
    assert!(after.contains("interrupted"), "{after}");
}

#[test]
fn restores_the_terminal_after_a_signal() {
    let server = Serve::start(&["hello"]);
    for name in ["SIGTERM", "SIGHUP", "Ctrl-C"] {
        let mut load = start_load(&server, &TerminalSetup::default());
        load.wait_for("200:");
        match name {
            "SIGTERM" => load.signal(libc::SIGTERM),
            "SIGHUP" => load.signal(libc::SIGHUP),
            _ => load.keys("\x03"),
        }
        let (code, shown) = load.end();
        assert_eq!(code, 130, "{name}: {shown}");
        let (_, after) = split(&shown);
        assert!(after.contains("throughput"), "{name}: {after}");
    }
}

#[test]
fn restores_the_terminal_before_an_immediate_exit() {
    let server = Serve::start(&["hello"]);
    let mut load = start_load(&server, &TerminalSetup::default());
    load.wait_for("200:");
    let worker = worker_of(load.pid());
    // SAFETY: the worker is a child of a running command.
    assert_eq!(unsafe { libc::kill(worker, libc::SIGSTOP) }, 0);
    load.keys("\x03");
    load.wait_for("ending");
    std::thread::sleep(Duration::from_millis(500));
    load.keys("\x03");
    let (code, shown) = load.end();
    assert_eq!(code, 130, "{shown}");
    let (_, after) = split(&shown);
    assert!(after.contains("interrupted again"), "{after:?}");
}

/// Returns the id of the load process that a command has started.
fn worker_of(pid: i32) -> i32 {
    let children = format!("/proc/{pid}/task/{pid}/children");
    let found = wait_for("the worker", || {
        let children = std::fs::read_to_string(&children).unwrap();
        children.split_whitespace().next().map(str::to_owned)
    });
    found.parse().unwrap()
}

#[test]
fn shows_the_trials_of_a_search() {
    let (_server, url) = truth(Scenario::from(Service::Fixed { delay_us: 2_000 }));
    let arguments = ["capacity", &url, "--slo", "p99 < 1s", "--budget", "60s"];
    let mut search = OnTerminal::start(&arguments, &TerminalSetup::default());
    for words in ["search", "●", "met"] {
        search.wait_for(words);
    }
    search.keys("q");
    let (code, shown) = search.end();
    assert_eq!(code, 130, "{shown}");
    let (_, after) = split(&shown);
    assert!(after.contains("interrupted"), "{after}");
}

#[test]
fn follows_the_size_of_the_terminal() {
    let server = Serve::start(&["hello"]);
    let setup = TerminalSetup {
        no_color: true,
        ..TerminalSetup::default()
    };
    let mut load = start_load(&server, &setup);
    load.wait_for("200:");
    let before = load.shown().matches(CLEAR).count();
    load.resize(40, 10);
    wait_for("another drawing", || {
        let shown = load.shown();
        let (_, last) = shown.rsplit_once(CLEAR)?;
        (shown.matches(CLEAR).count() > before && last.contains("pause")).then_some(())
    });
    load.keys("q");
    let (code, shown) = load.end();
    assert_eq!(code, 130, "{shown}");
    let (view, after) = split(&shown);
    let (_, last) = view.rsplit_once(CLEAR).unwrap();
    let rows = last.split("\x1b[").filter_map(|text| text.split_once(';'));
    let rows: Vec<u16> = rows.filter_map(|(row, _)| row.parse().ok()).collect();
    assert!(
        !rows.is_empty() && rows.iter().all(|row| *row <= 10),
        "{last:?}"
    );
    let colors = |text: &str| text.matches("\x1b[3").count() + text.matches("\x1b[1m").count();
    assert_eq!(
        (colors(after), after.matches("\x1b[2m").count()),
        (0, 0),
        "{after:?}"
    );
    assert!(
        !view.contains("\x1b[2m") && !view.contains("\x1b[36m"),
        "{view:?}"
    );
}
