//! The searches for the two capacities of a server: one for a load that rises from idle, and one for
//! a load that falls from an overload. A test decides whether the server recovers from an overload.

use floodmark_record::capacity::{
    CapacityBound, CapacityKind, CapacityPlan, CapacityTrial, FallingCapacity, TrialOutcome,
    TrialPurpose, TrialStart,
};
use floodmark_stats::capacity::{
    CapacityEstimate, CapacityFinding, CapacityLimit, CapacitySearch, CapacitySettings,
    CapacityStep,
};

/// Maximum number of trials of one search.
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
    /// Whether to try the server after an overload.
    tries_overload: bool,
    /// Smallest judged time of a trial, as a share of the required time.
    shortest_share: f64,
}

/// The next trial, or the end of the search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NextTrial {
    /// A trial from idle.
    Rising(CapacityStepTrial),
    /// A trial after an overload.
    Falling(CapacityStepTrial),
    /// The result is as precise as requested.
    Settled,
}

/// Rate and purpose of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CapacityStepTrial {
    /// Offered rate in requests per second.
    pub rate_per_s: f64,
    /// Why the trial has this rate.
    pub purpose: TrialPurpose,
}

/// What both searches found. The fields are those of the record's `CapacityResult`.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchesFinding {
    pub kind: CapacityKind,
    pub rate_per_s: Option<f64>,
    pub interval: Option<(f64, f64)>,
    pub level: f64,
    pub bound: Option<CapacityBound>,
    pub falling: Option<FallingCapacity>,
    pub last_per_s: Option<f64>,
    pub scatter: Option<f64>,
    pub is_confirmed: bool,
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
        match (trial.start, &mut self.falling) {
            (TrialStart::Idle, _) => {
                self.rising
                    .record(trial.rate_per_s, trial.outcome, trial.is_disturbed());
            }
            (TrialStart::Overload, Some(falling)) => {
                falling.record(trial.rate_per_s, trial.outcome, trial.is_disturbed());
            }
            (TrialStart::Overload, None) => {
                self.recovery.record(trial.outcome, trial.is_disturbed());
                if self.recovery.decision() == RecoveryDecision::Failed {
                    let settings = search_settings(&self.settings, trial.rate_per_s);
                    self.falling = Some(CapacitySearch::new(0.8 * trial.rate_per_s, settings));
                }
            }
        }
    }

    /// Returns the next trial, or that the result is precise.
    pub fn next(&self) -> NextTrial {
        if let CapacityStep::Trial {
            rate_per_s,
            purpose,
        } = self.rising.next()
        {
            return NextTrial::Rising(CapacityStepTrial {
                rate_per_s,
                purpose,
            });
        }
        if let Some(falling) = &self.falling {
            return match falling.next() {
                CapacityStep::Trial {
                    rate_per_s,
                    purpose,
                } => NextTrial::Falling(CapacityStepTrial {
                    rate_per_s,
                    purpose,
                }),
                CapacityStep::Done(_) => NextTrial::Settled,
            };
        }
        match self.rising.finding() {
            CapacityFinding::Capacity(found)
                if self.tries_overload
                    && self.recovery.decision() == RecoveryDecision::Undecided =>
            {
                NextTrial::Falling(CapacityStepTrial {
                    rate_per_s: RECOVERY_SHARE * found.interval.low,
                    purpose: TrialPurpose::Confirm,
                })
            }
            _ => NextTrial::Settled,
        }
    }

    /// Returns the capacity so far in requests per second, if trials passed and missed.
    pub fn estimate(&self) -> Option<CapacityEstimate> {
        match self.rising.finding() {
            CapacityFinding::Capacity(found) => Some(found),
            CapacityFinding::Hysteresis { rising, .. } => Some(rising),
            _ => None,
        }
    }

    /// Returns what the trials so far show.
    pub fn finding(&self) -> SearchesFinding {
        let finding = |search: &CapacitySearch| {
            one_search(search.finding().with_short_trials(self.shortest_share))
        };
        let mut found = finding(&self.rising);
        if let Some(falling) = &self.falling {
            found.falling = match finding(falling) {
                SearchesFinding {
                    rate_per_s: Some(rate_per_s),
                    interval,
                    bound: None,
                    ..
                } => Some(FallingCapacity {
                    rate_per_s,
                    low: interval.map(|(low, _)| low),
                    high: interval.map(|(_, high)| high),
                }),
                SearchesFinding {
                    rate_per_s: Some(rate_per_s),
                    bound: Some(CapacityBound::Lower),
                    ..
                } => Some(FallingCapacity {
                    rate_per_s,
                    low: Some(rate_per_s),
                    high: None,
                }),
                // Even the lowest rate missed, or too few trials were possible.
                SearchesFinding { rate_per_s, .. } => Some(FallingCapacity {
                    rate_per_s: rate_per_s.unwrap_or(self.settings.lowest_per_s),
                    low: None,
                    high: rate_per_s,
                }),
            };
            found.kind = CapacityKind::Hysteresis;
        }
        found
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

fn one_search(finding: CapacityFinding) -> SearchesFinding {
    let nothing = SearchesFinding {
        kind: CapacityKind::Unfinished,
        rate_per_s: None,
        interval: None,
        level: floodmark_stats::estimate::CONFIDENCE,
        bound: None,
        falling: None,
        last_per_s: None,
        scatter: None,
        is_confirmed: false,
    };
    let estimated = |kind, found: &CapacityEstimate| SearchesFinding {
        kind,
        rate_per_s: Some(found.rate_per_s),
        interval: Some((found.interval.low, found.interval.high)),
        scatter: Some(found.scatter),
        is_confirmed: found.is_confirmed,
        ..nothing.clone()
    };
    let bounded = |kind, rate_per_s, bound| SearchesFinding {
        kind,
        rate_per_s: Some(rate_per_s),
        bound: Some(bound),
        ..nothing.clone()
    };
    match finding {
        CapacityFinding::Capacity(found) => estimated(CapacityKind::Capacity, &found),
        CapacityFinding::Hysteresis { rising, falling } => SearchesFinding {
            falling: Some(FallingCapacity {
                rate_per_s: falling.rate_per_s,
                low: Some(falling.interval.low),
                high: Some(falling.interval.high),
            }),
            ..estimated(CapacityKind::Hysteresis, &rising)
        },
        CapacityFinding::NotStationary {
            first_per_s,
            last_per_s,
        } => SearchesFinding {
            kind: CapacityKind::NotStationary,
            rate_per_s: Some(first_per_s),
            last_per_s: Some(last_per_s),
            ..nothing
        },
        CapacityFinding::AtLeast { rate_per_s, limit } => {
            let kind = match limit {
                CapacityLimit::Client => CapacityKind::ClientLimit,
                CapacityLimit::Settings => CapacityKind::AboveHighest,
                CapacityLimit::Unfinished => CapacityKind::Unfinished,
            };
            bounded(kind, rate_per_s, CapacityBound::Lower)
        }
        CapacityFinding::Below {
            rate_per_s,
            is_lowest,
        } => {
            let kind = if is_lowest {
                CapacityKind::Never
            } else {
                CapacityKind::Unfinished
            };
            bounded(kind, rate_per_s, CapacityBound::Upper)
        }
        CapacityFinding::Unknown => nothing,
    }
}

/// Maximum number of trials that decide whether the server recovers.
const MOST_RECOVERY_TRIALS: usize = 10;

/// Probability that a trial after an overload misses, for a server that recovers.
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

/// The trials after an overload, before a second search.
#[derive(Debug)]
pub struct RecoveryTest {
    trials: usize,
    /// Probability of the misses if the server does not recover, divided by their probability if it
    /// recovers.
    ratio: f64,
    has_recovered: bool,
}

impl RecoveryTest {
    /// Starts the test without any trial.
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

    /// Returns what the trials so far show.
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
