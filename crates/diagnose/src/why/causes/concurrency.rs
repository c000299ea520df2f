//! Too few requests are in flight to saturate any resource.

use floodmark_record::cause::Cause;
use floodmark_record::path::{Actor, PathStep, StepKind};
use floodmark_record::units::show_ns;

use super::{CauseSpec, Detect, Place, Tuning};
use crate::why::candidate::{Candidate, EvidenceRank, Finding, ruled_out};
use crate::why::facts::RunFacts;
use crate::why::gain::{GainModel, more_connections};
use crate::why::graph::{Demand, Service, evidence_of_times, resource_of_all};
use crate::why::proof::CauseClass;

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::Demand),
    gain: GainModel::MoreConnections,
    tuning: Tuning::Stop,
    ..CauseSpec::new(
        Cause::Concurrency,
        Place::Client,
        Detect::Waits(detect),
    )
};

fn detect(facts: &RunFacts<'_>, service: &Service) -> Option<Finding> {
    match service.demand {
        Demand::Unknown => None,
        Demand::TooLow { concurrency } => too_few_requests(facts, concurrency).found(),
        Demand::Met => ruled_out(service.figure.clone()),
    }
}

/// Returns the candidate for a closed-model load with too few connections.
fn too_few_requests(facts: &RunFacts<'_>, concurrency: f64) -> Candidate {
    let connections = f64::from(facts.run.plan.connections);
    let shortest_us = facts.run.least_service_time_us.unwrap_or(0.0);
    let shortest = show_ns(shortest_us * 1e3);
    let more = more_connections(facts.run.plan.connections);
    let step = resource_of_all(facts, concurrency)
        .filter(|step| step.kind != StepKind::Cpu)
        .unwrap_or_else(|| PathStep::new(StepKind::Concurrency, Actor::Client, "connections (-c)"));
    Candidate::new(
        EvidenceRank::Demand,
        format!(
            "{connections:.0} concurrent requests are too few: each takes {shortest}, and no request \
             waits for another"
        ),
        evidence_of_times(facts),
        format!("use more connections in the load: -c {more}"),
    )
    .with_limit(Some(connections / (shortest_us / 1e6)))
    .via(vec![step])
}
