//! Too few requests are in flight to saturate any resource.

use floodmark_record::path::PathStep;

use super::*;
use crate::why::gain::more_connections;
use crate::why::graph::{Demand, resource_of_all, show_times};

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::Demand),
    gain: GainModel::MoreConnections,
    tuning: Tuning::Stop,
    ..CauseSpec::new(Cause::Concurrency, Place::Client, detect)
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let service = facts.service();
    let concurrency = match service.demand {
        Demand::Unknown => return None,
        Demand::TooLow { concurrency } => concurrency,
        Demand::Met => return ruled_out(service.figure.clone()),
    };
    let in_flight = facts.run.plan.max_in_flight() as f64;
    let shortest_us = facts.run.least_service_time_us.unwrap_or(0.0);
    let shortest = show_ns(shortest_us * 1e3);
    let more = more_connections(facts.run.plan.connections);
    let step = resource_of_all(facts, concurrency)
        .filter(|step| step.kind != StepKind::Cpu)
        .unwrap_or_else(|| PathStep::new(StepKind::Concurrency, Actor::Client, "connections (-c)"));
    Candidate::new(
        EvidenceRank::Demand,
        format!(
            "{in_flight:.0} concurrent requests are too few: each takes {shortest}, and no request \
             waits for another"
        ),
        [show_times(facts), facts.idle_cpus().map(show_idle)],
        format!("use more connections in the load: -c {more}"),
    )
    .with_limit(Some(in_flight / (shortest_us / 1e6)))
    .via(vec![step])
    .found()
}
