//! The order and the lengths of a search's trials within its budget.

use floodmark_record::capacity::{CapacityEnd, CapacityPlan, CapacityTrial, TrialFlow};
use floodmark_stats::capacity::{TrialLength, TrialRow};

use super::levels::LEVELS;
use super::loads::{LoadLengths, PlannedTrial};
use super::searches::{CapacitySearches, MOST_TRIALS, NextTrial, ProofState};

/// Share of the budget that is kept for proof trials, if the other trials are too short.
const PROOF_SHARE: f64 = 0.5;

/// Share of the remaining time that a proof trial uses. The rest is for another proof trial if this
/// one does not prove its rate.
const ATTEMPT_SHARE: f64 = 0.4;

/// Minimum time for a proof trial, as a share of the budget.
const LEAST_ATTEMPT: f64 = 0.05;

/// Chooses the trials of a search and their lengths. Does no I/O, so that simulations can use it.
pub struct TrialPlanner<'a> {
    searches: CapacitySearches,
    lengths: LoadLengths<'a>,
    /// Maximum length of the search in seconds.
    budget_s: f64,
}

impl<'a> TrialPlanner<'a> {
    /// Starts a search, or resumes it after `trials`. `tries_overload` is false if no overload can
    /// be sent.
    pub fn new(
        settings: &CapacityPlan,
        trials: &[CapacityTrial],
        lengths: LoadLengths<'a>,
        tries_overload: bool,
        budget_s: f64,
    ) -> Self {
        let mut searches = CapacitySearches::new(settings, tries_overload);
        trials.iter().for_each(|trial| searches.record(trial));
        TrialPlanner {
            searches,
            lengths,
            budget_s,
        }
    }

    /// Returns the lengths of the loads.
    pub fn lengths(&self) -> &LoadLengths<'a> {
        &self.lengths
    }

    /// Returns the next trial, or why the search ends. `elapsed_s` is the time since its start, in
    /// seconds.
    pub fn next(&self, elapsed_s: f64) -> Result<PlannedTrial, CapacityEnd> {
        let rising = self.searches.next_rising();
        let left_s = self.budget_s - elapsed_s - self.levels_s(rising);
        let proofs = self.searches.proofs();
        let overload = self.searches.next_overload();
        let short = match proofs {
            _ if overload.is_some() => overload,
            ProofState::Unneeded | ProofState::Needed { is_rough: true } => rising,
            ProofState::Needed { is_rough: false } | ProofState::Tried { .. } => None,
        };
        let proof_s = match proofs {
            ProofState::Unneeded => 0.0,
            // Without an estimate, there is no rate to prove yet.
            _ if self.searches.estimate().is_none() => self.least_proof_s(),
            _ => PROOF_SHARE * self.budget_s,
        };
        let short = short.map(|next| self.plan(next));
        if let Some(planned) = short.filter(|of| time_s(of.length) + proof_s <= left_s) {
            return Ok(planned);
        }
        if let Some(planned) = self.proof(left_s) {
            return Ok(planned);
        }
        let after_overload = self.searches.next_after_overload();
        let is_settled = match proofs {
            ProofState::Unneeded => rising.is_none(),
            ProofState::Needed { .. } => false,
            ProofState::Tried { is_proved } => is_proved,
        };
        if let Some(next) = after_overload.filter(|_| is_settled) {
            let planned = self.plan(next);
            let fits = time_s(planned.length) <= left_s;
            return fits.then_some(planned).ok_or(CapacityEnd::Budget);
        }
        Err(match () {
            () if self.searches.trials().len() >= MOST_TRIALS => CapacityEnd::Trials,
            () if is_settled && proofs == ProofState::Unneeded => CapacityEnd::Settled,
            () => CapacityEnd::Budget,
        })
    }

    /// Returns whether the server sustains a trial that has not been recorded yet.
    pub fn sustains(&self, rate_per_s: f64, flow: &TrialFlow) -> bool {
        self.searches.sustains(rate_per_s, flow)
    }

    /// Records a trial.
    pub fn record(&mut self, trial: &CapacityTrial) {
        self.searches.record(trial);
    }

    /// Adds the 90th percentile of the response times, in microseconds, and the parts of a trial
    /// that passed, so that later trials have a suitable length.
    pub fn learn(&mut self, p90_us: Option<f64>, parts: Vec<TrialRow>) {
        self.lengths.add_p90(p90_us);
        self.lengths.add_passed(parts);
    }

    /// Returns the next proof trial, if one is needed and fits into the remaining time.
    fn proof(&self, left_s: f64) -> Option<PlannedTrial> {
        let capacity_per_s = self.searches.estimate()?.rate_per_s;
        if left_s < self.least_proof_s() {
            return None;
        }
        let available_s = (ATTEMPT_SHARE * left_s).max(self.least_proof_s()) - OVERHEAD_S;
        let (_, power) = self.lengths.proof(capacity_per_s, available_s);
        let next = self.searches.next_proof(power)?;
        let (length, _) = self.lengths.proof(next.rate_per_s, available_s);
        Some(planned(next, capacity_per_s, (length, None)))
    }

    /// Returns the minimum time for a proof trial, in seconds.
    fn least_proof_s(&self) -> f64 {
        OVERHEAD_S + LEAST_ATTEMPT * self.budget_s
    }

    fn plan(&self, next: NextTrial) -> PlannedTrial {
        let estimate = self.searches.estimate().map(|estimate| estimate.rate_per_s);
        let length = self.lengths.trial(next.rate_per_s, next.start, estimate);
        planned(next, estimate.unwrap_or(next.rate_per_s), length)
    }

    /// Returns the time that the loads after the search need, in seconds. Until there is an
    /// estimate of the capacity, the rate of the next trial is used instead.
    fn levels_s(&self, next: Option<NextTrial>) -> f64 {
        let estimate = self.searches.estimate().map(|estimate| estimate.rate_per_s);
        let rate_per_s = estimate.or(next.map(|next| next.rate_per_s));
        let time_s = |per_s| time_s(self.lengths.level(per_s, per_s));
        LEVELS.len() as f64 * rate_per_s.map_or(0.0, time_s)
    }
}

fn planned(
    next: NextTrial,
    capacity_per_s: f64,
    (length, required_s): (TrialLength, Option<f64>),
) -> PlannedTrial {
    PlannedTrial {
        start: next.start,
        rate_per_s: next.rate_per_s,
        purpose: next.purpose,
        capacity_per_s,
        length,
        required_s,
    }
}

/// Time that starting and stopping the client adds to a load, in seconds.
const OVERHEAD_S: f64 = 0.25;

/// Returns the total time of a load in seconds, including startup and shutdown of the client.
fn time_s(length: TrialLength) -> f64 {
    OVERHEAD_S + length.transient_s + length.judged_s
}
