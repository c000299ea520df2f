//! The distribution of one kind of time since the start of the command.

use std::collections::BTreeMap;

use floodmark_stats::Histogram;

/// Upper bounds of the classic buckets, in seconds. An implicit last bucket without an upper bound
/// contains all longer times.
pub(crate) const CLASSIC_BOUNDS_S: [f64; 21] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025,
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0,
];

/// Distribution of a kind of time. Memory use is limited.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct TimeDistribution {
    /// Buckets of the times in seconds.
    pub(crate) exponential: ExponentialBuckets,
    classic: [u64; CLASSIC_BOUNDS_S.len()],
    /// Number of recorded times.
    pub(crate) count: u64,
    /// Sum of the times in seconds, with an error of at most 0.05 %.
    pub(crate) sum_s: f64,
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

    /// Returns the upper boundary of each classic bucket in seconds, and the number of recorded
    /// times up to this boundary.
    pub(crate) fn classic(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounds = CLASSIC_BOUNDS_S.into_iter();
        bounds.zip(&self.classic).scan(0, |sum, (bound, count)| {
            *sum += count;
            Some((bound, *sum))
        })
    }
}

/// Schema of a new histogram. Adjacent boundaries differ by 2.2 %.
pub(crate) const FINEST_SCHEMA: i32 = 5;

/// Maximum number of non-empty buckets. If there are more, the resolution is halved, which lowers
/// the schema by 1.
pub(crate) const MAX_BUCKETS: usize = 160;

/// Counts of values in buckets whose boundaries are powers of `2^(2^-schema)`, as in Prometheus's
/// native histograms and OpenTelemetry's exponential histograms.
///
/// Bucket `i` contains the values above `base^(i - 1)` and up to `base^i`, where `base` is
/// `2^(2^-schema)`. These are Prometheus's indexes; OpenTelemetry's indexes are smaller by 1.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExponentialBuckets {
    /// Resolution: the schema in Prometheus, the scale in OpenTelemetry.
    pub(crate) schema: i32,
    /// Count of each non-empty bucket, by the bucket's index.
    pub(crate) counts: BTreeMap<i32, u64>,
    /// Number of values that are 0.
    pub(crate) zeros: u64,
}

impl Default for ExponentialBuckets {
    fn default() -> Self {
        ExponentialBuckets {
            schema: FINEST_SCHEMA,
            counts: BTreeMap::new(),
            zeros: 0,
        }
    }
}

impl ExponentialBuckets {
    /// Adds `count` occurrences of a value, which must not be negative.
    pub(crate) fn add(&mut self, value: f64, count: u64) {
        if value <= 0.0 {
            self.zeros += count;
            return;
        }
        let index = (value.log2() * f64::from(self.schema).exp2()).ceil() as i32;
        *self.counts.entry(index).or_default() += count;
        while self.counts.len() > MAX_BUCKETS {
            self.halve_resolution();
        }
    }

    /// Merges each pair of adjacent buckets.
    fn halve_resolution(&mut self) {
        self.schema -= 1;
        for (index, count) in std::mem::take(&mut self.counts) {
            *self.counts.entry((index + 1) >> 1).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        assert_eq!(times.count, 6);
        assert!((times.sum_s - 140.00608).abs() < 140.0 * 0.0005);
        let classic: Vec<(f64, u64)> = times.classic().collect();
        assert_eq!(classic[1], (0.000_025, 0));
        assert_eq!(classic[2], (0.000_05, 2));
        assert_eq!(classic[8], (0.005, 4));
        // 70 s is above the last boundary.
        assert_eq!(classic.last(), Some(&(50.0, 4)));
        assert_eq!(times.exponential.counts.len(), 3);
    }

    #[test]
    fn boundaries_belong_to_the_lower_bucket() {
        let mut buckets = ExponentialBuckets::default();
        for value in [0.0, 0.5, 1.0, 1.0001, 2.0] {
            buckets.add(value, 1);
        }
        let counts = BTreeMap::from([(-32, 1), (0, 1), (1, 1), (32, 1)]);
        assert_eq!(buckets.counts, counts);
        assert_eq!((buckets.zeros, buckets.schema), (1, 5));
    }

    #[test]
    fn a_wider_range_lowers_the_schema() {
        let mut buckets = ExponentialBuckets::default();
        let (mut value, mut schemas) = (100e-6, Vec::new());
        for range in [20.0, 500.0, 100_000.0] {
            while value < range * 100e-6 {
                buckets.add(value, 1);
                value *= 1.001;
            }
            schemas.push(buckets.schema);
        }
        assert_eq!(schemas, [5, 4, 3]);
    }

    proptest! {
        #[test]
        fn each_value_is_within_its_bucket(values in prop::collection::vec(1u64..3_600_000_000_000, 1..400)) {
            let mut buckets = ExponentialBuckets::default();
            for &ns in &values {
                buckets.add(ns as f64 / 1e9, 1);
            }
            prop_assert!(buckets.counts.len() <= MAX_BUCKETS);
            prop_assert_eq!(buckets.counts.values().sum::<u64>(), values.len() as u64);
            let base = f64::from(-buckets.schema).exp2().exp2();
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let mut rest = sorted.iter();
            for (&index, &count) in &buckets.counts {
                // Allow for a rounding error, because logarithms are inexact at a boundary.
                let (low, high) = (base.powi(index - 1) * (1.0 - 1e-9), base.powi(index) * (1.0 + 1e-9));
                for _ in 0..count {
                    let value = *rest.next().unwrap() as f64 / 1e9;
                    prop_assert!(low <= value && value <= high, "{} not in ({}, {}]", value, low, high);
                }
            }
        }
    }
}
