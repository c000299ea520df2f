//! The searches for the two capacities of a server: one for a load that rises from idle, and one
//! for a load that falls from an overload. The second search runs only if a test shows that the
//! server does not recover from an overload.

use floodmark_record::capacity::{
    CapacityBound, CapacityKind, CapacityPlan, CapacityResult, CapacityTrial, FallingCapacity,
    TrialOutcome, TrialPurpose, TrialStart,
};
use floodmark_stats::capacity::{
    CapacityEstimate, CapacityFinding, CapacityLimit, CapacitySearch, CapacitySettings,
    CapacityStep,
};

/// Maximum number of trials in one search.
pub const MOST_TRIALS: usize = 200;

/// Rate of the first trial after an overload, as a share of the capacity. A healthy server with a
/// queue recovers slowly at rates close to its capacity.
pub const RECOVERY_SHARE: f64 = 0.9;

/// Rate that the client is known to sustain, as a share of the first rate. In the closed model, the
/// client has already sent at a higher rate.
const CERTAIN_SHARE: f64 = 0.25;

/// The state of both searches.
pub struct CapacitySearches {
    settings: CapacityPlan,
    rising: CapacitySearch,
    recovery: RecoveryTest,
    /// The second search, if the server does not recover.
    falling: Option<CapacitySearch>,
    /// Whether to run trials after an overload.
    tries_overload: bool,
    /// Smallest ratio of judged time to required time among all trials.
    shortest_share: f64,
}

/// The next trial of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NextTrial {
    /// State of the server at the start.
    pub start: TrialStart,
    /// Offered rate in requests per second.
    pub rate_per_s: f64,
    /// Why the trial has this rate.
    pub purpose: TrialPurpose,
}

impl CapacitySearches {
    /// Starts the searches. `tries_overload` is false if no overload can be sent.
    pub fn new(settings: &CapacityPlan, tries_overload: bool) -> Self {
        CapacitySearches {
            rising: CapacitySearch::new(
                settings.start_per_s,
                search_settings(settings, settings.highest_per_s),
            ),
            settings: settings.clone(),
            recovery: RecoveryTest::new(),
            falling: None,
            tries_overload,
            shortest_share: 1.0,
        }
    }

    /// Records a trial.
    pub fn record(&mut self, trial: &CapacityTrial) {
        self.shortest_share = self.shortest_share.min(trial.share_of_required());
        let (rate_per_s, is_disturbed) = (trial.rate_per_s, trial.is_disturbed());
        match (trial.start, &mut self.falling) {
            (TrialStart::Idle, _) => self.rising.record(rate_per_s, trial.outcome, is_disturbed),
            (TrialStart::Overload, Some(falling)) => {
                falling.record(rate_per_s, trial.outcome, is_disturbed);
            }
            (TrialStart::Overload, None) => {
                self.recovery.record(trial.outcome, is_disturbed);
                if self.recovery.decision() == RecoveryDecision::Failed {
                    let settings = search_settings(&self.settings, rate_per_s);
                    self.falling = Some(CapacitySearch::new(0.8 * rate_per_s, settings));
                }
            }
        }
    }

    /// Returns the next trial, or `None` if the result is as precise as requested.
    pub fn next(&self) -> Option<NextTrial> {
        let trial = |start, step| match step {
            CapacityStep::Trial {
                rate_per_s,
                purpose,
            } => Some(NextTrial {
                start,
                rate_per_s,
                purpose,
            }),
            CapacityStep::Done(_) => None,
        };
        let rising = trial(TrialStart::Idle, self.rising.next());
        if rising.is_some() {
            return rising;
        }
        if let Some(falling) = &self.falling {
            return trial(TrialStart::Overload, falling.next());
        }
        let CapacityFinding::Capacity(found) = self.rising.finding() else {
            return None;
        };
        let is_undecided = self.recovery.decision() == RecoveryDecision::Undecided;
        (self.tries_overload && is_undecided).then_some(NextTrial {
            start: TrialStart::Overload,
            rate_per_s: RECOVERY_SHARE * found.interval.low,
            purpose: TrialPurpose::Confirm,
        })
    }

    /// Returns the current estimate of the capacity, in requests per second, if at least one trial
    /// has met the objectives and at least one has missed them.
    pub fn estimate(&self) -> Option<CapacityEstimate> {
        match self.rising.finding() {
            CapacityFinding::Capacity(found) => Some(found),
            CapacityFinding::Hysteresis { rising, .. } => Some(rising),
            _ => None,
        }
    }

    /// Adds the finding from the trials so far to a result that has no finding yet.
    pub fn add_finding(&self, result: &mut CapacityResult) {
        let finding = |search: &CapacitySearch| {
            let finding = search.finding();
            finding.with_short_trials(self.shortest_share)
        };
        result.finding = add_rising(finding(&self.rising), result);
        if let Some(falling) = &self.falling {
            result.finding = CapacityKind::Hysteresis;
            let lowest_per_s = self.settings.lowest_per_s;
            result.falling = Some(falling_capacity(finding(falling), lowest_per_s));
        }
    }
}

fn search_settings(settings: &CapacityPlan, highest_per_s: f64) -> CapacitySettings {
    CapacitySettings {
        lowest_per_s: settings.lowest_per_s,
        highest_per_s,
        certain_per_s: CERTAIN_SHARE * settings.start_per_s,
        precision: settings.precision,
        most_trials: MOST_TRIALS,
    }
}

/// Adds to `result` the figures of the search that starts from idle. Returns the kind of the
/// finding.
fn add_rising(finding: CapacityFinding, result: &mut CapacityResult) -> CapacityKind {
    let mut add_estimate = |found: &CapacityEstimate| {
        result.rate_per_s = Some(found.rate_per_s);
        result.low = Some(found.interval.low);
        result.high = Some(found.interval.high);
        result.scatter = Some(found.scatter);
        result.is_confirmed = found.is_confirmed;
    };
    match finding {
        CapacityFinding::Capacity(found) => {
            add_estimate(&found);
            CapacityKind::Capacity
        }
        CapacityFinding::Hysteresis { rising, falling } => {
            add_estimate(&rising);
            let falling = CapacityFinding::Capacity(falling);
            result.falling = Some(falling_capacity(falling, 0.0));
            CapacityKind::Hysteresis
        }
        CapacityFinding::NotStationary {
            first_per_s,
            last_per_s,
        } => {
            result.rate_per_s = Some(first_per_s);
            result.last_per_s = Some(last_per_s);
            CapacityKind::NotStationary
        }
        CapacityFinding::AtLeast { rate_per_s, limit } => {
            result.rate_per_s = Some(rate_per_s);
            result.bound = Some(CapacityBound::Lower);
            match limit {
                CapacityLimit::Client => CapacityKind::ClientLimit,
                CapacityLimit::Settings => CapacityKind::AboveHighest,
                CapacityLimit::Unfinished => CapacityKind::Unfinished,
            }
        }
        CapacityFinding::Below {
            rate_per_s,
            is_lowest,
        } => {
            result.rate_per_s = Some(rate_per_s);
            result.bound = Some(CapacityBound::Upper);
            if is_lowest {
                CapacityKind::Never
            } else {
                CapacityKind::Unfinished
            }
        }
        CapacityFinding::Unknown => CapacityKind::Unfinished,
    }
}

/// Returns the capacity that the search after an overload found. `lowest_per_s` is the lowest rate
/// that the search may try.
fn falling_capacity(finding: CapacityFinding, lowest_per_s: f64) -> FallingCapacity {
    let (rate_per_s, low, high) = match finding {
        CapacityFinding::Capacity(found) | CapacityFinding::Hysteresis { rising: found, .. } => {
            let interval = found.interval;
            (found.rate_per_s, Some(interval.low), Some(interval.high))
        }
        CapacityFinding::NotStationary { first_per_s, .. } => (first_per_s, None, None),
        CapacityFinding::AtLeast { rate_per_s, .. } => (rate_per_s, Some(rate_per_s), None),
        // The objectives were missed even at the lowest rate, or too few trials were possible.
        CapacityFinding::Below { rate_per_s, .. } => (rate_per_s, None, Some(rate_per_s)),
        CapacityFinding::Unknown => (lowest_per_s, None, None),
    };
    FallingCapacity {
        rate_per_s,
        low,
        high,
    }
}

/// Maximum number of trials after an overload that are run to decide whether the server recovers.
const MOST_RECOVERY_TRIALS: usize = 10;

/// Probability that a trial after an overload misses the objectives although the server recovers.
const MISS: f64 = 0.05;

/// The same probability for a disturbed trial. A disturbance also delays the recovery.
const DISTURBED_MISS: f64 = 0.5;

/// Minimum likelihood ratio at which the server is judged not to recover.
const DECISIVE: f64 = 100.0;

/// Outcome of the trials after an overload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryDecision {
    /// More trials are necessary.
    Undecided,
    /// The server met the objectives in a trial after an overload.
    Recovered,
    /// The server does not recover at the request rate of the trials.
    Failed,
    /// Too many trials were void or disturbed.
    Unknown,
}

/// The trials after an overload that decide whether a second search is necessary.
#[derive(Debug)]
pub struct RecoveryTest {
    trials: usize,
    /// Probability of the misses if the server does not recover, divided by their probability if it
    /// recovers.
    ratio: f64,
    has_recovered: bool,
}

impl RecoveryTest {
    /// Returns a test that contains no trials yet.
    pub fn new() -> Self {
        RecoveryTest {
            trials: 0,
            ratio: 1.0,
            has_recovered: false,
        }
    }

    /// Records a trial.
    pub fn record(&mut self, outcome: TrialOutcome, is_disturbed: bool) {
        self.trials += 1;
        match outcome {
            TrialOutcome::Pass => self.has_recovered = true,
            TrialOutcome::Miss if is_disturbed => self.ratio /= DISTURBED_MISS,
            TrialOutcome::Miss => self.ratio /= MISS,
            TrialOutcome::Void => {}
        }
    }

    /// Returns the decision that the trials so far support.
    pub fn decision(&self) -> RecoveryDecision {
        match self {
            _ if self.has_recovered => RecoveryDecision::Recovered,
            _ if self.ratio >= DECISIVE => RecoveryDecision::Failed,
            _ if self.trials >= MOST_RECOVERY_TRIALS => RecoveryDecision::Unknown,
            _ => RecoveryDecision::Undecided,
        }
    }
}

#[cfg(test)]
mod tests {
    use TrialOutcome::{Miss, Pass, Void};

    use super::*;

    /// Returns the decision and the number of trials before it.
    fn decided(outcomes: impl Iterator<Item = (TrialOutcome, bool)>) -> (RecoveryDecision, usize) {
        let mut test = RecoveryTest::new();
        for (outcome, is_disturbed) in outcomes {
            if test.decision() != RecoveryDecision::Undecided {
                break;
            }
            test.record(outcome, is_disturbed);
        }
        (test.decision(), test.trials)
    }

    #[test]
    fn two_clear_misses_decide() {
        let misses = std::iter::repeat((Miss, false));
        assert_eq!(decided(misses), (RecoveryDecision::Failed, 2));
    }

    #[test]
    fn a_server_on_a_disturbed_host_fails_after_more_misses() {
        let misses = std::iter::repeat((Miss, true));
        assert_eq!(decided(misses), (RecoveryDecision::Failed, 7));
        let last_passes = [(Miss, true); 6].into_iter().chain([(Pass, true)]);
        assert_eq!(decided(last_passes), (RecoveryDecision::Recovered, 7));
    }

    #[test]
    fn void_trials_decide_nothing() {
        let voids = std::iter::repeat((Void, false));
        assert_eq!(
            decided(voids),
            (RecoveryDecision::Unknown, MOST_RECOVERY_TRIALS)
        );
    }
}
