//! A figure that carries its error and how it was got.

use floodmark_record::run::Interval;

use crate::student;

/// An estimated mean.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// The mean, in the unit of the values.
    pub value: f64,
    /// Standard error of the mean, same unit.
    pub std_err: f64,
    /// Number of values.
    pub n: usize,
    /// How many independent values they are worth; `n` where they are independent.
    pub effective_n: f64,
    /// How it was got, for a reader.
    pub method: String,
}

impl Estimate {
    /// Mean of independent values, with the usual standard error; none below two values or for values that
    /// are not finite.
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
            n,
            effective_n: n as f64,
            method: method.into(),
        })
    }

    /// Two-sided Student-t interval with `effective_n − 1` degrees of freedom (at least one).
    #[must_use]
    pub fn interval(&self, confidence: f64) -> Interval {
        let degrees = (self.effective_n - 1.0).max(1.0);
        let half = if self.std_err > 0.0 {
            student::two_sided_quantile(confidence, degrees) * self.std_err
        } else {
            0.0
        };
        Interval {
            low: self.value - half,
            high: self.value + half,
            confidence,
            method: self.method.clone(),
        }
    }
}

/// Arithmetic mean; NaN of nothing.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worked_example() {
        // Mean 5, s² = 2.5, standard error √(2.5/5) = 0.7071, t(0.95, 4) = 2.776.
        let estimate = Estimate::of_independent(&[3.0, 4.0, 5.0, 6.0, 7.0], "by hand").unwrap();
        let interval = estimate.interval(0.95);
        assert!((interval.low - (5.0 - 2.776 * 0.5_f64.sqrt())).abs() < 1e-3);
        assert!((interval.high - (5.0 + 2.776 * 0.5_f64.sqrt())).abs() < 1e-3);
        assert_eq!(interval.method, "by hand");
    }

    #[test]
    fn nothing_is_estimated_of_one_value_or_of_no_number() {
        assert_eq!(Estimate::of_independent(&[1.0], ""), None);
        assert_eq!(Estimate::of_independent(&[1.0, f64::NAN], ""), None);
    }

    #[test]
    fn equal_values_have_an_interval_of_no_width() {
        let interval = Estimate::of_independent(&[2.0; 4], "")
            .unwrap()
            .interval(0.95);
        assert_eq!((interval.low, interval.high), (2.0, 2.0));
    }
}
