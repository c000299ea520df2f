use floodmark_record::capacity::CapacityKind;
use floodmark_record::events::EndReason;

use super::*;
use crate::fixture;

fn no_fault(_: &Run) -> Option<(CaseOutcome, String)> {
    None
}

/// Returns `SUITE: NAME: OUTCOME: DETAIL` for each case.
fn shown(suites: &[CaseSuite]) -> Vec<String> {
    let lines = suites.iter().flat_map(|suite| {
        suite.cases.iter().map(|case| {
            let (name, outcome) = (&case.name, case.outcome.name());
            format!("{}: {name}: {outcome}: {}", suite.name, case.detail)
        })
    });
    lines.map(|line| line.replace('\u{a0}', " ")).collect()
}

#[test]
fn each_trial_is_a_suite() {
    let suites = of_record(&fixture::all_tables(), &no_fault);
    insta::assert_snapshot!(shown(&suites).join("\n"));
}

#[test]
fn a_load_is_one_suite_and_only_runs_take_time() {
    let mut record = fixture::record(vec![fixture::violated(), fixture::closed()]);
    record.runs[1].attempt = 2;
    record.thresholds = vec![fixture::threshold(Some(true))];
    let suites = of_record(&record, &no_fault);
    assert_eq!(suites.len(), 1);
    assert_eq!(suites[0].name, "127.0.0.1:8080 /");
    assert_eq!(suites[0].started_unix_ms, Some(1_700_000_000_000));
    let times: Vec<f64> = suites[0].cases.iter().map(|case| case.time_s).collect();
    assert_eq!(times, [10.0, 10.0, 0.0, 0.0]);
}

#[test]
fn a_fault_replaces_the_figure_of_a_run() {
    let mut record = fixture::record(vec![fixture::closed(), fixture::closed()]);
    record.runs[1].ended.reason = EndReason::Interrupted;
    let fault = |_: &Run| Some((CaseOutcome::Error, "connection refused".to_owned()));
    assert_eq!(
        shown(&of_record(&record, &fault)),
        [
            "127.0.0.1:8080 /: measurement, process 1, attempt 1: error: connection refused",
            "127.0.0.1:8080 /: measurement, process 1, attempt 1: not_evaluated: interrupted",
        ]
    );
}

#[test]
fn a_load_that_did_not_start_is_an_error() {
    let mut record = fixture::record(Vec::new());
    record.skipped = vec!["no such host".to_owned()];
    record.failures = record.skipped.clone();
    let error = "load: measurement: error: no such host";
    assert_eq!(shown(&of_record(&record, &no_fault)), [error]);
}

#[test]
fn a_failure_belongs_to_the_trial_that_it_names() {
    for (what, is_of) in [
        ("nginx: the server ended", true),
        ("nginx-12 does not start: exit status: 3", true),
        ("nginx-slow-1 does not start", false),
        ("nginx2: the server ended", false),
        ("e.toml:3: invalid", false),
    ] {
        assert_eq!(is_about(what, "nginx"), is_of, "{what}");
    }
}

#[test]
fn an_expected_violation_is_no_failure() {
    let mut record = fixture::record(vec![fixture::violated()]);
    record.experiment = Some(floodmark_record::experiment::ExperimentDescription {
        name: "e".to_owned(),
        expected_check: Some(ExpectedCheck::Violated),
        ..Default::default()
    });
    let outcomes = |record: &Record| -> Vec<CaseOutcome> {
        let suites = conditions(record);
        let cases = suites.iter().flat_map(|suite| &suite.cases);
        cases.map(|case| case.outcome).collect()
    };
    assert_eq!(outcomes(&record), [CaseOutcome::Passed; 2]);
    record.runs[0].checks[0].held = Some(true);
    assert_eq!(
        outcomes(&record),
        [CaseOutcome::Passed, CaseOutcome::Failed]
    );
    record.tool.command = vec!["floodmark".to_owned(), "--only=a".to_owned()];
    assert_eq!(outcomes(&record), [CaseOutcome::Passed]);
    record.runs[0].checks[0].held = None;
    assert_eq!(outcomes(&record), [CaseOutcome::NotEvaluated]);
}

#[test]
fn a_capacity_of_zero_is_a_failure() {
    for (finding, per_s, outcome) in [
        (CapacityKind::Never, Some(1.0), CaseOutcome::Failed),
        (CapacityKind::Unfinished, None, CaseOutcome::NotEvaluated),
        (CapacityKind::AboveHighest, Some(1.0), CaseOutcome::Passed),
    ] {
        let mut found = fixture::capacity(finding);
        found.rate_per_s = per_s;
        assert_eq!(objectives(&found).outcome, outcome);
    }
}

#[test]
fn a_gate_skips_invalid_runs_but_not_a_dead_server() {
    let mut record = fixture::all_tables();
    record.tuning = None;
    let outcomes = |record: &Record| {
        let fault = |run: &Run| {
            let is_first = run.trial.as_deref() == Some("t1");
            is_first.then(|| (CaseOutcome::Error, "too slow".to_owned()))
        };
        let suites = of_record(record, &fault);
        let of = |name: &str| {
            let suite = suites.iter().find(|suite| suite.name == name).unwrap();
            let mut cases = suite.cases.iter();
            cases
                .find(|case| case.name.starts_with("measurement"))
                .unwrap()
                .outcome
        };
        // The server of t4 failed (`fixture::all_tables`).
        let failed = suites.iter().flat_map(|suite| &suite.cases);
        let dead = failed.filter(|case| case.detail.contains("exited with status 1"));
        (of("t1"), dead.map(|case| case.outcome).collect::<Vec<_>>())
    };
    let (invalid, dead) = outcomes(&record);
    assert_eq!(invalid, CaseOutcome::NotEvaluated);
    assert!(
        !dead.is_empty() && dead.iter().all(|of| *of == CaseOutcome::Error),
        "{dead:?}"
    );
    record.gate = None;
    assert_eq!(outcomes(&record).0, CaseOutcome::Error);
}
