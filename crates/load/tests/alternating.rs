//! Tests of alternating loads with small servers on loopback.

#![allow(clippy::unwrap_used, reason = "tests")]

#[macro_use]
mod common;

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::input;
use common::plans::closed_plan;
use common::server::{RESPONSE, read_request, serve};
use floodmark_load::alternating;
use floodmark_load::worker::StopFlag;
use floodmark_record::Event;
use floodmark_record::comparison::ComparedMetric;
use floodmark_record::events::EndReason;
use floodmark_record::gate::AlternatingEnd;
use floodmark_record::plan::{Backend, ConnectionUse, Model, Plan};
use floodmark_record::worker_input::{OtherSide, WorkerInput};

on_both_backends! {
    only_one_server_works_at_a_time
    fresh_connections_take_turns
    ends_if_a_server_is_down
    a_stop_ends_the_load
}

/// Observations of both servers.
#[derive(Default)]
struct Observed {
    /// Number of requests that each server is working on.
    working: [AtomicU64; 2],
    /// Number of responses of each server.
    responses: [AtomicU64; 2],
    /// Number of requests that arrived while the other server was working.
    overlaps: AtomicU64,
}

/// Starts a server that sleeps before each response.
fn sleeping(observed: &Arc<Observed>, side: usize, sleep: Duration) -> SocketAddr {
    let observed = Arc::clone(observed);
    serve(move |mut stream, _| {
        while read_request(&mut stream) {
            observed.working[side].fetch_add(1, Ordering::SeqCst);
            if observed.working[1 - side].load(Ordering::SeqCst) > 0 {
                observed.overlaps.fetch_add(1, Ordering::SeqCst);
            }
            thread::sleep(sleep);
            observed.working[side].fetch_sub(1, Ordering::SeqCst);
            observed.responses[side].fetch_add(1, Ordering::SeqCst);
            if stream.write_all(RESPONSE).is_err() {
                return;
            }
        }
    })
}

fn alternate(plan: Plan, targets: [SocketAddr; 2], stop: &StopFlag) -> AlternatingEnd {
    let to = |target: SocketAddr| {
        let mut plan = plan.clone();
        plan.target.address = target.into();
        plan
    };
    let other = OtherSide {
        plan: to(targets[1]),
        mean_turn: Duration::from_millis(20),
    };
    let input = WorkerInput {
        other: None,
        ..input(to(targets[0]))
    };
    let mut end = None;
    alternating::run(&input, &other, stop, |event| {
        if let Event::Alternated(alternated) = event {
            end = Some(alternated);
        }
    })
    .unwrap();
    end.unwrap()
}

fn timed(backend: Backend, connections: u32, threads: u32, seconds: f64) -> Plan {
    Plan {
        backend,
        threads,
        model: Model::closed(seconds),
        ..closed_plan(connections, 0)
    }
}

fn only_one_server_works_at_a_time(backend: Backend) {
    for (connections, threads) in [(1, 1), (8, 2)] {
        let observed = Arc::<Observed>::default();
        let ms = Duration::from_millis;
        let targets =
            [(0, ms(2)), (1, ms(4))].map(|(side, sleep)| sleeping(&observed, side, sleep));
        let mut plan = timed(backend, connections, threads, 0.5);
        plan.warmup = ms(100);
        let end = alternate(plan, targets, &StopFlag::default());
        assert_eq!(end.reason, EndReason::Completed);
        assert_eq!(observed.overlaps.load(Ordering::SeqCst), 0);
        for (side, figures) in [&end.first, &end.second].into_iter().enumerate() {
            let counts = &figures.requests;
            assert_eq!((counts.ok, counts.balance()), (counts.sent, Ok(())));
            let responses = observed.responses[side].load(Ordering::SeqCst);
            // The other responses belong to the warm-up.
            assert!(
                (counts.ok + 1..counts.ok * 2).contains(&responses),
                "{responses} of {counts:?}"
            );
            assert!((0.5..1.0).contains(&figures.loaded_s), "{figures:?}");
            assert_eq!(figures.response_us.count, counts.ok);
        }
        // The second server sleeps twice as long.
        for (metric, range) in [
            (ComparedMetric::Throughput, 0.3..0.8),
            (ComparedMetric::P50, 1.3..3.0),
        ] {
            let ratio = end.second.figure(metric).unwrap() / end.first.figure(metric).unwrap();
            assert!(range.contains(&ratio), "{metric:?}: {ratio}");
        }
        assert_eq!(end.first.figure(ComparedMetric::ServerCpuPerRequest), None);
    }
}

fn fresh_connections_take_turns(backend: Backend) {
    let observed = Arc::<Observed>::default();
    let targets = [0, 1].map(|side| sleeping(&observed, side, Duration::from_millis(2)));
    let mut plan = timed(backend, 4, 1, 0.3);
    plan.connection_use = ConnectionUse::Fresh;
    let end = alternate(plan, targets, &StopFlag::default());
    assert_eq!(end.reason, EndReason::Completed);
    assert_eq!(observed.overlaps.load(Ordering::SeqCst), 0);
    for figures in [&end.first, &end.second] {
        assert!(figures.requests.ok > 0 && figures.requests.ok == figures.requests.sent);
    }
}

fn ends_if_a_server_is_down(backend: Backend) {
    let observed = Arc::<Observed>::default();
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let alive = sleeping(&observed, 0, Duration::from_millis(2));
    let begin = Instant::now();
    let end = alternate(
        timed(backend, 4, 1, 30.0),
        [alive, closed],
        &StopFlag::default(),
    );
    assert_eq!(end.reason, EndReason::ServerGone);
    assert_eq!(end.second.figure(ComparedMetric::Throughput), None);
    assert!(begin.elapsed() < Duration::from_secs(20));
}

fn a_stop_ends_the_load(backend: Backend) {
    let observed = Arc::<Observed>::default();
    let targets = [0, 1].map(|side| sleeping(&observed, side, Duration::from_millis(50)));
    let stop = StopFlag::default();
    let begin = Instant::now();
    let end = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(200));
            stop.stop();
        });
        alternate(timed(backend, 4, 2, 30.0), targets, &stop)
    });
    assert_eq!(end.reason, EndReason::Interrupted);
    assert!(begin.elapsed() < Duration::from_secs(10));
}
