//! The server allows fewer streams on each HTTP/2 connection than the load needs. It works on all
//! requests that it allows, and has idle capacity.

use floodmark_record::path::PathStep;

use super::*;
use crate::why::graph::{Demand, show_times};
use crate::why::thresholds::same;

pub(super) static SPEC: CauseSpec = CauseSpec {
    needs_http2: true,
    class: Some(CauseClass::Demand),
    gain: GainModel::AllStreams,
    tuning: Tuning::Stop,
    ..CauseSpec::new(Cause::StreamLimit, Place::Server, detect)
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let run = facts.run;
    let settings = run.http2.as_ref()?.settings?;
    let planned = run.plan.http.streams();
    let Some(limit) = run.max_streams().filter(|limit| *limit < planned) else {
        let allowed = settings
            .max_streams
            .map_or_else(|| "any number of".to_owned(), |limit| limit.to_string());
        return ruled_out(format!(
            "the server allows {allowed} streams on each connection (http2.settings); the load uses \
             at most {planned}"
        ));
    };
    let in_flight = facts.in_flight?;
    let most = run.max_in_flight() as f64;
    let connections = plural(run.plan.connections.into(), "connection");
    let setting = format!(
        "SETTINGS_MAX_CONCURRENT_STREAMS: {limit} (http2.settings); the load uses up to {planned} \
         streams on {connections}"
    );
    let waiting = facts.mean_waiting(&run.blocked_by.server_limit_us);
    let waits = format!(
        "requests waiting for a stream: {waiting:.1} on average (blocked_by.server_limit_us), {} in \
         total",
        show_count(run.blocked_by.server_limit_us.count)
    );
    let is_open = run.plan.is_open();
    let is_met = none::met(facts).is_some();
    if is_met && waiting < NOTICEABLE * in_flight {
        return ruled_out(waits);
    }
    if !is_met && !same(in_flight, most) {
        return ruled_out(format!(
            "{in_flight:.1} of {most:.0} allowed requests were in flight"
        ));
    }
    // Raising the limit has no effect if requests already wait in the server.
    let serves_all = match facts.service().demand {
        Demand::TooLow { .. } => true,
        Demand::Unknown => return None,
        Demand::Met => is_open && same(facts.concurrency?, in_flight),
    };
    if !serves_all {
        return ruled_out(&facts.service().figure);
    }
    let shortest_us = run.least_service_time_us?;
    let more = run.plan.max_in_flight().div_ceil(limit.into());
    let permits = PathStep::new(
        StepKind::StreamLimit,
        Actor::Server,
        "SETTINGS of the server",
    );
    Candidate::new(
        EvidenceRank::Demand.unless_minor(is_met),
        format!(
            "the server allows {limit} of {planned} streams on each connection, so at most {most:.0} \
             requests are in flight; it works on all of them at once"
        ),
        [
            Some(setting),
            is_open.then_some(waits),
            show_times(facts),
            facts.idle_cpus().map(show_idle),
        ],
        format!(
            "raise the server's limit on streams (nginx: http2_max_concurrent_streams, Node.js: \
             maxConcurrentStreams), or use more connections: -c {more} --streams {limit}"
        ),
    )
    .with_limit(Some(most / (shortest_us / 1e6)))
    .via(vec![permits.with_waiting(in_flight)])
    .found()
}
