//! The client ran out of local ports, usually because of connections in TIME_WAIT.

use floodmark_record::metric::SocketFigure;
use floodmark_record::plan::{Http, Sources};

use super::*;

/// Name of the error in records.
const ERROR: &str = "ports_exhausted";

pub(super) static SPEC: CauseSpec = CauseSpec {
    shows_at_once: true,
    client_error: Some(ERROR),
    tuning: Tuning::Stop,
    ..CauseSpec::new(Cause::EphemeralPorts, Place::Client, detect)
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let run = facts.run;
    let failed = facts.client_errors(ERROR);
    let failures = show_count(failed);
    if !facts.affects(failed) {
        return ruled_out(format!("connections without a local port: {failures}"));
    }
    let ports = run.connections.ports_per_source;
    let sources = run.plan.sources.as_ref().map_or(1, Sources::count);
    let time_wait = facts.samples.sockets(Role::Client, SocketFigure::TimeWait);
    let mut evidence = vec![format!(
        "errors.ports_exhausted: {failures} (connect() returned EADDRNOTAVAIL)"
    )];
    if let Some(sockets) = time_wait {
        evidence.push(format!(
            "client sockets in TIME_WAIT: {sockets:.0} on average (sock_diag)"
        ));
    }
    // Open connections also occupy ports. Blame TIME_WAIT only if at least half of the ports are in
    // this state.
    let all_ports = ports.map(|n| n as f64 * sources as f64);
    let in_time_wait = all_ports
        .zip(time_wait)
        .is_some_and(|(ports, sockets)| sockets >= ports / 2.0);
    // TIME_WAIT lasts 60 s (TCP_TIMEWAIT_LEN), so each port can be used at the start and then once
    // a minute.
    let seconds = run.sending_s;
    let uses = 1.0 + (seconds / 60.0).floor();
    let limit = all_ports
        .filter(|_| in_time_wait && seconds > 0.0)
        .map(|ports| ports * uses / seconds);
    if limit.is_some_and(|limit| limit >= facts.ok_per_s) {
        evidence.push(format!(
            "TIME_WAIT lasts 60 s, so each port can be used {} in {seconds:.0} s",
            plural(uses as u64, "time")
        ));
    }
    let number = ports
        .map(|n| format!(" ({})", show_count(n)))
        .unwrap_or_default();
    let holder = if in_time_wait {
        "each closed connection holds a port for 60 s (TIME_WAIT)"
    } else {
        "each connection holds a port"
    };
    Candidate::new(
        EvidenceRank::Counted,
        format!("the client ran out of local ports{number}: {holder}"),
        evidence,
        match (run.plan.connection_use, run.plan.http) {
            (ConnectionUse::Fresh, Http::V1) => {
                "reuse connections (omit --fresh), use --close-first server, or add source addresses"
            }
            (ConnectionUse::Fresh, Http::V2(_)) => {
                "reuse connections (omit --fresh), use --close-first reset, or add source addresses"
            }
            _ => "add source addresses (--sources), or use fewer connections",
        },
    )
    .at([(StepKind::Ports, Actor::Client)])
    .with_limit(limit)
    .found()
}
