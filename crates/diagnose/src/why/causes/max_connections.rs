//! The server reached its limit on concurrent connections, so further connections wait to be
//! accepted.

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
