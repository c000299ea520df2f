//! Estimates of a mean, with a standard error that allows for autocorrelation, and intervals within
//! one run or across attempts.

use floodmark_record::interval::Interval;
use floodmark_record::run::Window;

use crate::distributions::t_margin;
use crate::steady::{SHORTEST_ROW_S, SeriesPoint};

/// An estimated mean.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// The mean, in the unit of the values.
    pub value: f64,
    /// Standard error of the mean, in the unit of the values.
    pub std_err: f64,
    /// Effective sample size.
    pub effective_n: f64,
    /// Description of the method.
    pub method: String,
}

impl Estimate {
    /// Returns the mean of independent values. Returns `None` if there are fewer than two values,
    /// or if a value is not finite.
    #[must_use]
    pub fn of_independent(values: &[f64], method: impl Into<String>) -> Option<Self> {
        let n = values.len();
        if n < 2 || values.iter().any(|v| !v.is_finite()) {
            return None;
        }
        let value = mean(values);
        let variance = values.iter().map(|v| (v - value).powi(2)).sum::<f64>() / (n - 1) as f64;
        Some(Estimate {
            value,
            std_err: (variance / n as f64).sqrt(),
            effective_n: n as f64,
            method: method.into(),
        })
    }

    /// Returns the two-sided Student-t interval with `effective_n − 1` degrees of freedom (at least
    /// 1).
    #[must_use]
    pub fn interval(&self, confidence: f64) -> Interval {
        let degrees = (self.effective_n - 1.0).max(1.0);
        let half = t_margin(confidence, self.std_err, degrees);
        Interval {
            low: self.value - half,
            high: self.value + half,
            confidence,
            method: self.method.clone(),
        }
    }
}

/// Returns the geometric mean of independent values, and its interval by Student's t on the
/// logarithms.
/// Returns `None` if there are fewer than two values, or if a value is not positive.
#[must_use]
pub fn geometric(values: &[f64], method: String) -> Option<(f64, Interval)> {
    let logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
    let estimate = Estimate::of_independent(&logs, method)?;
    let of_logs = estimate.interval(CONFIDENCE);
    let interval = Interval {
        low: of_logs.low.exp(),
        high: of_logs.high.exp(),
        ..of_logs
    };
    Some((estimate.value.exp(), interval))
}

/// Returns the arithmetic mean; NaN if there are no values.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Confidence level of all intervals.
pub const CONFIDENCE: f64 = 0.95;

/// Minimum number of seconds for an interval within a run.
/// Autocorrelation cannot be estimated from fewer seconds.
pub const FEWEST_SECONDS: usize = 5;

/// Returns the interval for a run's throughput, computed from the rows within `window`.
/// Returns `None` for fewer than [`FEWEST_SECONDS`] whole rows.
///
/// The interval allows for autocorrelation, and its lower bound is at least 0. The interval
/// describes only this run. Another process of the same server may reach a different level.
#[must_use]
pub fn within_run(series: &[SeriesPoint], window: &Window) -> Option<Interval> {
    // Partial and short rows are noisier.
    let slack = 1e-3;
    let values: Vec<f64> = series
        .iter()
        .filter(|p| p.from_s >= window.from_s - slack && p.to_s <= window.to_s + slack)
        .filter(|p| p.to_s - p.from_s >= SHORTEST_ROW_S)
        .map(|p| p.throughput_per_s)
        .collect();
    mean_of_series(&values).map(interval_from_0)
}

/// Returns the interval of a quantity that cannot be negative: its lower bound is at least 0.
fn interval_from_0(estimate: Estimate) -> Interval {
    let interval = estimate.interval(CONFIDENCE);
    let low = interval.low.max(0.0);
    Interval { low, ..interval }
}

/// Returns the mean over equally long parts of one run; `None` for fewer parts than
/// [`FEWEST_SECONDS`].
///
/// The standard error allows for autocorrelation. The effective sample size is `n`/τ, with τ from
/// the initial monotone sequence of Geyer (1992), "Practical Markov Chain Monte Carlo", Statistical
/// Science 7(4).
#[must_use]
pub fn mean_of_series(values: &[f64]) -> Option<Estimate> {
    let n = values.len();
    if n < FEWEST_SECONDS || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let value = mean(values);
    let residuals: Vec<f64> = values.iter().map(|v| v - value).collect();
    let (variance, tau) = variance(&residuals, 1);
    let effective_n = (n as f64 / tau).max(2.0);
    Some(Estimate {
        value,
        std_err: (variance / effective_n).sqrt(),
        effective_n,
        method: format!(
            "within this run: Student's t on {n} seconds, {effective_n:.0} of them independent \
             (autocorrelation, Geyer 1992)"
        ),
    })
}

/// Returns the Student-t interval for the mean of independent values. Returns `None` for fewer than
/// two values.
#[must_use]
pub fn over_attempts(values: &[f64]) -> Option<Interval> {
    let n = values.len();
    let method = format!("over {n} attempts: Student's t");
    Estimate::of_independent(values, method).map(interval_from_0)
}

/// Returns the statistical inefficiency τ of residuals.
///
/// The variance of the residuals' mean is τ times the variance for independent values. The `n`
/// values are therefore worth `n`/τ independent values.
///
/// Autocorrelations are summed in pairs of adjacent lags until the sum of a pair is not positive.
/// A pair counts for at most as much as the previous pair. This is the initial monotone sequence of
/// Geyer (1992), "Practical Markov Chain Monte Carlo", Statistical Science 7(4).
///
/// Subtracting the mean makes each autocovariance too small by about the variance of the mean
/// (Anderson 1971, "The Statistical Analysis of Time Series"). This matters if there are only 10 to
/// 60 values, so the variance is added back iteratively. `means` is the number of subtracted means.
///
/// The result is at least 1, so that periodic stalls do not narrow an interval. It is at most half
/// the number of values with the same mean.
pub(crate) fn inefficiency(residuals: &[f64], means: usize) -> f64 {
    let n = residuals.len();
    if n < 4 {
        return 1.0;
    }
    // Values with different means come from different series.
    let series = n / means.max(1);
    let lags = (series / 2).min(MOST_LAGS);
    // Compute products on demand, because few lags are needed, and each product only once, because
    // all rounds use it.
    let mut products: Vec<f64> = Vec::new();
    let mut product = move |lag: usize| {
        while products.len() <= lag {
            let pairs = residuals[products.len()..].iter().zip(residuals);
            products.push(pairs.map(|(a, b)| a * b).sum());
        }
        products[lag]
    };
    let variance = product(0) / n as f64;
    if variance <= 0.0 {
        return 1.0;
    }
    let most = (series as f64 / 2.0).max(1.0);
    let mut tau: f64 = 1.0;
    for _ in 0..ROUNDS {
        let of_mean = variance * tau * means as f64 / n as f64;
        let mut sum = 0.0;
        let mut last_pair = f64::INFINITY;
        for pair in 0..lags / 2 {
            let mut at = |lag: usize| product(lag) / (n - lag) as f64 + of_mean;
            let both = (at(2 * pair) + at(2 * pair + 1)).min(last_pair);
            if both <= 0.0 {
                break;
            }
            sum += both;
            last_pair = both;
        }
        let own = variance + of_mean;
        tau = (2.0 * sum / own - 1.0).clamp(1.0, most);
    }
    tau
}

/// Returns the variance of autocorrelated values, and τ. Both are computed from the residuals.
/// `means` is the number of subtracted means.
pub(crate) fn variance(residuals: &[f64], means: usize) -> (f64, f64) {
    let tau = inefficiency(residuals, means);
    let squares: f64 = residuals.iter().map(|r| r * r).sum();
    // Autocorrelated values spread less around their own mean than around the true mean. The
    // divisor is therefore n − τ instead of n − 1.
    let degrees = residuals.len() as f64 - means as f64 * tau;
    (squares / degrees.max(1.0), tau)
}

/// Maximum lag. It keeps the cost linear for long runs.
const MOST_LAGS: usize = 512;

/// Number of iterations. The third iteration changes τ by only a few percent.
const ROUNDS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::mean;
    use crate::testing::ar1;

    #[test]
    fn agrees_with_a_worked_example() {
        // The mean is 5, s² = 2.5, the standard error √(2.5/5) = 0.7071, and t(0.95, 4) = 2.776.
        let estimate = Estimate::of_independent(&[3.0, 4.0, 5.0, 6.0, 7.0], "by hand").unwrap();
        let interval = estimate.interval(0.95);
        assert!((interval.low - (5.0 - 2.776 * 0.5_f64.sqrt())).abs() < 1e-3);
        assert!((interval.high - (5.0 + 2.776 * 0.5_f64.sqrt())).abs() < 1e-3);
        assert_eq!(interval.method, "by hand");
    }

    #[test]
    fn needs_two_finite_values() {
        assert_eq!(Estimate::of_independent(&[1.0], ""), None);
        assert_eq!(Estimate::of_independent(&[1.0, f64::NAN], ""), None);
    }

    #[test]
    fn equal_values_have_an_interval_of_width_0() {
        let interval = Estimate::of_independent(&[2.0; 4], "")
            .unwrap()
            .interval(0.95);
        assert_eq!((interval.low, interval.high), (2.0, 2.0));
    }

    fn coverage(phi: f64, n: usize) -> f64 {
        let series = 2_000;
        let held = (0..series)
            .filter(|seed| {
                let interval = mean_of_series(&ar1(phi, n, *seed))
                    .unwrap()
                    .interval(CONFIDENCE);
                interval.low <= 0.0 && 0.0 <= interval.high
            })
            .count();
        held as f64 / series as f64
    }

    #[test]
    fn interval_has_its_stated_coverage() {
        // Tolerance bands for the coverage in 2,000 seeded series (standard error 0.5 %). Ten
        // seconds with φ = 0.8 contain about one independent value, so coverage is low.
        for (phi, n, least, most) in [
            (0.0, 10, 0.94, 0.985),
            (0.0, 60, 0.94, 0.985),
            (0.5, 10, 0.88, 0.97),
            (0.5, 60, 0.92, 0.97),
            (0.8, 10, 0.78, 0.90),
            (0.8, 60, 0.88, 0.96),
            (0.8, 300, 0.92, 0.97),
        ] {
            let got = coverage(phi, n);
            assert!((least..=most).contains(&got), "φ {phi}, n {n}: {got}");
        }
    }

    #[test]
    fn interval_over_attempts_has_its_stated_coverage() {
        let series = 2_000;
        let held = (0..series)
            .filter(|seed| {
                let values: Vec<f64> = ar1(0.0, 5, *seed).iter().map(|v| v + 100.0).collect();
                let interval = over_attempts(&values).unwrap();
                interval.low <= 100.0 && 100.0 <= interval.high
            })
            .count();
        let got = held as f64 / series as f64;
        assert!((0.935..=0.965).contains(&got), "{got}");
        assert_eq!(over_attempts(&[7.0]), None);
    }

    fn rows(values: &[f64]) -> Vec<SeriesPoint> {
        (0..)
            .zip(values)
            .map(|(i, v)| SeriesPoint {
                from_s: f64::from(i),
                to_s: f64::from(i) + 1.0,
                throughput_per_s: *v,
                p50_us: None,
            })
            .collect()
    }

    fn over(from_s: f64, to_s: f64) -> Window {
        Window {
            from_s,
            to_s,
            why: String::new(),
        }
    }

    #[test]
    fn uses_whole_rows_within_the_window() {
        let mut series = rows(&[0.0, 100.0, 102.0, 98.0, 101.0, 99.0]);
        series.push(SeriesPoint {
            from_s: 6.0,
            to_s: 6.2,
            throughput_per_s: 9_999.0,
            p50_us: None,
        });
        let interval = within_run(&series, &over(1.0, 6.2)).unwrap();
        assert!(interval.low > 95.0 && interval.high < 105.0, "{interval:?}");
        assert!(interval.method.contains("5 seconds"), "{}", interval.method);
        assert_eq!(within_run(&series, &over(2.0, 6.2)), None, "four seconds");
    }

    #[test]
    fn lower_bound_is_not_negative() {
        let series = rows(&[0.0, 0.0, 0.0, 0.0, 50.0, 0.0]);
        assert_eq!(within_run(&series, &over(0.0, 6.0)).unwrap().low, 0.0);
    }

    #[test]
    fn periodic_stalls_widen_the_interval() {
        let stalls: Vec<f64> = (0..12)
            .map(|i| if i % 4 == 3 { 0.0 } else { 100.0 })
            .collect();
        let interval = within_run(&rows(&stalls), &over(0.0, 12.0)).unwrap();
        assert!(interval.low < 60.0 && interval.high > 90.0, "{interval:?}");
    }

    fn of(values: &[f64]) -> f64 {
        let m = mean(values);
        let residuals: Vec<f64> = values.iter().map(|v| v - m).collect();
        inefficiency(&residuals, 1)
    }

    #[test]
    fn agrees_with_the_closed_form_of_ar1() {
        // The expected values of τ = (1 + φ)/(1 − φ) are 1, 3 and 9.
        for (phi, tau) in [(0.0, 1.0), (0.5, 3.0), (0.8, 9.0)] {
            let got = of(&ar1(phi, 20_000, 7));
            assert!((got / tau - 1.0).abs() < 0.2, "{got} for {tau}");
        }
    }

    #[test]
    fn alternation_and_equal_values_give_1() {
        let dips: Vec<f64> = (0..40)
            .map(|i| if i % 4 == 3 { 0.0 } else { 1.0 })
            .collect();
        assert!(of(&dips) < 1.5, "{}", of(&dips));
        assert_eq!(of(&[3.0; 20]), 1.0);
    }
}
