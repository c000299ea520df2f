//! Posterior distribution of the capacity, given the outcomes of trials.
//!
//! A trial at rate r passes with probability λ + (1 − 2λ) Φ((ln C − ln r) / s). Φ is the standard
//! normal distribution function, C is the capacity, and s is the scatter: the standard deviation of
//! the capacity from trial to trial. C and s are unknown, so the posterior covers a grid of both.
//! The lapse rate λ keeps one odd outcome from excluding the true capacity.
//!
//! [`Models`] contains three explanations of the outcomes: a constant capacity, hysteresis and
//! drift. Hysteresis or drift is preferred to a constant capacity only if its Bayes factor is at
//! least [`DECISIVE`]. If the capacity is constant and drawn from the prior, the probability that
//! the Bayes factor ever reaches a value k is at most 1/k (Ville 1939), however often the factor is
//! computed.

use std::f64::consts::FRAC_1_SQRT_2;
use std::sync::LazyLock;

use statrs::function::erf::erfc;

/// Distance between neighboring rates of the grid, as a difference of logarithms.
pub(super) const STEP: f64 = 0.002;

/// Scatters of the grid, as differences of logarithms, and their prior weights. More small scatters
/// would make intervals too narrow. Large ones are rare and cost trials.
const SCATTERS: [(f64, f64); 10] = [
    (0.0025, 1.0),
    (0.0045, 1.0),
    (0.008, 1.0),
    (0.012, 1.0),
    (0.018, 1.0),
    (0.026, 1.0),
    (0.038, 1.0),
    (0.055, 1.0),
    (0.08, 0.06),
    (0.12, 0.02),
];

/// Probability of the unexpected outcome at a rate far from the capacity: the lapse rate.
const LAPSE: f64 = 0.01;

/// Possible values of the probability that a disturbance makes a trial miss its objectives although
/// its rate is below the capacity.
const DISTURBED_MISSES: [f64; 3] = [0.05, 0.5, 0.9];

/// Distance between rate and capacity, in grid steps, beyond which the outcome is certain except
/// for lapses.
const REACH: i32 = 500;

/// Pass probability for each scatter, by capacity minus rate in grid steps plus [`REACH`].
static PASS: LazyLock<Vec<Vec<f64>>> = LazyLock::new(|| {
    let pass = |offset: i32, scatter: f64| pass_probability(f64::from(offset) * STEP, scatter);
    let row = |(scatter, _): &(f64, f64)| {
        (-REACH..=REACH)
            .map(|offset| pass(offset, *scatter))
            .collect()
    };
    SCATTERS.iter().map(row).collect()
});

/// Returns the probability that a trial meets the objectives, except for lapses. `distance` is
/// ln C − ln r for the capacity C and the rate r of the trial, and `scatter` the standard deviation
/// between the capacities of trials, as a share.
#[must_use]
pub fn pass_probability(distance: f64, scatter: f64) -> f64 {
    let z = distance / scatter;
    LAPSE + (1.0 - 2.0 * LAPSE) * 0.5 * erfc(-z * FRAC_1_SQRT_2)
}

/// Returns the position of a rate in the grid. Rates outside 1e-6 to 1e12 are moved into this
/// range.
pub(super) fn position(rate_per_s: f64) -> i32 {
    (rate_per_s.clamp(1e-6, 1e12).ln() / STEP).round() as i32
}

/// Returns the rate at a position in the grid, or between grid points, in requests per second.
pub(super) fn rate_at(position: f64) -> f64 {
    (position * STEP).exp()
}

/// The outcome of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TrialEvidence {
    /// Whether the objectives were met.
    pub(super) is_pass: bool,
    /// Whether a disturbance of the host may have made the trial miss its objectives.
    pub(super) is_disturbed: bool,
}

/// Joint posterior of capacity, scatter and, after a disturbed trial, the share of disturbed trials
/// that miss their objectives. The prior of the capacity is uniform.
#[derive(Debug, Clone)]
pub(super) struct Posterior {
    /// Position of the lowest capacity.
    pub(super) lowest: i32,
    /// Number of capacities.
    width: usize,
    /// Probability of each capacity, one row per scatter. After a disturbed trial, there is one
    /// such block of rows per probability in [`DISTURBED_MISSES`].
    weights: Vec<f64>,
    /// Natural logarithm of the probability of all outcomes so far.
    pub(super) log_evidence: f64,
}

impl Posterior {
    /// Returns the prior for the positions from `lowest` to `highest`.
    pub(super) fn uniform(lowest: i32, highest: i32) -> Self {
        let width = (highest - lowest + 1).max(1) as usize;
        let total: f64 = SCATTERS.iter().map(|(_, weight)| weight).sum();
        let row = |(_, weight): (f64, f64)| vec![weight / total / width as f64; width];
        Posterior {
            lowest,
            width,
            weights: SCATTERS.into_iter().flat_map(row).collect(),
            log_evidence: 0.0,
        }
    }

    /// Returns the position of the highest capacity.
    pub(super) fn highest(&self) -> i32 {
        self.lowest + self.width as i32 - 1
    }

    /// Adds the outcome of a trial.
    pub(super) fn update(&mut self, rate: i32, evidence: TrialEvidence) {
        let first = self.lowest - rate;
        let mut total = 0.0;
        if evidence.is_disturbed {
            self.expect_disturbances();
        }
        let rows = self.weights.chunks_exact_mut(self.width);
        for (row, (misses, pass)) in rows.zip(likelihoods()) {
            for (weight, offset) in row.iter_mut().zip(first..) {
                let pass = pass[(offset.clamp(-REACH, REACH) + REACH) as usize];
                let pass = if evidence.is_disturbed {
                    (1.0 - misses) * pass
                } else {
                    pass
                };
                *weight *= if evidence.is_pass { pass } else { 1.0 - pass };
                total += *weight;
            }
        }
        for weight in &mut self.weights {
            *weight /= total;
        }
        self.log_evidence += total.ln();
    }

    /// Copies the rows once per probability in [`DISTURBED_MISSES`] at the first disturbed trial.
    /// Before that, the copies would be equal.
    fn expect_disturbances(&mut self) {
        if self.weights.len() == self.width * SCATTERS.len() {
            let share = 1.0 / DISTURBED_MISSES.len() as f64;
            self.weights.iter_mut().for_each(|weight| *weight *= share);
            self.weights = self.weights.repeat(DISTURBED_MISSES.len());
        }
    }

    /// Returns the position below which the capacity lies with probability `p`.
    pub(super) fn quantile(&self, p: f64) -> f64 {
        let mut below = 0.0;
        for (i, weight) in self.capacities().into_iter().enumerate() {
            if below + weight >= p {
                let within = (p - below) / weight;
                return f64::from(self.lowest) + i as f64 + within - 0.5;
            }
            below += weight;
        }
        f64::from(self.lowest) + self.width as f64 - 0.5
    }

    /// Returns the mean scatter.
    pub(super) fn scatter(&self) -> f64 {
        let scatters = SCATTERS.into_iter().cycle();
        let rows = self.weights.chunks_exact(self.width).zip(scatters);
        rows.map(|(row, (scatter, _))| scatter * row.iter().sum::<f64>())
            .sum()
    }

    /// Returns the probability that the capacity is in the lowest and in the highest twentieth of
    /// the grid.
    pub(super) fn edges(&self) -> (f64, f64) {
        let capacities = self.capacities();
        let edge = self.width.div_ceil(20);
        let low = capacities[..edge].iter().sum();
        (low, capacities[self.width - edge..].iter().sum())
    }

    /// Returns the most informative rate up to `highest`: the one whose outcome leaves the lowest
    /// expected entropy of the capacity.
    pub(super) fn most_informative(&self, highest: i32) -> i32 {
        let candidates = CANDIDATES.map(|p| (self.quantile(p).round() as i32).min(highest));
        let from = self.quantile(TAIL).floor() as i32 - self.lowest;
        let to = self.quantile(1.0 - TAIL).ceil() as i32 - self.lowest;
        let last = self.width - 1;
        let range = (from.max(0) as usize).min(last)..=(to.max(0) as usize).min(last);
        let entropy = |rate: i32| {
            let (mut passed, mut missed) = (Entropy::default(), Entropy::default());
            for i in range.clone() {
                let offset = self.lowest + i as i32 - rate;
                let at = (offset.clamp(-REACH, REACH) + REACH) as usize;
                let (mut pass, mut all) = (0.0, 0.0);
                let rows = self.weights.chunks_exact(self.width);
                for (row, (_, likelihood)) in rows.zip(likelihoods()) {
                    pass += row[i] * likelihood[at];
                    all += row[i];
                }
                passed.add(pass);
                missed.add(all - pass);
            }
            passed.scaled() + missed.scaled()
        };
        let best = candidates
            .into_iter()
            .map(|rate| (rate, entropy(rate)))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        best.map_or(highest, |(rate, _)| rate)
    }

    /// Returns this posterior, assuming that it has the same scatter as `other`.
    pub(super) fn with_scatter_of(&self, other: &Posterior) -> Self {
        let mut shared = self.clone();
        let mut total = 0.0;
        let others = other.scatters().into_iter().cycle();
        let rows = shared.weights.chunks_exact_mut(self.width);
        for (row, factor) in rows.zip(others) {
            for weight in row {
                *weight *= factor;
                total += *weight;
            }
        }
        for weight in &mut shared.weights {
            *weight /= total;
        }
        shared
    }

    /// Returns the marginal distribution of the scatter.
    fn scatters(&self) -> [f64; SCATTERS.len()] {
        let mut sums = [0.0; SCATTERS.len()];
        for (i, row) in self.weights.chunks_exact(self.width).enumerate() {
            sums[i % SCATTERS.len()] += row.iter().sum::<f64>();
        }
        sums
    }

    /// Returns the marginal distribution of the capacity.
    fn capacities(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.width];
        for row in self.weights.chunks_exact(self.width) {
            for (sum, weight) in sums.iter_mut().zip(row) {
                *sum += weight;
            }
        }
        sums
    }
}

/// Returns, for each row, the share of disturbed trials that miss their objectives, and the pass
/// probabilities.
fn likelihoods() -> impl Iterator<Item = (f64, &'static Vec<f64>)> {
    let of_scatters = |misses| PASS.iter().map(move |pass| (misses, pass));
    DISTURBED_MISSES.into_iter().flat_map(of_scatters)
}

/// Quantiles of the capacity that are candidates for the next rate.
const CANDIDATES: [f64; 7] = [0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98];

/// Probability on each side that the expected entropy leaves out.
const TAIL: f64 = 1e-3;

/// Sums for the entropy of a distribution that is not normalized.
#[derive(Debug, Default, Clone, Copy)]
struct Entropy {
    total: f64,
    /// Sum of w · ln w.
    products: f64,
}

impl Entropy {
    fn add(&mut self, weight: f64) {
        if weight > 0.0 {
            self.total += weight;
            self.products += weight * weight.ln();
        }
    }

    /// Returns the entropy of the normalized distribution times its total.
    fn scaled(self) -> f64 {
        if self.total > 0.0 {
            self.total * self.total.ln() - self.products
        } else {
            0.0
        }
    }
}

/// Minimum Bayes factor at which hysteresis or drift is reported instead of a constant capacity.
/// The probability of a false alarm is at most 1 % for each model.
const DECISIVE: f64 = 100.0;

/// The search continues while the Bayes factor of hysteresis or drift is at least this number but
/// below [`DECISIVE`].
const DOUBTFUL: f64 = 3.0;

/// Differences between the capacities before and after an overload, in grid steps: 4 to 63 %.
const GAPS: [i32; 8] = [20, 35, 55, 80, 120, 180, 300, 500];

/// Possible changes of the capacity from one trial to the next, as differences of logarithms.
const DRIFTS: [f64; 12] = [
    -0.024, -0.012, -0.006, -0.003, -0.0015, -0.0008, 0.0008, 0.0015, 0.003, 0.006, 0.012, 0.024,
];

/// A trial of known outcome.
#[derive(Debug, Clone, Copy)]
pub(super) struct JudgedTrial {
    /// Position of the rate in the grid.
    pub(super) rate: i32,
    pub(super) evidence: TrialEvidence,
    /// Whether the previous trial missed its objectives, in which case the server may still be
    /// overloaded.
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
    /// Posterior of a single capacity, given all trials.
    pub(super) constant: Posterior,
    /// Posterior given the first trial and the trials that follow a passed trial.
    rising: Posterior,
    /// Posterior given the trials that follow a missed trial.
    falling: Posterior,
    /// For each of the [`GAPS`], the posterior of the capacity that applies after a passed trial.
    gaps: Vec<Posterior>,
    /// For each of the [`DRIFTS`], the posterior of the capacity at the first trial.
    drifts: Vec<Posterior>,
    trials: u32,
}

impl Models {
    /// Returns the models for capacities between two grid positions, given the trials so far.
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

    /// Returns the posterior of the capacity for a load that rises from idle, assuming hysteresis.
    pub(super) fn rising(&self) -> Posterior {
        self.rising.with_scatter_of(&self.falling)
    }

    /// Returns the posterior of the capacity after an overload, assuming hysteresis.
    pub(super) fn falling(&self) -> Posterior {
        self.falling.with_scatter_of(&self.rising)
    }

    /// Returns the model to report.
    pub(super) fn decided(&self) -> CapacityModel {
        self.preferred(DECISIVE)
    }

    /// Returns whether more trials may lead to a different decision.
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

    /// Returns the grid positions of the capacity at the first and at the last trial, assuming
    /// drift.
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

/// Returns the logarithm of the mean evidence for a model whose variants are equally probable.
fn log_mean_evidence(variants: &[Posterior]) -> f64 {
    let logs = || variants.iter().map(|variant| variant.log_evidence);
    let most = logs().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logs().map(|log| (log - most).exp()).sum();
    most + (sum / variants.len() as f64).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(is_pass: bool) -> TrialEvidence {
        TrialEvidence {
            is_pass,
            is_disturbed: false,
        }
    }

    fn disturbed(is_pass: bool) -> TrialEvidence {
        TrialEvidence {
            is_pass,
            is_disturbed: true,
        }
    }

    /// Returns the median capacity after a miss at 200 of 400, which follows trials at rates far
    /// below all capacities.
    fn median_after_miss(far_below: &[TrialEvidence], miss: TrialEvidence) -> f64 {
        let mut posterior = Posterior::uniform(0, 400);
        for evidence in far_below {
            posterior.update(-1_000, *evidence);
        }
        posterior.update(200, miss);
        posterior.quantile(0.5)
    }

    #[test]
    fn a_disturbed_miss_is_weak_evidence() {
        let undisturbed = median_after_miss(&[], evidence(false));
        assert!((90.0..110.0).contains(&undisturbed), "{undisturbed}");
        // The odds of both halves are 1 : 0.48 instead of 1 : 0.01.
        let miss = median_after_miss(&[], disturbed(false));
        assert!((130.0..160.0).contains(&miss), "{miss}");
    }

    #[test]
    fn disturbances_that_cause_no_misses_are_learned() {
        let harmless = median_after_miss(&[disturbed(true); 5], disturbed(false));
        assert!((100.0..115.0).contains(&harmless), "{harmless}");
        let harmful = median_after_miss(&[disturbed(false); 5], disturbed(false));
        assert!((170.0..195.0).contains(&harmful), "{harmful}");
    }

    #[test]
    fn a_rate_keeps_its_position() {
        for rate in [1.0, 37.0, 20_000.0, 3.3e6] {
            assert!(
                (rate_at(f64::from(position(rate))) / rate - 1.0).abs() < 0.0011,
                "{rate}"
            );
        }
    }

    #[test]
    fn the_prior_is_uniform() {
        let prior = Posterior::uniform(100, 299);
        assert_eq!(prior.highest(), 299);
        assert!(
            (prior.quantile(0.5) - 199.5).abs() < 0.1,
            "{}",
            prior.quantile(0.5)
        );
        assert!((prior.quantile(0.025) - 104.5).abs() < 0.1);
        let (low, high) = prior.edges();
        assert!((low - 0.05).abs() < 1e-9 && (high - 0.05).abs() < 1e-9);
    }

    #[test]
    fn a_pass_halves_the_range_and_has_its_evidence() {
        let mut posterior = Posterior::uniform(-1_000, 1_000);
        posterior.update(0, evidence(true));
        assert!((posterior.log_evidence - 0.5f64.ln()).abs() < 1e-3);
        assert!(
            posterior.quantile(0.03) > 0.0,
            "{}",
            posterior.quantile(0.03)
        );
        assert!(
            (posterior.quantile(0.5) - 490.0).abs() < 10.0,
            "{}",
            posterior.quantile(0.5)
        );
        posterior.update(0, evidence(false));
        assert!(
            (posterior.quantile(0.5)).abs() < 1.0,
            "{}",
            posterior.quantile(0.5)
        );
    }

    #[test]
    fn a_wide_range_is_halved() {
        let mut posterior = Posterior::uniform(0, 1_000);
        posterior.update(200, evidence(true));
        posterior.update(800, evidence(false));
        let next = posterior.most_informative(i32::MAX);
        assert!((480..=520).contains(&next), "{next}");
        assert_eq!(posterior.most_informative(300), 300);
    }

    #[test]
    fn another_server_tells_the_scatter() {
        let mut vague = Posterior::uniform(0, 400);
        let (mut noisy, mut steady) = (vague.clone(), vague.clone());
        for rate in [100, 220, 180, 260] {
            vague.update(rate, evidence(rate < 200));
        }
        for rate in [185, 215, 190, 210, 195, 205, 199, 201] {
            noisy.update(rate, evidence(rate > 200));
            steady.update(rate, evidence(rate < 200));
        }
        let width = |other: &Posterior| {
            let posterior = vague.with_scatter_of(other);
            posterior.quantile(0.975) - posterior.quantile(0.025)
        };
        assert!(
            width(&noisy) > 1.3 * width(&steady),
            "{} {}",
            width(&noisy),
            width(&steady)
        );
    }
}
