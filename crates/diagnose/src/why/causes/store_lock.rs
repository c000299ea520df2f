//! Requests wait for row or table locks in the store.

use super::*;

pub(super) static SPEC: CauseSpec = CauseSpec {
    // A committing session holds its locks until the commit ends.
    explained_by: &[Cause::StoreCommit],
    explanation: |facts, candidate| {
        let sessions = facts.sessions.as_ref()?;
        sessions.lock_holder_commits().then(|| {
            Effect::RuledOut(format!(
                "{}; the lock holder was committing ({:.1} sessions committing, {:.1} idle in a \
                 transaction)",
                candidate.evidence[0], sessions.committing, sessions.idle_in_transaction
            ))
        })
    },
    class: Some(CauseClass::Waiting),
    gain: GainModel::HeldAlone,
    tuning: Tuning::Stop,
    ..CauseSpec::new(Cause::StoreLock, Place::Store, detect)
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let Some(sessions) = &facts.sessions else {
        let mut observations = facts.run.observations.iter();
        let is_store = observations.any(|of| matches!(of.metric, Metric::Process(Role::Store, _)));
        let missing = not_available("wait events of the store's sessions (pg_stat_activity)");
        return missing.filter(|_| is_store);
    };
    let figure = format!(
        "{:.1} of {:.1} active sessions waited for a lock (pg_stat_activity, wait_event_type Lock)",
        sessions.waiting_for_locks, sessions.active
    );
    if !sessions.many_wait_for_locks() {
        return ruled_out(figure);
    }
    Candidate::new(
        EvidenceRank::Located,
        format!(
            "{:.0} of {:.0} database sessions wait for a lock because they change the same rows",
            sessions.waiting_for_locks, sessions.active
        ),
        [figure],
        "spread the writes over more rows, or end transactions right after the change",
    )
    .at([(StepKind::RowLock, Actor::Store)])
    .behind(full_store_pool(facts))
    .found()
}
