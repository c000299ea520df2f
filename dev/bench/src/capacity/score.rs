//! How well the results of many searches agree with the known answer.

use floodmark_stats::capacity::{CapacityEstimate, CapacityFinding, CapacityLimit};
use floodmark_truth::capacity::KnownAnswer;

use super::methods::SearchRun;
use crate::proportion::Proportion;

/// Figures of many searches for one answer.
#[derive(Debug, Clone, Default)]
pub struct SearchScore {
    /// Number of intervals or verdicts in the answers.
    expected: usize,
    /// Intervals that contain their capacity, and right verdicts.
    covered: usize,
    /// Number of trials of each search.
    pub trials: Vec<f64>,
    /// Mean length of the trials of each search, in seconds.
    pub lengths_s: Vec<f64>,
    /// Half-widths of the intervals, as shares of the estimates.
    pub half_widths: Vec<f64>,
    /// Absolute errors of the estimates, as shares of the capacities.
    pub errors: Vec<f64>,
}

impl SearchScore {
    /// Returns the proportion of right results: intervals that contain the capacity, and right
    /// verdicts.
    pub fn right(&self) -> Proportion {
        Proportion {
            count: self.covered,
            total: self.expected,
        }
    }

    /// Adds the result of a search.
    pub fn add(&mut self, answer: KnownAnswer, run: &SearchRun) {
        self.expected += match answer {
            KnownAnswer::Hysteresis { .. } => 2,
            _ => 1,
        };
        self.trials.push(run.trials as f64);
        let pairs: Vec<(f64, &CapacityEstimate)> = match (answer, &run.finding) {
            (KnownAnswer::Capacity(truth), CapacityFinding::Capacity(estimate)) => {
                vec![(truth, estimate)]
            }
            (
                KnownAnswer::Hysteresis { rising, falling },
                CapacityFinding::Hysteresis {
                    rising: up,
                    falling: down,
                },
            ) => vec![(rising, up), (falling, down)],
            (answer, finding) => {
                self.covered += usize::from(agrees(answer, finding));
                return;
            }
        };
        let covers = |(truth, estimate): &(f64, &CapacityEstimate)| {
            (estimate.interval.low..=estimate.interval.high).contains(truth)
        };
        self.covered += pairs.iter().filter(|pair| covers(pair)).count();
        for (truth, estimate) in pairs {
            let width = estimate.interval.high - estimate.interval.low;
            self.half_widths.push(0.5 * width / estimate.rate_per_s);
            self.errors.push((estimate.rate_per_s / truth - 1.0).abs());
        }
    }
}

/// Returns whether a result without an interval agrees with the answer.
fn agrees(answer: KnownAnswer, finding: &CapacityFinding) -> bool {
    match (answer, finding) {
        (KnownAnswer::NotStationary, CapacityFinding::NotStationary { .. }) => true,
        (KnownAnswer::Never, CapacityFinding::Below { is_lowest, .. }) => *is_lowest,
        (
            KnownAnswer::ClientLimit(limit),
            CapacityFinding::AtLeast {
                rate_per_s,
                limit: reason,
            },
        ) => *reason == CapacityLimit::Client && (0.95 * limit..=limit).contains(rate_per_s),
        _ => false,
    }
}

/// Returns a quantile of values that need not be in order; `None` without values.
pub fn quantile(values: &[f64], p: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    let last = sorted.len().checked_sub(1)?;
    let at = (p * last as f64).round() as usize;
    Some(*sorted.select_nth_unstable_by(at, f64::total_cmp).1)
}
