//! Requests wait for the server to write its log.

use super::*;

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::Waiting),
    ..CauseSpec::new(Cause::SyncLogging, Place::Server, |facts| {
        writing(facts, Cause::SyncLogging)
    })
};

/// Detects requests that are waiting for the server's writes to a file or pipe, if this wait
/// indicates `cause`.
pub(super) fn writing(facts: &RunFacts<'_>, cause: Cause) -> Option<Finding> {
    let limit = facts.service().limit_of(cause)?;
    let summary = format!("requests wait for the server's writes: {}", limit.resource);
    let next =
        "write less to the log or journal, write from a separate thread, or flush less often";
    let mut candidate = limit.candidate(facts, summary, next);
    if let Some(in_file_sync) = facts.in_file_sync.filter(|cpus| *cpus >= RARE) {
        candidate.evidence.push(format!(
            "server: {in_file_sync:.2} of its {:.2} CPUs in fsync or a similar system call \
             (perf_event_open)",
            used(&facts.server)
        ));
    }
    Candidate {
        rank: EvidenceRank::Located,
        ..candidate
    }
    .found()
}
