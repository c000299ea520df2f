//! Intervals for a mean, within one run or over attempts.

use floodmark_record::interval::Interval;
use floodmark_record::run::Window;

use crate::autocorrelation::variance;
use crate::estimate::{CONFIDENCE, Estimate, mean};
use crate::steady::{SHORTEST_ROW_S, SeriesPoint};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ar1;

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
}
