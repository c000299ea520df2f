//! The search: which rate to try next, and when to stop.

use std::borrow::Cow;
use std::collections::BTreeSet;

use floodmark_record::interval::Interval;

use super::posterior::{
    CapacityModel, JudgedTrial, Models, Posterior, STEP, TrialEvidence, position, rate_at,
};
use super::{
    CapacityEstimate, CapacityFinding, CapacityLimit, CapacitySettings, CapacityStep, TrialOutcome,
    TrialPurpose,
};
use crate::estimate::CONFIDENCE;

/// Factors between successive rates while all trials pass or all miss. The last factor repeats.
const FACTORS: [f64; 5] = [1.25, 1.5, 2.0, 4.0, 16.0];

/// Maximum factor between successive rates that pass.
const LARGEST_RISE: f64 = 4.0;

/// Number of trials that decide whether a bound of the settings or of the client passes.
const REPEATS: usize = 3;

/// A search ends after this many void trials if no trial was sent on time.
const MOST_LATE: usize = 10;

/// Minimum number of separate occasions on which the client was late at a rate that it cannot send.
const FEWEST_OCCASIONS: i32 = 3;

/// Maximum probability that the client was late on all of these occasions by chance.
const MOST_CHANCE: f64 = 0.01;

/// Probability of the posterior beyond each bound of an interval. A search that underestimates the
/// scatter stops too early, so the bounds are wider than those of a fixed number of trials (2.5 %).
const TAIL: f64 = 0.02;

/// Fresh trials at each bound of an interval.
const CONFIRMATIONS: usize = 2;

/// The search ends by reporting drift only if the outcomes so far have indicated drift after each
/// of this many consecutive trials. A disturbance of the host that lasts for a few trials looks
/// like drift only temporarily.
const DRIFT_TRIALS: usize = 3;

/// Maximum difference between a rate to confirm and the rate of the trial, in grid steps. A client
/// may round the rate.
const SAME_RATE: u32 = 2;

/// Minimum number of trials of each outcome before an interval is confirmed.
const FEWEST_OF_EACH: usize = 3;

/// Distance from the lowest and highest tried rates up to which capacities are considered, in grid
/// steps.
const MARGIN: i32 = 110;

/// Number of grid steps by which the range of capacities is extended.
const EXTENSION: i32 = 350;

/// Maximum probability in a twentieth of the considered capacities at either edge.
const MOST_AT_EDGE: f64 = 0.1;

/// A sequential search for the capacity.
///
/// The search is a deterministic function of its first rate, its settings and the recorded trials.
/// To resume a search, record its past trials again.
#[derive(Debug, Clone)]
pub struct CapacitySearch {
    settings: CapacitySettings,
    start: i32,
    /// Rate that the client is known to sustain.
    certain: i32,
    judged: Vec<JudgedTrial>,
    late: Vec<LateTrial>,
    /// Number of trials that a disturbance of the host made void.
    disturbed: usize,
    /// `None` until at least one trial has passed and one has missed.
    models: Option<Models>,
    lowest: i32,
    highest: i32,
    confirmation: Option<Confirmation>,
    /// Whether the last confirmation agreed.
    is_confirmed: bool,
    /// Number of consecutive trials, up to the latest, after each of which the outcomes indicated
    /// drift.
    drifting: usize,
}

/// A trial that the client sent late.
#[derive(Debug, Clone, Copy)]
struct LateTrial {
    rate: i32,
    /// Number of judged trials before this one. A single disturbance can make consecutive trials
    /// late, so trials with the same number are one occasion.
    occasion: usize,
}

/// Fresh trials at the bounds of an interval.
#[derive(Debug, Clone)]
struct Confirmation {
    model: CapacityModel,
    /// Rates to try in order, with the expected outcome.
    rates: Vec<(i32, bool)>,
    /// Number of trials so far.
    done: usize,
    /// Number of trials with an unexpected outcome, by expected outcome.
    contradictions: [usize; 2],
}

impl CapacitySearch {
    /// Starts a search at a rate in requests per second, such as the throughput of the closed
    /// model. The rate is moved into the range of the settings.
    #[must_use]
    pub fn new(start_per_s: f64, settings: CapacitySettings) -> Self {
        let lowest = position(settings.lowest_per_s);
        let highest = position(settings.highest_per_s);
        CapacitySearch {
            start: position(start_per_s.max(settings.lowest_per_s)).min(highest),
            certain: position(settings.certain_per_s),
            settings,
            judged: Vec::new(),
            late: Vec::new(),
            disturbed: 0,
            models: None,
            lowest,
            highest,
            confirmation: None,
            is_confirmed: false,
            drifting: 0,
        }
    }

    /// Returns the next trial, or the result.
    #[must_use]
    pub fn next(&self) -> CapacityStep {
        let voids = self.late.len() + self.disturbed;
        let is_void = self.judged.is_empty() && voids >= MOST_LATE;
        if is_void || self.judged.len() + voids >= self.settings.most_trials {
            return CapacityStep::Done(self.finding());
        }
        let Some(models) = &self.models else {
            return self.bracket();
        };
        if self.is_settled(models) {
            return CapacityStep::Done(self.finding());
        }
        let most = self.highest_to_try();
        let confirmation = self.confirmation.as_ref();
        let confirmed = confirmation.map(|of| of.rates[of.done].0);
        if let Some(rate) = confirmed.filter(|rate| *rate <= most) {
            return trial(rate, TrialPurpose::Confirm);
        }
        let rate = self.relevant(models).most_informative(most);
        trial(rate.max(self.lowest), TrialPurpose::Narrow)
    }

    /// Records the outcome of a trial at a rate in requests per second. The rate need not be the
    /// one that [`Self::next`] returned. `is_disturbed` says whether a disturbance of the host may
    /// have made the trial miss its objectives, or made it void. The client was late in all other
    /// void trials.
    pub fn record(&mut self, rate_per_s: f64, outcome: TrialOutcome, is_disturbed: bool) {
        let rate = position(rate_per_s);
        if outcome == TrialOutcome::Void && is_disturbed {
            self.disturbed += 1;
            return;
        }
        if outcome == TrialOutcome::Void {
            let occasion = self.judged.len();
            self.late.push(LateTrial { rate, occasion });
            let highest = self.highest_sendable();
            // Rates that the client cannot send confirm nothing.
            let is_sendable = |c: &Confirmation| c.rates.iter().all(|(r, _)| *r <= highest);
            self.confirmation = self.confirmation.take().filter(is_sendable);
            return;
        }
        let evidence = TrialEvidence {
            is_pass: outcome == TrialOutcome::Pass,
            is_disturbed,
        };
        let trial = JudgedTrial {
            rate,
            evidence,
            is_after_miss: self
                .judged
                .last()
                .is_some_and(|last| !last.evidence.is_pass),
        };
        self.judged.push(trial);
        self.update_models(&trial);
        let is_drift = |models: &Models| models.decided() == CapacityModel::Drift;
        self.drifting = if self.models.as_ref().is_some_and(is_drift) {
            self.drifting + 1
        } else {
            0
        };
        if let Some(confirmation) = &mut self.confirmation {
            confirmation.add(&trial);
        }
        self.advance_confirmation();
    }

    /// Returns the result of the trials so far. The interval may be wider than the precision of the
    /// settings.
    #[must_use]
    pub fn finding(&self) -> CapacityFinding {
        let Some(models) = &self.models else {
            return self.one_sided_finding();
        };
        let highest = self.highest_sendable();
        match models.decided() {
            CapacityModel::Drift => {
                let (first, last) = models.first_and_last();
                CapacityFinding::NotStationary {
                    first_per_s: rate_at(first),
                    last_per_s: rate_at(last),
                }
            }
            CapacityModel::Hysteresis => CapacityFinding::Hysteresis {
                rising: self.estimate(&models.rising()),
                falling: self.estimate(&models.falling()),
            },
            CapacityModel::Constant if is_above(&models.constant, highest) => {
                CapacityFinding::AtLeast {
                    rate_per_s: rate_at(f64::from(self.highest_passed().unwrap_or(highest))),
                    limit: self.limit(),
                }
            }
            CapacityModel::Constant if is_below(&models.constant, self.lowest) => {
                CapacityFinding::Below {
                    rate_per_s: self.settings.lowest_per_s,
                    is_lowest: true,
                }
            }
            CapacityModel::Constant => CapacityFinding::Capacity(self.estimate(&models.constant)),
        }
    }

    fn update_models(&mut self, trial: &JudgedTrial) {
        let lowest = self.rates().min().unwrap_or(self.lowest) - MARGIN;
        let highest = self.rates().max().unwrap_or(self.highest) + MARGIN;
        match &mut self.models {
            Some(models) => {
                models.update(trial);
                let (low, high) = models.constant.edges();
                let extension = |probability: f64| {
                    if probability > MOST_AT_EDGE {
                        EXTENSION
                    } else {
                        0
                    }
                };
                let lowest = lowest.min(models.constant.lowest) - extension(low);
                let highest = highest.max(models.constant.highest()) + extension(high);
                if (lowest, highest) != (models.constant.lowest, models.constant.highest()) {
                    self.models = Some(Models::new(lowest, highest, &self.judged));
                }
            }
            None => {
                if self.fewest_of_each() > 0 {
                    self.models = Some(Models::new(lowest, highest, &self.judged));
                }
            }
        }
    }

    /// Starts a confirmation if the interval is narrow, and evaluates a complete one.
    fn advance_confirmation(&mut self) {
        let Some(models) = &self.models else { return };
        if let Some(confirmation) = &self.confirmation {
            if confirmation.done < confirmation.rates.len() {
                return;
            }
            self.is_confirmed = confirmation.agrees() && confirmation.model == models.decided();
            self.confirmation = None;
            if !self.is_confirmed {
                return;
            }
        }
        if self.is_narrow(models) && !self.is_confirmed && self.fewest_of_each() >= FEWEST_OF_EACH {
            let confirmation = self.confirm(models);
            self.confirmation = Some(confirmation).filter(|c| !c.rates.is_empty());
        }
    }

    /// Returns the number of trials with the rarer outcome.
    fn fewest_of_each(&self) -> usize {
        let passed = self.judged.iter().filter(|trial| trial.evidence.is_pass);
        let passes = passed.count();
        passes.min(self.judged.len() - passes)
    }

    /// Returns the rates of all trials whose requests were sent on time.
    fn rates(&self) -> impl Iterator<Item = i32> {
        self.judged.iter().map(|trial| trial.rate)
    }

    fn confirm(&self, models: &Models) -> Confirmation {
        let bounds = |posterior: &Posterior| {
            let (low, high) = bounds(posterior);
            (low.floor() as i32, high.ceil() as i32)
        };
        let model = models.decided();
        let cycle = match model {
            CapacityModel::Hysteresis => {
                let (low, high) = bounds(&models.rising());
                let (low_after, high_after) = bounds(&models.falling());
                vec![
                    (low, true),
                    (high, false),
                    (high_after, false),
                    (low_after, true),
                ]
            }
            CapacityModel::Constant | CapacityModel::Drift => {
                let (low, high) = bounds(&models.constant);
                vec![(high, false), (low, true)]
            }
        };
        let range = self.lowest..=self.highest_sendable();
        let rates = cycle.repeat(CONFIRMATIONS).into_iter();
        Confirmation {
            model,
            rates: rates.filter(|(rate, _)| range.contains(rate)).collect(),
            done: 0,
            contradictions: [0; 2],
        }
    }

    fn is_settled(&self, models: &Models) -> bool {
        match models.decided() {
            CapacityModel::Drift => self.drifting >= DRIFT_TRIALS,
            _ if models.is_doubtful() => false,
            CapacityModel::Hysteresis => self.is_confirmed && self.is_narrow(models),
            CapacityModel::Constant => {
                self.is_confirmed && self.is_narrow(models)
                    || is_above(&models.constant, self.highest_sendable())
                        && self.highest_sendable() <= self.highest_sent().unwrap_or(i32::MIN)
                    || is_below(&models.constant, self.lowest)
            }
        }
    }

    /// Returns whether the intervals of the decided model are as narrow as the settings demand.
    fn is_narrow(&self, models: &Models) -> bool {
        let is_narrow = |posterior: &Posterior| {
            let (low, high) = bounds(posterior);
            (high - low) * STEP <= 2.0 * self.settings.precision
        };
        match models.decided() {
            CapacityModel::Hysteresis => {
                is_narrow(&models.rising()) && is_narrow(&models.falling())
            }
            CapacityModel::Constant => is_narrow(&models.constant),
            CapacityModel::Drift => false,
        }
    }

    /// Returns the posterior used to choose the next trial.
    fn relevant<'a>(&self, models: &'a Models) -> Cow<'a, Posterior> {
        let is_after_pass = self.judged.last().is_some_and(|last| last.evidence.is_pass);
        match models.likely() {
            CapacityModel::Constant | CapacityModel::Drift => Cow::Borrowed(&models.constant),
            CapacityModel::Hysteresis if is_after_pass => Cow::Owned(models.rising()),
            CapacityModel::Hysteresis => Cow::Owned(models.falling()),
        }
    }

    fn estimate(&self, posterior: &Posterior) -> CapacityEstimate {
        let (low, high) = bounds(posterior);
        let trials = self.judged.len();
        CapacityEstimate {
            rate_per_s: rate_at(posterior.quantile(0.5)),
            interval: Interval {
                low: rate_at(low),
                high: rate_at(high),
                confidence: CONFIDENCE,
                method: format!("posterior of the capacity after {trials} trials"),
            },
            scatter: posterior.scatter(),
            is_confirmed: self.is_confirmed,
        }
    }

    /// Returns the next rate while all trials passed or all missed.
    fn bracket(&self) -> CapacityStep {
        let tried = self.judged.len();
        let factor = |n: usize| FACTORS[n.min(FACTORS.len() - 1)];
        let Some(last) = self.judged.last() else {
            return self.first_judged(factor);
        };
        if last.evidence.is_pass {
            let highest = self.rates().max().unwrap_or(self.start);
            let at_highest = self.rates().filter(|rate| *rate == highest).count();
            let most = self.highest_to_try();
            let is_limit_known = self.unsent().is_none() || self.client_limit().is_some();
            if most > highest && self.unsent().is_some() {
                trial(most, TrialPurpose::ClientLimit)
            } else if most > highest {
                let rise = position(factor(tried - 1).min(LARGEST_RISE));
                trial((highest + rise).min(most), TrialPurpose::Bracket)
            } else if at_highest < REPEATS || !is_limit_known {
                trial(highest, TrialPurpose::Confirm)
            } else {
                CapacityStep::Done(self.finding())
            }
        } else {
            let lowest = self.rates().min().unwrap_or(self.start);
            let at_lowest = self.rates().filter(|rate| *rate == lowest).count();
            if lowest > self.lowest {
                let rate = lowest - position(factor(tried - 1));
                trial(rate.max(self.lowest), TrialPurpose::Bracket)
            } else if at_lowest < REPEATS {
                trial(lowest, TrialPurpose::Confirm)
            } else {
                CapacityStep::Done(self.finding())
            }
        }
    }

    /// Returns the next rate until a trial is judged. After the first repetition, the first rate
    /// alternates with lower ones: the client may be disturbed, or may be unable to send this rate.
    fn first_judged(&self, factor: impl Fn(usize) -> f64) -> CapacityStep {
        let late = self.late.len();
        let lower: f64 = (0..late / 2).map(factor).product();
        let least = self.certain.max(self.lowest).min(self.start);
        let (rate, purpose) = match late {
            0 => (self.start, TrialPurpose::Bracket),
            _ if late % 2 == 1 => (self.start, TrialPurpose::ClientLimit),
            _ => (self.start - position(lower), TrialPurpose::ClientLimit),
        };
        trial(rate.max(least), purpose)
    }

    /// Returns the result while all trials passed or all missed.
    fn one_sided_finding(&self) -> CapacityFinding {
        let (Some(lowest), Some(highest)) = (self.rates().min(), self.highest_sent()) else {
            return CapacityFinding::Unknown;
        };
        let repeats = |bound: i32| self.rates().filter(|rate| *rate == bound).count() >= REPEATS;
        if self.judged.last().is_some_and(|last| last.evidence.is_pass) {
            CapacityFinding::AtLeast {
                rate_per_s: rate_at(f64::from(highest)),
                limit: if repeats(highest) && highest >= self.highest_sendable() {
                    self.limit()
                } else {
                    CapacityLimit::Unfinished
                },
            }
        } else {
            CapacityFinding::Below {
                rate_per_s: rate_at(f64::from(lowest)),
                is_lowest: lowest <= self.lowest && repeats(lowest),
            }
        }
    }

    fn limit(&self) -> CapacityLimit {
        self.client_limit()
            .map_or(CapacityLimit::Settings, |_| CapacityLimit::Client)
    }

    fn highest_sent(&self) -> Option<i32> {
        self.rates().max()
    }

    fn highest_passed(&self) -> Option<i32> {
        let passed = self.judged.iter().filter(|trial| trial.evidence.is_pass);
        passed.map(|trial| trial.rate).max()
    }

    /// Returns the highest rate that the client is known to send on time.
    fn sent(&self) -> i32 {
        self.highest_sent().unwrap_or(i32::MIN).max(self.certain)
    }

    /// Returns the lowest late rate above all rates that the client is known to send on time.
    fn unsent(&self) -> Option<i32> {
        let sent = self.sent();
        let late = self.late.iter().map(|late| late.rate);
        late.filter(|rate| *rate > sent).min()
    }

    /// Returns the lowest rate that the client cannot send. The client was late at this rate on so
    /// many occasions that chance does not explain it. The rates that it has sent show how often it
    /// is late by chance.
    fn client_limit(&self) -> Option<i32> {
        let (sent, limit) = (self.sent(), self.unsent()?);
        let at_limit = |late: &&LateTrial| late.rate > sent && late.rate <= limit + self.close();
        let occasions: BTreeSet<usize> = self
            .late
            .iter()
            .filter(at_limit)
            .map(|late| late.occasion)
            .collect();
        let by_chance = self.late.iter().filter(|late| late.rate <= sent).count();
        // The rule of succession gives the probability that the next trial is late.
        let trials = self.judged.len() + by_chance;
        let chance = (by_chance + 1) as f64 / (trials + 2) as f64;
        let occasions = occasions.len() as i32;
        (occasions >= FEWEST_OCCASIONS && chance.powi(occasions) <= MOST_CHANCE).then_some(limit)
    }

    /// Returns the highest rate that the client has sent if its limit is known and close to that
    /// rate; otherwise, returns the highest rate in the settings.
    fn highest_sendable(&self) -> i32 {
        let sent = self.highest_sent().unwrap_or(self.lowest);
        let is_close = |limit: i32| limit - sent <= self.close();
        match self.client_limit() {
            Some(limit) if is_close(limit) => sent,
            _ => self.highest,
        }
    }

    /// Returns the highest rate to try next. A rate at which the client was late is repeated after
    /// each trial that was sent on time. After a late trial, or if the client cannot send this
    /// rate, lower rates narrow the range of the client's limit.
    fn highest_to_try(&self) -> i32 {
        let Some(unsent) = self.unsent() else {
            return self.highest;
        };
        let sent = self.highest_sent().unwrap_or(self.lowest);
        let last = self.late.last();
        let is_last_late =
            last.is_some_and(|last| last.rate > sent && last.occasion == self.judged.len());
        match unsent - sent {
            _ if !is_last_late && self.client_limit().is_none() => unsent,
            difference if difference > self.close() => sent + difference / 2,
            _ => sent,
        }
    }

    /// Returns the largest difference, in grid steps, at which two rates count as close.
    fn close(&self) -> i32 {
        (self.settings.precision / STEP) as i32
    }
}

impl Confirmation {
    fn add(&mut self, trial: &JudgedTrial) {
        let (rate, is_expected_pass) = self.rates[self.done];
        if trial.rate.abs_diff(rate) <= SAME_RATE {
            self.done += 1;
            // A disturbed miss contradicts nothing.
            let is_clear = trial.evidence.is_pass || !trial.evidence.is_disturbed;
            let contradicts = is_clear && trial.evidence.is_pass != is_expected_pass;
            self.contradictions[usize::from(is_expected_pass)] += usize::from(contradicts);
        }
    }

    /// Returns whether most trials at each bound had the expected outcome.
    fn agrees(&self) -> bool {
        [false, true].into_iter().all(|expected| {
            let trials = self
                .rates
                .iter()
                .filter(|(_, pass)| *pass == expected)
                .count();
            2 * self.contradictions[usize::from(expected)] <= trials
        })
    }
}

fn trial(rate: i32, purpose: TrialPurpose) -> CapacityStep {
    CapacityStep::Trial {
        rate_per_s: rate_at(f64::from(rate)),
        purpose,
    }
}

/// Returns the positions of the interval's bounds.
fn bounds(posterior: &Posterior) -> (f64, f64) {
    (posterior.quantile(TAIL), posterior.quantile(1.0 - TAIL))
}

fn is_above(posterior: &Posterior, position: i32) -> bool {
    bounds(posterior).0 > f64::from(position)
}

fn is_below(posterior: &Posterior, position: i32) -> bool {
    bounds(posterior).1 < f64::from(position)
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
