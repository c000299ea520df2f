//! Terminal output for experiments.

use floodmark_record::comparison::{ComparedMetric, Conclusion};
use floodmark_record::experiment::ExperimentDescription;
use floodmark_record::run::CheckResult;
use floodmark_record::watch::LogErrors;

use super::*;
use crate::Style;
use crate::fixture;
use crate::model::comparison::tests::comparison;
use crate::terminal;

fn drawn(record: &Record) -> String {
    let style = Style {
        color: false,
        width: 100,
    };
    terminal::experiment(record, style)
}

/// Returns a run of a trial on a given server process.
fn of(trial: &str, process: u32, run: Run) -> Run {
    Run {
        trial: Some(trial.to_owned()),
        process,
        ..run
    }
}

fn record(trials: &[&str], runs: Vec<Run>) -> Record {
    let mut record = fixture::record(runs);
    record.experiment = Some(ExperimentDescription {
        question: "Which is faster?".to_owned(),
        trials: trials.iter().map(|name| (*name).to_owned()).collect(),
        ..ExperimentDescription::default()
    });
    record
}

#[test]
fn medians_worst_status_and_skipped_trials() {
    let with = |per_s: f64| Run {
        throughput_per_s: Some(per_s),
        ..fixture::closed()
    };
    let mut record = record(
        &["kept", "rate", "absent"],
        vec![
            of("kept", 1, with(100_000.0)),
            of("rate", 1, fixture::invalid()),
            of("kept", 2, with(300_000.0)),
            of("rate", 2, fixture::open_censored()),
            of("kept", 3, with(150_000.0)),
        ],
    );
    record.skipped = vec!["absent skipped: nginx is not installed".to_owned()];
    insta::assert_snapshot!(drawn(&record));
}

#[test]
fn a_run_without_responses_is_not_valid() {
    let mut runs: Vec<Run> = (1..=12).map(|n| of("a", n, fixture::watched())).collect();
    runs[0].validity.status = Status::Invalid;
    runs.push(of("b", 1, fixture::no_answers()));
    let drawn = drawn(&record(&["a", "b"], runs));
    let row = |name: &str| {
        let mut lines = drawn.lines();
        let line = lines.find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    // The server used 11.5 s of CPU in 10 s.
    assert!(row("a").ends_with("1.15 12 invalid 1 of 12"), "{drawn}");
    assert!(row("b").ends_with("– 1 no response"), "{drawn}");
}

#[test]
fn an_unsteady_lower_bound_is_worse_than_either_and_shows_all_reasons() {
    let mut both = fixture::bound();
    both.validity.status = Status::Unsteady;
    both.validity.unsteady_bound = true;
    let stall = "the throughput varies by ± 13 %";
    both.validity.reasons.insert(0, stall.into());
    let mut unsteady = fixture::closed();
    unsteady.validity.status = Status::Unsteady;
    let runs = vec![
        of("a", 1, fixture::bound()),
        of("a", 2, both),
        of("a", 3, unsteady),
    ];
    let drawn = drawn(&record(&["a"], runs));
    assert!(drawn.contains("unsteady, bound 1 of 3"), "{drawn}");
    for reason in [stall, "the client was the limit"] {
        let line = format!("unsteady     a, process 2, attempt 1: {reason}");
        assert!(drawn.contains(&line), "{drawn}");
    }
}

#[test]
fn shows_a_column_for_the_store() {
    let runs = vec![
        of("bars", 1, fixture::with_store()),
        of("hello", 1, fixture::watched()),
    ];
    let text = drawn(&record(&["bars", "hello"], runs));
    let words = |n: usize| {
        let line = text.lines().nth(n).unwrap();
        line.split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(words(2)[4..7], ["server", "store", "runs"], "{text}");
    assert!(text.contains("  1.15   0.28     1  "), "{text}");
    assert!(text.contains("  1.15            1  "), "{text}");
    let without = vec![of("hello", 1, fixture::watched())];
    let text = drawn(&record(&["hello"], without));
    assert!(!text.contains("  store"), "{text}");
}

#[test]
fn a_percentile_among_timed_out_requests_is_a_bound() {
    let run = of("rate", 1, fixture::open_censored());
    let drawn = drawn(&record(&["rate"], vec![run.clone()]));
    assert!(run.response_time_us.p99.is_none());
    assert!(drawn.contains("> 5 s"), "{drawn}");
}

#[test]
fn shows_the_first_failed_check_of_each_trial() {
    let checked = |trial: &str, process: u32, held: Option<bool>| {
        let mut run = of(trial, process, fixture::closed());
        run.checks = vec![CheckResult {
            name: "sequence".to_owned(),
            held,
            detail: format!("reason {process}"),
            history: Vec::new(),
        }];
        run
    };
    let runs = vec![
        checked("bad", 1, Some(true)),
        checked("good", 1, Some(true)),
        checked("bad", 2, Some(false)),
        checked("bad", 3, None),
        checked("fine", 1, Some(true)),
        of("none", 1, fixture::closed()),
    ];
    let drawn = drawn(&record(&["bad", "good", "fine", "none"], runs));
    let lines: Vec<&str> = drawn
        .lines()
        .filter(|line| line.starts_with("check"))
        .collect();
    assert_eq!(
        lines,
        [
            "check        sequence violated in 1 of 3 runs of bad, first in process 2, attempt 1: reason 2",
            "check        sequence not evaluated in 1 of 3 runs of bad, first in process 3, attempt 1: reason 3",
            "check        sequence held in all runs of good, fine"
        ]
    );
}

#[test]
fn a_single_load_has_no_table() {
    let record = fixture::record(vec![fixture::closed()]);
    assert_eq!(drawn(&record), "");
}

#[test]
fn adds_up_log_lines_over_the_runs_of_a_trial() {
    let errors = |text: &str, lines| LogErrors {
        text: text.to_owned(),
        lines,
    };
    let with = |log_errors: Vec<LogErrors>| Run {
        log_errors,
        ..fixture::closed()
    };
    let first = with(vec![
        errors("AskTimeoutException", 1000),
        errors("OutOfMemory", 0),
    ]);
    let second = with(vec![
        errors("AskTimeoutException", 234),
        errors("OutOfMemory", 0),
    ]);
    assert_eq!(
        log_lines(&vec![&first, &second]),
        [line(
            "log",
            "1,234\u{a0}lines with AskTimeoutException in the server log"
        )]
    );
}

#[test]
fn a_compared_metric_shows_the_figure_of_the_comparison() {
    let run = |per_s| Run {
        throughput_per_s: Some(per_s),
        ..fixture::closed()
    };
    let runs = vec![
        of("new", 1, run(100_000.0)),
        of("new", 2, run(100_000.0)),
        of("old", 1, run(100_000.0)),
        of("other", 1, run(100_000.0)),
    ];
    let mut record = record(&["new", "old", "other"], runs);
    let mut compared = comparison(ComparedMetric::Throughput, Conclusion::Different);
    (compared.candidate, compared.baseline) = ("new".to_owned(), "old".to_owned());
    compared.figures_candidate.figure = Some(123_456.0);
    compared.figures_baseline.figure = Some(98_765.0);
    record.comparisons = vec![compared];
    let drawn = drawn(&record);
    let rate = |name: &str| {
        let mut lines = drawn.lines();
        let line = lines.find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    // The rate is the mean over the processes, not the median over the runs.
    let rates = ["new", "old", "other"].map(rate);
    assert_eq!(rates, ["123,456", "98,765", "100,000"], "{drawn}");
}
