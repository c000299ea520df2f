//! Histograms of durations: HdrHistogram with three significant digits, from 1 ns to 1 h.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use floodmark_record::times::Times;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

/// Maximum recorded value in ns (1 h). Longer durations are recorded as 1 h.
pub const LARGEST_NS: u64 = 3_600_000_000_000;

const DIGITS: u8 = 3;

/// A histogram of durations in nanoseconds with three significant digits. It takes about 270 KB.
/// The relative error is at most 0.1 % for values and at most 0.05 % for quantiles.
#[derive(Debug, Clone)]
pub struct Histogram {
    inner: hdrhistogram::Histogram<u64>,
}

/// The text is not a valid histogram.
#[derive(Debug, thiserror::Error)]
#[error("not a base64-encoded HdrHistogram V2: {0}")]
pub struct DecodeError(String);

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// Returns an empty histogram.
    ///
    /// # Panics
    /// Never panics, because the bounds are valid constants.
    #[must_use]
    pub fn new() -> Self {
        let inner = hdrhistogram::Histogram::new_with_bounds(1, LARGEST_NS, DIGITS)
            .expect("1 ns to 1 h at three digits are valid bounds");
        Histogram { inner }
    }

    /// Records a duration in ns; durations above 1 h are recorded as 1 h. Does not allocate.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.inner.saturating_record(ns);
    }

    /// Returns the number of recorded durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.inner.len()
    }

    /// Returns whether no duration was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Removes all durations, but keeps the allocated memory.
    pub fn clear(&mut self) {
        self.inner.reset();
    }

    /// Adds all durations of another histogram, without loss of precision.
    ///
    /// # Panics
    /// Never panics, because all histograms have the same bounds.
    pub fn merge(&mut self, other: &Histogram) {
        self.inner
            .add(&other.inner)
            .expect("histograms share their bounds");
    }

    /// Returns the quantile `q` (0 to 1) in ns, or `None` if the histogram is empty.
    ///
    /// The result is the middle of a bucket. HdrHistogram itself returns the top of the bucket,
    /// which is half a bucket too high on average (0.25 ms at 1 s).
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let top = (!self.is_empty()).then(|| self.inner.value_at_quantile(q))?;
        Some(self.inner.median_equivalent(top))
    }

    /// Returns the number of durations of at most `ns`, with the precision of the buckets.
    #[must_use]
    pub fn count_up_to(&self, ns: u64) -> u64 {
        self.inner.count_between(0, ns)
    }

    /// Returns the recorded durations in ns in ascending order, and how often each was recorded.
    /// Each duration is the middle of a bucket.
    pub fn recorded(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.inner.iter_recorded().map(|step| {
            let ns = self.inner.median_equivalent(step.value_iterated_to());
            (ns, step.count_since_last_iteration())
        })
    }

    /// Returns the mean in ns, or `None` if the histogram is empty.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.inner.mean())
    }

    /// Returns the maximum in ns with three significant digits, or `None` if the histogram is
    /// empty.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.inner.max())
    }

    /// Returns the minimum in ns with three significant digits, or `None` if the histogram is
    /// empty.
    #[must_use]
    pub fn min(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.inner.min())
    }

    /// Counts the durations in `bins` bins from the minimum to the maximum. The bins have equal
    /// widths on a logarithmic scale. Returns no bins if the histogram is empty.
    #[must_use]
    pub fn log_bins(&self, bins: usize) -> Vec<u64> {
        let (Some(min), Some(max)) = (self.min(), self.max()) else {
            return Vec::new();
        };
        let (from, to) = ((min.max(1) as f64).ln(), (max.max(1) as f64).ln());
        let mut counts = vec![0; bins];
        for recorded in self.inner.iter_recorded() {
            let at = (recorded.value_iterated_to().max(1) as f64).ln();
            let share = if to > from {
                (at - from) / (to - from)
            } else {
                0.0
            };
            let bin = (share * bins as f64) as usize;
            if let Some(count) = counts.get_mut(bin.min(bins.saturating_sub(1))) {
                *count += recorded.count_since_last_iteration();
            }
        }
        counts
    }

    /// Returns the histogram as a base64-encoded, deflated HdrHistogram V2.
    ///
    /// # Panics
    /// Never panics, because writing to memory does not fail.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.inner, &mut bytes)
            .expect("writing to memory does not fail");
        STANDARD.encode(bytes)
    }

    /// Reads the output of [`Histogram::encode`].
    ///
    /// # Errors
    /// The text is not valid base64, or does not contain a histogram with these bounds.
    pub fn decode(text: &str) -> Result<Self, DecodeError> {
        let bytes = STANDARD
            .decode(text)
            .map_err(|e| DecodeError(e.to_string()))?;
        let read: hdrhistogram::Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|e| DecodeError(format!("{e:?}")))?;
        if (read.low(), read.high(), read.sigfig()) == (1, LARGEST_NS, DIGITS) {
            return Ok(Histogram { inner: read });
        }
        let mut histogram = Histogram::new();
        histogram
            .inner
            .add(&read)
            .map_err(|e| DecodeError(e.to_string()))?;
        Ok(histogram)
    }

    /// Returns a summary of `ok`, `timed_out` and `in_flight` in µs. The times in `timed_out` and
    /// `in_flight` are lower bounds.
    ///
    /// Requests that timed out rank above all others. A request that was in flight at the end is
    /// censored at its age: its time is assumed to be distributed like the other times above this
    /// age (Kaplan and Meier, "Nonparametric Estimation from Incomplete Observations", 1958). If
    /// this age exceeds every time in `ok`, the request also ranks above all others. Percentiles
    /// that fall among requests that rank above all others are unknown. If there are any such
    /// requests, the mean and the maximum are also unknown.
    #[must_use]
    pub fn summarise(ok: &Histogram, timed_out: &Histogram, in_flight: &Histogram) -> Times {
        let us = |ns: f64| ns / 1e3;
        let longest_ns = ok.max().unwrap_or(0);
        let older = || in_flight.recorded().filter(|(age, _)| *age > longest_ns);
        let mut censored = timed_out.clone();
        for (age, n) in older() {
            censored.inner.saturating_record_n(age, n);
        }
        let shares = shares(ok, timed_out.count(), in_flight);
        let at = |q: f64| -> Option<f64> {
            let first = shares.partition_point(|(_, share)| *share < q - ROUNDING);
            let (rank, _) = shares.get(first)?;
            let ns = ok.quantile((*rank as f64 - 0.5) / ok.count() as f64)?;
            Some(us(ns as f64))
        };
        let known = censored.is_empty();
        let count = ok.count() + censored.count();
        let histogram = (count > 0).then(|| {
            let mut all = ok.clone();
            all.merge(&censored);
            all.encode()
        });
        Times {
            count,
            censored: censored.count(),
            censored_from: older().next().map(|(age, _)| us(age as f64)),
            mean: ok.mean().filter(|_| known).map(us),
            p50: at(0.50),
            p90: at(0.90),
            p95: at(0.95),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: ok.max().filter(|_| known).map(|ns| us(ns as f64)),
            histogram,
            ..Times::default()
        }
    }
}

/// Tolerance for rounding errors in the result of [`shares`].
const ROUNDING: f64 = 1e-12;

/// Returns, for each duration in `ok` in ascending order, the number of durations up to it, and the
/// estimated share of all requests that take at most this long.
fn shares(ok: &Histogram, timed_out: u64, in_flight: &Histogram) -> Vec<(u64, f64)> {
    let mut at_risk = ok.count() + timed_out + in_flight.count();
    // The share of requests that take longer than the previous duration is `longer` ×
    // `at_risk` ÷ `of`.
    let (mut longer, mut of) = (1.0, at_risk);
    let mut ages = in_flight.recorded().peekable();
    let mut rank = 0;
    let share = |(ns, n): (u64, u64)| {
        while let Some((_, censored)) = ages.next_if(|(age, _)| *age < ns) {
            longer *= at_risk as f64 / of as f64;
            at_risk -= censored;
            of = at_risk;
        }
        at_risk -= n;
        rank += n;
        (rank, 1.0 - longer * at_risk as f64 / of as f64)
    };
    ok.recorded().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn recorded_durations_are_within_their_buckets() {
        let mut histogram = Histogram::new();
        for ns in [0, 7, 7, 1_000_000, 1_000_100] {
            histogram.record(ns);
        }
        let recorded: Vec<(u64, u64)> = histogram.recorded().collect();
        assert_eq!(recorded[..2], [(0, 1), (7, 2)]);
        let [(ns, 2)] = recorded[2..] else {
            panic!("{recorded:?}");
        };
        assert!(ns.abs_diff(1_000_000) < 500, "{ns}");
    }

    #[test]
    fn logarithmic_bins_cover_minimum_and_maximum() {
        let mut histogram = Histogram::new();
        assert!(histogram.log_bins(3).is_empty());
        histogram.record(100);
        assert_eq!(histogram.log_bins(3), [1, 0, 0]);
        for ns in [150, 1_100, 2_000, 90_000, 100_000] {
            histogram.record(ns);
        }
        assert_eq!(histogram.log_bins(3), [2, 2, 2]);
    }

    #[test]
    fn percentile_among_timed_out_requests_is_unknown() {
        let (mut ok, mut censored) = (Histogram::new(), Histogram::new());
        for i in 1..=98 {
            ok.record(i * 1000);
        }
        censored.record(5_000_000_000);
        censored.record(5_000_000_000);
        let times = Histogram::summarise(&ok, &censored, &Histogram::new());
        assert_eq!((times.count, times.censored), (100, 2));
        assert_eq!(times.censored_from, None);
        assert_eq!(times.p90, Some(90.016));
        assert_eq!(times.p99, None);
        assert_eq!(times.max, None);
        assert_eq!(times.mean, None);
    }

    fn of(ns: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new();
        ns.into_iter().for_each(|ns| histogram.record(ns));
        histogram
    }

    #[test]
    fn hung_requests_are_in_the_tail() {
        let empty = Histogram::new();
        let fast = (0..10_000).map(|i| 4_000_000 + i * 100);
        let hung = of([2_000_000_000; 16]);
        let times = Histogram::summarise(&of(fast.clone()), &empty, &hung);
        assert_eq!((times.count, times.censored), (10_016, 16));
        assert!(times.p99.is_some() && times.p99_9.is_none() && times.max.is_none());
        assert!((times.censored_from.unwrap() - 2e6).abs() < 2e3);
        // One slow response does not hide them.
        let times = Histogram::summarise(&of(fast.chain([3_000_000_000])), &empty, &hung);
        assert_eq!((times.count, times.censored), (10_001, 0));
        assert!(times.p99_9.unwrap() > 2.9e6, "{times:?}");
    }

    #[test]
    fn young_requests_in_flight_change_little() {
        let empty = Histogram::new();
        // All requests take 1.5 s, and the run ends 0.5 s after the second half was sent.
        let times = Histogram::summarise(&of([1_500_000_000; 20]), &empty, &of([500_000_000; 20]));
        assert_eq!((times.count, times.censored), (20, 0));
        assert!((times.p50.unwrap() - 1.5e6).abs() < 2e3);
        assert!(times.mean.is_some() && times.max.is_some());
    }

    #[test]
    fn empty_histograms_have_no_figures() {
        let empty = Histogram::new();
        let times = Histogram::summarise(&empty, &empty, &empty);
        assert_eq!(times, Times::default());
    }

    #[test]
    fn decode_refuses_garbage() {
        for text in ["", "!", "AAAA", "HISTFAAAAB4AAA=="] {
            assert!(Histogram::decode(text).is_err(), "{text}");
        }
    }

    proptest! {
        /// Random age limits on half of the requests change the percentiles by less than 15 %.
        #[test]
        fn censoring_does_not_bias_percentiles(seed in 0u64..1000) {
            use rand_core::{Rng, SeedableRng};
            let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut share = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
            let (mut all, mut ok, mut in_flight) = (vec![], Histogram::new(), Histogram::new());
            for _ in 0..4000 {
                // Exponential times with a mean of 1 ms; half of the requests have a random age
                // limit.
                let ns = (-share().max(1e-9).ln() * 1e6) as u64;
                let limit = if share() < 0.5 { (share() * 3e6) as u64 } else { u64::MAX };
                all.push(ns);
                if ns <= limit { ok.record(ns) } else { in_flight.record(limit) }
            }
            all.sort_unstable();
            let times = Histogram::summarise(&ok, &Histogram::new(), &in_flight);
            for (q, us) in [(0.5, times.p50), (0.9, times.p90)] {
                let truth = all[(q * 4000.0) as usize] as f64 / 1e3;
                let us = us.unwrap();
                prop_assert!((us / truth - 1.0).abs() < 0.15, "{q}: {us} for {truth}");
            }
        }

        #[test]
        fn merging_encoded_parts_is_lossless(values in proptest::collection::vec(0u64..LARGEST_NS, 1..200), cut in 0usize..200) {
            let cut = cut.min(values.len());
            let (mut a, mut b, mut whole) = (Histogram::new(), Histogram::new(), Histogram::new());
            for (i, v) in values.iter().enumerate() {
                if i < cut { a.record(*v) } else { b.record(*v) }
                whole.record(*v);
            }
            let mut merged = Histogram::decode(&a.encode()).unwrap();
            merged.merge(&Histogram::decode(&b.encode()).unwrap());
            for q in [0.0, 0.5, 0.9, 0.99, 0.999, 1.0] {
                prop_assert_eq!(merged.quantile(q), whole.quantile(q));
            }
            prop_assert_eq!(merged.count(), whole.count());
        }

        #[test]
        fn quantiles_are_within_a_thousandth(mut values in proptest::collection::vec(1u64..LARGEST_NS, 1..300), q in 0.01f64..1.0) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|v| histogram.record(*v));
            values.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).max(1) - 1;
            let truth = values[rank] as f64;
            let got = histogram.quantile(q).unwrap() as f64;
            prop_assert!((got - truth).abs() <= truth * 0.5e-3 + 1.0, "{} for {}", got, truth);
        }
    }
}
