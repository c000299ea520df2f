//! Decides whether a server recovers from an overload.

use floodmark_record::capacity::TrialOutcome;

/// Maximum number of trials that decide whether the server recovers.
const MOST_TRIALS: usize = 10;

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
            _ if self.trials >= MOST_TRIALS => RecoveryDecision::Unknown,
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
        assert_eq!(decided(voids), (RecoveryDecision::Unknown, MOST_TRIALS));
    }
}
