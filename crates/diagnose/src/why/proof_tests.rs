//! Verdicts after perturbations.

use super::*;
use crate::next::tests::run;
use crate::testing::closed;
use crate::why::tests::{is, rules_out, run_with};
use floodmark_record::verdict::RuledOut;

/// Returns a closed-model run with a shortest service time of 5 ms, and the run's verdict.
fn run_of(cause: Cause) -> (Run, Verdict) {
    let mut run = run(closed());
    run.server = Some(floodmark_record::watch::Server::default());
    run.least_service_time_us = Some(5_000.0);
    let verdict = Verdict {
        cause,
        also: Vec::new(),
        costs: Vec::new(),
        confidence: Confidence::Likely,
        probability: None,
        runner_up: None,
        summary: "the cause".to_owned(),
        path: Vec::new(),
        gain: None,
        limit_per_s: None,
        evidence: vec!["a figure".to_owned()],
        ruled_out: Vec::new(),
        next: "the next step".to_owned(),
        tested: Vec::new(),
        unseen: Vec::new(),
        ledger: None,
        ceilings: Vec::new(),
    };
    run.verdict = Some(verdict.clone());
    (run, verdict)
}

/// Returns six pairs of windows with the given throughput ratio and 1 % noise.
fn windows(change: Perturbation, ratio: f64) -> Windows {
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
        windows(Perturbation::TwiceConnections, twice),
        windows(Perturbation::SlowedClient, client),
        windows(Perturbation::SlowedServer, server),
    ];
    judge(&run, verdict)
}

#[test]
fn predicted_effects_prove_a_cause() {
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

/// Returns whether the windows contradict a cause.
fn is_contradicted(run: &Run, cause: Cause) -> bool {
    contradicting_figure(run, cause, None).is_some()
}

#[test]
fn contradicting_effects_rule_a_cause_out() {
    for (cause, [twice, client, server]) in [
        // Throughput grew with the connections, so the CPU was not the limit.
        (Cause::ServerCpu, [1.9, 0.99, 0.79]),
        (Cause::ServerCpu, [1.0, 1.0, 1.0]),
        (Cause::Concurrency, [1.0, 1.0, 1.0]),
        (Cause::Serialised, [1.0, 1.0, 0.7]),
        (Cause::ClientCpu, [1.0, 1.0, 0.8]),
    ] {
        let (mut run, _) = run_of(cause);
        run.perturbed = vec![
            windows(Perturbation::TwiceConnections, twice),
            windows(Perturbation::SlowedClient, client),
            windows(Perturbation::SlowedServer, server),
        ];
        assert!(is_contradicted(&run, cause), "{cause}");
        assert!(!is_contradicted(&run, Cause::EphemeralPorts));
    }
}

#[test]
fn a_contradicted_cause_leaves_no_path_and_no_advice() {
    // The server seems to spend its CPU time on new connections, but pausing it changes nothing.
    let mut run = run_with(3.98, 3.8, 0.6);
    run.connections.opened = 3_000;
    run.perturbed = vec![windows(Perturbation::SlowedServer, 1.0)];
    let verdict = is(&run, Cause::Unknown);
    assert!(
        verdict.path.is_empty() && verdict.limit_per_s.is_none(),
        "{verdict:#?}"
    );
    assert!(
        verdict.also.is_empty() && verdict.gain.is_none(),
        "{verdict:#?}"
    );
    assert!(
        verdict.summary.contains("suggest keepalive-limit"),
        "{verdict:#?}"
    );
    assert!(!verdict.next.contains("keepalive"), "{verdict:#?}");
    assert!(rules_out(&verdict, Cause::KeepaliveLimit) && rules_out(&verdict, Cause::ServerCpu));
    // A cause that no perturbation contradicts takes its place.
    run.errors.insert("fds_exhausted".to_owned(), 5_000);
    run.requests.connect_failed = 5_000;
    is(&run, Cause::ClientFds);
}

fn ruled_out(cause: Cause) -> RuledOut {
    RuledOut {
        cause,
        figure: "no CPU was idle".to_owned(),
    }
}

#[test]
fn inconclusive_effect_proves_nothing() {
    let (mut run, mut verdict) = run_of(Cause::ServerCpu);
    // The counters rule out all other causes.
    let others = Cause::ALL
        .iter()
        .filter(|cause| **cause != Cause::ServerCpu);
    verdict.ruled_out = others.copied().map(ruled_out).collect();
    run.perturbed = vec![
        windows(Perturbation::TwiceConnections, 1.0),
        windows(Perturbation::SlowedServer, 0.9),
    ];
    let proven = judge(&run, verdict.clone());
    assert_eq!(proven.confidence, Confidence::Proven, "{proven:#?}");
    run.perturbed[1].changed_per_s = vec![700.0, 1_150.0, 800.0, 1_050.0, 750.0, 1_000.0];
    let noisy = judge(&run, verdict);
    assert_eq!(noisy.confidence, Confidence::Likely, "{noisy:#?}");
}

#[test]
fn effect_shared_by_several_causes_proves_none() {
    // Only the shared-CPU cause predicts a loss when either process is paused.
    let verdict = judged(Cause::SharedCpu, 1.0, 0.84, 0.82);
    assert_eq!(verdict.confidence, Confidence::Proven, "{verdict:#?}");
    // A lock, a pool and a rate limiter predict the same effects.
    let verdict = judged(Cause::Serialised, 1.0, 0.99, 0.98);
    assert_eq!(verdict.confidence, Confidence::Likely, "{verdict:#?}");
    // No perturbation can test this cause.
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
fn only_counters_rule_out_short_waits() {
    let (mut run, verdict) = run_of(Cause::ServerCpu);
    run.least_service_time_us = Some(100.0);
    run.perturbed = vec![
        windows(Perturbation::TwiceConnections, 1.0),
        windows(Perturbation::SlowedClient, 0.99),
        windows(Perturbation::SlowedServer, 0.79),
    ];
    let likely = judge(&run, verdict.clone());
    assert_eq!(likely.confidence, Confidence::Likely, "{likely:#?}");
    let waiting = Cause::ALL.iter().filter(|cause| {
        let waits = matches!(
            causes::spec(**cause).class,
            Some(CauseClass::Waiting | CauseClass::Pool)
        );
        waits && **cause != Cause::StoreLock
    });
    let ruled_out = waiting.copied().map(ruled_out).collect();
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
fn empty_and_noisy_windows_are_inconclusive() {
    let (mut run, verdict) = run_of(Cause::ServerCpu);
    run.perturbed = vec![
        Windows {
            change: Perturbation::SlowedServer,
            knob: None,
            connections: 50,
            base_per_s: vec![1_000.0, 1_000.0],
            changed_per_s: vec![0.0, 800.0],
        },
        Windows {
            change: Perturbation::SlowedClient,
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
fn skips_perturbations_that_test_nothing() {
    let (mut run, _) = run_of(Cause::ServerCpu);
    run.server = None;
    let local = [Perturbation::TwiceConnections, Perturbation::SlowedClient];
    assert_eq!(changes(&run), local);
    run.plan.model = crate::testing::open().model;
    assert_eq!(changes(&run), []);
    let (mut run, _) = run_of(Cause::EphemeralPorts);
    assert_eq!(changes(&run), []);
    run.verdict = None;
    assert_eq!(changes(&run), []);
}

#[test]
fn low_concurrency_has_no_prediction_for_changed_connections() {
    let (mut run, verdict) = run_of(Cause::Concurrency);
    run.perturbed = vec![
        windows(Perturbation::TwiceConnections, 1.9),
        Windows {
            connections: 400,
            ..windows(Perturbation::SlowedServer, 0.8)
        },
        Windows {
            connections: 400,
            ..windows(Perturbation::SlowedClient, 0.99)
        },
    ];
    let verdict = judge(&run, verdict);
    assert_eq!(verdict.confidence, Confidence::Proven, "{verdict:#?}");
    assert_eq!(verdict.tested[1].predicted, None);
}

#[test]
fn only_its_setting_proves_a_pool() {
    let (mut run, verdict) = run_of(Cause::WorkerPool);
    run.perturbed = vec![
        windows(Perturbation::TwiceConnections, 1.0),
        windows(Perturbation::SlowedClient, 0.99),
        windows(Perturbation::SlowedServer, 0.97),
    ];
    let likely = judge(&run, verdict.clone());
    assert_eq!(likely.confidence, Confidence::Likely, "{likely:#?}");
    run.perturbed.push(windows(Perturbation::TwiceKnob, 1.95));
    let proven = judge(&run, verdict.clone());
    assert_eq!(proven.confidence, Confidence::Proven, "{proven:#?}");
    // Doubling the setting has no effect, so another pool of the same size is the limit.
    run.perturbed[3] = windows(Perturbation::TwiceKnob, 1.0);
    assert!(is_contradicted(&run, Cause::WorkerPool));
}

#[test]
fn finds_the_setting_of_the_pool() {
    let (mut run, _) = run_of(Cause::WorkerPool);
    run.warmup = Some(floodmark_record::run::WarmupRun {
        duration_s: 1.0,
        requests: run.requests.clone(),
    });
    // At 1,000/s and 8 ms per request, eight requests are in progress.
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
        pool_setting(run, &Environment::default(), &settings)
            .map(|setting| (setting.name, setting.from, setting.to))
    };
    assert_eq!(named(&run), Some(("threads".to_owned(), 8, 16)));
    run.verdict.as_mut().unwrap().cause = Cause::ConnectionPool;
    assert_eq!(named(&run), Some(("connections".to_owned(), 8, 16)));
    run.verdict.as_mut().unwrap().cause = Cause::Serialised;
    assert_eq!(named(&run), None);
}
