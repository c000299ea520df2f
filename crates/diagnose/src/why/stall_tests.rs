//! Tests of verdicts on servers that stop responding, temporarily or for good.

use floodmark_record::cause::Cause;
use floodmark_record::outcome::Counts;
use floodmark_record::reason::FIX_STOPPED;
use floodmark_record::run::{Run, Silence};

use super::gain_tests::pool_of_8;
use super::tests::{is, judged, run_with, series};
use super::waiting_tests::{blocked, keys};
use crate::testing::{open, thread};

/// Returns a 10 s run with a pool of 8 threads and a 1 s silence that starts after 4 s. Half of the
/// requests take at most 20 ms.
fn stalled() -> Run {
    let mut run = pool_of_8();
    run.service_time_us.p50 = Some(20_000.0);
    run.service_time_us.max = Some(1_050_000.0);
    run.silence = Some(Silence {
        from_s: 4.0,
        to_s: 5.0,
        in_flight: 50,
        total_s: 1.0,
    });
    let cpu = &mut run.observations[1..3];
    cpu.iter_mut().for_each(|of| of.values[4] = 0.0);
    run
}

#[test]
fn a_stall_has_no_other_cause() {
    let verdict = is(&stalled(), Cause::ServerStall);
    assert_eq!(
        verdict.summary,
        "the server sent no response for at least 1.0 s from 4.0 s on, with 50 requests in flight; \
         outside the stall: 1,111/s"
    );
    assert_eq!(
        verdict.evidence,
        [
            "longest service time: 1.05 s",
            "server: 0.00 CPUs used during the stall (/proc/PID/stat)"
        ]
    );
    assert_eq!(keys(&verdict), ["stall server"]);
    assert!(
        verdict.gain.is_none() && verdict.limit_per_s.is_none() && verdict.also.is_empty(),
        "{verdict:?}"
    );
    assert!(verdict.ledger.is_none() && verdict.ceilings.is_empty());
}

#[test]
fn slow_requests_and_busy_servers_are_no_stall() {
    let pool = |change: fn(&mut Run, &mut Silence)| {
        let mut run = stalled();
        let mut silence = run.silence.take().unwrap();
        change(&mut run, &mut silence);
        run.silence = Some(silence);
        is(&run, Cause::WorkerPool);
    };
    // Garbage collection uses CPU time.
    pool(|run, _| run.observations[1].values[4] = 1.0);
    // An unobserved server may be at work.
    pool(|run, _| run.observations[1].values.clear());
    // So may its store.
    pool(|run, _| {
        run.observations
            .extend([series("store", "user", 0.5), series("store", "system", 0.1)]);
    });
    // Workers that run in step.
    pool(|run, _| run.service_time_us.p50 = Some(600_000.0));
    pool(|_, silence| silence.total_s = 3.0);
    // A few slow requests.
    pool(|_, silence| silence.in_flight = 4);
    // No request waited that long.
    pool(|run, _| run.service_time_us.max = Some(900_000.0));
    // The client stalled.
    pool(|run, _| run.longest_stall_ns = Some(900_000_000));
    // Too short to affect the means.
    pool(|_, silence| (silence.to_s, silence.total_s) = (4.3, 0.3));
    // Outside of the window.
    pool(|run, _| run.window.from_s = 4.5);
    let mut throttled = stalled();
    throttled.observations[8] = series("cgroup", "throttled_time", 0.5);
    is(&throttled, Cause::CpuQuota);
    let mut met = stalled();
    met.plan = open();
    is(&met, Cause::None);
}

#[test]
fn a_server_that_waits_for_its_disk_has_not_stalled() {
    let mut run = stalled();
    run.observations
        .extend(blocked("writer", &[("file /data", 1.0)], 0.0));
    let verdict = judged(&run);
    assert_ne!(verdict.cause, Cause::ServerStall, "{verdict:#?}");
}

#[test]
fn a_server_that_stopped_responding_has_no_other_cause() {
    let mut stopped = run_with(1.0, 0.1, 0.1);
    stopped.least_service_time_us = Some(1_000.0);
    stopped.requests.timed_out = 100;
    is(&stopped, Cause::Serialised);
    stopped.server_gone_since_s = Some(1.0);
    let verdict = is(&stopped, Cause::Errors);
    assert_eq!(
        verdict.summary,
        "the server stopped responding after 1.00 s"
    );
    assert_eq!(
        verdict.evidence,
        ["requests without a response: 100 timed out"]
    );
    assert!(
        verdict.gain.is_none() && verdict.also.is_empty() && verdict.ceilings.is_empty(),
        "{verdict:?}"
    );
    assert_eq!(verdict.ledger, None);
}

#[test]
fn counts_requests_in_flight_of_a_server_that_stopped() {
    let mut run = run_with(1.0, 0.1, 0.1);
    run.server_gone_since_s = Some(1.0);
    run.requests.in_flight_at_end = 50;
    assert_eq!(
        is(&run, Cause::Errors).evidence,
        ["requests without a response: 50 were in flight at the end"]
    );
    let mut never = run_with(1.0, 0.1, 0.1);
    never.throughput_per_s = Some(0.0);
    never.requests = Counts {
        intended: 50,
        sent: 50,
        in_flight_at_end: 50,
        ..Counts::default()
    };
    never.sending_s = 1.5;
    let verdict = is(&never, Cause::Errors);
    assert_eq!(
        verdict.summary,
        "the server never responded: 50 of 50 requests got no response within 1.50 s"
    );
    assert_eq!(verdict.next, FIX_STOPPED);
    never.sending_s = 0.02;
    never.window.to_s = 0.02;
    is(&never, Cause::Unknown);
}

#[test]
fn a_very_short_run_names_no_cause() {
    let mut run = run_with(3.98, 3.8, 0.96);
    run.client.threads = vec![thread(0.98, 0.0)];
    (run.sending_s, run.window.to_s) = (0.005, 0.005);
    let verdict = is(&run, Cause::Unknown);
    assert_eq!(
        verdict.summary,
        "the run (5.00 ms) was too short to name a cause"
    );
    assert_eq!(verdict.next, "run longer: -d 10s");
    assert!(verdict.also.is_empty() && verdict.limit_per_s.is_none());
    assert!(verdict.ledger.is_none() && verdict.ceilings.is_empty());
    // Unexpected responses are conclusive even in a very short run.
    run.requests.wrong = run.requests.ok;
    run.requests.statuses = [(404, run.requests.wrong)].into();
    is(&run, Cause::Errors);
}
