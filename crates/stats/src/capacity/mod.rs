//! Search for the capacity of a server: the highest rate whose long-run figures meet every
//! objective.
//!
//! A trial sends one rate for a short time. Its figures scatter, so the search estimates the rate
//! at which half of the trials pass. This is the capacity if trials are as long as [`trial_length`]
//! says: half of the trials are then above their long-run figures.
//!
//! [`CapacitySearch`] does no I/O. Its caller runs the trials:
//!
//! ```
//! use floodmark_stats::capacity::{
//!     CapacityFinding, CapacitySearch, CapacitySettings, CapacityStep, TrialOutcome,
//! };
//!
//! let mut search = CapacitySearch::new(25_000.0, CapacitySettings::default());
//! let finding = loop {
//!     match search.next() {
//!         CapacityStep::Trial { rate_per_s, .. } => {
//!             let meets_objectives = rate_per_s <= 20_000.0; // Run the trial here.
//!             let outcome = match meets_objectives {
//!                 true => TrialOutcome::Pass,
//!                 false => TrialOutcome::Miss,
//!             };
//!             search.record(rate_per_s, outcome, false);
//!         }
//!         CapacityStep::Done(finding) => break finding,
//!     }
//! };
//! let CapacityFinding::Capacity(capacity) = finding else { panic!("{finding:?}") };
//! assert!(capacity.interval.low < 20_000.0 && 20_000.0 < capacity.interval.high);
//! ```

mod flow;
mod posterior;
mod proof;
mod search;
mod trial;

pub use flow::{Ceiling, FlowRow, is_rising, trial_flow};
pub use posterior::pass_probability;
pub use proof::{ProofPower, ProofTrial, Proofs};
pub use search::CapacitySearch;
pub use trial::{
    LATEST_TRIALS, SHORTEST_TRANSIENT_S, SHORTEST_TRIAL_S, SLOW_QUANTILE, TrialLength, TrialRow,
    UsualCpuSpeed, design_effect, least_samples, trial_length,
};

pub use floodmark_record::capacity::{TrialOutcome, TrialPurpose};
use floodmark_record::interval::Interval;

use self::trial::overestimate;

/// Limits and precision of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct CapacitySettings {
    /// Lowest rate to try, in requests per second. A server that misses an objective at this rate
    /// never meets it.
    pub lowest_per_s: f64,
    /// Highest rate to try, in requests per second.
    pub highest_per_s: f64,
    /// Rate that the client is known to sustain, in requests per second. A client that is late at
    /// or below this rate was disturbed.
    pub certain_per_s: f64,
    /// Half-width of the interval at which the search ends, as a share of the capacity.
    pub precision: f64,
    /// Maximum number of trials, including those that are not judged.
    pub most_trials: usize,
}

impl Default for CapacitySettings {
    fn default() -> Self {
        CapacitySettings {
            lowest_per_s: 1.0,
            highest_per_s: 1e8,
            certain_per_s: 1.0,
            precision: 0.02,
            most_trials: 200,
        }
    }
}

/// The next step of a search.
#[derive(Debug, Clone, PartialEq)]
pub enum CapacityStep {
    /// Run a trial at a rate in requests per second.
    Trial {
        /// Offered rate in requests per second.
        rate_per_s: f64,
        /// Why the search chose this rate.
        purpose: TrialPurpose,
    },
    /// The search is complete.
    Done(CapacityFinding),
}

/// The result of a search, or of the trials so far.
#[derive(Debug, Clone, PartialEq)]
pub enum CapacityFinding {
    /// One capacity.
    Capacity(CapacityEstimate),
    /// A higher capacity when the load rises from idle than after an overload.
    Hysteresis {
        /// Capacity after trials that passed.
        rising: CapacityEstimate,
        /// Capacity after trials that missed an objective.
        falling: CapacityEstimate,
    },
    /// The capacity changed during the search.
    NotStationary {
        /// Capacity at the first trial, in requests per second.
        first_per_s: f64,
        /// Capacity at the last trial, in requests per second.
        last_per_s: f64,
    },
    /// The server met every objective at the highest rate that was tried.
    AtLeast {
        /// The highest rate that passed, in requests per second.
        rate_per_s: f64,
        /// What prevented trials at higher rates.
        limit: CapacityLimit,
    },
    /// The server missed an objective at every rate that was tried.
    Below {
        /// The lowest rate that was tried, in requests per second.
        rate_per_s: f64,
        /// Whether this rate is the lowest of the settings, so that the objective is never met.
        is_lowest: bool,
    },
    /// No trial was sent on time.
    Unknown,
}

impl CapacityFinding {
    /// Divides the lower bounds by the factor by which short trials overestimate the capacity.
    /// `share` is the judged time of the trials as a share of the time that [`trial_length`]
    /// returns.
    #[must_use]
    pub fn with_short_trials(mut self, share: f64) -> Self {
        let lower = |estimate: &mut CapacityEstimate| {
            estimate.interval.low /= overestimate(share, estimate.scatter);
        };
        match &mut self {
            CapacityFinding::Capacity(estimate) => lower(estimate),
            CapacityFinding::Hysteresis { rising, falling } => {
                lower(rising);
                lower(falling);
            }
            CapacityFinding::NotStationary { .. }
            | CapacityFinding::AtLeast { .. }
            | CapacityFinding::Below { .. }
            | CapacityFinding::Unknown => {}
        }
        self
    }
}

/// Why no higher rate was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapacityLimit {
    /// The client cannot send requests on time at a higher rate.
    Client,
    /// The settings allow no higher rate.
    Settings,
    /// The search ended early.
    Unfinished,
}

/// Maximum scatter of reliable intervals. Longer trials scatter less.
pub const MOST_SCATTER: f64 = 0.04;

/// An estimated capacity.
#[derive(Debug, Clone, PartialEq)]
pub struct CapacityEstimate {
    /// Median of the posterior, in requests per second.
    pub rate_per_s: f64,
    /// Equal-tailed interval of the posterior, in requests per second.
    pub interval: Interval,
    /// Standard deviation between the capacities of trials, as a share. Intervals are reliable up
    /// to [`MOST_SCATTER`].
    pub scatter: f64,
    /// Whether fresh trials at both bounds agreed with the interval.
    pub is_confirmed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_trials_lower_the_lower_bound() {
        let found = |rate_per_s: f64| CapacityEstimate {
            rate_per_s,
            interval: Interval {
                low: 0.99 * rate_per_s,
                high: 1.01 * rate_per_s,
                confidence: 0.95,
                method: String::new(),
            },
            scatter: 0.02,
            is_confirmed: true,
        };
        let finding = CapacityFinding::Hysteresis {
            rising: found(200.0),
            falling: found(100.0),
        };
        assert_eq!(finding.clone().with_short_trials(1.0), finding);
        let CapacityFinding::Hysteresis { rising, falling } = finding.with_short_trials(0.1) else {
            panic!("expected a hysteresis finding");
        };
        for (estimate, before) in [(rising, found(200.0)), (falling, found(100.0))] {
            assert!(estimate.interval.low < before.interval.low, "{estimate:?}");
            assert_eq!(estimate.interval.high, before.interval.high);
            assert_eq!(estimate.rate_per_s, before.rate_per_s);
        }
    }
}
