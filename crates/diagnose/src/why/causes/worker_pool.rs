//! All worker threads of the server are waiting, or the server limits the number of concurrent
//! requests.

use floodmark_record::verdict::Verdict;

use super::*;

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::Pool),
    gain: GainModel::HeldByThreads,
    tuning: Tuning::Raise(pool),
    ..CauseSpec::new(Cause::WorkerPool, Place::Server, detect)
};

fn pool(verdict: &Verdict) -> FullPool {
    let has_threads = verdict.path.iter().any(|of| of.kind == StepKind::Threads);
    let step = if has_threads {
        StepKind::Threads
    } else {
        StepKind::Permits
    };
    FullPool::at(verdict, KnobKind::Threads, step, !has_threads)
}

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    facts.service().detect(Cause::WorkerPool, |limit| {
        let (count, figure) = (limit.held.round(), &facts.service().figure);
        let group = limit.group.as_ref();
        let name = group
            .map(|group| format!(" (\"{group}\")"))
            .unwrap_or_default();
        let summary = match limit.holder {
            StepKind::Threads if count <= 1.0 => {
                format!("the only worker thread{name} waits while {figure}")
            }
            StepKind::Threads => format!("all {count:.0} worker threads{name} wait while {figure}"),
            _ => self_limit(count, figure),
        };
        limit.candidate(facts, summary, limit.raise(facts, "thread"))
    })
}

/// Describes a server that limits the number of requests in service.
pub(super) fn self_limit(count: f64, figure: &str) -> String {
    format!(
        "the server limits itself to {count:.0} requests at once (a pool or a semaphore): {figure}"
    )
}
