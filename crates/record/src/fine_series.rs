//! Details of a run over time: throughput in steps shorter than a second, and the distribution of
//! response times in each second.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Throughput in steps of 100 ms. Only short runs have one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FineThroughput {
    /// Length of a step in seconds. The first step starts with the measurement.
    pub step_s: f64,
    /// Number of ok responses in each step.
    pub ok: Vec<u64>,
}

/// Number of responses by response time.
///
/// Bucket `i` contains the times from 2^(i/2) ns to 2^((i+1)/2) ns, so each bucket is 41 % wider
/// than the one before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimeBuckets {
    /// Index of the first bucket that is not empty.
    pub first: u32,
    /// Number of responses in the first and the following buckets.
    pub counts: Vec<u64>,
}

impl TimeBuckets {
    /// Counts times in nanoseconds with the number of their responses. Returns `None` without
    /// times.
    pub fn of(times: impl IntoIterator<Item = (u64, u64)>) -> Option<Self> {
        let index = |ns: u64| (2.0 * (ns.max(1) as f64).log2()).floor() as u32;
        let mut times = times.into_iter().map(|(ns, count)| (index(ns), count));
        let (first, count) = times.next()?;
        let mut buckets = TimeBuckets {
            first,
            counts: vec![count],
        };
        times.for_each(|(index, count)| buckets.add(index, count));
        Some(buckets)
    }

    /// Adds the counts of other buckets.
    pub fn merge(&mut self, other: &TimeBuckets) {
        let others = (other.first..).zip(&other.counts);
        others.for_each(|(index, count)| self.add(index, *count));
    }

    /// Returns the lower bound of bucket `index` in nanoseconds.
    #[must_use]
    pub fn lower_ns(index: u32) -> f64 {
        (f64::from(index) / 2.0).exp2()
    }

    fn add(&mut self, index: u32, count: u64) {
        if index < self.first {
            let missing = (self.first - index) as usize;
            self.counts.splice(0..0, vec![0; missing]);
            self.first = index;
        }
        let at = (index - self.first) as usize;
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_bucket_of_its_bounds() {
        let times = [(1_000_000, 2), (900, 1), (1_100_000, 3), (0, 1)];
        let mut buckets = TimeBuckets::of(times).unwrap();
        assert_eq!(buckets.first, 0);
        assert_eq!(buckets.counts.iter().sum::<u64>(), 7);
        let at = |buckets: &TimeBuckets, ns: f64| {
            let is_within = |index: &u32| {
                TimeBuckets::lower_ns(*index) <= ns && ns < TimeBuckets::lower_ns(index + 1)
            };
            let index = (0..200).find(is_within).unwrap();
            buckets.counts[(index - buckets.first) as usize]
        };
        assert_eq!(
            (at(&buckets, 1e6), at(&buckets, 1.1e6), at(&buckets, 900.0)),
            (2, 3, 1)
        );
        buckets.merge(&TimeBuckets::of([(900, 5), (50_000_000, 1)]).unwrap());
        assert_eq!((at(&buckets, 900.0), at(&buckets, 5e7)), (6, 1));
        assert_eq!(TimeBuckets::of([]), None);
    }
}
