//! A capacity search: its trials, and the interval that they leave.

use floodmark_record::capacity::{CapacityResult, TrialOutcome};
use floodmark_report::capacity_progress_line;

/// One trial of a search, and the interval after this trial.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BracketStep {
    pub(crate) number: usize,
    pub(crate) rate_per_s: f64,
    pub(crate) outcome: TrialOutcome,
    /// Lower end of the interval; without an interval, the highest rate that passed.
    pub(crate) low: Option<f64>,
    /// Upper end of the interval; without an interval, the lowest rate that missed.
    pub(crate) high: Option<f64>,
}

/// A search for a capacity.
#[derive(Debug, Clone, Default)]
pub(crate) struct SearchProgress {
    /// The estimate so far and the remaining time, in one line.
    pub(crate) line: String,
    pub(crate) steps: Vec<BracketStep>,
}

impl SearchProgress {
    /// Adds the last trial of `result`. A new search replaces the steps of an earlier one.
    pub(crate) fn record(&mut self, result: &CapacityResult) {
        let Some(last) = result.trials.last() else {
            return;
        };
        let number = result.trials.len();
        if self.steps.last().is_some_and(|step| step.number >= number) {
            self.steps.clear();
        }
        let rates = |outcome| {
            let of = result.trials.iter().filter(move |of| of.outcome == outcome);
            of.map(|trial| trial.rate_per_s)
        };
        let passed = rates(TrialOutcome::Pass).max_by(f64::total_cmp);
        let missed = rates(TrialOutcome::Miss).min_by(f64::total_cmp);
        self.line = capacity_progress_line(result);
        self.steps.push(BracketStep {
            number,
            rate_per_s: last.rate_per_s,
            outcome: last.outcome,
            low: result.low.or(passed),
            high: result.high.or(missed),
        });
    }

    /// Returns the range of rates covered by the last `count` steps, including their intervals.
    pub(crate) fn range(&self, count: usize) -> Option<(f64, f64)> {
        let last = self.steps.iter().rev().take(count);
        let ends = last.flat_map(|step| [Some(step.rate_per_s), step.low, step.high]);
        let ends: Vec<f64> = ends.flatten().filter(|end| end.is_finite()).collect();
        let low = ends.iter().copied().min_by(f64::total_cmp)?;
        let high = ends.iter().copied().max_by(f64::total_cmp)?;
        (low < high).then_some((low, high))
    }
}
