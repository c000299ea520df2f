//! Predictions of the throughput without a limit.

use floodmark_record::cause::Cause;
use floodmark_record::plan::{Http, Http2};
use floodmark_record::run::Run;
use floodmark_record::verdict::{Ceiling, Gain, Verdict};
use proptest::option;
use proptest::prelude::*;

use super::gain::consistent;
use super::tests::{is, run_with, series};
use super::waiting_tests::{blocked, working_on};

/// Returns a run with 50 connections to a server whose pool has 8 threads.
pub(super) fn pool_of_8() -> Run {
    let mut run = working_on(8.0);
    run.observations
        .extend(blocked("worker", &[("timer", 8.0)], 1_000.0));
    run
}

#[test]
fn predicts_that_all_requests_are_in_service() {
    // Each request takes 8 ms.
    let run = pool_of_8();
    let gain = is(&run, Cause::WorkerPool).gain.unwrap();
    assert_eq!(gain.requests, 50);
    assert!((gain.low_per_s - 6_250.0 * 0.85).abs() < 1e-6);
    assert!((gain.high_per_s - 6_250.0 * 1.15).abs() < 1e-6);
    // 200 connections, as the next step advises.
    let gain = is(&working_on(50.0), Cause::Concurrency).gain.unwrap();
    assert_eq!(gain.requests, 200);
    assert!((gain.low_per_s - 4_000.0 * 0.85).abs() < 1e-6);
}

#[test]
fn each_stream_has_a_request_in_service() {
    let with_streams = |mut run: Run, connections| {
        run.plan.connections = connections;
        run.plan.http = Http::V2(Http2 {
            streams: 10,
            ..Http2::default()
        });
        run
    };
    let gain = is(&with_streams(pool_of_8(), 5), Cause::WorkerPool)
        .gain
        .unwrap();
    assert_eq!(gain.requests, 50);
    // The server works on 20 requests, one per stream: 1,000 requests/s take 20 ms each.
    let verdict = is(&with_streams(working_on(20.0), 2), Cause::Concurrency);
    assert!((verdict.limit_per_s.unwrap() - 1_000.0).abs() < 1e-9);
    assert_eq!(verdict.next, "use more connections in the load: -c 50");
    assert_eq!(verdict.gain.unwrap().requests, 500);
}

#[test]
fn half_busy_cpus_cap_the_prediction() {
    let mut run = pool_of_8();
    run.observations[0] = series("host", "busy", 2.5);
    run.observations[1] = series("server", "user", 2.38);
    let gain = is(&run, Cause::WorkerPool).gain.unwrap();
    assert!((gain.high_per_s - 1_600.0 * 1.15).abs() < 1e-6);
    // A saturated CPU has no prediction.
    assert_eq!(is(&run_with(3.98, 3.8, 0.6), Cause::ServerCpu).gain, None);
}

#[test]
fn a_request_behind_a_lock_takes_longer_than_the_lock_is_held() {
    let mut run = working_on(1.0);
    // The lock admits 1,000 requests per second, and the fastest request took 3 ms.
    run.least_service_time_us = Some(3_000.0);
    run.observations.extend([
        series("postgresql", "active", 30.0),
        series("postgresql", "waiting for locks", 28.0),
        series("postgresql", "idle in transaction", 0.2),
    ]);
    let gain = is(&run, Cause::StoreLock).gain.unwrap();
    assert!((gain.low_per_s - 25_000.0 * 0.85).abs() < 1e-6);
    assert!((gain.high_per_s - 25_000.0 * 1.15).abs() < 1e-6);
}

#[test]
fn predictions_below_the_measured_throughput_are_removed() {
    let measured_at = |per_s: f64| {
        let mut run = working_on(50.0);
        run.throughput_per_s = Some(per_s);
        is(&run, Cause::Concurrency)
    };
    assert_eq!(measured_at(1_000.0).limit_per_s, Some(1_000.0));
    assert_eq!(measured_at(1_050.0).limit_per_s, Some(1_050.0));
    assert_eq!(measured_at(1_200.0).limit_per_s, None);

    let verdict = is(&pool_of_8(), Cause::WorkerPool);
    let gain = |per_s| {
        let verdict = consistent(verdict.clone(), per_s);
        let mut ceilings = verdict.ceilings.iter();
        assert!(ceilings.all(|ceiling| ceiling.limit_per_s >= per_s));
        verdict.gain.map(|gain| (gain.low_per_s, gain.high_per_s))
    };
    let high = 6_250.0 * 1.15;
    assert_eq!(gain(6_000.0), Some((6_000.0, high)));
    assert_eq!(gain(7_200.0), None);
}

proptest! {
    #[test]
    fn predictions_never_contradict_each_other_or_the_measurement(
        measured in 1.0..1e6,
        limit in option::of(1.0..1e6),
        gain in option::of((1.0..1e6, 1.0..1e6)),
        ceilings in prop::collection::vec(1.0..1e6, 0..4),
    ) {
        let verdict = Verdict {
            limit_per_s: limit,
            gain: gain.map(|(low, width): (f64, f64)| Gain {
                requests: 1,
                low_per_s: low,
                high_per_s: low + width,
                basis: String::new(),
            }),
            ceilings: ceilings
                .into_iter()
                .map(|limit_per_s| Ceiling {
                    resource: String::new(),
                    demand: 1.0,
                    unit: String::new(),
                    limit_per_s,
                    used: 0.5,
                })
                .collect(),
            ..is(&pool_of_8(), Cause::WorkerPool)
        };
        let verdict = consistent(verdict, measured);
        let limit = verdict.limit_per_s.unwrap_or(measured);
        prop_assert!(limit >= measured);
        if let Some(gain) = &verdict.gain {
            prop_assert!(gain.low_per_s >= limit && gain.high_per_s > gain.low_per_s);
        }
        for ceiling in &verdict.ceilings {
            prop_assert!(ceiling.limit_per_s >= measured);
        }
    }
}
