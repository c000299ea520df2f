//! Exponential buckets, as in Prometheus's native histograms and OpenTelemetry's exponential
//! histograms.

use std::collections::BTreeMap;

/// Schema of a new histogram. Adjacent boundaries differ by 2.2 %.
pub(crate) const FINEST_SCHEMA: i32 = 5;
/// Maximum number of buckets that contain a value. Each halving of the resolution lowers the
/// schema by 1.
pub(crate) const MAX_BUCKETS: usize = 160;

/// Counts of values in buckets whose boundaries are powers of `2^(2^-schema)`.
///
/// Bucket `i` contains the values above `base^(i - 1)` and up to `base^i`, where `base` is
/// `2^(2^-schema)`. This is Prometheus's numbering. OpenTelemetry's indexes are smaller by 1.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExponentialBuckets {
    schema: i32,
    counts: BTreeMap<i32, u64>,
    /// Number of values that are 0.
    zeros: u64,
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
    /// Counts a value of at least 0 `count` times.
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

    /// Returns the schema. OpenTelemetry calls it scale.
    pub(crate) fn schema(&self) -> i32 {
        self.schema
    }

    /// Returns the number of values that are 0.
    pub(crate) fn zeros(&self) -> u64 {
        self.zeros
    }

    /// Returns the index and count of each bucket that contains a value, in ascending order.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (i32, u64)> + '_ {
        self.counts.iter().map(|(&index, &count)| (index, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn boundaries_belong_to_the_lower_bucket() {
        let mut buckets = ExponentialBuckets::default();
        for value in [0.0, 0.5, 1.0, 1.0001, 2.0] {
            buckets.add(value, 1);
        }
        let counts: Vec<_> = buckets.counts().collect();
        assert_eq!(counts, [(-32, 1), (0, 1), (1, 1), (32, 1)]);
        assert_eq!((buckets.zeros(), buckets.schema()), (1, 5));
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
            schemas.push(buckets.schema());
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
            prop_assert_eq!(buckets.counts().map(|(_, n)| n).sum::<u64>(), values.len() as u64);
            let base = f64::from(-buckets.schema()).exp2().exp2();
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let mut rest = sorted.iter();
            for (index, count) in buckets.counts() {
                // Floating-point logarithms are inexact at a boundary.
                let (low, high) = (base.powi(index - 1) * (1.0 - 1e-9), base.powi(index) * (1.0 + 1e-9));
                for _ in 0..count {
                    let value = *rest.next().unwrap() as f64 / 1e9;
                    prop_assert!(low <= value && value <= high, "{} not in ({}, {}]", value, low, high);
                }
            }
        }
    }
}
