//! Medians of a few rounds, and intervals that assume nothing of how the figures are spread.

/// Level that an interval should have.
const LEVEL: f64 = 0.95;

/// A median with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// How many figures it is of.
    pub count: usize,
    /// The median.
    pub median: f64,
    /// Smallest figure.
    pub least: f64,
    /// Largest figure.
    pub most: f64,
    /// The interval; none of fewer than two figures.
    pub interval: Option<Interval>,
}

/// An interval of the median between two order statistics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How often such an interval holds the true median, 0 to 1.
    pub coverage: f64,
}

/// Of the figures of all rounds; none of no figures.
///
/// The interval is the narrowest pair of figures, as far from the ends as each other, that holds the true median with
/// at least 95 % (Conover, Practical Nonparametric Statistics, 3.2: the number of figures below the median is
/// binomial with ½). Fewer than six figures cannot give that; then it is from the smallest to the largest.
pub fn estimate(mut figures: Vec<f64>) -> Option<Estimate> {
    figures.sort_by(f64::total_cmp);
    let n = figures.len();
    let (least, most) = (*figures.first()?, *figures.last()?);
    let median = (figures[(n - 1) / 2] + figures[n / 2]) / 2.0;
    let interval = (n > 1).then(|| {
        let skipped = (0..n.div_ceil(2)).take_while(|k| coverage(n, *k) >= LEVEL);
        let skipped = skipped.last().unwrap_or(0);
        Interval {
            low: figures[skipped],
            high: figures[n - 1 - skipped],
            coverage: coverage(n, skipped),
        }
    });
    Some(Estimate {
        count: n,
        median,
        least,
        most,
        interval,
    })
}

/// How often the median lies within n figures without the `skipped` smallest and as many largest.
pub fn coverage(n: usize, skipped: usize) -> f64 {
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
    fn five_figures_give_their_range() {
        let e = estimate(vec![3.0, 1.0, 2.0, 5.0, 4.0]).unwrap();
        assert_eq!((e.median, e.least, e.most), (3.0, 1.0, 5.0));
        let interval = e.interval.unwrap();
        assert_eq!((interval.low, interval.high), (1.0, 5.0));
        assert!((interval.coverage - 0.9375).abs() < 1e-12);
    }

    /// From a table of the sign test: with 9 figures the 2nd and 8th, 96.1 %; with 20 the 6th and 15th, 95.9 %.
    #[test]
    fn more_figures_narrow_it() {
        let of = |n: usize| estimate((1..=n).map(|i| i as f64).collect()).unwrap();
        let nine = of(9).interval.unwrap();
        assert_eq!((nine.low, nine.high), (2.0, 8.0));
        assert!((nine.coverage - 0.9609).abs() < 1e-4);
        let twenty = of(20).interval.unwrap();
        assert_eq!((twenty.low, twenty.high), (6.0, 15.0));
        assert!((twenty.coverage - 0.9586).abs() < 1e-4);
        assert_eq!(of(20).median, 10.5);
    }

    #[test]
    fn one_figure_has_no_interval_and_none_no_median() {
        assert_eq!(estimate(vec![2.0]).unwrap().interval, None);
        assert_eq!(estimate(Vec::new()), None);
    }
}
