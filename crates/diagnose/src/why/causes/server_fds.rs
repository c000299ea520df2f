//! The server reached its limit on open files, so connections wait to be accepted.

use floodmark_record::cause::Cause;
use floodmark_record::path::{Actor, StepKind};

use super::{CauseSpec, Detect, Place};
use crate::why::candidate::{Candidate, EvidenceRank, Finding, ruled_out};
use crate::why::facts::RunFacts;

pub(super) static SPEC: CauseSpec = CauseSpec::new(
    Cause::ServerFds,
    Place::Accepting,
    Detect::Figures(detect),
);

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
        [queue.figure].into_iter().chain(queue.files),
        "raise the server's limit on open files (ulimit -n, LimitNOFILE)",
    )
    .at([(StepKind::Files, Actor::Server)])
    .found()
}
