//! The ratio of two systems' figures, with its interval over server processes.
//!
//! Each figure is that of one server process, started afresh: attempts on one process share its luck and are no repetitions
//! (Kalibera & Jones, "Rigorous Benchmarking in Reasonable Time", ISMM 2013). The figures' logarithms are compared with Welch's
//! t (Welch, "The generalization of 'Student's' problem", Biometrika 34, 1947), so the ratio is that of geometric means, and
//! exchanging the systems or changing the unit changes nothing else. docs/decisions/0010-comparisons.md says why.

use floodmark_record::comparison::Conclusion;
use floodmark_record::run::Interval;

use crate::chi_square;
use crate::estimate::mean;
use crate::interval::CONFIDENCE;
use crate::student;

/// Ratios between these are no difference that matters.
pub const EQUIVALENT: (f64, f64) = (0.98, 1.02);

/// With what probability as many processes as [`Ratio::repetitions_needed`] says settle the question, if the ratio is what it
/// seems.
pub const POWER: f64 = 0.9;

/// Level of the upper limit that is taken for the variance when the repetitions are worked out. Few processes as often show too
/// small a variance as too large a one, and with what they show, the power would be missed about as often as met. The level is the
/// lowest tenth at which the simulations of docs/decisions/0010-comparisons.md keep [`POWER`] throughout.
const VARIANCE_LIMIT: f64 = 0.8;

/// The largest number of repetitions that is worked out; it stands for as many or more.
pub const MOST_REPETITIONS: u32 = 10_000;

/// What the processes of one system show of its figure, on the logarithmic scale.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    n: usize,
    mean: f64,
    /// Unbiased variance; none with fewer than two processes.
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

/// Geometric mean of the figures of one system's processes; none without any, or with one that is not above zero.
#[must_use]
pub fn geometric_mean(figures: &[f64]) -> Option<f64> {
    Some(Spread::of(figures)?.mean.exp())
}

/// Student's interval of that mean at 95 %, on the logarithms; none with fewer than two processes.
#[must_use]
pub fn over_processes(figures: &[f64]) -> Option<Interval> {
    let Spread { n, mean, variance } = Spread::of(figures)?;
    let error = (variance? / n as f64).sqrt();
    let half = margin(CONFIDENCE, error, (n - 1) as f64);
    Some(Interval {
        low: (mean - half).exp(),
        high: (mean + half).exp(),
        confidence: CONFIDENCE,
        method: format!("Student's t on the logarithms of {n} server processes' figures"),
    })
}

/// The ratio of two systems' figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratio {
    a: Spread,
    b: Spread,
}

impl Ratio {
    /// a ÷ b, of one figure for each server process; none where a side has no process, or one whose figure is not above zero.
    #[must_use]
    pub fn of(a: &[f64], b: &[f64]) -> Option<Self> {
        Some(Ratio {
            a: Spread::of(a)?,
            b: Spread::of(b)?,
        })
    }

    /// Geometric mean of a's figures divided by that of b's.
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

    /// Welch's interval at 95 %; none with fewer than two processes on a side.
    #[must_use]
    pub fn interval(&self) -> Option<Interval> {
        let (a, b) = self.variances()?;
        let (error, degrees) = welch(a, self.a.n, b, self.b.n);
        let half = margin(CONFIDENCE, error, degrees);
        Some(Interval {
            low: (self.log() - half).exp(),
            high: (self.log() + half).exp(),
            confidence: CONFIDENCE,
            method: format!(
                "Welch's t on the logarithms of {} and {} server processes' figures",
                self.a.n, self.b.n
            ),
        })
    }

    /// What follows from the interval.
    #[must_use]
    pub fn conclusion(&self) -> Conclusion {
        match self.interval() {
            Some(i) if EQUIVALENT.0 <= i.low && i.high <= EQUIVALENT.1 => Conclusion::Equivalent,
            Some(i) if i.low > 1.0 || i.high < 1.0 => Conclusion::Different,
            _ => Conclusion::Undecided,
        }
    }

    /// How many processes of each would settle it with probability [`POWER`] in a new measurement, if the ratio is what it
    /// seems and the variances are at most their upper limits at [`VARIANCE_LIMIT`]; none where it is settled or no variance was
    /// seen.
    ///
    /// Settled means that the interval's half width is below the ratio's distance from 1 (different) or from the nearer end of
    /// [`EQUIVALENT`] (equivalent), whichever is the farther. The number is for processes measured afresh: adding to what is
    /// there until it is decided would find differences that are none. That a small sample's variance is to be replaced by its
    /// upper limit is due to Browne ("On the use of a pilot sample for sample size determination", Statistics in Medicine 14,
    /// 1995).
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
            // The t that a share POWER stays below is the two-sided one of 2·POWER − 1.
            margin(CONFIDENCE, error, degrees) + margin(2.0 * POWER - 1.0, error, degrees) <= enough
        };
        // The margins shrink as n grows, so the least n that settles it can be halved towards.
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

/// Standard error of the difference of two means and its degrees of freedom, from the variances of `n` values on each side.
fn welch(variance_a: f64, n_a: usize, variance_b: f64, n_b: usize) -> (f64, f64) {
    let (a, b) = (variance_a / n_a as f64, variance_b / n_b as f64);
    ((a + b).sqrt(), degrees_of_sum(a, n_a, b, n_b))
}

/// By what the variances seen are multiplied so that their sum is its upper limit at [`VARIANCE_LIMIT`]: that of one variance, by
/// chi-square, with the degrees of freedom of the sum.
fn variance_factor(variance_a: f64, n_a: usize, variance_b: f64, n_b: usize) -> f64 {
    let degrees = degrees_of_sum(variance_a, n_a, variance_b, n_b);
    degrees / chi_square::lower_quantile(1.0 - VARIANCE_LIMIT, degrees)
}

/// Degrees of freedom of the sum of two variances (Satterthwaite, Biometrics Bulletin 2, 1946),
/// from `n` values on each side.
fn degrees_of_sum(a: f64, n_a: usize, b: f64, n_b: usize) -> f64 {
    // As a share of the larger one, so that the squares of small variances do not vanish.
    let scale = a.max(b);
    if scale == 0.0 {
        return (n_a + n_b - 2) as f64;
    }
    let (a, b) = (a / scale, b / scale);
    (a + b).powi(2) / (a * a / (n_a - 1) as f64 + b * b / (n_b - 1) as f64)
}

/// Half width of a two-sided interval; nothing where every process gave the same.
fn margin(confidence: f64, error: f64, degrees: f64) -> f64 {
    if error > 0.0 {
        student::two_sided_quantile(confidence, degrees) * error
    } else {
        0.0
    }
}

#[cfg(test)]
#[path = "comparison_tests.rs"]
mod tests;
