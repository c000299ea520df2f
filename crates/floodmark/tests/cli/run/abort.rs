//! Tests of conditions that end a measurement early.

use floodmark_record::events::EndReason;

use super::*;

#[test]
fn a_condition_ends_the_attempts_on_a_server_process() {
    let lab = ExperimentDirectory::new(
        r#"
question = "Does a condition end a measurement?"
abort-if = ["throughput > 1/s for 1s"]
[load]
duration = "20s"
attempts = 3
connections = 2
[place]
processes = 2
[[trial]]
system = "native"
workload = "hello"
"#,
    );
    let output = finish(lab.start(&[]));
    let printed = text(&output.stderr);
    assert_eq!(code(&output), 1, "{printed}");
    assert!(
        printed.contains("process 1, attempt 1: abort-if"),
        "{printed}"
    );
    let record = std::fs::read_to_string(lab.result().join("record.json")).unwrap();
    let record = valid(serde_json::from_str(&record).unwrap());
    let ended = record
        .runs
        .iter()
        .map(|run| (run.process, run.attempt, run.ended.reason));
    let expected = [1, 2].map(|process| (process, 1, EndReason::Aborted));
    assert!(ended.eq(expected), "{:?}", record.runs.len());

    // The aborted processes are complete, so nothing is left to measure.
    let (code, again, printed) = lab.ended(lab.begin("--resume", &[]));
    assert_eq!((code, again.runs), (1, record.runs), "{printed}");
    assert_eq!(
        again.experiment.unwrap().abort_if,
        ["throughput > 1/s for 1s"]
    );
}
