//! Verdicts on runs whose requests wait before the server reads them, or before it responds.

use floodmark_record::cause::Cause;
use floodmark_record::run::{HttpBytes, Run, SeriesRow};

use super::tests::{is, series};
use super::waiting_tests::{blocked, keys, working_on};

/// Returns one row per second.
pub(super) fn rows(rates: &[f64]) -> Vec<SeriesRow> {
    let rows = (0_u8..).zip(rates).map(|(second, rate)| SeriesRow {
        from_s: f64::from(second),
        to_s: f64::from(second) + 1.0,
        throughput_per_s: *rate,
        ..SeriesRow::default()
    });
    rows.collect()
}

/// Returns a run with one row per second that has the given throughput.
fn at_rates(concurrency: f64, rates: &[f64]) -> Run {
    let mut run = working_on(concurrency);
    run.series = rows(rates);
    run.observations
        .extend([series("server sockets", "receive_queue", 0.0)]);
    run.bytes = HttpBytes {
        sent: 100 * run.requests.sent,
        received: 0,
    };
    run
}

#[test]
fn a_constant_rate_of_an_idle_server_is_a_rate_limit() {
    let constant = [1_000.0, 1_001.0, 999.0, 1_000.0];
    let verdict = is(&at_rates(0.1, &constant), Cause::RateLimiter);
    assert_eq!(keys(&verdict), ["rate-limit server"]);
    is(&at_rates(0.1, &[1_000.0, 1_080.0, 960.0]), Cause::Unknown);
    is(&at_rates(0.1, &constant[..1]), Cause::Unknown);
    // The requests wait in the server's kernel.
    let mut unread = at_rates(0.1, &constant);
    let queue = unread.observations.last_mut().unwrap();
    queue.values = vec![4_000.0; 10];
    is(&unread, Cause::Unknown);
    // The threads wait for an interpreter lock, and together use one CPU.
    let mut locked = at_rates(0.1, &constant);
    let threads = blocked("app", &[("own lock", 31.0)], 2_000.0);
    locked.observations.extend(threads);
    is(&locked, Cause::RateLimiter);
    locked.observations[1] = series("server", "user", 0.8);
    locked.observations[2] = series("server", "system", 0.15);
    is(&locked, Cause::Unknown);
    // Most of these threads are inactive.
    let at_work = series("server threads", "app at work", 1.0);
    locked.observations.push(at_work);
    is(&locked, Cause::RateLimiter);
}

#[test]
fn a_thread_that_leaves_requests_unread_is_saturated() {
    let mut run = at_rates(0.1, &[1_000.0, 700.0]);
    // The main process of nginx waits for signals; the worker process waits for a pipe.
    let objects = [("signal", 1.0), ("pipe write", 1.0)];
    run.observations.extend(blocked("nginx", &objects, 1_000.0));
    run.observations.iter_mut().for_each(|of| {
        if of.metric.name() == "receive_queue" {
            of.values = vec![4_500.0; 10];
        }
    });
    let verdict = is(&run, Cause::SyncLogging);
    assert_eq!(keys(&verdict), ["threads server", "pipe server"]);
    // Two event loops seldom wait, because one wait covers the log lines of many requests.
    let mut run = at_rates(0.1, &[1_000.0, 700.0]);
    for group in ["[net 0]", "[net 1]"] {
        let objects = [("pipe write", 0.95), ("events", 0.05)];
        run.observations.extend(blocked(group, &objects, 9.0));
    }
    let before = is(&run, Cause::Unknown);
    assert!(before.path.is_empty());
    run.observations.iter_mut().for_each(|of| {
        if of.metric.name() == "receive_queue" {
            of.values = vec![4_500.0; 10];
        }
    });
    let verdict = is(&run, Cause::SyncLogging);
    assert_eq!(keys(&verdict), ["threads server", "pipe server"]);
}

#[test]
fn the_path_of_a_pool_leads_through_the_accept_queue() {
    let mut run = working_on(8.0);
    run.observations
        .extend(blocked("worker", &[("timer", 8.0)], 1_000.0));
    let pool = keys(&is(&run, Cause::WorkerPool));
    assert_eq!(pool, ["threads server", "timer server"]);
    run.connections.opened = 8_000;
    run.observations.extend([
        series("listener", "accept_queue", 40.0),
        series("listener", "accept_queue_limit", 1_024.0),
    ]);
    let queued = keys(&is(&run, Cause::WorkerPool));
    assert_eq!(queued[0], "accept-queue server");
    assert_eq!(queued[1..], pool);
}
