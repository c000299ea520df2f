//! Estimates the probability that a verdict names the right cause (docs/decisions/0057-confidence.md).
//!
//! The model is a logistic regression: the log-odds are the sum of the weights of the properties of
//! the evidence. A calibration then maps the regression's probability to the share of right
//! verdicts at this probability, observed on servers outside the fit. `cargo xtask confidence
//! --write` fits the weights and the calibration to the stored results.

mod fitted;

pub(super) use fitted::MODEL as FITTED;

use std::borrow::Cow;
use std::fmt::{self, Display};

use floodmark_record::cause::Cause;
use floodmark_record::path::StepKind;
use floodmark_record::verdict::{Confidence, RunnerUp};
use strum::IntoEnumIterator;

use super::candidate::{Candidate, EvidenceRank, Findings};
use super::causes;
use super::facts::RunFacts;
use crate::asking;

/// Probability of a verdict that perturbations proved.
pub(super) const PROVEN: f64 = 0.99;

/// Factor by which the odds increase if perturbations confirm the class of the cause without
/// proving the verdict.
const CONFIRMED_ODDS: f64 = 4.0;

/// Shortest window, in seconds, that the weights were fitted to. A verdict on a shorter window is
/// at most `possible`.
const SHORTEST_FITTED_S: f64 = 2.0;

/// Number of CPUs used by other programs at which the doubt reaches its maximum.
const MANY_OTHER_CPUS: f64 = 0.5;

/// Mean number of waiting requests above which a fractional part is not a reason for doubt.
const MANY_WAITING: f64 = 8.0;

/// Number of missing sources at which the doubt reaches its maximum.
const SOURCES: f64 = 3.0;

/// A property of the evidence that has a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Term {
    /// The cause that the verdict names.
    Cause(Cause),
    /// How conclusive the evidence is.
    Evidence(EvidenceRank),
    /// The first and last step of the path.
    Path(StepKind, StepKind),
    /// A reason for doubt. Its weight is never positive.
    Doubt(Doubt),
}

impl Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cause(cause) => write!(f, "cause: {cause}"),
            Self::Evidence(rank) => write!(f, "evidence: {}", rank),
            Self::Path(first, last) => write!(f, "path: {first} → {last}"),
            Self::Doubt(doubt) => write!(f, "doubt: {}", doubt),
        }
    }
}

/// A reason for doubt, from 0 (none) to 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::Display, strum::EnumIter)]
pub enum Doubt {
    /// Difference between the upper bound and the throughput: absolute logarithm of their ratio.
    #[strum(to_string = "upper bound differs from throughput")]
    BoundGap,
    /// The cause sets no upper bound.
    #[strum(to_string = "no upper bound")]
    NoBound,
    /// Share of the limit that was not used.
    #[strum(to_string = "limit not fully used")]
    Slack,
    /// The number of requests at the end of the path is unknown.
    #[strum(to_string = "number of waiting requests unknown")]
    NoCount,
    /// Twice the distance from the number of waiting requests to the nearest integer, for small
    /// numbers. Pools and locks hold integer numbers of requests.
    #[strum(to_string = "number of waiting requests not an integer")]
    Fraction,
    /// Only one of the server's connections is in use. A lock around a call has the same effect.
    #[strum(to_string = "one connection in use")]
    OneConnection,
    /// Difference between the number of requests at the end of the path and the number in service:
    /// absolute logarithm of their ratio.
    #[strum(to_string = "number waiting differs from number in service")]
    CountMismatch,
    /// Another cause affects a minority of the responses.
    #[strum(to_string = "another cause affects some responses")]
    MinorCause,
    /// The server's runtime is still compiling code.
    #[strum(to_string = "runtime still compiles code")]
    Compiling,
    /// CPUs used by other programs, relative to [`MANY_OTHER_CPUS`].
    #[strum(to_string = "other programs use the CPUs")]
    OtherPrograms,
    /// The path includes a CPU, and the code that the server executes was not sampled.
    #[strum(to_string = "code on the CPU not visible")]
    UnseenCode,
    /// Share of the other sources that were not visible.
    #[strum(to_string = "other sources not visible")]
    Unseen,
}

impl Doubt {
    /// Returns the value of this doubt about the first candidate, from 0 to 1.
    fn value(self, evidence: &Evidence<'_>) -> f64 {
        let Evidence {
            facts,
            cause,
            first,
            others,
            unseen,
        } = *evidence;
        let flag = |is: bool| f64::from(u8::from(is));
        let waiting = first.path.iter().rev().find_map(|step| step.waiting);
        let value = match self {
            Self::BoundGap => first
                .limit_per_s
                .map_or(0.0, |limit| gap(limit, facts.ok_per_s)),
            Self::NoBound => flag(first.limit_per_s.is_none()),
            Self::Slack => 1.0 - first.utilization,
            Self::NoCount => flag(waiting.is_none()),
            Self::Fraction => waiting
                .filter(|waiting| *waiting < MANY_WAITING)
                .map_or(0.0, |waiting| 2.0 * (waiting - waiting.round()).abs()),
            Self::OneConnection => {
                flag(cause == Cause::ConnectionPool && waiting.is_some_and(|waiting| waiting < 1.5))
            }
            Self::CountMismatch => waiting
                .zip(facts.concurrency)
                .map_or(0.0, |(waiting, in_service)| gap(waiting, in_service)),
            Self::MinorCause => flag(
                others
                    .iter()
                    .any(|(_, other)| other.rank == EvidenceRank::Minor),
            ),
            Self::Compiling => flag(others.iter().any(|(cause, _)| *cause == Cause::Jit)),
            Self::OtherPrograms => facts.other_programs().unwrap_or(0.0) / MANY_OTHER_CPUS,
            Self::UnseenCode => flag(
                !facts.is_code_seen() && first.path.iter().any(|step| step.kind == StepKind::Cpu),
            ),
            Self::Unseen => {
                unseen.saturating_sub(usize::from(!facts.is_code_seen())) as f64 / SOURCES
            }
        };
        value.clamp(0.0, 1.0)
    }
}

/// Returns the absolute logarithm of a ratio, or 1 if a number is not positive.
fn gap(a: f64, b: f64) -> f64 {
    if a > 0.0 && b > 0.0 {
        (a / b).ln().abs()
    } else {
        1.0
    }
}

/// Input for the doubts about the first candidate.
struct Evidence<'a> {
    facts: &'a RunFacts<'a>,
    cause: Cause,
    first: &'a Candidate,
    others: &'a [(Cause, Candidate)],
    /// Number of sources that were not visible.
    unseen: usize,
}

/// The properties of the evidence for a verdict's cause.
#[derive(Debug, Clone, PartialEq)]
pub struct Features {
    /// The cause.
    pub cause: Cause,
    /// Each property with its value; properties with the value 0 are omitted.
    pub terms: Vec<(Term, f64)>,
    /// Whether the window is shorter than all windows that the weights were fitted to.
    is_short: bool,
}

impl Features {
    pub(super) fn of(
        facts: &RunFacts<'_>,
        (cause, first): &(Cause, Candidate),
        others: &[(Cause, Candidate)],
        unseen: usize,
    ) -> Self {
        let evidence = Evidence {
            facts,
            cause: *cause,
            first,
            others,
            unseen,
        };
        let window = &facts.run.window;
        let doubts = Doubt::iter().map(|doubt| (Term::Doubt(doubt), doubt.value(&evidence)));
        let ends = first.path.first().zip(first.path.last());
        let path = ends.map(|(first, last)| Term::Path(first.kind, last.kind));
        let kinds = [Term::Cause(*cause), Term::Evidence(first.rank)].into_iter();
        let kinds = kinds.chain(path).map(|term| (term, 1.0));
        Features {
            cause: *cause,
            terms: kinds
                .chain(doubts)
                .filter(|(_, value)| *value > 0.0)
                .collect(),
            is_short: window.to_s - window.from_s < SHORTEST_FITTED_S,
        }
    }

    /// Returns the probability that the cause is right, from 0 to 1.
    #[must_use]
    pub fn probability(&self, model: &Model) -> f64 {
        let probability = model.probability(&self.terms);
        // A cause that is based on counted outcomes is always at least possible.
        let least = if causes::spec(self.cause).shows_at_once {
            Confidence::POSSIBLE
        } else {
            0.0
        };
        // Keep the probability below the minimum for `likely`.
        let most = if self.is_short && least == 0.0 {
            Confidence::LIKELY - 0.01
        } else {
            1.0
        };
        probability.clamp(least, most)
    }
}

/// Returns the probability of a cause whose class perturbations confirmed.
pub(super) fn confirmed(probability: f64) -> f64 {
    let odds = CONFIRMED_ODDS * probability / (1.0 - probability);
    (odds / (1.0 + odds)).min(PROVEN)
}

/// Returns the second most likely cause, and the measurement that decides between the two causes.
/// Without a second candidate, this is the most frequent true cause of stored results that were
/// wrongly judged as `cause`, if the run can have it. Returns `None` if there is no such cause.
pub(super) fn runner_up(
    facts: &RunFacts<'_>,
    cause: Cause,
    findings: &Findings,
    model: &Model,
) -> Option<RunnerUp> {
    let mut others = findings.candidates.iter().skip(1);
    let other = others.find(|(_, other)| other.rank <= EvidenceRank::Waiting);
    let confused = model.confused.iter();
    let mut confused = confused
        .filter(|(wrong, right)| *wrong == cause && causes::spec(*right).is_possible(facts.run));
    let other = other
        .map(|(cause, _)| *cause)
        .or_else(|| Some(confused.next()?.1))?;
    let classes = [cause, other].map(|cause| causes::spec(cause).class);
    let run = facts.run;
    let measurement = if let Some(source) = facts.unseen_sources().first() {
        format!("measure again with permission to read {source}")
    } else if facts
        .other_programs()
        .is_some_and(|cpus| cpus >= MANY_OTHER_CPUS)
    {
        "measure again while no other program uses the CPUs".to_owned()
    } else if run.window.to_s - run.window.from_s < SHORTEST_FITTED_S {
        let longer = asking::longer(&run.plan);
        let longer = longer.unwrap_or_else(|| asking::scaled(&run.plan, 4.0));
        format!("measure for longer: {longer}")
    } else if classes[0] != classes[1] && !run.plan.is_open() && run.client.name.is_none() {
        "measure again with --prove".to_owned()
    } else {
        format!("change one setting related to `{cause}`, and compare the throughput")
    };
    Some(RunnerUp {
        cause: other,
        measurement,
    })
}

/// The fitted weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Log-odds of a verdict without any of the properties.
    pub intercept: f64,
    /// Log-odds that each property adds, per unit of its value.
    pub weights: Cow<'static, [(Term, f64)]>,
    /// Points of the calibration: the regression's probability and the calibrated probability. Both
    /// increase from point to point. Empty for a model without a calibration.
    pub calibration: Cow<'static, [(f64, f64)]>,
    /// Causes of wrong verdicts in the stored results, each with the most frequent right cause.
    pub confused: Cow<'static, [(Cause, Cause)]>,
}

impl Model {
    /// Returns the probability that a cause with these properties is right, from 0 to 1. A property
    /// without a weight has no effect.
    #[must_use]
    pub fn probability(&self, terms: &[(Term, f64)]) -> f64 {
        let weight = |term: &Term| self.weights.iter().find(|(other, _)| other == term);
        let added = terms
            .iter()
            .filter_map(|(term, value)| Some(weight(term)?.1 * value));
        let log_odds = self.intercept + added.sum::<f64>();
        self.calibrated(1.0 / (1.0 + (-log_odds).exp()))
    }

    /// Returns the calibrated probability, interpolated linearly between (0, 0) and the points of
    /// the calibration. It is constant after the last point. Without points, returns `probability`
    /// unchanged.
    fn calibrated(&self, probability: f64) -> f64 {
        let after = self
            .calibration
            .partition_point(|(from, _)| *from <= probability);
        let before = after.checked_sub(1).map(|at| self.calibration[at]);
        match (before, self.calibration.get(after)) {
            (None, None) => probability,
            (Some((_, last)), None) => last,
            (before, Some((to, high))) => {
                let (from, low) = before.unwrap_or_default();
                low + (high - low) * (probability - from) / (to - from)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use floodmark_record::verdict::{Perturbation, Windows};
    use proptest::prelude::*;

    use super::*;
    use crate::why::tests::{machine, run_with};
    use crate::why::verdict_by;

    fn model(intercept: f64) -> Model {
        Model {
            intercept,
            weights: Cow::Borrowed(&[]),
            calibration: Cow::Borrowed(&[]),
            confused: Cow::Owned(vec![(Cause::ServerCpuOneThread, Cause::SyncLogging)]),
        }
    }

    #[test]
    fn a_calibration_interpolates_and_ends_at_its_last_point() {
        let model = Model {
            calibration: Cow::Owned(vec![(0.5, 0.4), (0.9, 0.8)]),
            ..model(0.0)
        };
        for (from, to) in [
            (0.0, 0.0),
            (0.25, 0.2),
            (0.5, 0.4),
            (0.7, 0.6),
            (0.9, 0.8),
            (1.0, 0.8),
        ] {
            let calibrated = model.calibrated(from);
            assert!((calibrated - to).abs() < 1e-9, "{from}: {calibrated}");
        }
    }

    proptest! {
        #[test]
        fn more_doubt_never_raises_the_probability(
            doubt in prop::sample::select(Doubt::iter().collect::<Vec<_>>()),
            low in 0.0..1.0,
            high in 0.0..1.0,
        ) {
            let of = |value| FITTED.probability(&[(Term::Doubt(doubt), value)]);
            prop_assert!(of(f64::max(low, high)) <= of(f64::min(low, high)));
        }
    }

    #[test]
    fn only_possible_verdicts_have_a_runner_up() {
        let run = run_with(1.2, 1.0, 0.99);
        let of = |intercept| verdict_by(&model(intercept), &run, &machine()).unwrap();
        let likely = of(3.0);
        assert_eq!(likely.confidence, Confidence::Likely);
        assert_eq!(
            (likely.cause, likely.runner_up),
            (Cause::ServerCpuOneThread, None)
        );
        let possible = of(1.0);
        assert_eq!(possible.confidence, Confidence::Possible);
        assert!((possible.probability.unwrap() - 0.73).abs() < 0.01);
        let second = possible.runner_up.unwrap();
        assert_eq!(second.cause, Cause::SyncLogging);
        assert!(second.measurement.contains("--prove"), "{second:?}");
        // A run without a store has no cause in the store.
        let mut store = model(1.0);
        store.confused = Cow::Owned(vec![(Cause::ServerCpuOneThread, Cause::StoreCpu)]);
        assert_eq!(
            verdict_by(&store, &run, &machine()).unwrap().runner_up,
            None
        );
        let unknown = of(0.0);
        assert_eq!(
            (unknown.cause, unknown.confidence),
            (Cause::Unknown, Confidence::Unknown)
        );
        assert_eq!(unknown.probability, None);
        let evidence = &unknown.evidence[0];
        assert!(
            evidence.contains("50 %") && evidence.contains("server-cpu-one-thread"),
            "{evidence}"
        );
    }

    #[test]
    fn a_proof_names_a_cause_that_was_too_unlikely() {
        let mut run = run_with(1.2, 1.0, 0.99);
        run.least_service_time_us = Some(5_000.0);
        run.perturbed.push(Windows {
            change: Perturbation::SlowedServer,
            knob: None,
            connections: run.plan.connections,
            base_per_s: vec![1_000.0, 1_010.0, 1_000.0, 990.0],
            changed_per_s: vec![770.0, 775.0, 765.0, 770.0],
        });
        let verdict = verdict_by(&model(0.0), &run, &machine()).unwrap();
        assert_eq!(verdict.cause, Cause::ServerCpuOneThread, "{verdict:#?}");
        assert_eq!(verdict.confidence, Confidence::Proven);
        assert_eq!(verdict.runner_up, None);
    }

    #[test]
    fn verdicts_on_short_windows_are_at_most_possible() {
        let mut run = run_with(1.2, 1.0, 0.99);
        run.window.to_s = run.window.from_s + 1.0;
        let verdict = verdict_by(&model(9.0), &run, &machine()).unwrap();
        assert_eq!(verdict.confidence, Confidence::Possible);
    }

    #[test]
    fn confirmation_raises_the_probability() {
        assert!((confirmed(0.5) - 0.8).abs() < 1e-9);
        assert!(confirmed(0.999) <= PROVEN);
    }
}
