//! What the verdict on a setting says about the server's knobs.

use floodmark_record::cause::Cause;
use floodmark_record::path::StepKind;
use floodmark_record::tuning::{KnobKind, KnobValues, TunedKnob};
use floodmark_record::verdict::Verdict;

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

/// Causes that larger pools do not remove. Causes that only disturb a measurement, such as a JIT
/// compiler or other programs, are not among them.
const STOPS: [Cause; 18] = [
    Cause::ClientCpu,
    Cause::SharedCpu,
    Cause::Concurrency,
    Cause::EphemeralPorts,
    Cause::ClientFds,
    Cause::ServerCpu,
    Cause::TlsHandshake,
    Cause::StoreCpu,
    Cause::StoreLock,
    Cause::StoreCommit,
    Cause::StoreMaintenance,
    Cause::StoreAdmission,
    Cause::CpuQuota,
    Cause::Disk,
    Cause::Bandwidth,
    Cause::RateLimiter,
    Cause::OfferedRate,
    Cause::None,
];

/// Maximum difference between the units in use and the value of a knob that sizes the full pool. Some
/// runtimes run one thread outside the pool.
const SPARE_UNITS: f64 = 1.5;

/// A full pool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FullPool {
    kind: KnobKind,
    /// Mean number of units in use; `None` if unknown.
    pub(super) held: Option<f64>,
    /// Whether the kind is only a guess.
    is_guess: bool,
}

/// Returns the pool that a verdict found to be full.
pub(super) fn full_pool(verdict: &Verdict) -> Option<FullPool> {
    let step = |kind| verdict.path.iter().find(|step| step.kind == kind);
    let pool = |kind, step: Option<StepKind>, is_guess| {
        let held = step.and_then(|kind| self::held(verdict, kind));
        Some(FullPool {
            kind,
            held,
            is_guess,
        })
    };
    match verdict.cause {
        Cause::ConnectionPool => pool(KnobKind::Connections, Some(StepKind::Connections), false),
        Cause::WorkerPool if step(StepKind::Threads).is_some() => {
            pool(KnobKind::Threads, Some(StepKind::Threads), false)
        }
        Cause::WorkerPool => pool(KnobKind::Threads, Some(StepKind::Permits), true),
        // A pool of one looks like a lock.
        Cause::Serialised => Some(FullPool {
            kind: KnobKind::Threads,
            held: Some(1.0),
            is_guess: true,
        }),
        _ => None,
    }
}

fn held(verdict: &Verdict, kind: StepKind) -> Option<f64> {
    let step = verdict.path.iter().find(|step| step.kind == kind)?;
    step.waiting.filter(|waiting| *waiting > 0.0)
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
    if STOPS.contains(&verdict.cause) {
        return Advice::Stop;
    }
    let raised = full_pool(verdict).and_then(|pool| knob_of(pool, knobs, values));
    raised.map_or(Advice::Sweep, Advice::Raise)
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
