//! All worker threads of the server wait, or the server limits itself to a number of requests.

use floodmark_record::cause::Cause;
use floodmark_record::path::StepKind;
use floodmark_record::tuning::KnobKind;
use floodmark_record::verdict::Verdict;

use super::{CauseSpec, Detect, Place, Tuning};
use crate::tuning::FullPool;
use crate::why::candidate::{Finding, ruled_out};
use crate::why::facts::RunFacts;
use crate::why::gain::GainModel;
use crate::why::graph::{Holder, Service};
use crate::why::proof::CauseClass;

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::Pool),
    gain: GainModel::HeldByThreads,
    tuning: Tuning::Raise(pool),
    ..CauseSpec::new(
        Cause::WorkerPool,
        Place::Server,
        Detect::Waits(detect),
    )
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

fn detect(facts: &RunFacts<'_>, service: &Service) -> Option<Finding> {
    let limit = match service.limit_of(Cause::WorkerPool) {
        Ok(limit) => limit,
        Err(figure) => return figure.and_then(ruled_out),
    };
    let (count, figure) = (limit.held.round(), &service.figure);
    let group = limit.group.as_ref();
    let name = group
        .map(|group| format!(" (\"{group}\")"))
        .unwrap_or_default();
    let summary = match limit.holder {
        Holder::Threads if count <= 1.0 => {
            format!("the only worker thread{name} waits while {figure}")
        }
        Holder::Threads => format!("all {count:.0} worker threads{name} wait while {figure}"),
        _ => format!(
            "the server limits itself to {count:.0} requests at once (a pool or a semaphore): {figure}"
        ),
    };
    let next = limit.raise(facts, "thread");
    limit.candidate(facts, summary, next).found()
}
