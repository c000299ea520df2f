//! The server processes requests one at a time, because of a lock, an actor or a single writer.

use floodmark_record::metric::{CassandraFigure, PoolFigure};

use super::*;

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::Waiting),
    gain: GainModel::HeldAlone,
    // A pool of one looks like a lock.
    tuning: Tuning::Raise(|_| FullPool {
        kind: KnobKind::Threads,
        held: Some(1.0),
        is_guess: true,
    }),
    ..CauseSpec::new(Cause::Serialised, Place::Server, detect)
};

/// Minimum number of samples. If two requests are in the store at once for a quarter of the time,
/// ten samples miss this in one of eighteen runs.
const SAMPLES: usize = 10;

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let store = one_request_in_store(facts).and_then(Candidate::found);
    store.or_else(|| {
        facts.service().detect(Cause::Serialised, |limit| {
            limit.candidate(
                facts,
                "the server processes one request at a time, for example because of a lock or a single writer",
                "find out what all requests share (a lock, an actor, a queue), and split or shorten it",
            )
        })
    })
}

/// Detects requests that reach the store one at a time while CPUs are idle and many requests are
/// waiting.
///
/// At this load, a saturated CPU would be busy nearly all the time. CPUs that are idle for a tenth
/// of the time are therefore not the limit.
fn one_request_in_store(facts: &RunFacts<'_>) -> Option<Candidate> {
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
    (!saturated && one && NOTICEABLE * in_flight >= 1.0).then(|| {
        Candidate::new(
            EvidenceRank::Waiting,
            format!(
                "the store serves at most one of {in_flight:.0} requests in flight at a time: a single writer waits for the store"
            ),
            [
                format!("maximum concurrent requests in Cassandra: {most:.0}, in {n} samples (thread_pools)"),
                format!(
                    "{} statements (prepared_statements_executed), {per_response:.2} per response",
                    per_s(statements_per_s)
                ),
                show_idle((idle, cpus)),
            ],
            "split the writer (one actor per key), or write queued requests in one batch",
        )
        .at([
            (StepKind::Lock, Actor::Server),
            (StepKind::Connections, Actor::Store),
        ])
    })
}
