//! The predicted throughput without the limit that a verdict names, and the consistency of all
//! predictions with the measured throughput.

use floodmark_record::path::{PathStep, StepKind};
use floodmark_record::units::show_ns;
use floodmark_record::verdict::{Gain, Verdict};

use super::facts::RunFacts;
use super::thresholds::{MOST, NOTICEABLE};
use crate::text::percent;

/// Half-width of a predicted range, as a share of its midpoint.
const HALF_WIDTH: f64 = 0.15;

/// How to predict what the throughput would be without a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GainModel {
    /// No prediction.
    None,
    /// The load uses more connections, and all their requests are in service at once.
    MoreConnections,
    /// The server allows all streams of the plan, and all their requests are in service at once.
    AllStreams,
    /// All requests in flight are in service at once.
    InService,
    /// Like `InService`, but if all threads are always in use, a request takes at most the number
    /// of threads divided by the throughput.
    HeldByThreads,
    /// Like `InService`, but even the fastest request may have waited for the lock. The service
    /// time without that wait is between the mean hold time and the shortest service time; the
    /// prediction uses the midpoint.
    HeldAlone,
    /// All CPUs are busy.
    AllCpus,
}

/// Predicts what the throughput would be without the limit: the number of requests in flight (one
/// per stream) divided by the shortest service time. Returns `None` in the open model.
///
/// The CPUs also limit the prediction if they are at least half busy. At a lower load, the CPU time
/// per request is larger than at the limit, so it does not show how many requests the CPUs can
/// serve.
pub(super) fn of(facts: &RunFacts<'_>, model: GainModel, path: &[PathStep]) -> Option<Gain> {
    if facts.run.plan.is_open() || model == GainModel::None {
        return None;
    }
    let connections = facts.run.plan.connections;
    let streams = facts.run.streams();
    let busy = |(spare, cpus): (f64, f64)| (cpus - spare) / cpus;
    if model == GainModel::AllCpus {
        let busy = facts.idle_cpus().map(busy).filter(|busy| *busy > 0.0)?;
        let basis = format!("CPU use of 100 % instead of {}", percent(busy));
        let requests = connections.saturating_mul(streams);
        return Some(gain(requests, facts.ok_per_s / busy, basis));
    }
    facts.concurrency?;
    let used = if model == GainModel::MoreConnections {
        more_connections(connections)
    } else {
        connections
    };
    let streams = match model {
        GainModel::AllStreams => facts.run.plan.http.streams(),
        _ => streams,
    };
    let requests = used.saturating_mul(streams);
    let mut shortest_us = facts.run.least_service_time_us?;
    let held_us = |held: f64| (held * 1e6 / facts.ok_per_s).min(shortest_us);
    let is_holder = |step: &&PathStep| matches!(step.kind, StepKind::Threads | StepKind::Permits);
    let holders = path.iter().find(is_holder).and_then(|step| step.waiting);
    shortest_us = match (model, holders) {
        (GainModel::HeldByThreads, Some(held)) => held_us(held),
        (GainModel::HeldAlone, _) => f64::midpoint(held_us(1.0), shortest_us),
        _ => shortest_us,
    };
    let per_s = f64::from(requests) / (shortest_us / 1e6);
    let busy = facts.spare_cpus().map(busy).filter(|busy| *busy >= MOST);
    let per_s = busy.map_or(per_s, |busy| per_s.min(facts.ok_per_s / busy));
    let each = show_ns(shortest_us * 1e3);
    Some(gain(
        requests,
        per_s,
        format!("{requests} requests at once, {each} each"),
    ))
}

/// Makes all predictions consistent with the measured throughput and with each other:
///
/// - No upper bound is below the measured throughput.
/// - The throughput without the limit is at least the measured throughput and the upper bound.
///
/// Raises a prediction that violates a rule by no more than noise, and removes others. Also
/// removes an upper bound above the throughput predicted without the limit, because another
/// limit applies first.
pub(super) fn consistent(mut verdict: Verdict, measured_per_s: f64) -> Verdict {
    let is_possible = |per_s: f64| per_s >= (1.0 - NOTICEABLE) * measured_per_s;
    verdict
        .ceilings
        .retain(|ceiling| is_possible(ceiling.limit_per_s));
    for ceiling in &mut verdict.ceilings {
        ceiling.limit_per_s = ceiling.limit_per_s.max(measured_per_s);
    }
    verdict.gain = verdict.gain.filter(|gain| gain.high_per_s > measured_per_s);
    let most = verdict
        .gain
        .as_ref()
        .map_or(f64::INFINITY, |gain| gain.high_per_s);
    let limit = verdict
        .limit_per_s
        .filter(|limit| is_possible(*limit) && *limit < most);
    verdict.limit_per_s = limit.map(|limit| limit.max(measured_per_s));
    if let Some(gain) = &mut verdict.gain {
        let least = verdict.limit_per_s.unwrap_or(measured_per_s);
        gain.low_per_s = gain.low_per_s.max(least);
    }
    verdict
}

/// Returns the range around a predicted throughput.
fn gain(requests: u32, per_s: f64, basis: String) -> Gain {
    Gain {
        requests,
        low_per_s: per_s * (1.0 - HALF_WIDTH),
        high_per_s: per_s * (1.0 + HALF_WIDTH),
        basis,
    }
}

/// Returns the number of connections to use instead of too few connections.
pub(super) fn more_connections(connections: u32) -> u32 {
    connections.saturating_mul(4).max(50)
}
