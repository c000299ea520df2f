//! Models of a server that explain the outcomes of trials, and the evidence for each.
//!
//! Hysteresis or drift is preferred to a constant capacity only if its Bayes factor is at least
//! [`DECISIVE`]. For a constant capacity drawn from the prior, the Bayes factor ever reaches a value
//! k with probability at most 1/k (Ville 1939), however often it is computed.

use super::posterior::{Posterior, STEP, TrialEvidence};

/// Minimum Bayes factor to report another model. The probability of a false alarm is at most 1 %
/// for each model.
const DECISIVE: f64 = 100.0;

/// Minimum Bayes factor at which the search goes on until it knows more.
const DOUBTFUL: f64 = 3.0;

/// Differences between the capacities before and after overload, in grid steps: 4 to 63 %.
const GAPS: [i32; 8] = [20, 35, 55, 80, 120, 180, 300, 500];

/// Changes of the capacity per trial, as a difference of logarithms.
const DRIFTS: [f64; 12] = [
    -0.024, -0.012, -0.006, -0.003, -0.0015, -0.0008, 0.0008, 0.0015, 0.003, 0.006, 0.012, 0.024,
];

/// A trial of known outcome.
#[derive(Debug, Clone, Copy)]
pub(super) struct JudgedTrial {
    /// Position of the rate in the grid.
    pub(super) rate: i32,
    pub(super) evidence: TrialEvidence,
    /// Whether the previous trial missed, so that the server may still be overloaded.
    pub(super) is_after_miss: bool,
}

/// The model that explains the outcomes best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CapacityModel {
    /// One capacity.
    Constant,
    /// A lower capacity after an overload.
    Hysteresis,
    /// A capacity that changes over time.
    Drift,
}

/// The posteriors of all models.
#[derive(Debug, Clone)]
pub(super) struct Models {
    /// All trials, with one capacity.
    pub(super) constant: Posterior,
    /// Trials after a pass and the first trial.
    rising: Posterior,
    /// Trials after a miss.
    falling: Posterior,
    /// For each of the [`GAPS`], the posterior of the capacity after a pass.
    gaps: Vec<Posterior>,
    /// For each of the [`DRIFTS`], the posterior of the capacity at the first trial.
    drifts: Vec<Posterior>,
    trials: u32,
}

impl Models {
    /// Returns the models for capacities between two positions, given the trials so far.
    pub(super) fn new(lowest: i32, highest: i32, trials: &[JudgedTrial]) -> Self {
        let prior = Posterior::uniform(lowest, highest);
        let mut models = Models {
            constant: prior.clone(),
            rising: prior.clone(),
            falling: prior.clone(),
            gaps: vec![prior.clone(); GAPS.len()],
            drifts: vec![prior; DRIFTS.len()],
            trials: 0,
        };
        for trial in trials {
            models.update(trial);
        }
        models
    }

    /// Adds a trial.
    pub(super) fn update(&mut self, trial: &JudgedTrial) {
        let JudgedTrial { rate, evidence, .. } = *trial;
        self.constant.update(rate, evidence);
        let own = if trial.is_after_miss {
            &mut self.falling
        } else {
            &mut self.rising
        };
        own.update(rate, evidence);
        for (posterior, gap) in self.gaps.iter_mut().zip(GAPS) {
            let gap = if trial.is_after_miss { gap } else { 0 };
            posterior.update(rate + gap, evidence);
        }
        for (posterior, drift) in self.drifts.iter_mut().zip(DRIFTS) {
            let shift = (drift * f64::from(self.trials) / STEP).round() as i32;
            posterior.update(rate - shift, evidence);
        }
        self.trials += 1;
    }

    /// Returns the capacity when the load rises from idle, under hysteresis.
    pub(super) fn rising(&self) -> Posterior {
        self.rising.with_scatter_of(&self.falling)
    }

    /// Returns the capacity after an overload, under hysteresis.
    pub(super) fn falling(&self) -> Posterior {
        self.falling.with_scatter_of(&self.rising)
    }

    /// Returns the model to report.
    pub(super) fn decided(&self) -> CapacityModel {
        self.preferred(DECISIVE)
    }

    /// Returns whether more trials may lead to another decision.
    pub(super) fn is_doubtful(&self) -> bool {
        self.preferred(DOUBTFUL) != self.decided()
    }

    /// Returns the most probable model, which is used to choose rates.
    pub(super) fn likely(&self) -> CapacityModel {
        self.preferred(1.0)
    }

    fn preferred(&self, least_factor: f64) -> CapacityModel {
        let least = self.constant.log_evidence + least_factor.ln();
        let (gaps, drifts) = (
            log_mean_evidence(&self.gaps),
            log_mean_evidence(&self.drifts),
        );
        if gaps.max(drifts) >= least {
            if gaps >= drifts {
                CapacityModel::Hysteresis
            } else {
                CapacityModel::Drift
            }
        } else {
            CapacityModel::Constant
        }
    }

    /// Returns the position of the capacity at the first and at the last trial under drift.
    pub(super) fn first_and_last(&self) -> (f64, f64) {
        let by_evidence = self.drifts.iter().zip(DRIFTS);
        let best = by_evidence.max_by(|a, b| a.0.log_evidence.total_cmp(&b.0.log_evidence));
        best.map_or((0.0, 0.0), |(posterior, drift)| {
            let first = posterior.quantile(0.5);
            let steps = f64::from(self.trials.saturating_sub(1));
            (first, first + drift * steps / STEP)
        })
    }
}

/// Returns the logarithm of the mean evidence of equally probable variants.
fn log_mean_evidence(variants: &[Posterior]) -> f64 {
    let logs = || variants.iter().map(|variant| variant.log_evidence);
    let most = logs().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logs().map(|log| (log - most).exp()).sum();
    most + (sum / variants.len() as f64).ln()
}
