//! Requests wait for the store's commits to reach the disk.

use super::*;

pub(super) static SPEC: CauseSpec = CauseSpec {
    tuning: Tuning::Stop,
    ..CauseSpec::new(Cause::StoreCommit, Place::Store, detect)
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let sessions = facts.sessions.as_ref()?;
    let figure = format!(
        "{:.1} of {:.1} active sessions waited for the write-ahead log (pg_stat_activity)",
        sessions.committing, sessions.active
    );
    let commit_holds_lock = sessions.many_wait_for_locks() && sessions.lock_holder_commits();
    if !sessions.many_commit() && !commit_holds_lock {
        return ruled_out(figure);
    }
    Candidate::new(
        EvidenceRank::Located,
        format!(
            "{:.0} of {:.0} database sessions wait for their commit to reach the disk",
            sessions.committing, sessions.active
        ),
        [figure],
        "commit several changes together, or use a faster disk",
    )
    .at([(StepKind::Commit, Actor::Store)])
    .behind(full_store_pool(facts))
    .found()
}
