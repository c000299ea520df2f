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
    let next = "log less, log from a separate thread, or flush less often";
    Candidate {
        rank: EvidenceRank::Located,
        ..limit.candidate(facts, summary, next)
    }
    .found()
}
