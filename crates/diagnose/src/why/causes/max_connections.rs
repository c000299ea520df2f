//! The server reached its limit on concurrent connections, so further connections wait to be
//! accepted or served.

use floodmark_record::path::PathStep;

use super::*;

pub(super) static SPEC: CauseSpec = CauseSpec {
    // Threads that accept connections themselves also limit the number of connections. If another
    // limit also holds up accepted connections, that limit matters more.
    explained_by: &[
        Cause::WorkerPool,
        Cause::Serialised,
        Cause::ConnectionPool,
        Cause::SyncLogging,
        Cause::Disk,
    ],
    explanation: |facts, _| {
        let queue = facts.service().accept_queue?;
        queue.is_minor.then_some(Effect::Minor)
    },
    class: Some(CauseClass::Waiting),
    gain: GainModel::InService,
    ..CauseSpec::new(Cause::MaxConnections, Place::Accepting, detect)
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    match full_accept_queue(facts) {
        Some(Finding::Limit(candidate)) => candidate.found(),
        other => starved(facts).and_then(Candidate::found).or(other),
    }
}

/// Detects kept connections that the server accepts but never serves, although it serves other
/// connections without delay.
fn starved(facts: &RunFacts<'_>) -> Option<Candidate> {
    let run = facts.run;
    let (silent, opened) = (run.connections.silent, run.connections.opened);
    let is_kept = run.plan.connection_use == ConnectionUse::Kept && !run.plan.is_open();
    let slow_us = run.service_time_us.p99?;
    // If the server serves all connections slowly, some also have no response at the end.
    let is_fast = slow_us / 1e6 < NOTICEABLE * run.sending_s.min(run.plan.timeout.as_secs_f64());
    let served = opened.saturating_sub(silent);
    if !is_kept || !is_fast || served == 0 || (silent as f64) < NOTICEABLE * opened as f64 {
        return None;
    }
    let (silent, served) = (show_count(silent), served as f64);
    let opened = plural(opened, "connection");
    let evidence = [
        format!("connections without a response: {silent} of {opened} (connections.silent)"),
        format!(
            "p99 of the service time on the other connections: {}",
            show_us(Some(slow_us))
        ),
    ];
    let candidate = Candidate::new(
        EvidenceRank::Counted,
        format!(
            "{silent} of {opened} never received a response, while the server served the others"
        ),
        evidence,
        "raise the number of connections that the server serves at the same time (threads, workers, \
         max-connections)",
    );
    let permits = PathStep::new(
        StepKind::Permits,
        Actor::Server,
        "connections with a response",
    );
    Some(candidate.via(vec![permits.with_waiting(served)]))
}

/// Detects connections that wait to be accepted while CPUs are idle.
fn full_accept_queue(facts: &RunFacts<'_>) -> Option<Finding> {
    let queue = facts.accept_queue()?;
    if !queue.is_long {
        return ruled_out(queue.figure);
    }
    if queue.is_out_of_files {
        return None;
    }
    // A CPU-bound server also accepts connections late, even without a limit on connections.
    if !facts.has_spare_cpu() {
        return facts.show_spare_cpu().and_then(ruled_out);
    }
    let connections = f64::from(facts.run.plan.connections);
    Candidate::new(
        EvidenceRank::Located,
        format!(
            "{:.0} connections wait while about {:.0} are served and CPUs are idle",
            queue.waiting,
            (connections - queue.waiting).max(0.0)
        ),
        [Some(queue.figure), queue.files],
        "raise the server's limit on connections (max-connections, worker_connections)",
    )
    .at([(StepKind::AcceptQueue, Actor::Server)])
    .found()
}
