//! Medians of a small number of rounds, with distribution-free confidence intervals.

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
/// interval is the range of the values, and its level is lower.
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

/// Estimates the median of a figure over the rounds that have a sample.
pub fn over<T>(rounds: &[Option<T>], figure: impl Fn(&T) -> Option<f64>) -> Option<Median> {
    estimate(rounds.iter().flatten().filter_map(figure))
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
