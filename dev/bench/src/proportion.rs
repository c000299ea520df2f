//! Proportions with confidence intervals.

use std::fmt;

/// A proportion of cases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Proportion {
    /// Number of matching cases.
    pub count: usize,
    /// Total number of cases.
    pub total: usize,
}

impl Proportion {
    /// Returns the proportion of `true` values.
    pub fn of(items: impl IntoIterator<Item = bool>) -> Self {
        let mut proportion = Proportion::default();
        for holds in items {
            proportion.total += 1;
            proportion.count += usize::from(holds);
        }
        proportion
    }

    /// Returns the proportion, or 0 without cases.
    pub fn value(self) -> f64 {
        self.count as f64 / self.total.max(1) as f64
    }

    /// Returns the 95 % Wilson score interval: E. B. Wilson, "Probable Inference, the Law of
    /// Succession, and Statistical Inference", Journal of the American Statistical Association 22
    /// (1927).
    pub fn interval(self) -> (f64, f64) {
        const Z: f64 = 1.959_964;
        if self.total == 0 {
            return (0.0, 1.0);
        }
        let (n, p) = (self.total as f64, self.value());
        let middle = p + Z * Z / (2.0 * n);
        let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        let whole = 1.0 + Z * Z / n;
        // Rounding errors may move a bound below 0 or above 1.
        let (low, high) = ((middle - half) / whole, (middle + half) / whole);
        (low.max(0.0), high.min(1.0))
    }
}

impl fmt::Display for Proportion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = self.interval();
        let [value, low, high] = [self.value(), low, high].map(|share| share * 100.0);
        let Proportion { count, total } = self;
        write!(
            f,
            "{count} of {total}: {value:.1} % ({low:.1} – {high:.1} %)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_published_intervals() {
        // Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in
        // Medicine 17 (1998), table I, method 3.
        let near = |a: f64, b: f64| (a - b).abs() < 5e-5;
        for (count, total, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let (l, h) = Proportion { count, total }.interval();
            assert!(near(l, low) && near(h, high), "{count}/{total}: {l} {h}");
        }
        let interval = |count, total| Proportion { count, total }.interval();
        assert_eq!(interval(0, 0), (0.0, 1.0));
        assert_eq!(interval(5, 5).1, 1.0);
    }
}
