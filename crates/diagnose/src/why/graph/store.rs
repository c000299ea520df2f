//! Limits of the store behind the server.

use floodmark_record::Metric;
use floodmark_record::metric::{CassandraFigure, PoolFigure, Role};
use floodmark_record::path::{Actor, StepKind};

use super::upstreams::full_store_pool;
use crate::text::{per_s, show_available, show_idle};
use crate::why::candidate::{Candidate, EvidenceRank, Finding, not_available, ruled_out};
use crate::why::facts::{DatabaseSessions, RunFacts, used};
use crate::why::thresholds::{MOST, NOTICEABLE, SATURATED};

/// Detects a store that is limited by its CPU.
pub(in crate::why) fn cpu(facts: &RunFacts<'_>) -> Option<Finding> {
    let store = facts.store.as_ref()?;
    let server = used(&facts.server);
    let available = facts.available_to_server_side(store);
    let share = (store.used / available).min(1.0);
    let figure = show_available("store", store.used, available);
    // If the server uses more CPU time than the store, the server's CPU is the cause.
    if share < SATURATED || server > store.used {
        return ruled_out(figure);
    }
    Candidate::new(
        EvidenceRank::Saturated,
        "the store is CPU-bound",
        vec![figure],
        "reduce the cost of the store's queries (check for missing indexes), or give the store more CPUs",
    )
    .at([(StepKind::Cpu, Actor::Store)])
    .behind(full_store_pool(facts))
    .with_utilization(share, facts.responses_per_s)
    .found()
}

/// Detects sessions that wait for row or table locks.
pub(in crate::why) fn locks(facts: &RunFacts<'_>) -> Option<Finding> {
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
    if sessions.waiting_for_locks < limiting_sessions(sessions) {
        return ruled_out(figure);
    }
    // A committing session holds its locks until the commit ends, so the commit is the cause.
    if lock_holder_commits(sessions) {
        return ruled_out(format!(
            "{figure}; the lock holder was committing ({:.1} sessions committing, {:.1} idle in a transaction)",
            sessions.committing, sessions.idle_in_transaction
        ));
    }
    Candidate::new(
        EvidenceRank::Located,
        format!(
            "{:.0} of {:.0} database sessions wait for a lock because they change the same rows",
            sessions.waiting_for_locks, sessions.active
        ),
        vec![figure],
        "spread the writes over more rows, or end transactions right after the change",
    )
    .at([(StepKind::RowLock, Actor::Store)])
    .behind(full_store_pool(facts))
    .found()
}

/// Detects sessions whose commit waits for the disk.
pub(in crate::why) fn commits(facts: &RunFacts<'_>) -> Option<Finding> {
    let sessions = facts.sessions.as_ref()?;
    let figure = format!(
        "{:.1} of {:.1} active sessions waited for the write-ahead log (pg_stat_activity)",
        sessions.committing, sessions.active
    );
    let minimum = limiting_sessions(sessions);
    let commit_holds_lock = sessions.waiting_for_locks >= minimum && lock_holder_commits(sessions);
    if sessions.committing < minimum && !commit_holds_lock {
        return ruled_out(figure);
    }
    Candidate::new(
        EvidenceRank::Located,
        format!(
            "{:.0} of {:.0} database sessions wait for their commit to reach the disk",
            sessions.committing, sessions.active
        ),
        vec![figure],
        "commit several changes together, or use a faster disk",
    )
    .at([(StepKind::Commit, Actor::Store)])
    .behind(full_store_pool(facts))
    .found()
}

/// Minimum number of samples. If two requests are in the store for a quarter of the time, ten
/// samples miss this in one of eighteen runs.
const SAMPLES: usize = 10;

/// Detects requests that reach the store one at a time while CPUs are idle and many requests wait.
///
/// At this load a saturated CPU would be busy nearly all the time. CPUs that are idle for a tenth
/// of the time are therefore not the limit.
pub(in crate::why) fn single_request(facts: &RunFacts<'_>) -> Option<Finding> {
    let samples = &facts.samples;
    let requests = "Native-Transport-Requests".to_owned();
    let active = samples.peaks(&Metric::CassandraPool(requests, PoolFigure::Active))?;
    let statements = Metric::Cassandra(CassandraFigure::PreparedStatements);
    let statements_per_s = samples.mean(statements)?;
    let most = active.values.iter().copied().fold(0.0, f64::max);
    let n = active.values.len();
    let in_flight = facts.in_flight?;
    let (idle, cpus) = facts.idle_cpus()?;
    let per_response = statements_per_s / facts.responses_per_s.max(f64::MIN_POSITIVE);
    let saturated = idle < (1.0 - SATURATED) * cpus || facts.saturated_thread().is_some();
    let one = most <= 1.0 && n >= SAMPLES && per_response >= MOST;
    if saturated || !one || NOTICEABLE * in_flight < 1.0 {
        return None;
    }
    Candidate::new(
        EvidenceRank::Waiting,
        format!(
            "the store serves at most one of {in_flight:.0} requests in flight at a time: a single writer waits for the store"
        ),
        vec![
            format!("maximum concurrent requests in Cassandra: {most:.0}, in {n} samples (thread_pools)"),
            format!(
                "{} statements (prepared_statements_executed), {per_response:.2} per response",
                per_s(statements_per_s)
            ),
            show_idle((idle, cpus)),
        ],
        "split the writer (one actor per key), or write queued requests in one batch",
    )
    .at([(StepKind::Lock, Actor::Server), (StepKind::Connections, Actor::Store)])
    .found()
}

/// Returns the minimum number of waiting sessions that limits throughput: half of the sessions in
/// use, and at least half a session on average. Sessions that are idle in a transaction count as in
/// use.
fn limiting_sessions(sessions: &DatabaseSessions) -> f64 {
    (MOST * (sessions.active + sessions.idle_in_transaction)).max(MOST)
}

/// Returns whether most lock holders are committing. On average, at least half a session must be
/// committing. More sessions must be committing than idle in a transaction.
fn lock_holder_commits(sessions: &DatabaseSessions) -> bool {
    sessions.committing >= MOST && sessions.committing > sessions.idle_in_transaction
}
