//! What the verdict on a setting says about the server's knobs.

use floodmark_record::path::StepKind;
use floodmark_record::tuning::{KnobKind, KnobValues, TunedKnob};
use floodmark_record::verdict::Verdict;

use crate::why::causes::{Tuning, spec};
use crate::why::thresholds::SAME;

/// What to do after a setting was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Advice<'a> {
    /// The pool that this knob sizes is full.
    Raise(&'a TunedKnob),
    /// Larger pools do not help.
    Stop,
    /// No cause points at a knob.
    Sweep,
}

/// Maximum difference between the units in use and the value of a knob that sizes the full pool. Some
/// runtimes run one thread outside the pool.
const SPARE_UNITS: f64 = 1.5;

/// A saturated pool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FullPool {
    pub(crate) kind: KnobKind,
    /// Mean number of units in use; `None` if unknown.
    pub(crate) held: Option<f64>,
    /// Whether the kind is only a guess.
    pub(crate) is_guess: bool,
}

impl FullPool {
    /// A pool whose units in use are a step of the verdict's path.
    pub(crate) fn at(verdict: &Verdict, kind: KnobKind, step: StepKind, is_guess: bool) -> Self {
        let held = verdict.path.iter().find(|of| of.kind == step);
        let held = held.and_then(|step| step.waiting);
        FullPool {
            kind,
            held: held.filter(|held| *held > 0.0),
            is_guess,
        }
    }
}

impl Tuning {
    /// Returns the saturated pool that the verdict identifies, if any.
    pub(crate) fn full_pool(&self, verdict: &Verdict) -> Option<FullPool> {
        match self {
            Tuning::Raise(pool) => Some(pool(verdict)),
            Tuning::Silent | Tuning::Stop => None,
        }
    }
}

/// Returns the saturated pool that the verdict identifies, if any.
pub(super) fn full_pool(verdict: &Verdict) -> Option<FullPool> {
    spec(verdict.cause).tuning.full_pool(verdict)
}

/// Returns what to do at a setting, given the verdict on it.
pub(super) fn advice<'a>(
    verdict: Option<&Verdict>,
    knobs: &'a [TunedKnob],
    values: &KnobValues,
) -> Advice<'a> {
    let Some(verdict) = verdict else {
        return Advice::Sweep;
    };
    match spec(verdict.cause).tuning {
        Tuning::Stop => Advice::Stop,
        Tuning::Silent => Advice::Sweep,
        Tuning::Raise(pool) => {
            let raised = knob_of(pool(verdict), knobs, values);
            raised.map_or(Advice::Sweep, Advice::Raise)
        }
    }
}

/// Returns the knob that sizes a full pool: a knob of the pool's kind whose value is near the number
/// of units in use. If the kind is a guess, a knob of another kind also matches.
pub(super) fn knob_of<'a>(
    pool: FullPool,
    knobs: &'a [TunedKnob],
    values: &KnobValues,
) -> Option<&'a TunedKnob> {
    let is_near = |knob: &&TunedKnob| match (pool.held, values[&knob.name] as f64) {
        (Some(held), value) if value > 0.0 => {
            (held - value).abs() <= SPARE_UNITS || SAME.contains(&(held / value))
        }
        // A value of 0 stands for the server's default, whose size is unknown.
        _ => true,
    };
    let mut near = knobs.iter().filter(is_near);
    let of_kind = near.clone().find(|knob| knob.sizes == pool.kind);
    of_kind.or_else(|| near.next().filter(|_| pool.is_guess))
}
