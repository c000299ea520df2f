//! Tests of `floodmark capacity` against servers whose capacity is known.

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use floodmark_record::Record;
use floodmark_record::capacity::{
    CapacityBound, CapacityEnd, CapacityKind, CapacityResult, TrialOutcome,
};
use floodmark_truth::Scenario;
use floodmark_truth::scenario::{Service, ServiceChange};

use crate::junit;
use crate::support::{code, finish, floodmark, run, signal, text, truth, valid, wait_for};
use crate::tables::{is_about, rows};

/// Runs `floodmark capacity` and validates the record, which must be the only output on stdout.
fn capacity(url: &str, arguments: &[&str]) -> (Output, Record) {
    let mut all = vec!["capacity", url, "--json", "-"];
    all.extend_from_slice(arguments);
    let output = run(&all);
    let value = serde_json::from_slice(&output.stdout);
    let value = value.unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    (output, valid(value))
}

fn found(record: &Record) -> &CapacityResult {
    record.capacity.as_ref().unwrap()
}

/// Mean service time of the queue in microseconds.
const SERVICE_US: f64 = 500.0;

fn queue() -> (floodmark_truth::TruthServer, String) {
    truth(Scenario::from(Service::Exponential {
        mean_us: SERVICE_US,
        servers: 1,
    }))
}

#[test]
fn waits_until_the_server_has_warmed_up() {
    let fixed = |delay_us| Service::Fixed { delay_us };
    let (_server, url) = truth(Scenario {
        change: Some(ServiceChange {
            at_ms: 1_500,
            service: fixed(2_000),
        }),
        ..Scenario::from(fixed(10_000))
    });
    let arguments = ["--slo", "p90 < 50ms", "--budget", "15s", "-c", "8"];
    let (_, record) = capacity(&url, &arguments);
    let closed = record.runs.iter().filter(|run| run.plan.connections == 8);
    let closed = closed.filter(|run| run.plan.rate_per_s().is_none());
    let rates: Vec<f64> = closed.filter_map(|run| run.throughput_per_s).collect();
    assert!(rates.len() > 1, "{rates:?}");
    let answered = found(&record).answered_per_s.unwrap();
    assert!(answered > 0.9 * 8.0 / 0.002, "{answered}, {rates:?}");
}

#[test]
fn finds_the_capacity_of_a_queue() {
    let (_server, url) = queue();
    let directory = tempfile::tempdir().unwrap();
    let [out, junit] = ["result", "junit.xml"].map(|name| directory.path().join(name));
    let (output, record) = capacity(
        &url,
        &[
            "--out",
            out.to_str().unwrap(),
            "--junit",
            junit.to_str().unwrap(),
            "--slo",
            "p90 < 10ms",
            "--budget",
            "25s",
            "--fail-if",
            "capacity < 100/s",
            "--fail-if",
            "capacity < 1M/s",
        ],
    );
    assert_eq!(code(&output), 1, "{}", text(&output.stderr));
    let result = found(&record);
    assert_eq!(result.finding, CapacityKind::Capacity);
    // The time in an M/M/1 system is exponential: p90 = ln 10/(µ − λ).
    let truth = 1e6 / SERVICE_US - 10f64.ln() / 0.010;
    let estimate = result.rate_per_s.unwrap();
    assert!(
        (estimate / truth - 1.0).abs() < 0.15,
        "{estimate} instead of {truth}"
    );
    let (low, high) = (result.low.unwrap(), result.high.unwrap());
    assert!(low < estimate && estimate < high);
    let outcomes = |outcome| {
        result
            .trials
            .iter()
            .filter(|t| t.outcome == outcome)
            .count()
    };
    assert!(outcomes(TrialOutcome::Pass) > 1 && outcomes(TrialOutcome::Miss) > 0);
    for trial in &result.trials {
        let is_met = trial.missed().next().is_none();
        let is_pass = trial.outcome == TrialOutcome::Pass;
        assert!(is_met || !is_pass, "{trial:?}");
        assert!(trial.flow.is_some(), "{trial:?}");
    }
    // The server answers at most 2,000/s. Counts of 1 s have a standard error of 2 %.
    let answered = result.answered_per_s.unwrap();
    assert!((1_600.0..2_200.0).contains(&answered), "{answered}");
    assert!(
        estimate <= answered && high <= 1.02 * answered,
        "{result:?}"
    );
    if result.proved_per_s.is_some() {
        assert_eq!(result.proved_per_s, result.low);
    }
    // The closed model, one connection, and five rates around the capacity. If the lower bound is a
    // proved rate, the last rate is above the interval. A disturbance can look like a server that
    // is warming up, in which case the closed-model load is repeated.
    let rates: Vec<_> = record
        .runs
        .iter()
        .map(|run| run.plan.rate_per_s())
        .collect();
    let before = rates.iter().take_while(|rate| rate.is_none()).count();
    assert!(before >= 2, "{rates:?}");
    assert_eq!(result.levels.len(), rates.len() - before);
    // Loads that miss an objective below the capacity are repeated. A second miss lowers the
    // capacity.
    let mut levels: Vec<f64> = rates[before..].iter().map(|rate| rate.unwrap()).collect();
    levels.dedup();
    let shares = levels.iter().map(|rate| (100.0 * rate / levels[3]).round());
    let shares: Vec<f64> = shares.collect();
    assert_eq!(shares[..4], [50.0, 80.0, 95.0, 100.0]);
    assert!(shares.len() == 5 && shares[4] >= 105.0, "{shares:?}");
    let missed = result.missed_level_per_s().unwrap_or(f64::INFINITY);
    assert!(low < missed && estimate <= missed, "{:?}", result.levels);
    let met: Vec<_> = record.thresholds.iter().map(|t| t.met).collect();
    assert_eq!(met, [Some(false), Some(true)]);
    let lines = text(&output.stderr);
    assert!(lines.contains("trial 1: "), "{lines}");

    let cases = junit::read(&junit);
    let ends = [
        "capacity for p90 < 10ms: passed",
        "fail-if capacity < 100/s: passed",
        "fail-if capacity < 1M/s: failure",
    ];
    let last = cases[cases.len() - ends.len()..].iter().zip(ends);
    assert!(
        last.clone().all(|(case, end)| case.ends_with(end)),
        "{cases:?}"
    );
    let found = rows(out.to_str().unwrap(), "capacities");
    assert!(is_about(&found[0]["capacity_per_s"], result.rate_per_s));
    assert!(is_about(&found[0]["capacity_low_per_s"], result.low));
    let trials = rows(out.to_str().unwrap(), "capacity_trials");
    assert_eq!(trials.len(), result.trials.len());
}

#[test]
fn says_soon_that_objectives_are_never_met() {
    let (_server, url) = truth(Scenario::from(Service::Fixed { delay_us: 30_000 }));
    let begin = Instant::now();
    let (output, record) = capacity(&url, &["--slo", "p50 < 20ms"]);
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert_eq!(code(&output), 1);
    let printed = text(&output.stderr);
    assert!(
        printed.contains("the server did not meet the objectives at any rate"),
        "{printed}"
    );
    let result = found(&record);
    assert_eq!(result.finding, CapacityKind::Never);
    assert_eq!(result.bound, Some(CapacityBound::Upper));
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("record.json");
    std::fs::write(&json, &output.stdout).unwrap();
    let output = run(&["report", json.to_str().unwrap()]);
    let printed = text(&output.stdout);
    assert!(printed.contains("capacity     none"), "{printed}");
    assert!(printed.contains("fails first  p50 < 20ms (30"), "{printed}");
}

fn trials(events: &Path) -> usize {
    let text = std::fs::read_to_string(events).unwrap_or_default();
    text.matches("\"event\":\"capacity_trial\"").count()
}

#[test]
fn resumes_an_interrupted_search() {
    let (_server, url) = queue();
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("result");
    let flag = out.to_str().unwrap();
    let all = [
        "capacity",
        &url,
        "--slo",
        "p90 < 10ms",
        "--budget",
        "30s",
        "-q",
    ];
    let child = floodmark(&[&all[..], &["--out", flag]].concat())
        .spawn()
        .unwrap();
    wait_for("four trials", || {
        (trials(&out.join("events.jsonl")) >= 4).then_some(())
    });
    signal(child.id(), libc::SIGINT);
    assert_eq!(code(&finish(child)), 130);
    let read = || {
        let text = std::fs::read_to_string(out.join("record.json")).unwrap();
        valid(serde_json::from_str(&text).unwrap())
    };
    let first = read();
    let ended = |record: &Record| found(record).end.clone().unwrap();
    assert_eq!(ended(&first).reason, CapacityEnd::Interrupted);

    let other = run(&["capacity", &url, "--slo", "p90 < 11ms", "--resume", flag]);
    assert_eq!(code(&other), 2);
    let printed = text(&other.stderr);
    assert!(
        printed.contains("the objectives differ; repeat the original command line"),
        "{printed}"
    );

    let output = run(&[&all[..], &["--resume", flag]].concat());
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let second = read();
    let (before, after) = (&found(&first).trials, &found(&second).trials);
    assert!(before.len() >= 4 && after.len() > before.len());
    assert_eq!(after[..before.len()], before[..]);
    // Loads that are void or miss by chance are sent twice.
    let levels = &found(&second).levels;
    let mut rates: Vec<f64> = levels.iter().map(|level| level.rate_per_s).collect();
    rates.dedup();
    assert_eq!(rates.len(), 5, "{levels:?}");
    let open = second.runs.iter().filter(|run| run.plan.is_open());
    assert_eq!(open.count(), levels.len());
    let last_attempt = first.runs.iter().map(|run| run.attempt).max().unwrap();
    let mut runs = second.runs.iter();
    assert!(
        runs.all(|run| run.attempt > last_attempt),
        "repeated loads replace the interrupted ones"
    );
    assert!(ended(&second).elapsed_s > ended(&first).elapsed_s);
}

#[test]
fn refuses_invalid_objectives() {
    let url = "http://127.0.0.1:9/";
    let refused = |arguments: &[&str]| {
        let output = run(&[&["capacity", url], arguments].concat());
        assert_eq!(code(&output), 2, "{arguments:?}");
        text(&output.stderr)
    };
    for (arguments, words) in [
        (&["--slo", "p99 < 20"][..], "\"20\" has no unit"),
        (&["--slo", "p99 < 0ms"], "no server meets this objective"),
        (&["--slo", "p98 < 5ms"], "unknown figure \"p98\""),
        (&["--slo", "p99 > 5ms"], "needs the operator \"<\""),
        (&["--slo", "throughput > 5/s"], "cannot be an objective"),
        (
            &["--slo", "p99 < 5ms", "--slo", "p99 < 9ms"],
            "limits the same figure",
        ),
        (
            &["--slo", "p99 < 6s"],
            "the limit is not below the timeout of 5 s",
        ),
        (
            &["--slo", "a: p99 < 5ms"],
            "only requests in a --mix have names",
        ),
        (
            &["--slo", "p99 < 5ms", "--fail-if", "capacity < 0ms"],
            "is not a rate",
        ),
        (
            &["--slo", "p99 < 5ms", "--budget", "9s"],
            "a search needs at least 15 s",
        ),
        (&[], "--slo <OBJECTIVE>"),
    ] {
        let printed = refused(arguments);
        assert!(printed.contains(words), "{arguments:?}: {printed}");
    }
}

#[test]
fn an_unreachable_server_ends_with_3() {
    let output = run(&["capacity", "http://127.0.0.1:9/", "--slo", "p99 < 5ms"]);
    assert_eq!(code(&output), 3);
    let printed = text(&output.stderr);
    assert!(printed.contains("connection refused"), "{printed}");
    assert_eq!(printed.lines().count(), 1, "{printed}");
}
