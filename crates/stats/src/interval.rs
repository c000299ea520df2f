//! Intervals of a mean: within one run, and over attempts.

use floodmark_record::run::{Interval, Window};

use crate::autocorrelation::inefficiency;
use crate::estimate::{Estimate, mean};
use crate::steady::{Point, SHORTEST_ROW_S};

/// Level of every interval floodmark prints.
pub const CONFIDENCE: f64 = 0.95;

/// Fewest seconds of which an interval within a run is given: below, the autocorrelation cannot be told and the
/// interval would be a guess.
pub const FEWEST_SECONDS: usize = 5;

/// Interval of a run's throughput from its rows within `window`, neighbouring seconds taken as the relatives they
/// are. None with fewer than [`FEWEST_SECONDS`] whole rows. A rate is not below 0, so neither is `low`.
///
/// It speaks of this run only: a fresh start of the same server may settle elsewhere.
#[must_use]
pub fn within_run(series: &[Point], window: &Window) -> Option<Interval> {
    // Rows that are cut by an end of the window or shorter than half a second are noisier than the others.
    let slack = 1e-3;
    let values: Vec<f64> = series
        .iter()
        .filter(|p| p.from_s >= window.from_s - slack && p.to_s <= window.to_s + slack)
        .filter(|p| p.to_s - p.from_s >= SHORTEST_ROW_S)
        .map(|p| p.throughput_per_s)
        .collect();
    let mut interval = mean_of_series(&values)?.interval(CONFIDENCE);
    interval.low = interval.low.max(0.0);
    Some(interval)
}

/// Mean of a series of equally long parts of one run, with a standard error that allows for autocorrelation: the
/// effective sample size is `n`/τ with τ from the initial monotone sequence of Geyer (1992), "Practical Markov Chain
/// Monte Carlo", Statistical Science 7(4). None below [`FEWEST_SECONDS`] values.
#[must_use]
pub fn mean_of_series(values: &[f64]) -> Option<Estimate> {
    let n = values.len();
    if n < FEWEST_SECONDS || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let value = mean(values);
    let residuals: Vec<f64> = values.iter().map(|v| v - value).collect();
    let tau = inefficiency(&residuals, 1);
    let effective_n = (n as f64 / tau).max(2.0);
    let squares: f64 = residuals.iter().map(|r| r * r).sum();
    // Related values spread less around their own mean than around the true one: n − τ, not n − 1.
    let variance = squares / (n as f64 - tau).max(1.0);
    Some(Estimate {
        value,
        std_err: (variance / effective_n).sqrt(),
        n,
        effective_n,
        method: format!(
            "within this run: Student t on {n} seconds that count as {effective_n:.0} independent ones \
             (autocorrelation, Geyer 1992)"
        ),
    })
}

/// Student-t interval of the mean of independent values, such as the throughput of several attempts. None below two.
#[must_use]
pub fn over_attempts(values: &[f64]) -> Option<Interval> {
    let n = values.len();
    let estimate = Estimate::of_independent(values, format!("over {n} attempts: Student t"))?;
    let mut interval = estimate.interval(CONFIDENCE);
    interval.low = interval.low.max(0.0);
    Some(interval)
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
    fn the_true_mean_is_inside_as_often_as_promised() {
        // Bands around what 2,000 seeded series gave; the standard error of such a share is 0.5 %. Ten seconds
        // with φ = 0.8 hold about one independent value: no method saves that, and the band says so.
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
    fn over_attempts_covers_95_of_100() {
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

    fn rows(values: &[f64]) -> Vec<Point> {
        (0..)
            .zip(values)
            .map(|(i, v)| Point {
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
    fn only_whole_rows_within_the_window_count() {
        let mut series = rows(&[0.0, 100.0, 102.0, 98.0, 101.0, 99.0]);
        series.push(Point {
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
    fn a_rate_is_not_below_zero() {
        let series = rows(&[0.0, 0.0, 0.0, 0.0, 50.0, 0.0]);
        assert_eq!(within_run(&series, &over(0.0, 6.0)).unwrap().low, 0.0);
    }

    #[test]
    fn periodic_stalls_widen_the_interval_rather_than_vanish() {
        let stalls: Vec<f64> = (0..12)
            .map(|i| if i % 4 == 3 { 0.0 } else { 100.0 })
            .collect();
        let interval = within_run(&rows(&stalls), &over(0.0, 12.0)).unwrap();
        assert!(interval.low < 60.0 && interval.high > 90.0, "{interval:?}");
    }
}
