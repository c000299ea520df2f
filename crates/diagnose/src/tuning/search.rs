//! The search: raises the pool that is full, and then looks for the smallest setting that is good
//! enough. It assumes that the figure rises with a knob, and then levels off or falls.

use std::collections::BTreeSet;

use floodmark_record::cause::Cause;
use floodmark_record::path::StepKind;
use floodmark_record::tuning::{
    KnobKind, KnobValues, TunedKnob, TuningAction, TuningDescription, TuningRatio, TuningStep,
};
use floodmark_record::verdict::Verdict;
use floodmark_stats::comparison::{Ratio, geometric_mean};

use super::ENOUGH;
use super::measured::{Measured, MeasuredProcess};
use crate::why::causes::{Tuning, spec};
use crate::why::thresholds::SAME;

/// Standard deviation of the logarithms of two processes' figures, if a knob makes no difference.
/// Fresh processes on one host differ by about this much (docs/decisions/0010-comparisons.md).
const SCATTER: f64 = 0.02;

/// A figure that is lower than good enough by at most this many standard errors may be good enough.
const DOUBT: f64 = 1.5;

/// Maximum number of processes per setting before the confirmation.
const MOST_PROCESSES: usize = 3;

/// Number of fresh processes that confirm a choice: at first, and if the choice is undecided.
const ROUNDS: [usize; 2] = [3, 5];

/// Share of the smallest possible number of units in a pool that is certainly too small. The figure
/// of one process can be too high.
const CERTAIN: f64 = 0.9;

/// Two values of a knob are close if the larger is at most this many times the smaller. For most
/// servers, the figures at close values differ by less than the figures of two processes at the
/// same value.
pub(super) const CLOSE: f64 = 1.5;

/// Factor between the values of a coarse sweep.
const COARSE: f64 = 4.0;

/// A knob may be the one that sizes a full pool if its value differs by at most this much from the
/// number of units in use. Some runtimes run one thread outside the pool.
const SPARE_UNITS: f64 = 1.5;

/// A process that the search has used.
pub(super) struct SearchStep {
    pub(super) step: TuningStep,
    pub(super) measured: MeasuredProcess,
}

/// A complete search.
pub(super) struct Choice {
    pub(super) chosen: KnobValues,
    pub(super) best: KnobValues,
    pub(super) ratio: Option<TuningRatio>,
    pub(super) irrelevant: Vec<String>,
    /// Why the search looked no further, in one line.
    pub(super) why: String,
}

/// A search in progress.
pub(super) struct Search<'a> {
    pub(super) tuning: &'a TuningDescription,
    measured: &'a Measured,
    /// Returns whether the server failed in a trial.
    has_failed: &'a dyn Fn(&str) -> bool,
    /// The processes used so far.
    pub(super) steps: Vec<SearchStep>,
}

/// A result of the search. The error is the step for the first process that has not been measured.
type Searched<T> = Result<T, Box<TuningStep>>;

impl<'a> Search<'a> {
    pub(super) fn new(
        tuning: &'a TuningDescription,
        measured: &'a Measured,
        has_failed: &'a dyn Fn(&str) -> bool,
    ) -> Self {
        Search {
            tuning,
            measured,
            has_failed,
            steps: Vec::new(),
        }
    }

    /// Runs the search. Returns `None` if the default setting has no figure.
    ///
    /// # Errors
    /// Returns the step for the first process that has not been measured.
    pub(super) fn run(&mut self) -> Searched<Option<Choice>> {
        let knobs = self.tuning.knobs.iter();
        let start: KnobValues = knobs
            .map(|knob| (knob.name.clone(), knob.default))
            .collect();
        self.take(&start, TuningAction::Start, None, "default setting")?;
        if self.figure(&start).is_none() {
            return Ok(None);
        }
        let why = self.climb(start)?;
        let mut at = self.best();
        let mut irrelevant = Vec::new();
        for knob in &self.tuning.knobs {
            at = self.narrow(knob, at)?;
            if self.is_irrelevant(knob, &at)? {
                irrelevant.push(knob.name.clone());
            }
        }
        let best = self.best();
        let (chosen, ratio) = self.confirm(at, &best)?;
        Ok(Some(Choice {
            chosen,
            best,
            ratio,
            irrelevant,
            why,
        }))
    }

    /// Follows the verdicts, and sweeps a knob if no verdict points at one. Returns why it ends.
    fn climb(&mut self, mut at: KnobValues) -> Searched<String> {
        let mut moved: BTreeSet<&str> = BTreeSet::new();
        let knobs = &self.tuning.knobs;
        loop {
            let last = self.last(&at);
            let verdict = last.verdict.clone();
            let limit = verdict
                .as_ref()
                .map_or_else(|| "unknown limit".to_owned(), limit);
            // Settings beyond a lower bound cannot be told apart.
            if let Some(limit) = last.note.as_ref().filter(|_| last.is_lower_bound) {
                return Ok(limit.clone());
            }
            let can_stop = |of: &Verdict| matches!(spec(of.cause).tuning, Tuning::Stop);
            if verdict.as_ref().is_some_and(can_stop) {
                return Ok(limit);
            }
            let pool = verdict.as_ref().and_then(full_pool);
            let full = pool.and_then(|pool| knob_of(pool, knobs, &at));
            if let Some(knob) = full.filter(|knob| moved.insert(&knob.name)) {
                at = self.raise(knob, at)?;
                continue;
            }
            // A pool whose knob was already raised cannot be the only limit, so try another knob.
            let Some(knob) = knobs.iter().find(|knob| !moved.contains(&*knob.name)) else {
                return Ok(match full {
                    Some(full) => self.pool_limit(full, &at, limit),
                    None => limit,
                });
            };
            moved.insert(&knob.name);
            at = self.sweep(knob, at)?;
        }
    }

    /// Describes the limit of a full pool, and why no larger pool was tried.
    fn pool_limit(&self, knob: &TunedKnob, at: &KnobValues, limit: String) -> String {
        let (value, in_flight) = (at[&knob.name], self.last(at).in_flight);
        if value < knob.high && value >= in_flight {
            format!(
                "{limit}; no larger pool was tried, because at most {in_flight} requests are in flight"
            )
        } else {
            limit
        }
    }

    /// Raises a knob to the number of requests in flight, because a larger pool has no use.
    fn raise(&mut self, knob: &TunedKnob, at: KnobValues) -> Searched<KnobValues> {
        let in_flight = self.last(&at).in_flight;
        let raised = with(&at, knob, at_least(knob, in_flight));
        if raised[&knob.name] <= at[&knob.name] {
            return Ok(at);
        }
        let reason = format!("its pool is full, and the load has {in_flight} connections");
        self.take(&raised, TuningAction::Raise, Some(knob), &reason)?;
        let is_lower = self.figure(&raised) < self.figure(&at).map(|figure| figure * ENOUGH);
        Ok(if is_lower { at } else { raised })
    }

    /// Raises a knob in large steps while the figure rises.
    fn sweep(&mut self, knob: &TunedKnob, mut at: KnobValues) -> Searched<KnobValues> {
        let value = at[&knob.name];
        let limit = match knob.sizes {
            KnobKind::Other => knob.high,
            // A pool that is larger than the number of requests has no use.
            KnobKind::Threads | KnobKind::Connections => {
                knob.high.min(self.last(&at).in_flight.max(value))
            }
        };
        while let Some(next) = coarse_step(knob, at[&knob.name], limit) {
            let next = with(&at, knob, next);
            let reason = "no cause points at a knob";
            self.take(&next, TuningAction::Sweep, Some(knob), reason)?;
            let is_higher = self.figure(&next) > self.figure(&at).map(|figure| figure / ENOUGH);
            if !is_higher {
                break;
            }
            at = next;
        }
        Ok(at)
    }

    /// Looks for the smallest value of a knob that is good enough, and for a better value between
    /// the best one and a larger one that is worse. Returns the smallest good setting.
    fn narrow(&mut self, knob: &TunedKnob, at: KnobValues) -> Searched<KnobValues> {
        loop {
            self.settle_best()?;
            let mut smallest = at.clone();
            let line = self.line(knob, &at);
            for value in &line {
                let setting = with(&at, knob, *value);
                if self.is_enough(&setting)? {
                    smallest = setting;
                    break;
                }
            }
            let value = smallest[&knob.name];
            let lowest = at_least(knob, 1);
            let below = line.iter().copied().rfind(|other| *other < value);
            let too_few = self.too_few(knob, &smallest).filter(|n| *n >= lowest);
            let floor = below.into_iter().chain(too_few).max();
            let next = match floor {
                None if value > lowest => Some((lowest, "the smallest value".to_owned())),
                None => None,
                Some(floor) => between(knob, floor, value).map(|next| {
                    let reason = format!("between {floor} and {value}");
                    (next, reason)
                }),
            };
            let next = next.or_else(|| self.above_best(knob, &at, &line));
            let Some((next, reason)) = next else {
                return Ok(smallest);
            };
            let next = with(&at, knob, next);
            self.take(&next, TuningAction::Narrow, Some(knob), &reason)?;
        }
    }

    /// Measures the best setting a second time, because the highest of several figures is often due
    /// to chance.
    fn settle_best(&mut self) -> Searched<()> {
        while self.settings().len() > 1 && self.taken(&self.best()) < 2 {
            let reason = "the highest figure may be due to chance";
            self.take(&self.best(), TuningAction::Repeat, None, reason)?;
        }
        Ok(())
    }

    /// Returns a value between the best value of a knob and the next larger one, if that is worse.
    fn above_best(&self, knob: &TunedKnob, at: &KnobValues, line: &[u64]) -> Option<(u64, String)> {
        let figure = |value: u64| self.figure(&with(at, knob, value));
        let highest = |a: &u64, b: &u64| figure(*a).partial_cmp(&figure(*b));
        let best = line.iter().copied();
        let best = best.max_by(|a, b| highest(a, b).unwrap_or(std::cmp::Ordering::Equal))?;
        let above = line.iter().copied().find(|value| *value > best)?;
        let is_worse = figure(above) < figure(best).map(|best| best * ENOUGH);
        let next = between(knob, best, above).filter(|_| is_worse)?;
        Some((next, format!("between {best} and {above}")))
    }

    /// Returns the largest number of units that is certainly too small; it is below the knob's
    /// value in `at`. The figure of a setting is at most its throughput. If only this knob differs,
    /// growing a pool from `n` to `m` units multiplies the throughput by at most `m/n`. If the pool
    /// of `n` units was full, this is true even if the other knobs differ.
    fn too_few(&self, knob: &TunedKnob, at: &KnobValues) -> Option<u64> {
        if knob.sizes == KnobKind::Other {
            return None;
        }
        let value = at[&knob.name];
        let wanted = self.figure(&self.best())? * ENOUGH * CERTAIN;
        let too_few = self.steps.iter().filter_map(|step| {
            let values = &step.step.values;
            let verdict = step.measured.verdict.as_ref();
            let full = verdict.and_then(full_pool);
            let raised = full.and_then(|pool| knob_of(pool, &self.tuning.knobs, values));
            let is_full = raised.is_some_and(|raised| raised.name == knob.name);
            let units = match values[&knob.name] {
                0 => full.filter(|_| is_full)?.held?,
                own if is_full || with(values, knob, value) == *at => own as f64,
                _ => return None,
            };
            let throughput = step.measured.throughput_per_s?;
            let needed = (wanted / (throughput / units)).ceil() as u64;
            (units < value as f64).then_some(needed.min(value).saturating_sub(1))
        });
        too_few.max()
    }

    /// Returns whether a setting's figure is within 2 % of the best. Measures more processes if the
    /// figure is only slightly too low.
    fn is_enough(&mut self, setting: &KnobValues) -> Searched<bool> {
        loop {
            let best = self.best();
            let figures = self.figure(setting).zip(self.figure(&best));
            let Some((figure, highest)) = figures else {
                return Ok(false);
            };
            let shortfall = (highest * ENOUGH / figure).ln();
            let (n, of_best) = (self.taken(setting), self.taken(&best));
            let error = SCATTER * (1.0 / n as f64 + 1.0 / of_best as f64).sqrt();
            let again = if n <= of_best { setting } else { &best };
            if shortfall <= 0.0 {
                return Ok(true);
            }
            if shortfall > DOUBT * error || self.taken(again) >= MOST_PROCESSES {
                return Ok(false);
            }
            let again = again.clone();
            let reason = "another process decides whether the figure is within 2 % of the best";
            self.take(&again, TuningAction::Repeat, None, reason)?;
        }
    }

    /// Returns whether the knob has no effect: its lowest value was measured, and the figure at
    /// every measured value is within 2 % of the best. Returns `false` if the best figure is only a
    /// lower bound.
    fn is_irrelevant(&mut self, knob: &TunedKnob, at: &KnobValues) -> Searched<bool> {
        let line = self.line(knob, at);
        let mut is_irrelevant =
            line.len() > 1 && line[0] <= at_least(knob, 1) && !self.is_lower_bound(&self.best());
        for value in line {
            is_irrelevant = is_irrelevant && self.is_enough(&with(at, knob, value))?;
        }
        Ok(is_irrelevant)
    }

    /// Compares a setting with the best one on fresh processes. Tries the next larger setting if
    /// the figure is not within 2 % of the best.
    fn confirm(
        &mut self,
        mut chosen: KnobValues,
        best: &KnobValues,
    ) -> Searched<(KnobValues, Option<TuningRatio>)> {
        let mut rejected = Vec::new();
        while chosen != *best {
            let mut ratio = None;
            for rounds in ROUNDS {
                self.confirm_on(&chosen, best, rounds)?;
                ratio = Ratio::of(&self.confirmed(&chosen), &self.confirmed(best));
                let interval = ratio.as_ref().and_then(Ratio::interval);
                if interval.is_none_or(|i| i.low >= ENOUGH || i.high < ENOUGH) {
                    break;
                }
            }
            if let Some(ratio) = ratio.filter(|ratio| ratio.value() >= ENOUGH) {
                let confirmed_by = self.confirmed(&chosen).len();
                return Ok((chosen, Some(tuning_ratio(&ratio, confirmed_by))));
            }
            rejected.push(chosen);
            let next = self.good_settings();
            let mut next = next.into_iter().filter(|other| !rejected.contains(other));
            chosen = next.next().unwrap_or_else(|| best.clone());
        }
        self.confirm_on(best, best, ROUNDS[0])?;
        Ok((chosen, None))
    }

    /// Measures fresh processes of two settings in turn.
    fn confirm_on(&mut self, a: &KnobValues, b: &KnobValues, rounds: usize) -> Searched<()> {
        for round in 1..=rounds {
            for setting in [a, b] {
                if self.confirmations(setting).count() < round {
                    let reason = "a fresh process confirms the result";
                    self.take(setting, TuningAction::Confirm, None, reason)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the settings that are within 2 % of the best, smallest first.
    pub(super) fn good_settings(&self) -> Vec<KnobValues> {
        let enough = self.figure(&self.best()).map(|figure| figure * ENOUGH);
        let size = |values: &KnobValues| -> f64 {
            values
                .values()
                .map(|value| (*value.max(&1) as f64).ln())
                .sum()
        };
        let mut good = self.settings();
        good.retain(|setting| self.figure(setting).is_some_and(|f| Some(f) >= enough));
        good.sort_by(|a, b| size(a).total_cmp(&size(b)));
        good
    }

    /// Uses the next process of a setting.
    fn take(
        &mut self,
        values: &KnobValues,
        action: TuningAction,
        knob: Option<&TunedKnob>,
        reason: &str,
    ) -> Searched<()> {
        let taken = self.taken(values);
        let mut step = TuningStep {
            action,
            knob: knob.map(|knob| knob.name.clone()),
            reason: reason.to_owned(),
            values: values.clone(),
            trial: self.tuning.trial_name(values),
            process: taken as u32 + 1,
            figure_per_s: None,
            is_lower_bound: false,
            interval: None,
            note: None,
            cause: None,
            limit: None,
        };
        let measured = self.measured.get(values).and_then(|all| all.get(taken));
        let measured = match measured {
            Some(measured) => measured.clone(),
            None if (self.has_failed)(&step.trial) => MeasuredProcess::default(),
            None => return Err(Box::new(step)),
        };
        step.figure_per_s = measured.figure;
        step.is_lower_bound = measured.is_lower_bound;
        step.interval = measured.interval.clone();
        step.note = measured.note.clone();
        if let Some(verdict) = &measured.verdict {
            step.cause = Some(verdict.cause);
            step.limit = Some(verdict.summary.clone());
        }
        self.steps.push(SearchStep { step, measured });
        Ok(())
    }

    /// Returns the settings used so far, in order.
    pub(super) fn settings(&self) -> Vec<KnobValues> {
        let mut settings: Vec<KnobValues> = Vec::new();
        for step in &self.steps {
            if !settings.contains(&step.step.values) {
                settings.push(step.step.values.clone());
            }
        }
        settings
    }

    /// Returns the search steps that measured a setting.
    pub(super) fn of<'s>(&'s self, values: &KnobValues) -> impl Iterator<Item = &'s SearchStep> {
        let values = values.clone();
        let steps = self.steps.iter();
        steps.filter(move |step| step.step.values == values)
    }

    fn taken(&self, values: &KnobValues) -> usize {
        self.of(values).count()
    }

    /// Returns the last process of a setting that was used.
    fn last(&self, values: &KnobValues) -> &MeasuredProcess {
        let step = self.of(values).last().expect("a setting of the search");
        &step.measured
    }

    fn confirmations<'s>(&'s self, values: &KnobValues) -> impl Iterator<Item = &'s SearchStep> {
        let steps = self.of(values);
        steps.filter(|step| step.step.action == TuningAction::Confirm)
    }

    fn confirmed(&self, values: &KnobValues) -> Vec<f64> {
        let steps = self.confirmations(values);
        steps.filter_map(|step| step.measured.figure).collect()
    }

    /// Returns the figure of a setting, excluding its confirmation, so that good luck in the search
    /// does not count as a confirmation.
    pub(super) fn figure(&self, values: &KnobValues) -> Option<f64> {
        let steps = self.of(values);
        let figures: Vec<f64> = steps
            .filter(|step| step.step.action != TuningAction::Confirm)
            .filter_map(|step| step.measured.figure)
            .collect();
        geometric_mean(&figures)
    }

    /// Returns whether the figure of a setting is only a lower bound.
    pub(super) fn is_lower_bound(&self, values: &KnobValues) -> bool {
        self.of(values).any(|step| step.measured.is_lower_bound)
    }

    /// Returns the setting with the highest figure.
    pub(super) fn best(&self) -> KnobValues {
        let higher = |best, other| {
            if self.figure(&other) > self.figure(&best) {
                other
            } else {
                best
            }
        };
        let settings = self.settings().into_iter();
        settings.reduce(higher).unwrap_or_default()
    }

    /// Returns the measured values of a knob with the other knobs as in `at`, in ascending order.
    fn line(&self, knob: &TunedKnob, at: &KnobValues) -> Vec<u64> {
        let settings = self.settings().into_iter();
        let on_line = settings.filter(|other| with(other, knob, at[&knob.name]) == *at);
        let mut values: Vec<u64> = on_line.map(|other| other[&knob.name]).collect();
        values.sort_unstable();
        values
    }
}

/// Describes what limits a setting.
fn limit(verdict: &Verdict) -> String {
    let limit = format!("{}: {}", verdict.cause, verdict.summary);
    match verdict
        .path
        .last()
        .filter(|_| verdict.cause == Cause::Concurrency)
    {
        None => limit,
        Some(step) => format!("{limit}; where they wait: {step}"),
    }
}

/// Returns a copy of a setting in which one knob has a different value.
fn with(values: &KnobValues, knob: &TunedKnob, value: u64) -> KnobValues {
    let mut values = values.clone();
    values.insert(knob.name.clone(), value);
    values
}

/// Describes the ratio of two settings' figures. `confirmed_by` is the number of fresh processes
/// per setting that confirm it.
pub(super) fn tuning_ratio(ratio: &Ratio, confirmed_by: usize) -> TuningRatio {
    TuningRatio {
        ratio: ratio.value(),
        interval: ratio.interval(),
        confirmed_by: confirmed_by as u32,
    }
}

/// Returns the allowed value that is strictly between two values and nearest to their geometric
/// mean. Returns `None` if there is no such value. Without a list of allowed values, also returns
/// `None` if the two values are close and `low` is not 0.
pub(super) fn between(knob: &TunedKnob, low: u64, high: u64) -> Option<u64> {
    let from = low.max(1) as f64;
    if high as f64 / from <= CLOSE && knob.values.is_empty() && low > 0 {
        return None;
    }
    let middle = (from * high as f64).sqrt();
    let inside = |value: &u64| low < *value && *value < high && *value >= knob.low;
    if knob.values.is_empty() {
        Some(middle.round() as u64)
            .map(|value| value.clamp(low + 1, high.saturating_sub(1).max(low + 1)))
            .filter(inside)
    } else {
        let values = knob.values.iter().copied().filter(inside);
        let distance = |value: &u64| ((*value as f64).ln() - middle.ln()).abs();
        values.min_by(|a, b| distance(a).total_cmp(&distance(b)))
    }
}

/// Returns the smallest allowed value that is at least `wanted`, or the largest allowed value if
/// all are smaller.
pub(super) fn at_least(knob: &TunedKnob, wanted: u64) -> u64 {
    if knob.values.is_empty() {
        wanted.clamp(knob.low, knob.high)
    } else {
        let mut values = knob.values.iter().copied();
        values.find(|value| *value >= wanted).unwrap_or(knob.high)
    }
}

/// Returns the next value of a coarse sweep, up to `limit`. Returns `None` at the end of the sweep.
pub(super) fn coarse_step(knob: &TunedKnob, value: u64, limit: u64) -> Option<u64> {
    let wanted = (value.max(1) as f64 * COARSE).min(limit as f64) as u64;
    let next = at_least(knob, wanted);
    (next > value).then_some(next)
}

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
    /// Returns the pool that the verdict shows to be full. In the verdict's path, the step of kind
    /// `step` shows the number of units in use.
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

/// Returns the saturated pool that the verdict identifies, if any.
pub(crate) fn full_pool(verdict: &Verdict) -> Option<FullPool> {
    match spec(verdict.cause).tuning {
        Tuning::Raise(pool) => Some(pool(verdict)),
        Tuning::Silent | Tuning::Stop => None,
    }
}

/// Returns the knob that sizes a full pool: a knob of the pool's kind whose value is near the
/// number of units in use. If the kind is a guess, a knob of another kind also matches.
fn knob_of<'a>(
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
