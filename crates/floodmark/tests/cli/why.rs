//! `floodmark why` on records of real loads.

use crate::support::{Serve, code, run, text};

#[test]
fn a_record_is_judged_the_same_each_time_and_what_is_none_is_refused() {
    let server = Serve::start(&["hello"]);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("result");
    let out = out.to_str().unwrap();
    let load = ["load", &server.url, "-r", "200", "-d", "1s", "--out", out];
    let loaded = run(&load);
    assert!(matches!(code(&loaded), 0 | 4));
    // The load's own summary says it right below the figure, with what to do.
    let summary = text(&loaded.stdout);
    let label = |line: &&str| !line.starts_with(' ');
    let labels: Vec<&str> = summary
        .lines()
        .filter(label)
        .filter_map(|line| line.split_once("  ").map(|(label, _)| label))
        .collect();
    let at = labels.iter().position(|label| *label == "why").unwrap();
    assert_eq!(labels[at + 1..at + 3], ["evidence", "next"], "{summary}");
    let record = std::fs::read_to_string(folder.path().join("result/record.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    assert_eq!(record["runs"][0]["verdict"]["cause"], "none");
    let judged = run(&["why", out]);
    assert_eq!(code(&judged), 0);
    let said = text(&judged.stdout);
    // All that was offered was answered, whatever else the machine did.
    assert!(said.contains("why          none (likely)"), "{said}");
    for label in ["evidence ", "next ", "not ", "requests ", "ceiling "] {
        assert!(
            said.lines().any(|line| line.starts_with(label)),
            "{label}: {said}"
        );
    }
    assert_eq!(said, text(&run(&["why", out]).stdout));
    let wrong = run(&["why", "/nowhere"]);
    assert_eq!((code(&wrong), text(&wrong.stderr).lines().count()), (2, 1));
}
