//! Ratios of two systems' figures, with intervals based on the variation between server processes
//! (docs/decisions/0010-comparisons.md).
//!
//! Each figure belongs to one server process, because attempts on one process are not independent
//! (Kalibera & Jones, "Rigorous Benchmarking in Reasonable Time", ISMM 2013).
//!
//! The logarithms are compared with Welch's t (Welch, "The generalization of 'Student's' problem",
//! Biometrika 34, 1947). The result is therefore a ratio of geometric means, and does not depend on
//! order or unit.

use floodmark_record::comparison::Conclusion;
use floodmark_record::interval::Interval;

use crate::distributions::{chi_square_lower_quantile, t_margin};
use crate::estimate::{CONFIDENCE, geometric, mean};

/// Range of equivalent ratios.
pub const EQUIVALENT: (f64, f64) = (0.98, 1.02);

/// Probability that [`Ratio::repetitions_needed`] processes are enough, if the measured ratio is
/// the true ratio.
pub const POWER: f64 = 0.9;

/// Confidence level of the upper limit on the variance. Repetitions are computed from this limit.
///
/// The variance measured with few processes is often too small. This level is the lowest multiple
/// of 0.1 at which the simulations in docs/decisions/0010-comparisons.md reach [`POWER`].
const VARIANCE_LIMIT: f64 = 0.8;

/// Maximum number of repetitions. This value means "this many or more".
pub const MOST_REPETITIONS: u32 = 10_000;

/// Mean and variance of one system's figures on the logarithmic scale.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    n: usize,
    mean: f64,
    /// Unbiased variance; `None` with fewer than two processes.
    variance: Option<f64>,
}

impl Spread {
    fn of(figures: &[f64]) -> Option<Self> {
        if figures.is_empty() || figures.iter().any(|v| !(v.is_finite() && *v > 0.0)) {
            return None;
        }
        let logs: Vec<f64> = figures.iter().map(|v| v.ln()).collect();
        let (n, mean) = (logs.len(), mean(&logs));
        let squares: f64 = logs.iter().map(|v| (v - mean).powi(2)).sum();
        Some(Spread {
            n,
            mean,
            variance: (n > 1).then(|| squares / (n - 1) as f64),
        })
    }
}

/// Returns the geometric mean across processes. Returns `None` if there are no figures, or if a
/// figure is not positive.
#[must_use]
pub fn geometric_mean(figures: &[f64]) -> Option<f64> {
    Some(Spread::of(figures)?.mean.exp())
}

/// Returns the 95 % interval for the geometric mean, by Student's t on the logarithms.
/// Returns `None` for fewer than two processes.
#[must_use]
pub fn over_processes(figures: &[f64]) -> Option<Interval> {
    let n = figures.len();
    let method = format!("Student's t on logarithms over {n} server processes");
    Some(geometric(figures, method)?.1)
}

/// The ratio of two systems' figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratio {
    a: Spread,
    b: Spread,
}

/// Returns the conclusion that follows from the interval of a ratio.
#[must_use]
pub fn conclusion(interval: &Interval) -> Conclusion {
    match interval {
        i if EQUIVALENT.0 <= i.low && i.high <= EQUIVALENT.1 => Conclusion::Equivalent,
        i if i.low > 1.0 || i.high < 1.0 => Conclusion::Different,
        _ => Conclusion::Undecided,
    }
}

impl Ratio {
    /// Returns a ÷ b, computed from one figure per server process.
    /// Returns `None` if a system has no figures, or if a figure is not positive.
    #[must_use]
    pub fn of(a: &[f64], b: &[f64]) -> Option<Self> {
        Some(Ratio {
            a: Spread::of(a)?,
            b: Spread::of(b)?,
        })
    }

    /// Returns the ratio of the geometric means.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.log().exp()
    }

    fn log(&self) -> f64 {
        self.a.mean - self.b.mean
    }

    fn variances(&self) -> Option<(f64, f64)> {
        Some((self.a.variance?, self.b.variance?))
    }

    /// Returns the 95 % interval by Welch's t; `None` if a system has fewer than two processes.
    #[must_use]
    pub fn interval(&self) -> Option<Interval> {
        let (a, b) = self.variances()?;
        let (error, degrees) = welch(a, self.a.n, b, self.b.n);
        let half = t_margin(CONFIDENCE, error, degrees);
        Some(Interval {
            low: (self.log() - half).exp(),
            high: (self.log() + half).exp(),
            confidence: CONFIDENCE,
            method: format!(
                "Welch's t on logarithms over {} and {} server processes",
                self.a.n, self.b.n
            ),
        })
    }

    /// Returns the conclusion that follows from the interval.
    #[must_use]
    pub fn conclusion(&self) -> Conclusion {
        self.interval()
            .map_or(Conclusion::Undecided, |interval| conclusion(&interval))
    }

    /// Returns how many processes of each system a new measurement needs to decide the comparison.
    ///
    /// The measurement then decides with probability [`POWER`]. Returns `None` if the comparison is
    /// decided or the variance is unknown.
    ///
    /// The computation uses the measured ratio, and the upper limit on the variances
    /// ([`VARIANCE_LIMIT`]). Browne proposed this limit in "On the use of a pilot sample for sample
    /// size determination", Statistics in Medicine 14, 1995.
    ///
    /// A comparison is decided if the interval's half width is below a limit. The limit is the
    /// ratio's distance from 1 (different) or from the nearer end of [`EQUIVALENT`] (equivalent),
    /// whichever is larger. All processes must be measured again. Adding processes until a
    /// comparison is decided would find false differences.
    #[must_use]
    pub fn repetitions_needed(&self) -> Option<u32> {
        let (a, b) = self.variances()?;
        if self.conclusion() != Conclusion::Undecided {
            return None;
        }
        let factor = variance_factor(a, self.a.n, b, self.b.n);
        let (a, b) = (a * factor, b * factor);
        let distance = self.log().abs();
        let enough = distance.max(EQUIVALENT.1.ln() - distance);
        let settles = |n: u32| {
            let (error, degrees) = welch(a, n as usize, b, n as usize);
            // The one-sided quantile of POWER is the two-sided quantile of 2·POWER − 1.
            t_margin(CONFIDENCE, error, degrees) + t_margin(2.0 * POWER - 1.0, error, degrees)
                <= enough
        };
        // The margins shrink as n grows, which allows binary search.
        let (mut low, mut high) = (2, MOST_REPETITIONS);
        while low < high {
            let middle = low.midpoint(high);
            if settles(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(low)
    }
}

/// Returns the standard error of the difference between two means, and its degrees of freedom.
fn welch(variance_a: f64, n_a: usize, variance_b: f64, n_b: usize) -> (f64, f64) {
    let (a, b) = (variance_a / n_a as f64, variance_b / n_b as f64);
    ((a + b).sqrt(), degrees_of_sum(a, n_a, b, n_b))
}

/// Returns the factor by which the upper limit on the sum of two variances exceeds the measured
/// sum.
/// The limit is the chi-square quantile at [`VARIANCE_LIMIT`] for the sum's degrees of freedom.
fn variance_factor(variance_a: f64, n_a: usize, variance_b: f64, n_b: usize) -> f64 {
    let degrees = degrees_of_sum(variance_a, n_a, variance_b, n_b);
    degrees / chi_square_lower_quantile(1.0 - VARIANCE_LIMIT, degrees)
}

/// Returns the degrees of freedom for the sum of two variances (Satterthwaite, Biometrics Bulletin
/// 2, 1946).
fn degrees_of_sum(a: f64, n_a: usize, b: f64, n_b: usize) -> f64 {
    // Scale by the larger variance, so that squares do not underflow.
    let scale = a.max(b);
    if scale == 0.0 {
        return (n_a + n_b - 2) as f64;
    }
    let (a, b) = (a / scale, b / scale);
    (a + b).powi(2) / (a * a / (n_a - 1) as f64 + b * b / (n_b - 1) as f64)
}

#[cfg(test)]
#[path = "comparison_tests.rs"]
mod tests;
