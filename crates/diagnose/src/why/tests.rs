//! Runs for the tests of verdicts, and tests of facts and of the parts of a verdict.

use std::borrow::Cow;

use floodmark_record::cause::Cause;
use floodmark_record::host::Environment;
use floodmark_record::metric::{ProcessFigure, Role};
use floodmark_record::run::Run;
use floodmark_record::times::Times;
use floodmark_record::verdict::{Confidence, Verdict};
use floodmark_record::watch::{Server, ServerSeen, ServerThread};
use floodmark_record::{Metric, Observation};

use super::{Model, verdict_by};
use crate::next::tests::run;
use crate::testing::{closed, thread};

/// Returns a host with 4 CPUs.
pub(crate) fn machine() -> Environment {
    Environment {
        cpus: 4,
        ..Environment::default()
    }
}

/// Returns a series with the same value in each second of a ten-second run.
pub(crate) fn series(subject: &str, metric: &str, value: f64) -> Observation {
    let metric = Metric::parse(subject.to_owned(), metric.to_owned(), String::new());
    assert!(!matches!(metric, Metric::Other { .. }), "{metric:?}");
    Observation {
        metric,
        is_peak: false,
        source: String::new(),
        start_ms: 0,
        step_ms: 1_000,
        values: vec![value; 10],
    }
}

/// Returns a closed-model run with 50 connections at 1,000/s and a mostly idle client. In total,
/// `busy` CPUs of the host are in use. The server uses `server` CPUs with four threads. The busiest
/// thread uses `busiest` CPUs.
pub(crate) fn run_with(busy: f64, server: f64, busiest: f64) -> Run {
    let mut run = run(closed());
    run.client.threads = vec![thread(0.1, 0.0)];
    run.service_time_us = Times {
        count: 10_000,
        mean: Some(50_000.0),
        p50: Some(50_000.0),
        p90: Some(51_000.0),
        p99: Some(52_000.0),
        ..Times::default()
    };
    run.server = Some(Server {
        cpu_s: server * 10.0,
        wall_s: 10.0,
        seen: ServerSeen {
            name: "server".to_owned(),
            threads: vec![ServerThread {
                name: "worker-1".to_owned(),
                on_cpu_s: busiest * 10.0,
                ..ServerThread::default()
            }],
            ..ServerSeen::default()
        },
        ..Server::default()
    });
    run.observations = vec![
        series("host", "busy", busy),
        series("server", "user", server * 0.8),
        series("server", "system", server * 0.2),
        series("server", "run_delay", 0.01),
        series("client", "run_delay", 0.0),
        series("network", "ListenOverflows", 0.0),
        series("network", "ActiveOpens", 0.0),
        series("cgroup", "nr_throttled", 0.0),
        series("cgroup", "throttled_time", 0.0),
    ];
    run
}

/// Makes every verdict likely, so that tests of the rules do not depend on the fitted weights.
static CERTAIN: Model = Model {
    intercept: 9.0,
    weights: Cow::Borrowed(&[]),
    calibration: Cow::Borrowed(&[]),
    confused: Cow::Borrowed(&[]),
};

/// Returns the verdict, judged by a model that makes every cause likely.
pub(crate) fn verdict(run: &Run, environment: &Environment) -> Option<Verdict> {
    verdict_by(&CERTAIN, run, environment)
}

pub(super) fn judged(run: &Run) -> Verdict {
    let verdict = verdict(run, &machine()).unwrap();
    assert!(!verdict.summary.is_empty() && !verdict.next.is_empty());
    if verdict.cause == Cause::Unknown {
        assert_eq!(verdict.confidence, Confidence::Unknown);
    } else {
        assert!(!verdict.evidence.is_empty(), "{verdict:?}");
    }
    assert!(!rules_out(&verdict, verdict.cause), "{verdict:?}");
    verdict
}

pub(super) fn rules_out(verdict: &Verdict, cause: Cause) -> bool {
    let mut ruled_out = verdict.ruled_out.iter();
    ruled_out.any(|ruled_out| ruled_out.cause == cause)
}

pub(super) fn is(run: &Run, cause: Cause) -> Verdict {
    let verdict = judged(run);
    assert_eq!(verdict.cause, cause, "{verdict:#?}");
    verdict
}

#[test]
fn ledger_adds_up_and_ceilings_ascend() {
    let verdict = judged(&run_with(1.2, 1.0, 0.99));
    let ledger = verdict.ledger.unwrap();
    let seen: f64 = ledger.places.iter().map(|place| place.mean).sum();
    assert!((ledger.under_way - 50.0).abs() < 1e-9);
    assert!((seen + ledger.unexplained - ledger.under_way).abs() < 1e-9);
    let limits: Vec<f64> = verdict
        .ceilings
        .iter()
        .map(|ceiling| ceiling.limit_per_s)
        .collect();
    assert!(limits.is_sorted() && limits.len() >= 3, "{limits:?}");
    assert_eq!(verdict.ceilings[0].resource, "server thread worker-1");
}

#[test]
fn names_evidence_missing_without_server_metrics() {
    let mut run = run_with(1.0, 0.1, 0.1);
    run.server = None;
    let verdict = is(&run, Cause::Unknown);
    assert!(
        verdict
            .unseen
            .iter()
            .any(|line| line.contains("runtime of the server")),
        "{verdict:#?}"
    );
    // Kernel counters apply only if the server is on this host.
    let of_queue = |verdict: &Verdict| rules_out(verdict, Cause::ListenBacklog);
    assert!(!of_queue(&verdict), "{verdict:#?}");
    run.observations
        .push(series("server sockets", "established", 50.0));
    assert!(of_queue(&judged(&run)));
    run.throughput_per_s = None;
    assert_eq!(super::verdict(&run, &machine()), None);
}

#[test]
fn verdicts_are_deterministic() {
    let run = run_with(3.98, 3.8, 0.96);
    assert_eq!(verdict(&run, &machine()), verdict(&run, &machine()));
}

/// Returns a two-second run after a warm-up of one second. The series contains `values` in steps of
/// `step_s` seconds.
fn watched_seldom(metric: &str, step_s: u64, values: &[f64]) -> Run {
    let mut run = run_with(0.3, 0.1, 0.1);
    run.measured_from_ms = Some(1_040);
    run.window.from_s = 0.0;
    run.window.to_s = 2.0;
    run.observations.push(Observation {
        step_ms: step_s * 1_000,
        values: values.to_vec(),
        ..series("server", metric, 0.0)
    });
    run
}

#[test]
fn ignores_samples_outside_the_window() {
    let open_files = |step_s, values: &[f64]| {
        let run = watched_seldom("open_files", step_s, values);
        let facts = super::facts::RunFacts::of(&run, &machine()).unwrap();
        let metric = Metric::Process(Role::Server, ProcessFigure::OpenFiles);
        facts.samples.level(metric)
    };
    assert_eq!(open_files(1, &[5.0, 41.0, 41.0, 27.0]), Some(41.0));
    assert_eq!(open_files(2, &[45.5, 0.0]), Some(45.5));
    // The last step of a counter ends when the load ends.
    let mut run = watched_seldom("user", 2, &[0.1, 0.5]);
    run.observations.remove(1);
    let facts = super::facts::RunFacts::of(&run, &machine()).unwrap();
    let used = facts.server.unwrap().used;
    let expected = 0.5 / 1.04 + 0.02;
    assert!((used - expected).abs() < 1e-9, "{used} {expected}");
}
