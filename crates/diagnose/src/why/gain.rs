//! The predicted throughput without the limit that a verdict names.

use floodmark_record::cause::Cause;
use floodmark_record::units::show_ns;
use floodmark_record::verdict::Gain;

use super::facts::RunFacts;
use super::thresholds::MOST;

/// Half-width of a predicted range, as a share of its midpoint.
const HALF_WIDTH: f64 = 0.15;

/// Predicts the throughput if the server works on all requests in flight at once: the number of
/// requests divided by the shortest service time. Returns `None` for causes that limit something
/// other than the number of requests in service.
///
/// The CPUs also limit the prediction if they are at least half busy. At a lower load, the CPU time
/// per request is larger than at the limit, so it does not show how many requests the CPUs can
/// serve.
pub(super) fn of(facts: &RunFacts<'_>, cause: Cause) -> Option<Gain> {
    use Cause::{Concurrency, ConnectionPool, MaxConnections, Serialised, WorkerPool};
    let connections = facts.run.plan.connections;
    let requests = match cause {
        Concurrency => more_connections(connections),
        ConnectionPool | MaxConnections | Serialised | WorkerPool => connections,
        _ => return None,
    };
    facts.concurrency.filter(|_| !facts.run.plan.is_open())?;
    let shortest_us = facts.run.least_service_time_us?;
    let per_s = f64::from(requests) / (shortest_us / 1e6);
    let busy = facts.idle_cpus().map(|(idle, cpus)| (cpus - idle) / cpus);
    let busy = busy.filter(|busy| *busy >= MOST);
    let per_s = busy.map_or(per_s, |busy| per_s.min(facts.ok_per_s / busy));
    Some(Gain {
        requests,
        low_per_s: per_s * (1.0 - HALF_WIDTH),
        high_per_s: per_s * (1.0 + HALF_WIDTH),
        basis: format!(
            "{requests} requests at once, {} each",
            show_ns(shortest_us * 1e3)
        ),
    })
}

/// Returns the number of connections to use instead of too few connections.
pub(super) fn more_connections(connections: u32) -> u32 {
    connections.saturating_mul(4).max(50)
}
