//! Tests of `floodmark why`.

use crate::support::{Serve, code, run, succeeds, text};

#[test]
fn gives_the_same_verdict_again_and_refuses_missing_results() {
    let server = Serve::start(&["hello"]);
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("result");
    let out = out.to_str().unwrap();
    let load = [
        "load",
        &server.url,
        "-r",
        "200",
        "-d",
        "1s",
        "-v",
        "--out",
        out,
    ];
    let loaded = run(&load);
    succeeds(&loaded);
    // The full summary shows the path, the evidence and the next step below the cause.
    let summary = text(&loaded.stdout);
    let label = |line: &&str| !line.starts_with(' ');
    let labels: Vec<&str> = summary
        .lines()
        .filter(label)
        .filter_map(|line| line.split_once("  ").map(|(label, _)| label))
        .collect();
    let at = labels.iter().position(|label| *label == "why").unwrap();
    assert_eq!(
        labels[at + 1..at + 4],
        ["path", "evidence", "next"],
        "{summary}"
    );
    let record = std::fs::read_to_string(directory.path().join("result/record.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    assert_eq!(record["runs"][0]["verdict"]["cause"], "none");
    let judged = run(&["why", out]);
    assert_eq!(code(&judged), 0);
    let printed = text(&judged.stdout);
    // The offered rate was met, so nothing limited the run.
    assert!(printed.contains("why          none (likely)"), "{printed}");
    for label in ["evidence ", "next ", "ruled out ", "requests ", "ceiling "] {
        assert!(
            printed.lines().any(|line| line.starts_with(label)),
            "{label}: {printed}"
        );
    }
    assert_eq!(printed, text(&run(&["why", out]).stdout));
    let events = std::fs::read_to_string(directory.path().join("result/events.jsonl")).unwrap();
    let empty = directory.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let before: Vec<&str> = events
        .lines()
        .take_while(|line| !line.contains("run_began"))
        .collect();
    std::fs::write(empty.join("events.jsonl"), before.join("\n") + "\n").unwrap();
    for prove in [&["--prove"][..], &[]] {
        let refused = run(&[&["why", empty.to_str().unwrap()], prove].concat());
        let error = text(&refused.stderr);
        assert_eq!(code(&refused), 2, "{prove:?}: {error}");
        assert!(
            error.contains("the result has no runs; measure again with floodmark load"),
            "{error}"
        );
    }
    let missing = directory.path().join("missing");
    let wrong = run(&["why", missing.to_str().unwrap()]);
    assert_eq!((code(&wrong), text(&wrong.stderr).lines().count()), (2, 1));
}
