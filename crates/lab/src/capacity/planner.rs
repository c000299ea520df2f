//! The order and the lengths of a search's trials within its budget.

use floodmark_record::capacity::{
    CapacityEnd, CapacityPlan, CapacityTrial, TrialFlow, TrialOutcome, TrialStart,
};
use floodmark_stats::capacity::{
    Disturbances, PartLoss, PartState, TrialLength, TrialRow, part_states,
};

use super::loads::{LoadLengths, PlannedTrial};
use super::searches::{CapacitySearches, MOST_TRIALS, NextTrial, ProofState};

/// Rates of the loads after the search, as shares of the capacity.
pub const LEVELS: [f64; 5] = [0.5, 0.8, 0.95, 1.0, 1.05];

/// Share of the budget that is kept for proof trials, if the other trials are too short.
const PROOF_SHARE: f64 = 0.5;

/// Share of the remaining time that a proof trial uses. The rest is for another proof trial if this
/// one does not prove its rate.
const ATTEMPT_SHARE: f64 = 0.4;

/// Minimum share of a trial that disturbances are expected to leave. With less, the share varies
/// too much from trial to trial.
const LEAST_USABLE: f64 = 0.2;

/// Minimum ratio of the offered to the highest answered rate at which an overload is evident.
const EVIDENT_OVERLOAD: f64 = 1.2;

/// Minimum usable share that is ignored when the rate of a proof trial is chosen.
const NEARLY_USABLE: f64 = 0.95;

/// Maximum number of consecutive trials that disturbances make void.
const MOST_VOIDS: usize = 6;

/// Number of consecutive void trials after which no overload is tried.
const MOST_VOID_OVERLOADS: usize = 2;

/// Maximum number of void proof trials that follow.
const MOST_VOID_PROOFS: usize = 2;

/// Minimum time for a proof trial, as a share of the budget.
const LEAST_ATTEMPT: f64 = 0.05;

/// Chooses the trials of a search and their lengths. Does no I/O, so that simulations can use it.
pub struct TrialPlanner<'a> {
    searches: CapacitySearches,
    lengths: LoadLengths<'a>,
    disturbances: Disturbances,
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
            disturbances: Disturbances::default(),
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
        let voids = self.searches.latest_voids();
        let wanted = self.searches.next_rising();
        let rising = wanted.filter(|_| voids < MOST_VOIDS);
        let rising = rising.and_then(|next| self.replace_unjudgeable(next));
        let is_blocked = voids >= MOST_VOIDS || wanted.is_some() && rising.is_none();
        let left_s = self.budget_s - elapsed_s - self.levels_s(rising);
        let proofs = self.searches.proofs();
        let overload = self.searches.next_overload();
        let overload = overload.filter(|_| voids < MOST_VOID_OVERLOADS);
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
        let proof = self
            .proof(left_s)
            .filter(|_| voids < MOST_VOIDS + MOST_VOID_PROOFS);
        if let Some(planned) = proof {
            return Ok(planned);
        }
        let after_overload = self.searches.next_after_overload();
        let is_settled = match proofs {
            _ if voids >= MOST_VOIDS => false,
            ProofState::Unneeded => wanted.is_none(),
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
            () if is_blocked && !is_settled => CapacityEnd::Disturbed,
            () if is_settled && proofs == ProofState::Unneeded => CapacityEnd::Settled,
            () => CapacityEnd::Budget,
        })
    }

    /// Returns whether the server sustains a trial that has not been recorded yet.
    pub fn sustains(&self, rate_per_s: f64, flow: &TrialFlow) -> bool {
        self.searches.sustains(rate_per_s, flow)
    }

    /// Adds the parts of a load, which show how disturbed the host is.
    pub fn add_parts(&mut self, parts: &[PartLoss]) {
        self.disturbances.add(parts);
    }

    /// Returns whether nearly all of the loads so far were disturbed, so that trials must include
    /// the disturbances.
    pub fn is_always_disturbed(&self) -> bool {
        self.disturbances.is_steady()
    }

    /// Classifies the parts of a trial. The judged parts start at the index `judged_from`. Before,
    /// the server may be overloaded, so that no backlog is worked off.
    pub fn part_states(
        &self,
        planned: &PlannedTrial,
        judged_from: usize,
        parts: &[PartLoss],
    ) -> Vec<PartState> {
        let judged = self.searches.utilization(planned.rate_per_s);
        let before = match planned.start {
            TrialStart::Idle => judged,
            TrialStart::Overload => judged.max(1.0),
        };
        part_states(
            parts,
            |part| {
                if part < judged_from { before } else { judged }
            },
        )
    }

    /// Returns the share of usable parts to expect at a rate in requests per second.
    fn usable_share(&self, rate_per_s: f64) -> f64 {
        if self.is_always_disturbed() {
            return 1.0;
        }
        let utilization = self.searches.utilization(rate_per_s);
        self.disturbances.usable_share(utilization)
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
        let length = |rate_per_s| {
            let usable_share = self.usable_share(rate_per_s);
            self.lengths.proof(rate_per_s, available_s, usable_share)
        };
        let at = |rate_per_s| self.searches.next_proof(length(rate_per_s).1);
        let mut next = at(capacity_per_s)?;
        if self.usable_share(capacity_per_s) < NEARLY_USABLE {
            // Disturbances leave more of a trial at a lower rate. Search the highest rate that a
            // trial at this rate can prove.
            let is_provable = |rate_per_s: f64| {
                let is_likely = |of: NextTrial| of.rate_per_s >= rate_per_s;
                self.can_judge(rate_per_s) && at(rate_per_s).is_some_and(is_likely)
            };
            next.rate_per_s = highest(capacity_per_s, is_provable)?;
        }
        Some(planned(
            next,
            capacity_per_s,
            (length(next.rate_per_s).0, 0.0),
        ))
    }

    /// Returns whether disturbances are likely to leave enough of a trial at a rate in requests per
    /// second. Requests that pile up in an overload show within a few parts that the server does
    /// not keep up.
    fn can_judge(&self, rate_per_s: f64) -> bool {
        self.searches.utilization(rate_per_s) >= EVIDENT_OVERLOAD
            || self.usable_share(rate_per_s) >= self.least_usable()
    }

    /// Returns the minimum usable share of a trial. Even at the lowest rates, the share cannot
    /// exceed that of the parts without a disturbance.
    fn least_usable(&self) -> f64 {
        LEAST_USABLE.min(0.5 * self.disturbances.usable_share(0.0))
    }

    /// Replaces a trial that cannot be judged because of disturbances: by the highest rate that can
    /// be judged, and, once a rate has passed, by an overload. If trials have passed and missed,
    /// the bounds are already as close as the disturbances allow.
    fn replace_unjudgeable(&self, mut next: NextTrial) -> Option<NextTrial> {
        if self.can_judge(next.rate_per_s) {
            return Some(next);
        }
        if self.searches.estimate().is_some() {
            return None;
        }
        let mut trials = self.searches.trials().iter();
        next.rate_per_s = if trials.any(|trial| trial.outcome == TrialOutcome::Pass) {
            let overload_per_s = self.searches.overload_per_s()?;
            if self.searches.latest_voids() >= MOST_VOID_OVERLOADS {
                return None;
            }
            overload_per_s
        } else {
            highest(next.rate_per_s, |rate_per_s| self.can_judge(rate_per_s))?
        };
        Some(next)
    }

    /// Returns the minimum time for a proof trial, in seconds.
    fn least_proof_s(&self) -> f64 {
        OVERHEAD_S + LEAST_ATTEMPT * self.budget_s
    }

    fn plan(&self, next: NextTrial) -> PlannedTrial {
        let estimate = self.searches.estimate().map(|estimate| estimate.rate_per_s);
        let usable_share = self.usable_share(next.rate_per_s);
        let usable_share = if usable_share < self.least_usable() {
            // The trial is an overload, whose aftermath counts.
            self.disturbances.usable_share(0.0)
        } else {
            usable_share
        };
        let (rate_per_s, start) = (next.rate_per_s, next.start);
        let length = self
            .lengths
            .trial(rate_per_s, start, estimate, usable_share);
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

/// Returns the highest possible rate between a tenth of `most_per_s` and `most_per_s`, to within
/// 0.5 %; `None` if there is none. Lower rates than a possible one must be possible, too.
fn highest(most_per_s: f64, is_possible: impl Fn(f64) -> bool) -> Option<f64> {
    const STEPS: usize = 8;
    let (mut low, mut high) = (0.1 * most_per_s, most_per_s);
    if !is_possible(low) {
        return None;
    }
    for _ in 0..STEPS {
        let middle = 0.5 * (low + high);
        if is_possible(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(low)
}

fn planned(
    next: NextTrial,
    capacity_per_s: f64,
    (length, required_s): (TrialLength, f64),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rate_is_possible_below_a_tenth() {
        let highest_below = |limit: f64| highest(100.0, |rate_per_s| rate_per_s <= limit);
        assert_eq!(highest_below(5.0), None);
        let found = highest_below(50.0).unwrap();
        assert!((49.0..=50.0).contains(&found), "{found}");
    }
}
