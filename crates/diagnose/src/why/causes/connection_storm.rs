//! Open model: the client opened many more connections than the load needs. Requests that
//! waited for a new connection made later requests open connections, too.

use floodmark_record::metric::NetworkFigure;
use floodmark_record::plan::DEFAULT_CONNECTIONS;

use super::*;
use crate::why::thresholds::LONG_WAIT_S;

pub(super) static SPEC: CauseSpec =
    CauseSpec::new(Cause::ConnectionStorm, Place::Accepting, detect);

/// Number of connections that any server can handle: the smallest default maximum of the open
/// model.
const FEW_CONNECTIONS: f64 = DEFAULT_CONNECTIONS as f64;

/// Detects a storm at an offered rate that is met. A server that falls behind also gets
/// more and more connections, but its own limit is the cause.
fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    none::met(facts)?;
    let run = facts.run;
    if run.plan.connection_use != ConnectionUse::Kept {
        return None;
    }
    // Connections that replace closed ones are no storm.
    let opened = run.connections.peak.unwrap_or(run.connections.opened);
    // Little's law, for requests that do not wait for a connection.
    let requests = facts.ok_per_s * run.service_time_us.p50? / 1e6;
    let needed = requests / f64::from(run.streams());
    // Slow connects do no harm if most requests use existing connections.
    let slow_us = run.connect_time_us.p99?.min(run.blocked_us.p99?);
    let figure = format!(
        "connections.peak: {}; a typical request ({} of service time) needs {needed:.1} at once",
        show_count(opened),
        show_us(run.service_time_us.p50)
    );
    let is_storm = NOTICEABLE * opened as f64 >= needed && opened as f64 > FEW_CONNECTIONS;
    if !is_storm || slow_us / 1e6 < LONG_WAIT_S {
        return ruled_out(figure);
    }
    let overflows = facts
        .samples
        .network(Role::Server, NetworkFigure::ListenOverflows)
        .filter(|_| facts.samples.is_server_local())
        .map(|rate| format!("ListenOverflows: {} (/proc/net/netstat)", per_s(rate)));
    let fewer = (2.0 * needed).ceil().max(FEW_CONNECTIONS);
    Candidate::new(
        EvidenceRank::Counted,
        format!(
            "the load opened {} but needs about {:.0}: new connections overload the server's accept \
             queue, and requests wait for them (p99 of the wait for a connection: {})",
            plural(opened, "connection"),
            needed.ceil(),
            show_us(run.blocked_us.p99)
        ),
        [Some(figure), overflows],
        format!("use fewer connections and keep them open: -c {fewer:.0} --hold"),
    )
    .at([(StepKind::Connecting, Actor::Client)])
    .found()
}
