//! Too few requests are in flight to saturate any resource.

use floodmark_record::path::PathStep;
use floodmark_record::plan::{Http, Http2};

use super::*;
use crate::why::gain::more_connections;
use crate::why::graph::{Demand, resource_of_all, show_times};

pub(super) static SPEC: CauseSpec = CauseSpec {
    // The load asks for more requests in flight than the server allows.
    explained_by: &[Cause::StreamLimit],
    explanation: |facts, _| {
        let is_limited = stream_limit::SPEC.is_detected(facts);
        is_limited.then(|| Effect::RuledOut(facts.service().figure.clone()))
    },
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
    let in_flight = facts.run.max_in_flight() as f64;
    let shortest_us = facts.run.least_service_time_us.unwrap_or(0.0);
    let shortest = show_ns(shortest_us * 1e3);
    let step = resource_of_all(facts, concurrency)
        .filter(|step| step.kind != StepKind::Cpu)
        .unwrap_or_else(|| {
            let basis = match facts.run.plan.http {
                Http::V1 => "connections (-c)",
                Http::V2(_) => "connections (-c) × streams (--streams)",
            };
            PathStep::new(StepKind::Concurrency, Actor::Client, basis)
        });
    Candidate::new(
        EvidenceRank::Demand,
        format!(
            "{in_flight:.0} concurrent requests are too few: each takes {shortest}, and no request \
             waits for another"
        ),
        [show_times(facts), facts.idle_cpus().map(show_idle)],
        more_requests(facts.run),
    )
    .with_limit(Some(in_flight / (shortest_us / 1e6)))
    .via(vec![step])
    .found()
}

/// Returns the flags for more requests in flight. Stays within the server's stream limit, and adds
/// no streams if this limit is unknown.
fn more_requests(run: &Run) -> String {
    let connections = run.plan.connections;
    let more = more_connections(connections);
    let advice = format!("use more connections in the load: -c {more}");
    let streams = run.streams();
    let settings = run.http2.as_ref().and_then(|http2| http2.settings);
    let most = settings.map_or(streams, |settings| {
        let allowed = settings.max_streams.unwrap_or(u32::MAX);
        allowed.min(Http2::MAX_STREAMS)
    });
    let more = (streams.saturating_mul(more) / connections.max(1)).min(most);
    if more > streams {
        format!("{advice}; or more streams: --streams {more}")
    } else {
        advice
    }
}
