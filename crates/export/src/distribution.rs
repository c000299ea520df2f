//! The distribution of one kind of time since the start of the command.

use floodmark_stats::Histogram;

use crate::exponential::ExponentialBuckets;

/// Upper bounds of the classic buckets in seconds. A last bucket without a bound contains all longer
/// times.
pub(crate) const CLASSIC_BOUNDS_S: [f64; 21] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025,
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0,
];

/// Distribution of a kind of time. Memory use is limited.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct TimeDistribution {
    exponential: ExponentialBuckets,
    classic: [u64; CLASSIC_BOUNDS_S.len()],
    count: u64,
    sum_s: f64,
}

impl TimeDistribution {
    /// Adds all times of a histogram.
    pub(crate) fn add(&mut self, histogram: &Histogram) {
        for (ns, count) in histogram.recorded() {
            let seconds = ns as f64 / 1e9;
            self.exponential.add(seconds, count);
            let bucket = CLASSIC_BOUNDS_S.partition_point(|&bound| bound < seconds);
            if let Some(bucket) = self.classic.get_mut(bucket) {
                *bucket += count;
            }
            self.count += count;
            self.sum_s += seconds * count as f64;
        }
    }

    /// Returns the exponential buckets of the times in seconds.
    pub(crate) fn exponential(&self) -> &ExponentialBuckets {
        &self.exponential
    }

    /// Returns the upper boundary of each classic bucket in seconds, and the number of times up to
    /// it.
    pub(crate) fn classic(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounds = CLASSIC_BOUNDS_S.into_iter();
        bounds.zip(&self.classic).scan(0, |sum, (bound, count)| {
            *sum += count;
            Some((bound, *sum))
        })
    }

    /// Returns the number of times.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of the times in seconds, with an error of at most 0.05 %.
    pub(crate) fn sum_s(&self) -> f64 {
        self.sum_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_the_histograms_of_several_seconds() {
        let mut times = TimeDistribution::default();
        for _ in 0..2 {
            let mut second = Histogram::new();
            second.record(40_000);
            second.record(3_000_000);
            second.record(70_000_000_000);
            times.add(&second);
        }
        assert_eq!(times.count(), 6);
        assert!((times.sum_s() - 140.00608).abs() < 140.0 * 0.0005);
        let classic: Vec<(f64, u64)> = times.classic().collect();
        assert_eq!(classic[1], (0.000_025, 0));
        assert_eq!(classic[2], (0.000_05, 2));
        assert_eq!(classic[8], (0.005, 4));
        // 70 s is above the last boundary.
        assert_eq!(classic.last(), Some(&(50.0, 4)));
        assert_eq!(times.exponential().counts().count(), 3);
    }
}
