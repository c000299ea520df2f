//! Verdicts after something was changed.

use super::*;
use crate::next::tests::run;
use crate::testing::closed;

/// A closed run whose shortest answer took 5 ms, with a verdict on it.
fn run_of(cause: Cause) -> (Run, Verdict) {
    let mut run = run(closed());
    run.server = Some(floodmark_record::watch::Server::default());
    run.least_service_time_us = Some(5_000.0);
    let verdict = Verdict {
        cause,
        also: Vec::new(),
        confidence: Confidence::Likely,
        summary: "it is so".to_owned(),
        limit_per_s: None,
        evidence: vec!["seen".to_owned()],
        ruled_out: Vec::new(),
        next: "change it".to_owned(),
        tested: Vec::new(),
        unseen: Vec::new(),
        ledger: None,
        ceilings: Vec::new(),
    };
    run.verdict = Some(verdict.clone());
    (run, verdict)
}

/// Six windows of each with a ratio, which differ by 1 % from pair to pair.
fn windows(change: Change, ratio: f64) -> Windows {
    let noise = [0.99, 1.01, 1.0, 1.01, 0.99, 1.0];
    Windows {
        change,
        knob: None,
        connections: 50,
        base_per_s: vec![1_000.0; 6],
        changed_per_s: noise.iter().map(|n| 1_000.0 * ratio * n).collect(),
    }
}

fn judged(cause: Cause, twice: f64, client: f64, server: f64) -> Verdict {
    let (mut run, verdict) = run_of(cause);
    run.perturbed = vec![
        windows(Change::TwiceConnections, twice),
        windows(Change::SlowedClient, client),
        windows(Change::SlowedServer, server),
    ];
    judge(&run, verdict)
}

#[test]
fn what_moved_as_predicted_is_proven() {
    for (cause, [twice, client, server]) in [
        (Cause::ServerCpu, [1.0, 0.99, 0.79]),
        (Cause::ServerCpuOneThread, [1.01, 1.0, 0.72]),
        (Cause::ClientCpu, [1.0, 0.75, 0.97]),
        (Cause::Concurrency, [1.97, 0.97, 0.96]),
    ] {
        let verdict = judged(cause, twice, client, server);
        assert_eq!(verdict.confidence, Confidence::Proven, "{verdict:#?}");
        assert!(
            verdict
                .tested
                .iter()
                .all(|tested| tested.agrees == Some(true))
        );
    }
}

#[test]
fn what_moved_otherwise_is_not_likely_any_more() {
    for (cause, [twice, client, server]) in [
        // More connections gave more: the CPU was not the limit.
        (Cause::ServerCpu, [1.9, 0.99, 0.79]),
        (Cause::ServerCpu, [1.0, 1.0, 1.0]),
        (Cause::Concurrency, [1.0, 1.0, 1.0]),
        (Cause::Serialised, [1.0, 1.0, 0.7]),
        (Cause::ClientCpu, [1.0, 1.0, 0.8]),
    ] {
        let verdict = judged(cause, twice, client, server);
        assert_eq!(verdict.confidence, Confidence::Unknown, "{verdict:#?}");
        assert!(
            verdict
                .tested
                .iter()
                .any(|tested| tested.agrees == Some(false))
        );
    }
}

#[test]
fn a_part_whose_change_shows_nothing_proves_nothing() {
    let (mut run, mut verdict) = run_of(Cause::ServerCpu);
    // Counters rule all others out, so that only the figure is left to speak.
    let others = Cause::ALL
        .iter()
        .filter(|cause| **cause != Cause::ServerCpu);
    verdict.ruled_out = others.map(|cause| format!("{cause}: no")).collect();
    run.perturbed = vec![
        windows(Change::TwiceConnections, 1.0),
        windows(Change::SlowedServer, 0.9),
    ];
    let proven = judge(&run, verdict.clone());
    assert_eq!(proven.confidence, Confidence::Proven, "{proven:#?}");
    run.perturbed[1].changed_per_s = vec![700.0, 1_150.0, 800.0, 1_050.0, 750.0, 1_000.0];
    let noisy = judge(&run, verdict);
    assert_eq!(noisy.confidence, Confidence::Likely, "{noisy:#?}");
}

#[test]
fn what_several_causes_predict_proves_none_of_them() {
    // Both sides lost: what each kind of work predicts of the other's stop is contradicted, but for CPUs that are shared.
    let verdict = judged(Cause::SharedCpu, 1.0, 0.84, 0.82);
    assert_eq!(verdict.confidence, Confidence::Proven, "{verdict:#?}");
    // A lock, a pool and a limiter wait alike.
    let verdict = judged(Cause::Serialised, 1.0, 0.99, 0.98);
    assert_eq!(verdict.confidence, Confidence::Likely, "{verdict:#?}");
    // Nothing that is changed tells these.
    let verdict = judged(Cause::EphemeralPorts, 1.0, 0.99, 0.98);
    assert_eq!(verdict.confidence, Confidence::Likely);
    assert!(
        verdict
            .tested
            .iter()
            .all(|tested| tested.predicted.is_none())
    );
}

#[test]
fn a_short_request_that_waits_is_told_from_work_by_counters_alone() {
    let (mut run, verdict) = run_of(Cause::ServerCpu);
    run.least_service_time_us = Some(100.0);
    run.perturbed = vec![
        windows(Change::TwiceConnections, 1.0),
        windows(Change::SlowedClient, 0.99),
        windows(Change::SlowedServer, 0.79),
    ];
    let likely = judge(&run, verdict.clone());
    assert_eq!(likely.confidence, Confidence::Likely, "{likely:#?}");
    let waiting = Cause::ALL.iter().filter(|cause| {
        let waits = matches!(Kind::of(**cause), Some(Kind::Waiting | Kind::Pool));
        waits && **cause != Cause::StoreLock
    });
    let ruled_out = waiting
        .map(|cause| format!("{cause}: no CPU was idle"))
        .collect();
    let proven = judge(
        &run,
        Verdict {
            ruled_out,
            ..verdict
        },
    );
    assert_eq!(proven.confidence, Confidence::Proven, "{proven:#?}");
}

#[test]
fn windows_without_an_answer_and_noisy_ones_decide_nothing() {
    let (mut run, verdict) = run_of(Cause::ServerCpu);
    run.perturbed = vec![
        Windows {
            change: Change::SlowedServer,
            knob: None,
            connections: 50,
            base_per_s: vec![1_000.0, 1_000.0],
            changed_per_s: vec![0.0, 800.0],
        },
        Windows {
            change: Change::SlowedClient,
            knob: None,
            connections: 50,
            base_per_s: vec![1_000.0, 1_000.0, 1_000.0],
            changed_per_s: vec![500.0, 1_500.0, 900.0],
        },
    ];
    let verdict = judge(&run, verdict);
    assert_eq!(verdict.confidence, Confidence::Likely, "{verdict:#?}");
    assert_eq!(verdict.tested[0].ratio, None);
    assert_eq!(verdict.tested[1].agrees, None);
}

#[test]
fn only_what_could_tell_is_changed() {
    let (mut run, _) = run_of(Cause::ServerCpu);
    run.server = None;
    let local = [Change::TwiceConnections, Change::SlowedClient];
    assert_eq!(changes(&run), local);
    run.plan.model = Model::Open;
    assert_eq!(changes(&run), []);
    let (mut run, _) = run_of(Cause::EphemeralPorts);
    assert_eq!(changes(&run), []);
    run.verdict = None;
    assert_eq!(changes(&run), []);
}

#[test]
fn with_more_connections_than_the_run_had_few_of_them_predict_nothing() {
    let (mut run, verdict) = run_of(Cause::Concurrency);
    run.perturbed = vec![
        windows(Change::TwiceConnections, 1.9),
        Windows {
            connections: 400,
            ..windows(Change::SlowedServer, 0.8)
        },
        Windows {
            connections: 400,
            ..windows(Change::SlowedClient, 0.99)
        },
    ];
    let verdict = judge(&run, verdict);
    assert_eq!(verdict.confidence, Confidence::Proven, "{verdict:#?}");
    assert_eq!(verdict.tested[1].predicted, None);
}

#[test]
fn a_pool_is_proven_by_its_knob_alone() {
    let (mut run, verdict) = run_of(Cause::WorkerPool);
    run.perturbed = vec![
        windows(Change::TwiceConnections, 1.0),
        windows(Change::SlowedClient, 0.99),
        windows(Change::SlowedServer, 0.97),
    ];
    let likely = judge(&run, verdict.clone());
    assert_eq!(likely.confidence, Confidence::Likely, "{likely:#?}");
    run.perturbed.push(windows(Change::TwiceKnob, 1.95));
    let proven = judge(&run, verdict.clone());
    assert_eq!(proven.confidence, Confidence::Proven, "{proven:#?}");
    // It was something else of the same size.
    run.perturbed[3] = windows(Change::TwiceKnob, 1.0);
    assert_eq!(judge(&run, verdict).confidence, Confidence::Unknown);
}

#[test]
fn the_knob_is_that_of_the_pool() {
    let (mut run, _) = run_of(Cause::WorkerPool);
    run.warmup = Some(floodmark_record::run::Warmup {
        duration_s: 1.0,
        requests: run.requests.clone(),
    });
    // 1,000 a second of 8 ms each are eight at a time.
    run.least_service_time_us = Some(8_000.0);
    let settings: BTreeMap<String, String> = [
        ("connections", "8"),
        ("threads", "8"),
        ("heap", "256m"),
        ("backlog", "100"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let named = |run: &Run| {
        knob(run, &Environment::default(), &settings).map(|knob| (knob.name, knob.from, knob.to))
    };
    assert_eq!(named(&run), Some(("threads".to_owned(), 8, 16)));
    run.verdict.as_mut().unwrap().cause = Cause::ConnectionPool;
    assert_eq!(named(&run), Some(("connections".to_owned(), 8, 16)));
    run.verdict.as_mut().unwrap().cause = Cause::Serialised;
    assert_eq!(named(&run), None);
}
