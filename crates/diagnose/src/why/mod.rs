//! Why a run's figure is what it is: a function of the run and its machine (docs/decisions/0021-why.md).

mod candidate;
mod facts;
mod ledger;
pub mod proof;
mod rules;

use floodmark_record::cause::Cause;
use floodmark_record::run::{Environment, Run};
use floodmark_record::verdict::{Confidence, Verdict};

use candidate::{Candidate, Findings, Shown};
use facts::Facts;

/// Two limits within this share of each other are both named.
const ALSO: f64 = 0.1;

/// Most figures that are shown for a cause.
const SHOWN: usize = 5;

/// Judges a run; none of one that has no figure.
#[must_use]
pub fn verdict(run: &Run, environment: &Environment) -> Option<Verdict> {
    let facts = Facts::of(run, environment)?;
    let findings = rules::apply(&facts);
    let (ledger, ceilings) = (ledger::of(&facts), ledger::ceilings(&facts));
    let Findings {
        mut candidates,
        ruled_out,
        unseen,
    } = findings;
    rank(&mut candidates);
    let mut ranked = candidates.into_iter();
    let Some(first) = ranked.next() else {
        let verdict = Verdict {
            ledger,
            ceilings,
            ..unknown(&facts, &ruled_out, unseen)
        };
        return Some(proof::judge(run, verdict));
    };
    let also = also(&first, ranked.as_slice());
    let verdict = Verdict {
        cause: first.cause,
        also: also.clone(),
        confidence: Confidence::Likely,
        summary: first.summary,
        limit_per_s: first.limit_per_s,
        evidence: first.evidence.into_iter().take(SHOWN).collect(),
        ruled_out: ruled_out
            .iter()
            .filter(|(cause, _)| *cause != first.cause && !also.contains(cause))
            .map(|(cause, why)| format!("{cause}: {why}"))
            .collect(),
        next: first.next,
        tested: Vec::new(),
        unseen,
        ledger,
        ceilings,
    };
    Some(proof::judge(run, verdict))
}

/// The most telling first; of two that tell as much, the one nearer to its limit.
fn rank(candidates: &mut [Candidate]) {
    candidates.sort_by(|a, b| a.shown.cmp(&b.shown).then(b.used.total_cmp(&a.used)));
}

/// What else limits it within a tenth, is what the cause takes, or takes a part of the answers away.
fn also(first: &Candidate, others: &[Candidate]) -> Vec<Cause> {
    let near = |other: &&Candidate| {
        first.takes == Some(other.cause)
            || other.shown <= first.shown
            || other.shown == Shown::Lesser
            || (other.shown == Shown::Full && other.used >= first.used - ALSO)
    };
    others
        .iter()
        .filter(near)
        .map(|other| other.cause)
        .collect()
}

/// The verdict where no rule found anything.
fn unknown(facts: &Facts<'_>, ruled_out: &[(Cause, String)], unseen: Vec<String>) -> Verdict {
    let next = match facts.run.plan.model {
        floodmark_record::plan::Model::Closed => format!(
            "see whether twice as many connections give more: -c {}",
            facts.run.plan.connections * 2
        ),
        floodmark_record::plan::Model::Open => {
            "see what a lower rate does, and whether the server waits for something".to_owned()
        }
    };
    Verdict {
        cause: Cause::Unknown,
        also: Vec::new(),
        confidence: Confidence::Unknown,
        summary: "what was seen does not tell what limited it".to_owned(),
        limit_per_s: None,
        evidence: Vec::new(),
        ruled_out: ruled_out
            .iter()
            .map(|(cause, why)| format!("{cause}: {why}"))
            .collect(),
        next,
        tested: Vec::new(),
        unseen,
        ledger: None,
        ceilings: Vec::new(),
    }
}

#[cfg(test)]
mod apart_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod waiting_tests;
