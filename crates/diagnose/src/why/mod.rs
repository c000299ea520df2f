//! Verdicts: what limited a run, judged from the run and its host (docs/decisions/0021-why.md).

mod candidate;
pub(crate) mod causes;
mod facts;
mod gain;
mod graph;
mod ledger;
pub mod proof;
pub(crate) mod thresholds;

use floodmark_record::cause::Cause;
use floodmark_record::events::EndReason;
use floodmark_record::host::Environment;
use floodmark_record::path::{Actor, PathStep, StepKind};
use floodmark_record::run::Run;
use floodmark_record::verdict::{Confidence, CostShare, Verdict};

pub use causes::{guide, is_limit};
pub use facts::consumed;

use candidate::{Candidate, EvidenceRank, Findings};
use facts::RunFacts;
use thresholds::NOTICEABLE;

use crate::validity::MIN_LENGTH_S;

/// Maximum number of lines of evidence.
const MAX_EVIDENCE: usize = 5;

/// Returns the verdict on a run, or `None` if the run has no throughput or no connection could be
/// opened. A run recorded without thread states keeps its stored verdict.
#[must_use]
pub fn verdict(run: &Run, environment: &Environment) -> Option<Verdict> {
    let facts = RunFacts::of(run, environment)?;
    if run.requests.sent == 0 && run.ended.reason == EndReason::ServerGone {
        return None;
    }
    if let Some(stored) = &run.verdict
        && facts.lacks_thread_states()
    {
        let unseen = "recorded without thread states; measure again".to_owned();
        let verdict = Verdict {
            unseen: [unseen].into_iter().chain(stored.unseen.clone()).collect(),
            ..stored.clone()
        };
        return Some(gain::not_below_measured(verdict, facts.ok_per_s));
    }
    let interrupted = causes::interruption(&facts);
    // Means over an interrupted or very short run show neither a limit nor where requests wait.
    let (ledger, ceilings) = match interrupted {
        None if run.sending_s >= MIN_LENGTH_S => (ledger::of(&facts), ledger::ceilings(&facts)),
        _ => (None, Vec::new()),
    };
    let Findings {
        mut candidates,
        mut ruled_out,
        mut unseen,
    } = match interrupted {
        Some(interrupted) => Findings {
            candidates: vec![interrupted],
            ..Findings::default()
        },
        None => causes::find(&facts),
    };
    if run.sending_s < MIN_LENGTH_S {
        // Only outcomes of requests are meaningful.
        candidates.retain(|(cause, _)| causes::spec(*cause).shows_at_once);
    }
    unseen.extend(facts.unseen_sources());
    candidates.sort_by(|(_, a), (_, b)| {
        let nearer_to_limit = b.utilization.total_cmp(&a.utilization);
        a.rank.cmp(&b.rank).then(nearer_to_limit)
    });
    let limit = candidates.first().map(|(_, first)| first.rank);
    if limit.is_none_or(|rank| rank == EvidenceRank::Cost) {
        candidates.insert(0, (Cause::Unknown, causes::unknown(&facts)));
    }
    let (cause, mut first) = candidates.remove(0);
    first.path = behind_service_limit(first.path, &candidates);
    let contributing = contributing((cause, &first), candidates);
    let also: Vec<Cause> = contributing.iter().map(|(cause, _)| *cause).collect();
    let is_server_cpu =
        |step: &PathStep| step.kind == StepKind::Cpu && step.who == Actor::Server.into();
    if also.contains(&Cause::ServerCpuOneThread) && first.path.first().is_some_and(is_server_cpu) {
        let basis = "busiest thread of the server (schedstat)";
        let thread = PathStep::new(StepKind::Threads, Actor::Server, basis);
        first.path.insert(0, thread);
    }
    let costs = contributing.into_iter();
    let costs = costs.filter(|(_, other)| other.rank == EvidenceRank::Cost);
    ruled_out.retain(|ruled_out| ruled_out.cause != cause && !also.contains(&ruled_out.cause));
    let verdict = Verdict {
        ruled_out,
        cause,
        also,
        costs: costs
            .map(|(cause, other)| CostShare {
                cause,
                share: other.utilization,
                summary: other.summary,
            })
            .collect(),
        confidence: match cause {
            Cause::Unknown => Confidence::Unknown,
            Cause::Errors if run.requests.ok == 0 => Confidence::Proven,
            _ => Confidence::Likely,
        },
        summary: first.summary,
        limit_per_s: first.limit_per_s,
        gain: gain::of(&facts, causes::spec(cause).gain, &first.path),
        path: path(&facts, first.path),
        evidence: first.evidence.into_iter().take(MAX_EVIDENCE).collect(),
        next: first.next,
        tested: Vec::new(),
        unseen,
        ledger,
        ceilings,
    };
    let verdict = gain::not_below_measured(verdict, facts.ok_per_s);
    Some(proof::judge(run, verdict))
}

/// Returns the candidates that the verdict also names. They limit the run about as much as the
/// first cause, affect a minority of the responses, or account for part of the CPU time that limits
/// the run. The server's CPU is also named if the first cause saturates it.
fn contributing(
    (cause, first): (Cause, &Candidate),
    others: Vec<(Cause, Candidate)>,
) -> Vec<(Cause, Candidate)> {
    let uses_server_cpu = first.rank == EvidenceRank::Mechanism || cause == Cause::CpuQuota;
    let is_cpu = first.path.iter().any(|step| step.kind == StepKind::Cpu);
    let contributes = |(cause, other): &(Cause, Candidate)| {
        (uses_server_cpu && *cause == Cause::ServerCpu)
            || other.rank <= first.rank
            || other.rank == EvidenceRank::Minor
            || (other.rank == EvidenceRank::Cost && is_cpu)
            || (other.rank == EvidenceRank::Saturated
                && other.utilization >= first.utilization - NOTICEABLE)
    };
    others.into_iter().filter(contributes).collect()
}

/// Replaces the first step of a path with a thread pool if all threads of the pool are waiting for
/// that step. For example, all threads are waiting for connections to a store whose sessions are
/// waiting for a row lock.
fn behind_service_limit(path: Vec<PathStep>, others: &[(Cause, Candidate)]) -> Vec<PathStep> {
    let Some((first, rest)) = path.split_first() else {
        return path;
    };
    let mut limits = others.iter().filter_map(|(_, other)| {
        let (resource, before) = other.path.split_last()?;
        let is_same = resource.kind == first.kind && resource.who == first.who;
        let has_threads = before.iter().any(|step| step.kind == StepKind::Threads);
        (is_same && has_threads && first.kind == StepKind::Connections).then_some(before)
    });
    match limits.next() {
        Some(before) => before.iter().chain(rest).cloned().collect(),
        None => path,
    }
}

/// Returns the path from the requests in flight through the given steps. Returns an empty path if
/// no step is known.
fn path(facts: &RunFacts<'_>, steps: Vec<PathStep>) -> Vec<PathStep> {
    if steps.is_empty() {
        return Vec::new();
    }
    let mut requests = PathStep::new(
        StepKind::Requests,
        Actor::Client,
        "Little's law, including requests without a response",
    );
    requests.waiting = facts.in_flight;
    [requests].into_iter().chain(steps).collect()
}

#[cfg(test)]
mod connection_tests;
#[cfg(test)]
mod cost_tests;
#[cfg(test)]
mod cpu_tests;
#[cfg(test)]
mod gain_tests;
#[cfg(test)]
mod one_thread_tests;
#[cfg(test)]
mod queue_tests;
#[cfg(test)]
mod response_tests;
#[cfg(test)]
mod separate_hosts_tests;
#[cfg(test)]
mod stall_tests;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod waiting_tests;
