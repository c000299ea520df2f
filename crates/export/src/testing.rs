//! Events for tests.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use floodmark_record::events::{Phase, RunId};
use floodmark_record::outcome::Counts;
use floodmark_record::plan::{Plan, Target};
use floodmark_record::watch::ServerUsed;
use floodmark_record::{Event, SecondRow, TimeKind};
use floodmark_stats::Histogram;

use crate::metrics::LoadMetrics;

/// Returns the start of a run of `system`.
pub(crate) fn began(system: &str, trial: Option<&str>, attempt: u32) -> Event {
    Event::RunBegan {
        run: RunId {
            system: system.to_owned(),
            workload: "/".to_owned(),
            trial: trial.map(str::to_owned),
            setting: BTreeMap::new(),
            process: 1,
            attempt,
        },
        plan: Plan::of(Target::from(SocketAddr::from(([127, 0, 0, 1], 8080)))),
        unix_ms: 0,
    }
}

/// Returns a second in which 12 requests were sent, and 10 of them ended: one was rejected, one
/// timed out after 5 s, and the response times of the others are `times` in ns.
pub(crate) fn second(phase: Phase, times: [u64; 8]) -> Event {
    let (mut response, mut censored) = (Histogram::new(), Histogram::new());
    for ns in times {
        response.record(ns);
    }
    censored.record(5_000_000_000);
    let histograms = [
        (TimeKind::Response, response.encode()),
        (TimeKind::Service, response.encode()),
        (TimeKind::Censored, censored.encode()),
        (TimeKind::Lateness, "damaged".to_owned()),
    ];
    Event::Second(SecondRow {
        phase,
        index: 0,
        from_ns: 0,
        to_ns: 1_000_000_000,
        counts: Counts {
            intended: 14,
            sent: 12,
            unsent: 1,
            connect_failed: 1,
            ok: 8,
            rejected: 1,
            timed_out: 1,
            statuses: BTreeMap::from([(200, 8), (503, 1)]),
            ..Counts::default()
        },
        good: 7,
        ok_in_window: 8,
        good_in_window: 7,
        bytes_sent: 1200,
        bytes_received: 9000,
        connects: 2,
        open_connections: 3,
        user_s: 0.25,
        system_s: 0.5,
        histograms: BTreeMap::from(histograms),
        groups: Vec::new(),
    })
}

/// Returns CPU time that a server used.
pub(crate) fn server_used(user_s: f64) -> Event {
    Event::ServerUsed(ServerUsed {
        over_s: 1.0,
        user_s,
        system_s: 0.125,
    })
}

/// Returns the metrics after a second of warm-up and two seconds of measurement.
pub(crate) fn example() -> LoadMetrics {
    let mut metrics = LoadMetrics::default();
    let times = [
        100_000, 100_000, 110_000, 120_000, 130_000, 200_000, 900_000, 3_000_000,
    ];
    for event in [
        began("nginx \"fast\"\\\n", Some("a"), 1),
        Event::Began {
            phase: Phase::Warmup,
            at_ns: 0,
        },
        second(Phase::Warmup, times),
        Event::Began {
            phase: Phase::Measure,
            at_ns: 0,
        },
        server_used(0.5),
        second(Phase::Measure, times),
        server_used(0.75),
        second(Phase::Measure, times),
    ] {
        metrics.on(&event);
    }
    metrics
}
