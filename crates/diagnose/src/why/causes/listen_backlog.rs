//! The server's accept queue overflows.

use floodmark_record::metric::{ListenerFigure, NetworkFigure};

use super::*;
use crate::why::thresholds::LONG_WAIT_S;

/// Time, in seconds, after which a client resends an unanswered SYN (`TCP_TIMEOUT_INIT`, RFC 6298).
const SYN_RETRY_S: f64 = 1.0;

pub(super) static SPEC: CauseSpec = CauseSpec {
    explained_by: &[Cause::MaxConnections, Cause::ConnectionStorm],
    // A limit on connections explains the overflow if the server has stopped accepting connections.
    // A storm overflows the queue of any server.
    explanation: |facts, candidate| {
        if connection_storm::SPEC.is_detected(facts) {
            return Some(Effect::Minor);
        }
        let length = queue(facts).map_or(0.0, |(length, _)| length);
        let has_stopped = facts.accept_wait_s(length) >= LONG_WAIT_S && facts.has_spare_cpu();
        has_stopped.then(|| Effect::RuledOut(candidate.evidence[0].clone()))
    },
    ..CauseSpec::new(Cause::ListenBacklog, Place::Accepting, detect)
};

/// Returns the mean length and the limit of the accept queue.
fn queue(facts: &RunFacts<'_>) -> Option<(f64, f64)> {
    let listener = |figure| facts.samples.listener(figure);
    listener(ListenerFigure::AcceptQueue).zip(listener(ListenerFigure::AcceptQueueLimit))
}

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let samples = &facts.samples;
    let overflows = samples
        .network(Role::Server, NetworkFigure::ListenOverflows)
        .filter(|_| samples.is_server_local());
    let opened = samples.network(Role::Client, NetworkFigure::ActiveOpens);
    let Some((overflows, opened)) = overflows.zip(opened) else {
        return not_available(
            "kernel counters of the server's host (ListenOverflows), which show a full accept queue",
        );
    };
    let queue = queue(facts);
    let queue_text = queue.map(|(length, limit)| {
        format!("accept queue: {length:.0} of {limit:.0} on average (sock_diag)")
    });
    // The counter covers all listeners on the host, so also check this queue: with room for all of
    // the client's connections, it cannot overflow.
    let has_room = queue.is_some_and(|(length, limit)| {
        limit >= 2.0 * f64::from(facts.run.plan.connections) && length < MOST * limit
    });
    if let Some(text) = queue_text.as_ref().filter(|_| has_room) {
        return ruled_out(text);
    }
    let figure = format!(
        "ListenOverflows: {}, ActiveOpens: {} (/proc/net/netstat, /proc/net/snmp)",
        per_s(overflows),
        per_s(opened)
    );
    if overflows == 0.0 || overflows / opened.max(1.0) < RARE {
        return ruled_out(figure);
    }
    // Connections that stay open need to be accepted only once. By Little's law, `waiting` is the
    // mean number of connections that are waiting for a retry.
    let waiting = overflows * SYN_RETRY_S;
    let planned = u64::from(facts.run.plan.connections);
    let stay_open = facts.run.plan.connection_use == ConnectionUse::Kept
        && facts.run.connections.opened <= 2 * planned;
    if stay_open && waiting < MOST * facts.in_flight.unwrap_or_default() {
        return ruled_out(figure);
    }
    let retransmits = samples
        .network(Role::Client, NetworkFigure::SynRetransmits)
        .map(|rate| {
            let rate = per_s(rate);
            format!("TCPSynRetrans: {rate} (SYNs retransmitted after 1 s or more)")
        });
    let limit = samples
        .listener(ListenerFigure::AcceptQueueLimit)
        .map(|n| format!(" ({n:.0})"))
        .unwrap_or_default();
    Candidate::new(
        EvidenceRank::Counted,
        format!("the server's accept queue{limit} overflows, and clients retry after 1 s"),
        [Some(figure), queue_text, retransmits],
        "raise the server's backlog and net.core.somaxconn, or reuse connections",
    )
    .at([(StepKind::Backlog, Actor::Server)])
    .found()
}
