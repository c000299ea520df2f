//! The server reached its limit on open files, so connections wait to be accepted.

use super::*;

pub(super) static SPEC: CauseSpec = CauseSpec::new(Cause::ServerFds, Place::Accepting, detect);

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let queue = facts.accept_queue()?;
    if !queue.is_out_of_files {
        return ruled_out(queue.files.unwrap_or(queue.figure));
    }
    if !queue.is_long {
        return None;
    }
    Candidate::new(
        EvidenceRank::Located,
        format!(
            "the server is at its limit on open files: {:.0} connections wait",
            queue.waiting
        ),
        [Some(queue.figure), queue.files],
        "raise the server's limit on open files (ulimit -n, LimitNOFILE)",
    )
    .at([(StepKind::Files, Actor::Server)])
    .found()
}
