//! Estimates: a mean with its standard error and method.

use floodmark_record::interval::Interval;

use crate::distributions::t_margin;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
