//! Tests of output to a terminal, a pipe and a closed pipe.

use std::fs::File;
use std::process::Stdio;

use floodmark_truth::Scenario;

use crate::support::hostile::Listener;
use crate::support::pty::{OnTerminal, TerminalSetup};
use crate::support::{Serve, code, finish, floodmark, load, run, succeeds, text, truth};

fn hello() -> (floodmark_truth::TruthServer, String) {
    truth(Scenario::default())
}

#[test]
fn json_on_stdout_moves_the_summary_to_stderr() {
    let (_server, url) = hello();
    let load = load(&url, &["-n", "100"]);
    load.ends_with(0);
    assert!(load.stderr().contains("throughput"), "{}", load.stderr());
    assert!(!load.stderr().contains('\u{1b}'));
}

#[test]
fn prints_a_plain_summary_without_a_terminal() {
    let (_server, url) = hello();
    let short = text(&run(&["load", &url, "-n", "100"]).stdout);
    assert!(!short.contains("outcomes"), "{short}");
    let full = text(&run(&["load", &url, "-n", "100", "-v"]).stdout);
    assert!(full.contains("outcomes     100 ok"), "{full}");
    for printed in [short, full] {
        assert!(
            !printed.contains('\u{1b}') && printed.lines().all(|l| l.chars().count() <= 100),
            "{printed}"
        );
    }
}

#[test]
fn quiet_prints_nothing() {
    let (_server, url) = hello();
    for arguments in [
        &["load", &url, "-n", "10", "-q"][..],
        &["load", "--demo", "-n", "10", "-q"],
    ] {
        let output = run(arguments);
        assert!(output.stdout.is_empty(), "{output:?}");
        let printed = text(&output.stderr);
        match code(&output) {
            0 => assert_eq!(printed, ""),
            // Other load on this host can invalidate the result.
            4 => assert!(
                printed.lines().count() == 1 && printed.len() > 80,
                "{printed}"
            ),
            other => panic!("{other}: {printed}"),
        }
    }
}

#[test]
fn the_demo_loads_kept_and_fresh() {
    for (http, version) in [("1.1", ""), ("2", "HTTP/2")] {
        let output = run(&["load", "--demo", "-n", "200", "-v", "--http", http]);
        let printed = text(&output.stdout);
        succeeds(&output);
        for words in ["kept connections", "fresh connections", version] {
            assert!(printed.contains(words), "{printed}");
        }
        assert_eq!(printed.matches("200 ok").count(), 2, "{printed}");
    }
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let (_server, url) = hello();
    let directory = tempfile::tempdir().unwrap();
    for (name, extra) in [("summary", &[][..]), ("json", &["--json", "-"])] {
        let mut all = vec!["load", url.as_str(), "-n", "100"];
        all.extend_from_slice(extra);
        let mut child = floodmark(&all).spawn().unwrap();
        drop(child.stdout.take());
        succeeds(&finish(child));
        let out = directory.path().join(name);
        all.extend_from_slice(&["--out", out.to_str().unwrap()]);
        let mut child = floodmark(&all).spawn().unwrap();
        drop((child.stdout.take(), child.stderr.take()));
        let output = finish(child);
        assert_eq!(code(&output), 0);
    }
}

#[test]
fn a_full_stdout_is_an_internal_error() {
    let (_server, url) = hello();
    let load = ["load", &url, "-n", "10"];
    for arguments in [
        &[&load, &["-q", "--json", "-"][..]].concat()[..],
        &load,
        &["serve", "hello", "--listen", "127.0.0.1:0"],
        &["--version"],
        &["load", "--help"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = floodmark(arguments);
        command.stdout(Stdio::from(full));
        let output = finish(command.spawn().unwrap());
        assert_eq!(code(&output), 5);
        let error = text(&output.stderr);
        assert!(
            error.contains("No space left on device (os error 28); free up disk space or "),
            "{error}"
        );
    }
}

#[test]
fn filters_escape_sequences_of_a_server() {
    let answers: [&[u8]; 3] = [
        b"HTTP/1.1 200 \x1b[31mOK\x1b]0;owned\x07\r\nContent-Length: 9\r\n\r\n\x1b[2J12345",
        b"\x1b[31mHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: \x1b[31m5\r\n\r\n",
    ];
    for answer in answers {
        let listener = Listener::answering(answer);
        let output = run(&["load", &listener.url, "-n", "30", "--check", "sequence"]);
        code(&output);
        for stream in [&output.stdout, &output.stderr] {
            assert!(
                !stream.contains(&0x1b) && !stream.contains(&7),
                "{}",
                String::from_utf8_lossy(stream)
            );
        }
    }
}

#[test]
fn redraws_and_clears_the_progress_line() {
    const CLEAR: &str = "\r\x1b[K";
    let server = Serve::start(&["hello"]);
    for no_color in [false, true] {
        // The live view needs 10 rows.
        let setup = TerminalSetup {
            rows: 9,
            no_color,
            ..TerminalSetup::default()
        };
        let load = ["load", &server.url, "-r", "100", "-d", "2500ms", "-v"];
        let (code, shown) = OnTerminal::start(&load, &setup).end();
        assert_eq!(code, 0, "{shown}");
        let (progress, summary) = shown.rsplit_once(CLEAR).unwrap();
        assert!(progress.matches(CLEAR).count() >= 2, "{shown:?}");
        assert!(progress.contains("/s"), "{shown:?}");
        assert!(
            summary.contains("throughput") && summary.contains("250 ok"),
            "{shown:?}"
        );
        assert!(!progress.contains("throughput"), "{shown:?}");
        let colours = shown.matches("\x1b[").count() - shown.matches("\x1b[K").count();
        assert_eq!(colours == 0, no_color, "{shown:?}");
    }
}
