//! Connections from the server to other processes.

use std::net::SocketAddr;

use floodmark_record::path::{Actor, ActorResource, PathStep, Place, StepKind};

use crate::why::facts::{RunFacts, UpstreamFacts};
use crate::why::thresholds::{SAME, same};

/// Well-known ports of databases and caches.
const STORE_PORTS: [u16; 7] = [3306, 5432, 6379, 6432, 9042, 11_211, 27_017];

/// Returns the address that a connection of the server leads to, as a store or upstream.
pub fn process_behind(facts: &RunFacts<'_>, address: SocketAddr) -> Place {
    let is_store = facts.store.is_some() || STORE_PORTS.contains(&address.port());
    let actor = if is_store {
        Actor::Store
    } else {
        Actor::Upstream
    };
    actor.with(ActorResource::Address(address.to_string()))
}

pub fn connections(facts: &RunFacts<'_>, upstream: &UpstreamFacts) -> PathStep {
    PathStep::new(
        StepKind::Connections,
        process_behind(facts, upstream.address),
        "connections whose last send follows their last receive (sock_diag)",
    )
    .with_waiting(upstream.waiting.unwrap_or(upstream.perhaps_waiting))
}

/// Returns whether all connections of a pool wait for responses, and the size of the pool equals
/// the number of concurrent requests.
pub fn is_full(upstream: &UpstreamFacts, concurrency: f64) -> bool {
    is_in_use(upstream) && same(concurrency, upstream.established)
}

/// Returns whether all connections wait for responses. A connection reused within a clock tick
/// counts as waiting.
fn is_in_use(upstream: &UpstreamFacts) -> bool {
    upstream.perhaps_waiting >= SAME.start() * upstream.established
}

/// Returns the connections to the store if requests wait for them because all are in use.
pub fn full_store_pool(facts: &RunFacts<'_>) -> Option<PathStep> {
    let in_flight = facts.in_flight?;
    let mut steps = facts.upstreams.iter().filter_map(|upstream| {
        let is_limit = is_in_use(upstream) && upstream.established <= SAME.start() * in_flight;
        is_limit.then(|| connections(facts, upstream))
    });
    steps.find(|step| step.who.actor == Actor::Store)
}
