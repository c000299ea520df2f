//! Tests of `[gate]`.

use std::fs;

use floodmark_record::Record;
use floodmark_record::gate::{GateDecision, GateEnd, GateResult};

use super::ExperimentDirectory;
use crate::junit;
use crate::support::{code, finish, signal, text, wait_for};
use crate::tables::rows;

/// A server that sleeps before each response.
pub(super) const SERVER: &str = r#"
import http.server, sys, time

class Slow(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def do_GET(self):
        time.sleep(float(sys.argv[2]))
        # A single write: several small ones would wait for delayed acknowledgments.
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

Server(("127.0.0.1", int(sys.argv[1])), Slow).serve_forever()
"#;

const LOAD: &str = "connections = 4\nduration = \"300ms\"";

/// Returns an experiment whose servers sleep for the given times, in seconds.
fn gated(load: &str, gate: &str, sleeps: &[(&str, f64)]) -> ExperimentDirectory {
    let trials = sleeps.iter().map(|(name, seconds)| {
        format!("[[trial]]\nname = \"{name}\"\ncommand = \"python3 slow.py {{port}} {seconds}\"\n")
    });
    let trials: String = trials.collect();
    let lab = ExperimentDirectory::new(&format!(
        "question = \"Slower?\"\n[load]\n{load}\n[gate]\n{gate}\n{trials}"
    ));
    fs::write(lab.0.path().join("slow.py"), SERVER).unwrap();
    lab
}

fn gate(record: &Record) -> &GateResult {
    record.gate.as_ref().unwrap()
}

#[test]
fn fails_for_a_slower_candidate() {
    let lab = gated(LOAD, "", &[("before", 0.01), ("after", 0.02)]);
    let files = ["--html", "page.html", "--junit", "junit.xml"];
    let (code, record, printed) = lab.run(&files);
    assert_eq!(code, 1, "{printed}");
    let gate = gate(&record);
    assert_eq!(
        (gate.decision, gate.ended),
        (GateDecision::Failed, GateEnd::Decided)
    );
    let ratio = gate.ratio.unwrap();
    assert!((0.4..0.9).contains(&ratio), "{ratio}");
    // Only the first pair has ordinary runs.
    assert_eq!(record.runs.len(), 2);
    for pair in &gate.pairs {
        assert!(
            pair.turn_s
                .is_some_and(|turn_s| (0.005..=0.06).contains(&turn_s))
        );
    }
    assert!(record.comparisons.is_empty());
    let fault = printed.lines().find(|line| line.contains("gate failed: "));
    let fault = fault.unwrap_or_else(|| panic!("{printed}"));
    assert!(fault.contains("throughput of after: 0."), "{printed}");
    assert!(printed.contains("pair 2 of up to"), "{printed}");
    let page = fs::read_to_string(lab.0.path().join("page.html")).unwrap();
    for words in [
        "Ratio of each pair",
        "failed</span>",
        "lternating load: both",
    ] {
        assert!(page.contains(words), "{words}");
    }
    let cases = junit::read(&lab.0.path().join("junit.xml"));
    assert!(
        cases.iter().any(|case| case.ends_with(": gate: failure")),
        "{cases:?}"
    );
    let pairs = rows(lab.result().to_str().unwrap(), "gate_pairs");
    assert_eq!(pairs.len(), gate.pairs.len());

    // With swapped roles, the candidate is faster and passes.
    let swapped = "baseline = \"after\"\nmetric = \"p50\"\nmargin = \"10%\"";
    let lab = gated(LOAD, swapped, &[("before", 0.01), ("after", 0.02)]);
    let (code, record, printed) = lab.run(&["--quiet"]);
    assert_eq!(code, 0, "{printed}");
    assert_eq!(record.gate.unwrap().decision, GateDecision::Passed);
}

#[test]
fn an_inconclusive_gate_does_not_fail() {
    let lab = gated(LOAD, "", &[("before", 0.01), ("after", 0.02)]);
    let (code, record, printed) = lab.run(&["--budget", "2s"]);
    assert_eq!(code, 0, "{printed}");
    let gate = gate(&record);
    assert_eq!(
        (gate.decision, gate.ended),
        (GateDecision::Inconclusive, GateEnd::OutOfTime)
    );
    assert_eq!(gate.pairs.len(), 1);
    assert!(
        printed.contains("the budget of 2 s allows only"),
        "{printed}"
    );
}

#[test]
fn an_interrupted_gate_resumes_with_a_new_pair() {
    let one_by_one = "alternating = false";
    let lab = gated(LOAD, one_by_one, &[("before", 0.01), ("after", 0.02)]);
    let child = lab.start(&[]);
    wait_for("the second process of the second pair", || {
        (lab.count("run_began") == 4).then_some(())
    });
    signal(child.id(), libc::SIGINT);
    let output = finish(child);
    assert_eq!(code(&output), 130, "{}", text(&output.stderr));
    let (code, record, printed) = lab.ended(lab.begin("--resume", &[]));
    assert_eq!(code, 1, "{printed}");
    let gate = gate(&record);
    assert_eq!(gate.decision, GateDecision::Failed);
    let processes: Vec<u32> = gate.pairs.iter().map(|pair| pair.process).collect();
    assert_eq!(
        processes[..2],
        [1, 3],
        "the interrupted pair is not completed"
    );
    assert!(gate.pairs.iter().all(|pair| pair.turn_s.is_none()));
    // The order of the two servers alternates.
    let trials = record.runs.iter().filter_map(|run| run.trial.as_deref());
    let order: Vec<&str> = trials.collect();
    assert_eq!(order[..3], ["before", "after", "after"]);
    // A decided gate leaves nothing to measure.
    let (code, again, printed) = lab.ended(lab.begin("--resume", &[]));
    assert_eq!(code, 1);
    assert!(printed.contains("already complete"), "{printed}");
    assert_eq!(again.runs, record.runs);
}

#[test]
fn an_interrupted_alternating_gate_resumes_without_ordinary_runs() {
    let lab = gated(LOAD, "", &[("before", 0.01), ("after", 0.02)]);
    let child = lab.start(&[]);
    wait_for("the first pair", || {
        (lab.count("gate_turns") == 1).then_some(())
    });
    signal(child.id(), libc::SIGINT);
    assert_eq!(code(&finish(child)), 130);
    let (code, record, printed) = lab.ended(lab.begin("--resume", &[]));
    assert_eq!(code, 1, "{printed}");
    let gate = gate(&record);
    let processes: Vec<u32> = gate.pairs.iter().map(|pair| pair.process).collect();
    assert_eq!(processes[..3], [1, 2, 3]);
    assert_eq!(record.runs.len(), 2);
}

#[test]
fn excludes_pairs_without_a_figure() {
    let load = format!("{LOAD}\ndeadline = \"15ms\"");
    let goodput = "metric = \"goodput\"";
    let lab = gated(&load, goodput, &[("before", 0.005), ("after", 0.03)]);
    let (_, record, printed) = lab.run(&["--budget", "10s"]);
    let gate = gate(&record);
    assert_eq!(
        (gate.decision, gate.ended),
        (GateDecision::Inconclusive, GateEnd::OutOfTime),
        "{printed}"
    );
    assert!(gate.excluded.len() > 2, "{gate:?}");
    for (number, excluded) in (1..).zip(&gate.excluded) {
        let expected = format!("pair {number}: after: no response met its deadline");
        assert_eq!(*excluded, expected);
    }
}

#[test]
fn a_candidate_that_dies_in_its_turns_ends_the_gate() {
    // The server dies once it has run for a while, so its ordinary run is complete.
    let load = "connections = 4\nduration = \"1s\"";
    let lab = gated(load, "", &[("before", 0.01), ("after", 0.01)]);
    let dying = format!(
        "import threading, os\nif len(sys.argv) > 3: threading.Timer(3, lambda: os._exit(7)).start()\n{SERVER}"
    );
    fs::write(
        lab.0.path().join("slow.py"),
        dying.replacen("import threading, os", "import sys, threading, os", 1),
    )
    .unwrap();
    let text_of = fs::read_to_string(lab.0.path().join("e.toml")).unwrap();
    let (before, after) = text_of.rsplit_once("0.01").unwrap();
    lab.write(&format!("{before}0.01 die{after}"));
    let (code, record, printed) = lab.run(&[]);
    assert_ne!(code, 0, "{printed}");
    assert!(
        printed.contains("after: the server ended during the load (exit status: 7)"),
        "{printed}"
    );
    assert_eq!(gate(&record).ended, GateEnd::Interrupted);
}

#[test]
fn refuses_gates_that_cannot_decide() {
    let two = [("a", 0.01), ("b", 0.01)];
    let three = [("a", 0.01), ("b", 0.01), ("c", 0.01)];
    let rate = format!("{LOAD}\nrate = 100");
    let none: &[&str] = &[];
    for (load, gate, trials, flags, words) in [
        (
            LOAD,
            "",
            &three[..],
            none,
            "[gate]: compares 2 trials, but the experiment has 3",
        ),
        (
            LOAD,
            "baseline = \"x\"",
            &two[..],
            none,
            "unknown trial \"x\"",
        ),
        (
            LOAD,
            "margin = \"0%\"",
            &two[..],
            none,
            "margin: expected a percentage above 0%",
        ),
        (
            LOAD,
            "margin = 0.05",
            &two[..],
            none,
            "expected a percentage",
        ),
        (
            LOAD,
            "metric = \"p98\"",
            &two[..],
            none,
            "e.toml:6: metric: ",
        ),
        (
            LOAD,
            "metric = \"capacity\"",
            &two[..],
            none,
            "use another metric",
        ),
        (
            LOAD,
            "metric = \"cpu_us_per_request\"",
            &two[..],
            none,
            "client's CPU time",
        ),
        (
            LOAD,
            "budget = \"90\"",
            &two[..],
            none,
            "expected a duration above 0",
        ),
        (&rate, "", &two[..], none, "at a fixed rate"),
        (
            &rate,
            "metric = \"p99\"\nalternating = true",
            &two[..],
            none,
            "e.toml:8: alternating: open-model loads cannot alternate; remove \"alternating\"",
        ),
        (
            LOAD,
            "",
            &two[..],
            &["--only", "a"],
            "--only conflicts with [gate]",
        ),
        (
            LOAD,
            "",
            &two[..],
            &["--processes", "3"],
            "--processes conflicts with [gate]",
        ),
    ] {
        let lab = gated(load, gate, trials);
        let output = finish(lab.start(flags));
        let printed = text(&output.stderr);
        assert_eq!(code(&output), 2, "{gate}: {printed}");
        assert_eq!(printed.lines().count(), 1, "{printed}");
        assert!(printed.contains(words), "no {words:?} in {printed}");
        assert!(!lab.result().exists());
    }
    let lab = gated(LOAD, "", &two);
    let text_of = fs::read_to_string(lab.0.path().join("e.toml")).unwrap();
    lab.write(&text_of.replace("[gate]\n", ""));
    let output = finish(lab.start(&["--budget", "5s"]));
    assert_eq!(code(&output), 2);
    let printed = text(&output.stderr);
    assert!(
        printed.contains("--budget: the experiment has no time limit"),
        "{printed}"
    );
    // Different loads cannot be compared.
    lab.write(&format!("{text_of}load = {{ connections = 9 }}\n"));
    let printed = text(&finish(lab.start(&[])).stderr);
    assert!(printed.contains("different loads or paths"), "{printed}");
}
