use std::slice::from_ref;

use floodmark_record::api_check::{ApiCheck, ApiCheckKind};
use floodmark_record::experiment::{ExperimentDescription, Sweep, SweepPoint};
use floodmark_record::host::{Environment, ToolInfo};
use floodmark_record::plan::{Check, Http, Http2};
use floodmark_record::run::{Run, SteadyClass};
use floodmark_record::times::Times;

use super::*;
use crate::next::tests::run;
use crate::testing::{closed, open};

/// Returns a record with interleaved runs of the systems `a` and `b`. The arguments contain the
/// throughput of each attempt, grouped by process.
pub(crate) fn record(a: &[&[f64]], b: &[&[f64]]) -> Record {
    let tool = ToolInfo::floodmark("0.1.0", vec!["floodmark".to_owned(), "run".to_owned()]);
    let mut record = Record::new(tool, Environment::default());
    for round in 0..a.len().max(b.len()) {
        for (system, processes) in [("a", a), ("b", b)] {
            for (attempt, per_s) in (1..).zip(processes.get(round).copied().unwrap_or(&[])) {
                record.runs.push(Run {
                    system: system.to_owned(),
                    process: round as u32 + 1,
                    attempt,
                    started_unix_ms: record.runs.len() as u64 * 10_000,
                    throughput_per_s: Some(*per_s),
                    ..run(closed())
                });
            }
        }
    }
    record
}

fn compare(
    record: &Record,
    a: &str,
    b: &str,
    metric: ComparedMetric,
) -> Result<Comparison, GroupError> {
    let groups = run_groups(record);
    let side = |name| select(&groups, Some(name));
    Ok(super::compare(side(a)?, side(b)?, metric))
}

pub(super) fn throughput(record: &Record) -> Comparison {
    compare(record, "a", "b", ComparedMetric::Throughput).unwrap()
}

/// Converts a record to the record of an experiment with one trial per system.
pub(crate) fn experiment(mut record: Record) -> Record {
    for run in &mut record.runs {
        run.trial = Some(run.system.clone());
    }
    record.experiment = Some(ExperimentDescription::default());
    record
}

pub(super) const FAST: [&[f64]; 5] = [&[110.0], &[111.0], &[109.0], &[110.5], &[109.5]];
pub(super) const SLOW: [&[f64]; 5] = [&[100.0], &[101.0], &[99.0], &[100.5], &[99.5]];

#[test]
fn processes_are_the_repetitions() {
    let got = throughput(&record(&FAST, &SLOW));
    assert_eq!(got.conclusion, Conclusion::Different);
    assert!((got.ratio.unwrap() - 1.1).abs() < 1e-3, "{got:?}");
    assert_eq!(
        (
            got.figures_candidate.processes,
            got.figures_candidate.attempts
        ),
        (5, 5)
    );
    assert!((got.figures_baseline.figure.unwrap() - 100.0).abs() < 0.01);
    assert!(got.notes.is_empty(), "{got:?}");
    assert_eq!(got.repetitions_needed, None);
    assert!(got.method.contains("5 and 5 server processes"));
}

#[test]
fn attempts_on_one_process_are_not_repetitions() {
    let many: &[f64] = &[110.0, 111.0, 109.0, 110.5, 109.5];
    let few: &[f64] = &[100.0, 101.0, 99.0, 100.5, 99.5];
    let got = throughput(&record(&[many], &[few]));
    assert!((got.ratio.unwrap() - 1.1).abs() < 1e-9, "medians: {got:?}");
    assert_eq!((got.low, got.high), (None, None));
    assert_eq!(got.conclusion, Conclusion::Undecided);
    assert_eq!(
        (
            got.figures_candidate.processes,
            got.figures_candidate.attempts
        ),
        (1, 5)
    );
    assert!(
        got.method.contains("median of its attempts"),
        "{}",
        got.method
    );
    assert!(
        got.notes[0].contains("only one server process for a and for b")
            && got.notes[0].contains("at least 5"),
        "{got:?}"
    );
}

#[test]
fn notes_a_single_process() {
    let got = throughput(&record(&FAST, &[&[100.0]]));
    assert!(
        got.notes[0].contains("one server process for b:"),
        "{got:?}"
    );
    assert_eq!(got.low, None);
}

#[test]
fn process_figure_is_the_median_of_its_attempts() {
    let process: &[f64] = &[50.0, 100.0, 102.0];
    let got = throughput(&record(&[process; 3], &SLOW[..3]));
    assert!((got.figures_candidate.figure.unwrap() - 100.0).abs() < 1e-9);
    let slow = &got.notes[0];
    assert!(
        slow.starts_with("a: in 3 of 3 processes the first attempt was the slowest, 50 % below"),
        "{slow}"
    );
    // The figure for two attempts is their geometric mean.
    let got = throughput(&record(&[&[50.0, 200.0]], &[&[100.0]]));
    assert!((got.ratio.unwrap() - 1.0).abs() < 1e-12);
}

#[test]
fn warming_and_invalid_attempts_are_excluded() {
    let process: &[f64] = &[10.0, 100.0];
    let mut record = record(&[process; 2], &SLOW[..2]);
    for run in record.runs.iter_mut().filter(|run| run.system == "a") {
        if run.attempt == 1 {
            run.steady.class = SteadyClass::Warming;
        }
    }
    let got = throughput(&record);
    assert!((got.figures_candidate.figure.unwrap() - 100.0).abs() < 1e-9);
    assert_eq!(got.notes, ["a: 2 attempts excluded: still warming up"]);
    for run in record.runs.iter_mut().filter(|run| run.system == "a") {
        run.validity.status = Status::Invalid;
    }
    let got = throughput(&record);
    assert_eq!((got.ratio, got.conclusion), (None, Conclusion::Undecided));
    assert_eq!(got.figures_candidate.figure, None);
    assert_eq!(got.notes, ["a: 4 attempts excluded: invalid"]);
    let groups = run_groups(&record);
    assert_eq!(
        [has_valid(&groups[0]), has_valid(&groups[1])],
        [false, true]
    );
}

#[test]
fn includes_a_process_with_only_warming_attempts() {
    let mut record = record(&[&[100.0], &[101.0]], &SLOW[..2]);
    record.runs[0].steady.class = SteadyClass::Warming;
    let got = throughput(&record);
    assert_eq!(got.figures_candidate.processes, 2);
    assert!(got.notes.is_empty(), "{got:?}");
}

#[test]
fn outlier_is_noted_and_included() {
    let mut with = FAST.to_vec();
    with.push(&[60.0]);
    let got = throughput(&record(&with, &SLOW));
    assert_eq!(got.figures_candidate.processes, 6);
    assert!(
        got.notes[0].starts_with("a: process 6 is an outlier (60.0/s, median 110/s)"),
        "{got:?}"
    );
    assert_eq!(
        got.conclusion,
        Conclusion::Undecided,
        "it widens the interval"
    );
    assert!(got.repetitions_needed.unwrap() > 6);
}

#[test]
fn time_above_the_timeout_is_not_excluded() {
    let mut record = record(&FAST, &SLOW);
    for run in &mut record.runs {
        run.response_time_us = Times {
            p50: Some(100.0),
            p99: Some(300.0),
            ..Times::default()
        };
    }
    record.runs[0].response_time_us = Times {
        censored: 9,
        ..Times::default()
    };
    let got = compare(&record, "a", "b", ComparedMetric::P99).unwrap();
    assert_eq!((got.ratio, got.conclusion), (None, Conclusion::Undecided));
    assert_eq!(got.figures_candidate.figure, None);
    assert!(
        got.notes[0].contains("the p99 is above the timeout (5.00 s) in 1 of 5 processes"),
        "{got:?}"
    );
}

#[test]
fn zero_and_missing_figures_have_no_ratio() {
    let got = throughput(&record(&FAST, &[&[0.0], &[100.0]]));
    assert_eq!(got.ratio, None);
    assert!(
        got.notes[0].contains("b: the throughput is 0 in 1 of 2 processes"),
        "{got:?}"
    );
    // The goodput was not measured.
    let got = compare(&record(&FAST, &SLOW), "a", "b", ComparedMetric::Goodput).unwrap();
    assert_eq!(got.ratio, None);
    assert!(
        got.notes[0].contains("5 attempts excluded: figure not measured"),
        "{got:?}"
    );
}

#[test]
fn names_contain_only_distinguishing_parts() {
    let mut record = record(&FAST, &SLOW);
    let names = |record: &Record| -> Vec<String> {
        run_groups(record)
            .into_iter()
            .map(|side| side.name)
            .collect()
    };
    assert_eq!(names(&record), ["a", "b"]);
    record.runs[0].workload = "/json".to_owned();
    assert_eq!(names(&record), ["a /json", "b", "a /hello"]);
    record.runs[0].workload = record.runs[1].workload.clone();
    record.runs[1]
        .setting
        .insert("journal".to_owned(), "file".to_owned());
    assert_eq!(names(&record), ["a", "b [journal=file]", "b []"]);
}

#[test]
fn reports_unknown_and_ambiguous_groups() {
    let record = record(&FAST, &SLOW);
    let error = compare(&record, "a", "c", ComparedMetric::P50)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "the result has no trial or system \"c\"; available: a, b"
    );
    let groups = run_groups(&record);
    let error = select(&groups, None).unwrap_err().to_string();
    assert_eq!(error, "the result has several trials or systems: a, b");
    assert_eq!(select(&groups[1..], None).unwrap().name, "b");
    assert_eq!(select(&[], None), Err(GroupError::Empty));
}

#[test]
fn trials_with_the_same_load_are_compared_with_the_first() {
    let mut record = experiment(record(&FAST, &SLOW));
    let pairs = |record: &Record| -> Vec<(String, String)> {
        let mut pairs: Vec<_> = comparisons(record)
            .into_iter()
            .map(|c| (c.candidate, c.baseline))
            .collect();
        pairs.dedup();
        pairs
    };
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(pairs(&record), [pair("b", "a")]);
    let all = comparisons(&record);
    // Loads have no capacity.
    assert_eq!(all.len(), ComparedMetric::ALL.len() - 1);
    assert!((all[0].ratio.unwrap() - 1.0 / 1.1).abs() < 1e-3, "{all:?}");

    // Add one trial of the same server with the same load, and two trials with a different load.
    // The target is not part of the load.
    let more: Vec<Run> = record
        .runs
        .iter()
        .filter(|r| r.system == "a")
        .cloned()
        .collect();
    for (name, connections) in [("c", 50), ("d", 77), ("e", 77)] {
        record.runs.extend(more.iter().cloned().map(|mut run| {
            run.trial = Some(name.to_owned());
            run.plan.connections = connections;
            run.plan.target.url = format!("http://127.0.0.1:{name}/");
            run
        }));
    }
    assert_eq!(
        pairs(&record),
        [pair("b", "a"), pair("c", "a"), pair("e", "d")]
    );
    // Two files describe the same check.
    for (line, run) in (1..).zip(&mut record.runs) {
        run.plan.check = Some(Check::Api(Box::new(ApiCheck {
            kind: ApiCheckKind::Register,
            keys: 100,
            write_value: None,
            read_value: None,
            readback: None,
            value_places: vec![format!("items.toml:{line}: read.value \"\"")],
        })));
    }
    assert_eq!(pairs(&record).len(), 3);
    for run in &mut record.runs {
        if run.trial.as_deref() == Some("c") {
            run.client.name = Some("wrk".to_owned());
        }
    }
    assert_eq!(pairs(&record), [pair("b", "a"), pair("e", "d")]);
    for run in &mut record.runs {
        run.workload = format!("/{}", run.trial.as_deref().unwrap_or_default());
    }
    assert_eq!(pairs(&record), []);
}

#[test]
fn each_comparison_notes_bound_attempts() {
    let mut record = experiment(record(&FAST, &SLOW));
    record.runs[1].validity.status = Status::Bound;
    let all = comparisons(&record);
    assert!(
        all.iter().all(|c| c
            .notes
            .iter()
            .any(|note| note.starts_with("b: 1 of 5 attempts bound"))),
        "{all:#?}"
    );
}

#[test]
fn trial_is_found_by_its_system_if_unique() {
    let mut record = experiment(record(&FAST, &SLOW));
    for run in &mut record.runs {
        run.trial = run.trial.as_ref().map(|name| format!("trial-{name}"));
    }
    let of = run_groups(&record);
    assert_eq!(select(&of, Some("b")).unwrap().name, "trial-b");
    record.runs[0].system = "b".to_owned();
    record.runs[2].trial = Some("third".to_owned());
    record.runs[2].system = "b".to_owned();
    let of = run_groups(&record);
    assert!(matches!(
        select(&of, Some("b")),
        Err(GroupError::Unknown { .. })
    ));
}

fn alike(a: &Record, b: &Record) -> Caveats {
    let (mut of_a, mut of_b) = (run_groups(a).remove(0), run_groups(b).remove(0));
    of_a.name = "old".to_owned();
    of_b.name = "new".to_owned();
    caveats((&of_a, from_ref(a)), (&of_b, from_ref(b)))
}

#[test]
fn interleaved_and_equal_results_have_no_caveats() {
    let record = record(&FAST, &SLOW);
    let groups = run_groups(&record);
    let records = from_ref(&record);
    assert_eq!(
        caveats((&groups[0], records), (&groups[1], records)),
        Caveats::default()
    );
}

#[test]
fn lists_differences() {
    let (a, mut b) = (record(&FAST, &[]), record(&SLOW, &[]));
    for run in &mut b.runs {
        run.workload = "/json".to_owned();
        run.plan.connections = 100;
        run.plan.model = floodmark_record::plan::Model::Closed {
            length: floodmark_record::plan::Length::Requests(1),
        };
        run.plan.request.body = vec![b'x'; 100].into();
    }
    b.runs[0].plan.seed = 9;
    b.environment.cpus = 8;
    b.tool.version = "0.2.0".to_owned();
    b.environment
        .sysctls
        .insert("net.core.somaxconn".to_owned(), "128".to_owned());
    insta::assert_snapshot!(alike(&a, &b).unlike.join("\n"), @r"
    workload: /hello in old, /json in new
    connections: 50 in old, 100 in new
    duration s: 10.0 in old, none in new
    request: different
    requests: none in old, 1 in new
    CPUs: 0 in old, 8 in new
    floodmark: 0.1.0 in old, 0.2.0 in new
    net.core.somaxconn: different
    ");
}

#[test]
fn lists_different_versions_of_http() {
    let (mut a, mut b) = (record(&FAST, &[]), record(&SLOW, &[]));
    let with_streams = |streams| {
        Http::V2(Http2 {
            streams,
            ..Http2::default()
        })
    };
    for run in &mut b.runs {
        run.plan.http = with_streams(10);
    }
    assert_eq!(
        alike(&a, &b).unlike,
        [
            "HTTP version: 1.1 in old, 2 in new",
            "HTTP/2 header table: none in old, 4 KiB in new",
            "HTTP/2 window: none in old, 1 MiB in new",
            "streams: 1 in old, 10 in new",
        ]
    );
    for run in &mut a.runs {
        run.plan.http = with_streams(1);
    }
    assert_eq!(alike(&a, &b).unlike, ["streams: 1 in old, 10 in new"]);
}

#[test]
fn lists_merged_loads() {
    let mut a = record(&FAST, &[]);
    a.runs[1].plan = open();
    let unlike = alike(&a, &a.clone()).unlike;
    assert!(
        unlike.contains(&"model: closed and open in both".to_owned()),
        "{unlike:?}"
    );
}

#[test]
fn notes_weaknesses() {
    let (mut a, mut b) = (record(&FAST, &[]), record(&SLOW, &[]));
    a.runs[0].validity.status = Status::Bound;
    a.runs[1].ended.reason = floodmark_record::events::EndReason::ServerGone;
    for run in &mut b.runs {
        run.started_unix_ms += 400_000;
    }
    let notes = alike(&a, &b).notes;
    assert_eq!(notes.len(), 3, "{notes:#?}");
    assert!(notes[0].starts_with("old: 1 of 5 attempts bound by the client"));
    assert!(notes[1].starts_with("old: 1 of 5 attempts ended early"));
    assert!(
        notes[2].starts_with("not interleaved: old was measured 6 min earlier"),
        "{notes:#?}"
    );
    let back = alike(&b, &a).notes;
    assert!(
        back.iter()
            .any(|n| n.starts_with("not interleaved: new was measured")),
        "{back:#?}"
    );
}

#[test]
fn states_a_note_on_both_results_once() {
    let (mut a, mut b) = (record(&FAST[..1], &[]), record(&SLOW[..1], &[]));
    for record in [&mut a, &mut b] {
        record.runs[0].validity.status = Status::Unsteady;
        record.tool.command[1] = "load".to_owned();
    }
    let notes = alike(&a, &b).notes;
    assert_eq!(notes.len(), 2, "{notes:#?}");
    assert!(notes[0].starts_with("each result: 1 of 1 attempt unsteady"));
    assert!(notes[1].contains("floodmark compare --baseline COMMAND"));
}

#[test]
fn ladder_steps_are_compared_with_the_step_before() {
    let mut record = experiment(record(&FAST, &SLOW));
    let third: Vec<Run> = record
        .runs
        .iter()
        .filter(|run| run.system == "b")
        .cloned()
        .collect();
    record.runs.extend(third.into_iter().map(|run| Run {
        system: "c".to_owned(),
        trial: Some("c".to_owned()),
        throughput_per_s: run.throughput_per_s.map(|x| x / 2.0),
        ..run
    }));
    let pairs = |ladder: &[&str]| {
        let mut record = record.clone();
        let asked = record.experiment.get_or_insert_default();
        asked.ladder = ladder.iter().map(|name| (*name).to_owned()).collect();
        let all = comparisons(&record);
        let of = all
            .iter()
            .filter(|of| of.metric == ComparedMetric::Throughput);
        of.map(|of| format!("{}/{} {:.2}", of.candidate, of.baseline, of.ratio.unwrap()))
            .collect::<Vec<_>>()
    };
    assert_eq!(pairs(&[]), ["b/a 0.91", "c/a 0.45"]);
    assert_eq!(pairs(&["a", "b", "c"]), ["b/a 0.91", "c/b 0.50"]);
    assert_eq!(pairs(&["a", "gone", "c"]), ["b/a 0.91", "c/a 0.45"]);
}

#[test]
fn finds_the_best_and_the_first_sufficient_point_of_a_sweep() {
    let mut record = experiment(record(&FAST, &SLOW));
    let point = |trial: &str, threads: u32| SweepPoint {
        trial: trial.to_owned(),
        values: [("threads".to_owned(), threads.to_string())].into(),
    };
    record.experiment.get_or_insert_default().sweeps = vec![Sweep {
        name: "s".to_owned(),
        knobs: vec!["threads".to_owned()],
        points: vec![point("gone", 1), point("b", 2), point("a", 4)],
    }];
    // Sweep points are never compared with each other.
    assert!(comparisons(&record).is_empty());
    let [swept] = &sweeps(&record)[..] else {
        panic!("expected one sweep");
    };
    assert_eq!(swept.best.as_deref(), Some("a"));
    assert_eq!(
        swept.enough.as_deref(),
        Some("a"),
        "b is 9 % below the maximum"
    );
    let [gone, b, a] = &swept.measured[..] else {
        panic!("{swept:?}");
    };
    assert_eq!((gone.throughput_per_s, gone.processes), (None, 0));
    assert!((b.throughput_per_s.unwrap() - 100.0).abs() < 0.01);
    assert!(
        a.low.unwrap() < 110.0 && a.high.unwrap() > 110.0 && a.processes == 5,
        "{a:?}"
    );
    for run in &mut record.runs {
        if run.system == "a" {
            run.throughput_per_s = run.throughput_per_s.map(|x| x * 0.93);
        }
    }
    let swept = &sweeps(&record)[0];
    assert_eq!(
        (swept.best.as_deref(), swept.enough.as_deref()),
        (Some("a"), Some("b"))
    );
}
