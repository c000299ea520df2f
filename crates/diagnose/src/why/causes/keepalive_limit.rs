//! The server closes each connection after a certain number of requests, and new connections are
//! expensive.

use super::*;
use crate::why::thresholds::REOPENED;

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::ServerCpu),
    ..CauseSpec::new(Cause::KeepaliveLimit, Place::Accepting, detect)
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let run = facts.run;
    if run.plan.connection_use != ConnectionUse::Kept {
        return None;
    }
    let (opened, sent) = (run.connections.opened, run.requests.sent);
    let reopened = opened.saturating_sub(u64::from(run.plan.connections));
    let per_request = reopened as f64 / sent.max(1) as f64;
    let mostly_broken = reopened <= 2 * facts.broken_connections();
    // Opening connections takes CPU time, so idle CPUs suggest another cause, unless the server can
    // use only one CPU and leaves the others idle.
    let is_idle = facts.spends_time_elsewhere()
        || (facts.has_spare_cpu() && (facts.server.is_none() || used(&facts.server) < SATURATED));
    let (opened_text, sent_text) = (show_count(opened), show_count(sent));
    let share = per_request / (per_request + REOPENED);
    // The client opens the same connections, so opening them is cheap if the client uses much less
    // CPU time per request than the server.
    let server_us = run.server.as_ref().and_then(|s| s.cpu_us_per_request);
    let costs = run.client.cpu_us_per_request.zip(server_us);
    let are_cheap = costs.is_some_and(|(client, server)| client < NOTICEABLE * server);
    if share < NOTICEABLE || mostly_broken || is_idle || are_cheap {
        return ruled_out(format!(
            "{opened_text} connections for {sent_text} requests"
        ));
    }
    let rank = if share >= MOST {
        EvidenceRank::Mechanism
    } else {
        EvidenceRank::Cost
    };
    Candidate::new(
        rank,
        format!(
            "the server closes each connection after about {:.0} requests; opening connections takes \
             at most about {} of the CPU time",
            sent as f64 / opened as f64,
            percent(share)
        ),
        [
            format!("connections.opened: {opened_text}, requests.sent: {sent_text}"),
            format!(
                "mean connect time: {} (connect_time_us)",
                show_us(run.connect_time_us.mean)
            ),
        ],
        "raise the server's limit on requests per connection (nginx: keepalive_requests)",
    )
    .at([(StepKind::KeepAlive, Actor::Server)])
    .with_share(if rank == EvidenceRank::Cost { share } else { 1.0 })
    .found()
}
