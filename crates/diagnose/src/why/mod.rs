//! Verdicts: what limited a run, judged from the run and its host (docs/decisions/0021-why.md).

mod candidate;
pub(crate) mod causes;
pub mod confidence;
mod facts;
mod gain;
mod graph;
mod ledger;
pub mod proof;
mod tail;
pub(crate) mod thresholds;

use floodmark_record::cause::Cause;
use floodmark_record::events::EndReason;
use floodmark_record::host::Environment;
use floodmark_record::path::{Actor, PathStep, StepKind};
use floodmark_record::run::Run;
use floodmark_record::verdict::{Confidence, CostShare, RuledOut, Verdict};

pub use causes::{guide, is_limit};
pub use confidence::{Features, Model};
pub use facts::consumed;
pub(crate) use facts::seconds;

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
    verdict_by(&confidence::FITTED, run, environment)
}

fn verdict_by(model: &Model, run: &Run, environment: &Environment) -> Option<Verdict> {
    let facts = judged_facts(run, environment)?;
    if let Some(stored) = &run.verdict
        && facts.lacks_thread_states()
    {
        let unseen = "recorded without thread states; measure again".to_owned();
        let verdict = Verdict {
            unseen: [unseen].into_iter().chain(stored.unseen.clone()).collect(),
            ..stored.clone()
        };
        return Some(gain::consistent(verdict, facts.ok_per_s));
    }
    let mut findings = ranked(&facts);
    let features = features_of(&facts, &findings);
    let probability = features
        .as_ref()
        .map(|features| features.probability(model));
    let runner_up = features
        .and_then(|features| confidence::runner_up(&facts, features.cause, &findings, model));
    let judged =
        |findings, probability| proof::judge(run, before_proof(&facts, findings, probability));
    // Perturbations can raise a low probability.
    match probability.map(|probability| judged(findings.clone(), Some(probability))) {
        Some(first) if first.confidence != Confidence::Unknown => {
            let runner_up = runner_up.filter(|_| first.confidence == Confidence::Possible);
            Some(Verdict { runner_up, ..first })
        }
        weak => {
            let probability = weak.and_then(|weak| weak.probability);
            let weak = findings.candidates.first().zip(probability);
            let unknown = causes::unknown(&facts, weak, findings.contradicted.first());
            findings.candidates.insert(0, (Cause::Unknown, unknown));
            Some(judged(findings, None))
        }
    }
}

/// Returns the verdict that names the first candidate, without the effects of perturbations.
/// `probability` is that of the candidate's cause, or `None` if the cause is unknown.
fn before_proof(facts: &RunFacts<'_>, mut findings: Findings, probability: Option<f64>) -> Verdict {
    let run = facts.run;
    let (cause, mut first) = findings.candidates.remove(0);
    first.path = behind_service_limit(first.path, &findings.candidates);
    let contributing = contributing((cause, &first), findings.candidates);
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
    let mut ruled_out = findings.ruled_out;
    ruled_out.extend(findings.contradicted);
    ruled_out.retain(|ruled_out| ruled_out.cause != cause && !also.contains(&ruled_out.cause));
    // Means over an interrupted or very short run show neither a limit nor where requests wait.
    let has_means = causes::interruption(facts).is_none() && run.sending_s >= MIN_LENGTH_S;
    let is_certain = cause == Cause::Errors && run.requests.ok == 0;
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
        confidence: match probability {
            None => Confidence::Unknown,
            Some(_) if is_certain => Confidence::Proven,
            Some(probability) => Confidence::of(probability),
        },
        probability: probability.map(|p| if is_certain { confidence::PROVEN } else { p }),
        runner_up: None,
        summary: first.summary,
        limit_per_s: first.limit_per_s,
        gain: gain::of(facts, causes::spec(cause).gain, &first.path),
        path: path(facts, first.path),
        evidence: first.evidence.into_iter().take(MAX_EVIDENCE).collect(),
        next: first.next,
        tested: Vec::new(),
        unseen: findings.unseen,
        ledger: has_means.then(|| ledger::of(facts)).flatten(),
        ceilings: if has_means {
            ledger::ceilings(facts)
        } else {
            Vec::new()
        },
    };
    gain::consistent(verdict, facts.ok_per_s)
}

/// Returns the properties of the evidence for the most likely cause of a run, or `None` if no cause
/// was found.
#[must_use]
pub fn features(run: &Run, environment: &Environment) -> Option<Features> {
    let facts = judged_facts(run, environment)?;
    features_of(&facts, &ranked(&facts))
}

/// Returns the facts about a run, or `None` if the run has no throughput or no connection could be
/// opened.
fn judged_facts<'a>(run: &'a Run, environment: &Environment) -> Option<RunFacts<'a>> {
    let never_sent = run.requests.sent == 0 && run.ended.reason == EndReason::ServerGone;
    RunFacts::of(run, environment).filter(|_| !never_sent)
}

/// Returns the findings of all rules, with the most conclusive candidate first.
fn ranked(facts: &RunFacts<'_>) -> Findings {
    let mut findings = match causes::interruption(facts) {
        Some(interrupted) => Findings {
            candidates: vec![interrupted],
            ..Findings::default()
        },
        None => causes::find(facts),
    };
    if facts.run.sending_s < MIN_LENGTH_S {
        // Only outcomes of requests are meaningful.
        let candidates = &mut findings.candidates;
        candidates.retain(|(cause, _)| causes::spec(*cause).shows_at_once);
    }
    findings.unseen.extend(facts.unseen_sources());
    findings.candidates.sort_by(|(_, a), (_, b)| {
        let nearer_to_limit = b.utilization.total_cmp(&a.utilization);
        a.rank.cmp(&b.rank).then(nearer_to_limit)
    });
    findings.candidates.retain(|(cause, candidate)| {
        let figure = causes::spec(*cause).contradiction(facts, candidate);
        let contradicted = figure.map(|figure| RuledOut {
            cause: *cause,
            figure,
        });
        findings.contradicted.extend(contradicted.clone());
        contradicted.is_none()
    });
    findings
}

/// Returns the properties of the evidence for the first candidate, or `None` if no candidate limits
/// the run.
fn features_of(facts: &RunFacts<'_>, findings: &Findings) -> Option<Features> {
    let (first, others) = findings.candidates.split_first()?;
    let unseen = findings.unseen.len();
    (first.1.rank != EvidenceRank::Cost).then(|| Features::of(facts, first, others, unseen))
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
mod http2_tests;
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
