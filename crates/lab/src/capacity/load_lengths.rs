//! Chooses the lengths of a search's loads.

use std::collections::VecDeque;
use std::time::Duration;

use floodmark_diagnose::conditions::Objective;
use floodmark_record::capacity::TrialStart;
use floodmark_stats::capacity::{
    LATEST_TRIALS, SHORTEST_TRANSIENT_S, SHORTEST_TRIAL_S, TrialLength, TrialRow, design_effect,
    trial_length,
};

use super::loads::{OVERLOAD_FACTOR, OVERLOAD_S};

/// Share of the budget that a single trial may use.
const TRIAL_SHARE: f64 = 1.0 / 40.0;

/// Share of the budget that each load after the search may use.
const LEVEL_SHARE: f64 = 1.0 / 30.0;

/// Minimum length of each load after the search, in seconds. It overrides the share of the budget.
const SHORTEST_LEVEL_S: f64 = 0.5;

/// Minimum response time of slow requests, as a share of the objective's limit. Variations of much
/// faster responses do not matter.
const NEAR_LIMIT: f64 = 0.7;

/// Chooses the lengths of trials and loads, based on the correlation of the requests so far.
pub struct LoadLengths<'a> {
    objectives: &'a [Objective],
    budget: Duration,
    /// Whether a single connection met the objectives.
    is_met_idle: bool,
    /// Parts of the latest trials that passed.
    passed: VecDeque<Vec<TrialRow>>,
    /// Design effect of an earlier part of the search.
    earlier_effect: Option<f64>,
    /// Response time above which a request counts as slow. At most about a tenth of the requests
    /// exceed it.
    slow: Option<Duration>,
}

impl<'a> LoadLengths<'a> {
    /// Creates the lengths of a new or resumed search. `earlier_effect` is the design effect before
    /// the interruption.
    pub fn new(
        objectives: &'a [Objective],
        budget: Duration,
        is_met_idle: bool,
        earlier_effect: Option<f64>,
    ) -> Self {
        LoadLengths {
            objectives,
            budget,
            is_met_idle,
            passed: VecDeque::new(),
            earlier_effect,
            slow: None,
        }
    }

    /// Adds the 90th percentile of a load's response times in microseconds. Requests above this
    /// percentile count as slow if they also exceed [`NEAR_LIMIT`] of the objective's limit.
    pub fn add_p90(&mut self, p90_us: Option<f64>) {
        let limit_s = self.strictest().and_then(Objective::time_limit_s);
        let near_s = limit_s.map_or(0.0, |limit_s| NEAR_LIMIT * limit_s);
        let slow_s = p90_us.map(|p90_us| (p90_us / 1e6).max(near_s));
        self.slow = slow_s.map(Duration::from_secs_f64).or(self.slow);
    }

    /// Adds a trial that passed, as a list of consecutive parts.
    pub fn add_passed(&mut self, parts: Vec<TrialRow>) {
        self.passed.push_back(parts);
        if self.passed.len() > LATEST_TRIALS {
            self.passed.pop_front();
        }
    }

    /// Returns the response time above which a request counts as slow.
    pub fn slow(&self) -> Option<Duration> {
        self.slow
    }

    /// Returns the design effect of the latest trials that passed, or before the interruption.
    pub fn design_effect(&self) -> Option<f64> {
        let passed: Vec<_> = self.passed.iter().cloned().collect();
        design_effect(&passed).or(self.earlier_effect)
    }

    /// Returns the objective that demands the most precise figures.
    pub fn strictest(&self) -> Option<&'a Objective> {
        let objectives = self.objectives.iter();
        objectives.max_by(|a, b| a.quantile().total_cmp(&b.quantile()))
    }

    /// Returns the length of a trial. If the budget shortens the trial, also returns the judged time
    /// that precision requires, in seconds. `capacity_per_s` is `None` until at least one trial has
    /// passed and one has missed.
    pub fn trial(
        &self,
        rate_per_s: f64,
        start: TrialStart,
        capacity_per_s: Option<f64>,
    ) -> (TrialLength, Option<f64>) {
        if !self.is_met_idle && self.passed.is_empty() {
            // The objectives are probably missed at every rate, so precision does not matter until
            // a trial passes.
            let length = TrialLength {
                transient_s: SHORTEST_TRANSIENT_S,
                judged_s: SHORTEST_TRIAL_S,
            };
            return (length, None);
        }
        // Far from the capacity, the outcome does not depend on the precision of the figures.
        let effect = self.design_effect().filter(|_| capacity_per_s.is_some());
        let quantile = self.strictest().map_or(0.5, Objective::quantile);
        let required = trial_length(rate_per_s, quantile, effect.unwrap_or(1.0));
        let most_s = (self.budget.as_secs_f64() * TRIAL_SHARE).max(SHORTEST_TRIAL_S);
        let required_s = (required.judged_s > most_s).then_some(required.judged_s);
        let mut length = required.limited(most_s);
        if start == TrialStart::Overload {
            // Long enough for a healthy server to answer the requests sent during the overload.
            let queue_s = (OVERLOAD_FACTOR - 1.0) * OVERLOAD_S;
            let spare = 1.0 - rate_per_s / capacity_per_s.unwrap_or(rate_per_s);
            length.transient_s += 1.5 * queue_s / spare.max(0.05);
        }
        (length, required_s)
    }

    /// Returns the length of a load after the search.
    pub fn level(&self, rate_per_s: f64, capacity_per_s: f64) -> TrialLength {
        let (mut length, _) = self.trial(rate_per_s, TrialStart::Idle, Some(capacity_per_s));
        let most_s = self.budget.as_secs_f64() * LEVEL_SHARE;
        length.judged_s = length.judged_s.min(most_s.max(SHORTEST_LEVEL_S));
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of 1 s with 1,000 requests each. The slow ones come in bursts.
    fn bursts() -> Vec<TrialRow> {
        let row = |i| TrialRow {
            requests: 1_000,
            slow: if i % 10 == 0 { 1_000 } else { 0 },
        };
        (0..100).map(row).collect()
    }

    #[test]
    fn the_budget_limits_trials_of_correlated_requests() {
        let objectives = ["p99 < 5ms".parse().unwrap()];
        let mut lengths = LoadLengths::new(&objectives, Duration::from_secs(120), true, None);
        let of = |lengths: &LoadLengths<'_>, capacity| {
            lengths.trial(1_000.0, TrialStart::Idle, capacity)
        };
        assert_eq!(of(&lengths, Some(1_000.0)).1, None, "nothing is known");
        lengths.add_passed(bursts());
        assert!(lengths.design_effect().unwrap() > 100.0);
        let (length, required_s) = of(&lengths, Some(1_000.0));
        assert_eq!(length.judged_s, 3.0, "a fortieth of the budget");
        assert!(required_s.unwrap() > 100.0);
        assert!(length.transient_s <= 1.0);
        assert_eq!(of(&lengths, None).1, None, "far from the capacity");
        assert!(lengths.level(500.0, 1_000.0).judged_s <= 4.0);
        let overload = lengths.trial(900.0, TrialStart::Overload, Some(1_000.0)).0;
        assert!(overload.transient_s > length.transient_s + 2.0);
    }

    #[test]
    fn trials_are_short_if_no_rate_meets_the_objectives() {
        let objectives = ["p99.9 < 5ms".parse().unwrap()];
        let lengths = LoadLengths::new(&objectives, Duration::from_secs(600), false, Some(500.0));
        let (length, required_s) = lengths.trial(1_000.0, TrialStart::Idle, Some(1_000.0));
        assert_eq!((length.judged_s, required_s), (SHORTEST_TRIAL_S, None));
    }
}
