//! Tests of `--junit`. An XML parser reads the files.

use std::fs;
use std::path::Path;

use floodmark_truth::Scenario;
use roxmltree::{Document, Node};

use crate::support::{code, floodmark, load, run, text, truth};

/// Returns `SUITE: CASE: ELEMENT` for each test case, with the element `passed` if the case passed.
/// Checks the counts of each suite.
pub fn cases(xml: &str) -> Vec<String> {
    let document = Document::parse(xml).unwrap_or_else(|error| panic!("{error}: {xml}"));
    let mut cases = Vec::new();
    let named = |name: &'static str| move |node: &Node<'_, '_>| node.has_tag_name(name);
    for suite in document.descendants().filter(named("testsuite")) {
        let name = suite.attribute("name").unwrap();
        let mut counts = [0_u32; 3];
        for case in suite.children().filter(named("testcase")) {
            let time: f64 = case.attribute("time").unwrap().parse().unwrap();
            assert!(time >= 0.0);
            let kinds = ["failure", "skipped", "error"];
            let mut outcome = "passed";
            for (kind, count) in kinds.into_iter().zip(&mut counts) {
                if case.children().any(|child| child.has_tag_name(kind)) {
                    *count += 1;
                    outcome = kind;
                }
            }
            cases.push(format!(
                "{name}: {}: {outcome}",
                case.attribute("name").unwrap()
            ));
        }
        let attributes = ["failures", "skipped", "errors"];
        let stated: [u32; 3] =
            attributes.map(|name| suite.attribute(name).unwrap().parse().unwrap());
        assert_eq!(stated, counts, "{xml}");
    }
    cases
}

pub fn read(path: &Path) -> Vec<String> {
    cases(&fs::read_to_string(path).unwrap())
}

#[test]
fn reports_runs_checks_and_thresholds_of_a_load() {
    let (_server, url) = truth(Scenario::default());
    let directory = tempfile::tempdir().unwrap();
    let junit = directory.path().join("junit.xml");
    // The known-truth server returns no numbers, so no response is ok.
    let load = load(
        &url,
        &[
            "-n",
            "200",
            "--check",
            "sequence",
            "--fail-if",
            "p99 > 1us",
            "--fail-if",
            "errors > 1%",
            "--fail-if",
            "throughput > 1M/s",
            "--junit",
            junit.to_str().unwrap(),
        ],
    );
    load.ends_with(1);
    let suite = format!("{} /", load.run().system);
    assert_eq!(
        read(&junit),
        [
            format!("{suite}: measurement, process 1, attempt 1: passed"),
            format!("{suite}: check sequence, process 1, attempt 1: failure"),
            format!("{suite}: fail-if p99 > 1us: skipped"),
            format!("{suite}: fail-if errors > 1%: failure"),
            format!("{suite}: fail-if throughput > 1M/s: passed"),
        ]
    );
    let result = load.directory.path().join("result");
    let later = run(&["report", result.to_str().unwrap(), "--junit", "-"]);
    assert_eq!(code(&later), 0, "{later:?}");
    assert_eq!(text(&later.stdout), fs::read_to_string(junit).unwrap());
}

#[test]
fn an_unreachable_server_is_an_error() {
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let url = format!("http://127.0.0.1:{port}/");
    let arguments = ["load", &url, "-n", "5", "--fail-if", "p99 > 50ms"];
    let output = run(&[&arguments[..], &["--junit", "-"]].concat());
    assert_eq!(code(&output), 3, "{output:?}");
    let xml = text(&output.stdout);
    assert_eq!(
        cases(&xml),
        [
            format!("127.0.0.1:{port} /: measurement, process 1, attempt 1: error"),
            format!("127.0.0.1:{port} /: fail-if p99 > 50ms: skipped"),
        ]
    );
    assert!(xml.contains("connection refused"), "{xml}");
}

#[test]
fn an_unknown_host_is_an_error() {
    let url = "http://no-such-host.invalid/";
    let output = run(&["load", url, "-n", "5", "--junit", "-"]);
    assert_ne!(code(&output), 0, "{output:?}");
    let xml = text(&output.stdout);
    assert_eq!(cases(&xml), ["load: measurement: error"]);
}

#[test]
fn strict_makes_a_bound_run_an_error() {
    let (_server, url) = truth(Scenario::default());
    for (arguments, outcome) in [(&[][..], "passed"), (&["--strict"], "error")] {
        let all = [&["load", &url, "-n", "50", "--junit", "-"], arguments].concat();
        let mut command = floodmark(&all);
        let output = crate::support::finish(
            command
                .env(crate::support::TEST_VALIDITY, "bound")
                .spawn()
                .unwrap(),
        );
        let xml = text(&output.stdout);
        let all = cases(&xml);
        let ending = format!("measurement, process 1, attempt 1: {outcome}");
        assert!(all[0].ends_with(&ending), "{all:?}");
    }
}
