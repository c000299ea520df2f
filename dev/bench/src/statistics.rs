//! Statistics of a small number of cases or rounds: proportions and medians, with confidence
//! intervals.

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
        items.into_iter().for_each(|holds| proportion.add(holds));
        proportion
    }

    /// Adds a case.
    pub fn add(&mut self, holds: bool) {
        self.total += 1;
        self.count += usize::from(holds);
    }

    /// Returns the proportion, or 0 if there are no cases.
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

/// Target confidence level of an interval.
const LEVEL: f64 = 0.95;

/// A median with its range and interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Median {
    /// Number of values.
    pub count: usize,
    /// Median of the values.
    pub median: f64,
    /// Smallest value.
    pub least: f64,
    /// Largest value.
    pub most: f64,
    /// Interval for the median; `None` for fewer than two values.
    pub interval: Option<MedianInterval>,
}

/// Interval for the median, between two order statistics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MedianInterval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability that the interval contains the true median.
    pub coverage: f64,
}

/// Estimates the median, or returns `None` if there are no values.
///
/// The ends of the interval are the narrowest symmetric pair of order statistics that enclose the
/// true median with at least 95 % probability. The number of values below the median is binomial
/// with p = ½ (Conover, Practical Nonparametric Statistics, 3.2). For fewer than six values, the
/// interval is the range of the values, and its level is below 95 %.
pub fn estimate(figures: impl IntoIterator<Item = f64>) -> Option<Median> {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    let n = figures.len();
    let (least, most) = (*figures.first()?, *figures.last()?);
    let median = (figures[(n - 1) / 2] + figures[n / 2]) / 2.0;
    let interval = (n > 1).then(|| {
        let skipped = (0..n.div_ceil(2)).take_while(|k| coverage(n, *k) >= LEVEL);
        let skipped = skipped.last().unwrap_or(0);
        MedianInterval {
            low: figures[skipped],
            high: figures[n - 1 - skipped],
            coverage: coverage(n, skipped),
        }
    });
    Some(Median {
        count: n,
        median,
        least,
        most,
        interval,
    })
}

/// Returns the probability that the median lies between the order statistics `skipped + 1` and
/// `n - skipped` of n values.
fn coverage(n: usize, skipped: usize) -> f64 {
    let mut ways = 1.0;
    let mut outside = 0.0;
    for k in 0..=skipped {
        outside += ways;
        ways *= (n - k) as f64 / (k + 1) as f64;
    }
    1.0 - 2.0 * outside / 2f64.powi(n as i32)
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

    #[test]
    fn five_figures_yield_their_range() {
        let e = estimate(vec![3.0, 1.0, 2.0, 5.0, 4.0]).unwrap();
        assert_eq!((e.median, e.least, e.most), (3.0, 1.0, 5.0));
        let interval = e.interval.unwrap();
        assert_eq!((interval.low, interval.high), (1.0, 5.0));
        assert!((interval.coverage - 0.9375).abs() < 1e-12);
    }

    /// The levels are from a table of the sign test: 96.1 % for the 2nd and 8th of 9 values, and
    /// 95.9 % for the 6th and 15th of 20 values.
    #[test]
    fn more_figures_narrow_the_interval() {
        let of = |n: usize| estimate((1..=n).map(|i| i as f64)).unwrap();
        let nine = of(9).interval.unwrap();
        assert_eq!((nine.low, nine.high), (2.0, 8.0));
        assert!((nine.coverage - 0.9609).abs() < 1e-4);
        let twenty = of(20).interval.unwrap();
        assert_eq!((twenty.low, twenty.high), (6.0, 15.0));
        assert!((twenty.coverage - 0.9586).abs() < 1e-4);
        assert_eq!(of(20).median, 10.5);
    }

    #[test]
    fn six_values_reach_the_level() {
        assert!((coverage(5, 0) - 0.9375).abs() < 1e-12);
        assert!(coverage(6, 0) >= LEVEL);
    }

    #[test]
    fn one_figure_has_no_interval() {
        assert_eq!(estimate(vec![2.0]).unwrap().interval, None);
        assert_eq!(estimate(Vec::new()), None);
    }
}
