//! Tests of `floodmark compare --baseline COMMAND --candidate COMMAND`.

use std::fs;
use std::path::Path;

use floodmark_record::Record;
use floodmark_record::gate::{GateDecision, GateEnd, GateResult};

use super::gate::SERVER;
use crate::junit;
use crate::support::{code, finish, floodmark, signal, text, valid, wait_for};

/// Returns a comparison of two servers that sleep for the given times, in seconds.
fn compared(directory: &Path, sleeps: [f64; 2], flags: &[&str]) -> std::process::Child {
    fs::create_dir_all(directory.join("tmp")).unwrap();
    fs::write(directory.join("slow.py"), SERVER).unwrap();
    let [baseline, candidate] = sleeps.map(|sleep| format!("python3 slow.py {{port}} {sleep}"));
    let load = ["-c", "4", "-d", "300ms", "--out", "result"];
    let versions = ["--baseline", &baseline, "--candidate", &candidate];
    floodmark(&[&["compare"], &versions[..], &load, flags].concat())
        .current_dir(directory)
        .env("TMPDIR", directory.join("tmp"))
        .spawn()
        .unwrap()
}

fn result(directory: &Path) -> GateResult {
    let json = fs::read(directory.join("result/record.json")).unwrap();
    let record: Record = valid(serde_json::from_slice(&json).unwrap());
    record.gate.unwrap()
}

#[test]
fn decides_that_versions_differ_or_are_equivalent() {
    // A margin of 20 % tolerates other programs on this host.
    for (sleeps, decision, words) in [
        (
            [0.01, 0.02],
            GateDecision::Different,
            "comparison   different",
        ),
        (
            [0.02, 0.01],
            GateDecision::Different,
            "comparison   different",
        ),
        (
            [0.01, 0.01],
            GateDecision::Equivalent,
            "no difference of 20 % or more",
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--margin", "20%", "--html", "p.html", "--junit", "j.xml"];
        let output = finish(compared(directory.path(), sleeps, &flags));
        let printed = text(&output.stderr) + &text(&output.stdout);
        assert_eq!(code(&output), 0, "{printed}");
        let result = result(directory.path());
        assert_eq!(
            (result.decision, result.ended),
            (decision, GateEnd::Decided),
            "{printed}"
        );
        assert!(printed.replace('\u{a0}', " ").contains(words), "{printed}");
        let is_slower = sleeps[1] > sleeps[0];
        assert!(!is_slower || result.ratio.unwrap() < 0.9, "{printed}");
        let page = fs::read_to_string(directory.path().join("p.html")).unwrap();
        assert!(page.contains("better by the margin"));
        let cases = junit::read(&directory.path().join("j.xml"));
        assert!(
            cases
                .iter()
                .any(|case| case.ends_with(": comparison: passed")),
            "{cases:?}"
        );
    }
}

#[test]
fn an_interrupted_comparison_has_no_decision() {
    let directory = tempfile::tempdir().unwrap();
    let child = compared(directory.path(), [0.01, 0.01], &[]);
    let events = directory.path().join("result/events.jsonl");
    wait_for("the first pair", || {
        let events = fs::read_to_string(&events).ok()?;
        events.contains("\"event\":\"gate_turns\"").then_some(())
    });
    signal(child.id(), libc::SIGINT);
    let output = finish(child);
    assert_eq!(code(&output), 130);
    let printed = text(&output.stdout);
    assert!(
        printed.contains("repeat the comparison with a new --out directory"),
        "{printed}"
    );
    assert_eq!(
        result(directory.path()).decision,
        GateDecision::Inconclusive
    );
}

#[test]
fn refuses_versions_that_cannot_be_compared() {
    let (old, new) = ("./old {port}", "./new {port}");
    let both = ["--baseline", old, "--candidate", new];
    for (flags, words) in [
        (&["--baseline", old][..], "--candidate <COMMAND>"),
        (&["--baseline", "./old", "--candidate", new], "add {port}"),
        (&[&both[..], &["a", "b"]].concat(), "cannot be used with"),
        (
            &[&both[..], &["--fail-if", "p99 ratio > 1"]].concat(),
            "cannot be used with",
        ),
        (
            &[&both[..], &["--path", "items"]].concat(),
            "start it with /",
        ),
        (&[&both[..], &["--margin", "5"]].concat(), "such as \"5%\""),
        (
            &[&both[..], &["--rate", "100"]].concat(),
            "floodmark: --rate: at a fixed rate, throughput does not show a difference; set a different metric",
        ),
        (
            &[&both[..], &["--rate", "100", "--metric", "throughput"]].concat(),
            "floodmark: --metric throughput: at a fixed rate",
        ),
        (
            &[&both[..], &["--metric", "p50", "--metric", "p99"]].concat(),
            "--metric: only one metric can be used with --baseline",
        ),
        (&["a", "b", "--budget", "1m"], "--baseline <COMMAND>"),
        (&[], "<A>"),
    ] {
        let arguments = [&["compare"], flags].concat();
        let output = finish(floodmark(&arguments).spawn().unwrap());
        let printed = text(&output.stderr);
        assert_eq!(code(&output), 2, "{flags:?}: {printed}");
        assert!(printed.contains(words), "no {words:?} in {printed}");
    }
}
