//! The required length of a trial, and the detection of slow server CPUs during a trial. The length
//! depends on the correlation of requests that queue behind each other.

use std::collections::BTreeMap;

use statrs::statistics::{Data, OrderStatistics};

use crate::estimate::{mean, variance};

/// Minimum length of a trial in seconds, excluding its transient.
pub const SHORTEST_TRIAL_S: f64 = 1.0;

/// Minimum transient in seconds.
pub const SHORTEST_TRANSIENT_S: f64 = 0.2;

/// Length of the transient in correlation times.
const TRANSIENT_CORRELATIONS: f64 = 10.0;

/// Maximum transient of a shortened trial, as a share of its judged time.
const LONGEST_TRANSIENT: f64 = 0.3;

/// Expected number of independent requests above the percentile in a trial at the capacity.
///
/// With `k` expected, half of the trials pass even if the long-run share of such requests exceeds
/// the limit by a factor of about 1 + 0.5/k, because the distribution of their count is skewed.
const INDEPENDENT_MISSES: f64 = 10.0;

/// Percentile of the response times above which a request counts as slow in [`TrialRow`].
pub const SLOW_QUANTILE: f64 = 0.9;

/// Number of trials that determine the design effect: the latest ones that passed.
pub const LATEST_TRIALS: usize = 9;

/// Requests in one part of a trial. All parts have the same length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrialRow {
    /// Number of requests.
    pub requests: u64,
    /// Number of requests slower than about the [`SLOW_QUANTILE`].
    pub slow: u64,
}

/// Returns the number of independent requests that show with `confidence` that a percentile is
/// below a limit, if all of them are: for p99 (`quantile` 0.99) and 99 %, 459.
#[must_use]
pub fn least_samples(quantile: f64, confidence: f64) -> u64 {
    ((1.0 - confidence).ln() / quantile.ln()).ceil() as u64
}

/// Returns the number of requests that carry as much information as one independent request,
/// computed across several trials. The result is at least 1. Each trial is a list of consecutive
/// parts of equal length. Returns `None` for fewer than ten parts in total, or if no request or
/// every request is slow.
///
/// This is the design effect (Kish 1965, "Survey Sampling"): the variance of the share of slow
/// requests, with autocorrelation, divided by its variance if requests were independent.
#[must_use]
pub fn design_effect(trials: &[Vec<TrialRow>]) -> Option<f64> {
    const FEWEST_ROWS: usize = 10;
    let mut residuals: Vec<f64> = Vec::new();
    let mut independent = 0.0;
    let mut means = 0;
    for rows in trials {
        let requests: u64 = rows.iter().map(|row| row.requests).sum();
        let slow: u64 = rows.iter().map(|row| row.slow).sum();
        if slow == 0 || slow >= requests {
            continue;
        }
        let share = slow as f64 / requests as f64;
        // Number of slow requests in each row minus the number expected from the trial's share.
        let excess = |row: &TrialRow| row.slow as f64 - share * row.requests as f64;
        let excess: Vec<f64> = rows.iter().map(excess).collect();
        let middle = mean(&excess);
        residuals.extend(excess.iter().map(|value| value - middle));
        independent += share * (1.0 - share) * requests as f64;
        means += 1;
    }
    if residuals.len() < FEWEST_ROWS {
        return None;
    }
    let (variance, tau) = variance(&residuals, means);
    Some((variance * tau * residuals.len() as f64 / independent).max(1.0))
}

/// The length of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialLength {
    /// Time at the start whose requests are not judged, in seconds.
    pub transient_s: f64,
    /// Time after the transient, in seconds.
    pub judged_s: f64,
}

impl TrialLength {
    /// Limits the judged time to `most_s` seconds. If this shortens the trial, it limits the
    /// transient to a share of the judged time, too.
    #[must_use]
    pub fn limited(self, most_s: f64) -> Self {
        if self.judged_s <= most_s {
            return self;
        }
        let longest_transient_s = (LONGEST_TRANSIENT * most_s).max(SHORTEST_TRANSIENT_S);
        TrialLength {
            transient_s: self.transient_s.min(longest_transient_s),
            judged_s: most_s,
        }
    }
}

/// Returns the length of a trial at a rate in requests per second, for an objective on a percentile
/// (0.99 for p99). `design_effect` is that of the latest trials that passed, 1 if unknown.
/// Trials that missed don't count: during an overload, the growing queue correlates all requests.
#[must_use]
pub fn trial_length(rate_per_s: f64, quantile: f64, design_effect: f64) -> TrialLength {
    let correlation_s = design_effect.max(1.0) / rate_per_s;
    let samples = INDEPENDENT_MISSES / (1.0 - quantile);
    TrialLength {
        transient_s: SHORTEST_TRANSIENT_S.max(TRANSIENT_CORRELATIONS * correlation_s),
        judged_s: SHORTEST_TRIAL_S.max(samples * correlation_s),
    }
}

/// Returns the factor by which a search overestimates the capacity if its trials are shorter than
/// [`trial_length`] requires. `share` is the judged time divided by the required time. `scatter` is
/// the standard deviation of the capacity from trial to trial, as a share.
///
/// At the capacity, a trial is expected to have `k` independent requests above the percentile (see
/// [`INDEPENDENT_MISSES`]). Across trials, the relative standard deviation of the share of requests
/// above the percentile is 1/√k, and that of the capacity is `scatter`. A relative change in the
/// share therefore corresponds to a change in the rate that is scatter · √k times as large.
pub(super) fn overestimate(share: f64, scatter: f64) -> f64 {
    if share >= 1.0 {
        return 1.0;
    }
    let k = INDEPENDENT_MISSES * share;
    (1.0 + 0.5 / k).powf(scatter * k.sqrt())
}

/// A CPU counts as slow if the work takes more than this factor times the usual time.
const SLOW_FACTOR: f64 = 1.1;

/// Quantile that defines the usual time: it is computed first for the samples of each load, and
/// then across the results of all loads. It is below the median, because CPUs may be slow for more
/// than half of a search.
const USUAL_QUANTILE: f64 = 0.25;

/// The usual speed of each CPU, measured as the time of a fixed piece of work.
#[derive(Debug, Clone, Default)]
pub struct UsualCpuSpeed {
    /// For each CPU, the usual time of the work in each load (the [`USUAL_QUANTILE`] of the
    /// samples).
    loads: BTreeMap<u32, Vec<f64>>,
}

impl UsualCpuSpeed {
    /// Adds the samples of a load: pairs of a CPU and the time of the work on it, in any unit.
    /// Returns the share of samples that are more than 10 % slower than usual, averaged across
    /// CPUs. Returns `None` if there are no samples.
    pub fn add(&mut self, times: impl IntoIterator<Item = (u32, f64)>) -> Option<f64> {
        let mut by_cpu: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for (cpu, time) in times {
            by_cpu.entry(cpu).or_default().push(time);
        }
        let mut sum = 0.0;
        for (cpu, times) in &by_cpu {
            let loads = self.loads.entry(*cpu).or_default();
            loads.push(usual_of(times));
            let usual = usual_of(loads);
            let slow = times.iter().filter(|time| **time > SLOW_FACTOR * usual);
            sum += slow.count() as f64 / times.len() as f64;
        }
        (!by_cpu.is_empty()).then(|| sum / by_cpu.len() as f64)
    }
}

fn usual_of(values: &[f64]) -> f64 {
    Data::new(values.to_vec()).quantile(USUAL_QUANTILE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Normal, ar1};

    #[test]
    fn least_samples_agree_with_the_formula() {
        assert_eq!(least_samples(0.99, 0.99), 459);
        assert_eq!(least_samples(0.999, 0.99), 4_603);
        assert_eq!(least_samples(0.5, 0.99), 7);
    }

    /// Returns rows of 1,000 requests, 100 of them slow on average.
    fn rows(deviations: impl IntoIterator<Item = f64>) -> Vec<TrialRow> {
        let row = |deviation: f64| TrialRow {
            requests: 1_000,
            slow: (100.0 + deviation).round().max(0.0) as u64,
        };
        deviations.into_iter().map(row).collect()
    }

    #[test]
    fn independent_requests_have_no_design_effect() {
        let mut normal = Normal::new(5);
        // The standard deviation of a binomial count of 1,000 with share 0.1 is 9.5.
        let independent = rows((0..200).map(|_| 9.5 * normal.next()));
        let effect = design_effect(&[independent]).unwrap();
        assert!(effect < 1.6, "{effect}");
    }

    #[test]
    fn correlated_requests_have_a_design_effect() {
        // Three times the standard deviation, and (1 + φ)/(1 − φ) = 3 from correlated rows: 27.
        let correlated = rows(ar1(0.5, 2_000, 5).into_iter().map(|x| 28.5 * x));
        let effect = design_effect(std::slice::from_ref(&correlated)).unwrap();
        assert!((effect / 27.0 - 1.0).abs() < 0.3, "{effect}");
        // Many short trials give the same result together, although each of them is too short on
        // its own.
        let short: Vec<Vec<TrialRow>> = correlated.chunks(20).map(<[TrialRow]>::to_vec).collect();
        let pooled = design_effect(&short).unwrap();
        assert!((pooled / 27.0 - 1.0).abs() < 0.3, "{pooled}");
    }

    #[test]
    fn too_few_rows_have_no_design_effect() {
        assert_eq!(design_effect(&[rows([0.0; 9])]), None);
        assert_eq!(design_effect(&[rows([-100.0; 20])]), None);
        assert_eq!(design_effect(&[]), None);
    }

    #[test]
    fn short_trials_overestimate_the_capacity() {
        assert_eq!(overestimate(1.0, 0.02), 1.0);
        // With one independent request, the share is too high by 50 %.
        let one = overestimate(0.1, 0.02);
        assert!((one - 1.5f64.powf(0.02)).abs() < 1e-12, "{one}");
        assert!(overestimate(0.02, 0.02) > one, "shorter trials");
        assert!(
            overestimate(0.1, 0.04) > one,
            "the rate depends more on the share"
        );
    }

    #[test]
    fn trials_are_as_long_as_correlation_demands() {
        let short = trial_length(20_000.0, 0.99, 1.0);
        assert_eq!((short.transient_s, short.judged_s), (0.2, 1.0));
        // 1,000 independent samples of 50 ms each.
        let long = trial_length(20_000.0, 0.99, 1_000.0);
        assert!((long.judged_s - 50.0).abs() < 1e-9 && (long.transient_s - 0.5).abs() < 1e-9);
        assert_eq!(long.limited(60.0), long);
        let limited = long.limited(1.0);
        assert_eq!((limited.transient_s, limited.judged_s), (0.3, 1.0));
        let rare = trial_length(20_000.0, 0.999, 10.0);
        assert!((rare.judged_s - 5.0).abs() < 1e-9, "{rare:?}");
    }

    /// Returns the samples of a load on one CPU. `slow` of the 100 samples take `factor` times as
    /// long as the others.
    fn load(slow: usize, factor: f64) -> impl Iterator<Item = (u32, f64)> {
        (0..100).map(move |i| (3, if i < slow { 2_000.0 * factor } else { 2_000.0 }))
    }

    #[test]
    fn the_share_of_slow_times_is_counted() {
        let mut usual = UsualCpuSpeed::default();
        assert_eq!(usual.add(load(0, 1.0)), Some(0.0));
        assert_eq!(usual.add(load(30, 1.2)), Some(0.3));
        assert_eq!(usual.add(load(30, 1.05)), Some(0.0));
        assert_eq!(usual.add([]), None);
    }

    #[test]
    fn a_load_can_be_slow_as_a_whole() {
        let mut usual = UsualCpuSpeed::default();
        assert_eq!(usual.add(load(100, 1.5)), Some(0.0));
        usual.add(load(0, 1.0));
        usual.add(load(0, 1.0));
        for _ in 0..4 {
            assert_eq!(usual.add(load(100, 1.5)), Some(1.0));
        }
    }

    #[test]
    fn each_cpu_has_its_own_usual_speed() {
        let mut usual = UsualCpuSpeed::default();
        let both = |second: f64| load(0, 1.0).chain((0..50).map(move |_| (4, second)));
        assert_eq!(usual.add(both(3_000.0)), Some(0.0));
        assert_eq!(usual.add(both(3_000.0)), Some(0.0));
        assert_eq!(usual.add(both(4_000.0)), Some(0.5));
    }
}
