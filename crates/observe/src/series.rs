//! A series of values with a fixed step and bounded length.

use std::time::Duration;

use floodmark_record::metric::MetricKind;
use floodmark_record::{Metric, Observation};

/// Maximum number of values per series: three minutes at 20 per second, or an hour at one per
/// second. In longer runs, the resolution is halved.
pub(crate) const MAX_VALUES: usize = 3_600;

/// The values of one metric.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub metric: Metric,
    values: Vec<f64>,
    /// Largest sample merged into each value, per second for counters. Empty before any merge.
    largest: Vec<f64>,
}

impl Series {
    pub(crate) fn new(metric: Metric) -> Self {
        Self {
            metric,
            values: Vec::new(),
            largest: Vec::new(),
        }
    }

    /// Returns a series of `steps` zeros, for the steps before the metric first appeared.
    pub(crate) fn of_zeros(metric: Metric, steps: usize) -> Self {
        Self {
            values: vec![0.0; steps],
            ..Self::new(metric)
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Adds a sample that covers `steps` steps of length `step`. A late sample covers more than one
    /// step. A counter's increase is spread evenly over the steps, and other values are repeated.
    pub(crate) fn push(&mut self, value: f64, steps: usize, step: Duration) {
        let steps = steps.max(1);
        let each = if self.is_counter() {
            value / steps as f64
        } else {
            value
        };
        self.values.resize(self.values.len() + steps, rounded(each));
        if !self.largest.is_empty() {
            let largest = rounded(self.as_peak(each, step));
            self.largest.resize(self.values.len(), largest);
        }
    }

    fn is_counter(&self) -> bool {
        self.metric.kind() == MetricKind::Counter
    }

    /// Converts a sample to a peak.
    fn as_peak(&self, value: f64, step: Duration) -> f64 {
        if self.is_counter() {
            value / step.as_secs_f64()
        } else {
            value
        }
    }

    /// Adds the last increase of a run to the last value, because the remaining time is too short
    /// for the kernel's clock ticks. A level stays the same, because the load may have ended.
    pub(crate) fn fold(&mut self, value: f64) {
        let is_counter = self.is_counter();
        if let Some(last) = self.values.last_mut().filter(|_| is_counter) {
            *last = rounded(*last + value);
        }
    }

    /// Merges each pair of values of length `step`. Counters are added, and other values are
    /// averaged. An odd last value stays the same.
    pub(crate) fn halve(&mut self, step: Duration) {
        if self.largest.is_empty() {
            let peaks = self.values.iter().map(|value| self.as_peak(*value, step));
            self.largest = peaks.map(rounded).collect();
        }
        let largest = |pair: &[f64]| pair.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        self.largest = self.largest.chunks(2).map(largest).collect();
        let is_counter = self.is_counter();
        let merge = |pair: &[f64]| match *pair {
            [first, second] if is_counter => rounded(first + second),
            [first, second] => rounded(f64::midpoint(first, second)),
            _ => pair[0],
        };
        self.values = self.values.chunks(2).map(merge).collect();
    }

    /// Returns and removes the values.
    pub(crate) fn drain(&mut self) -> Vec<f64> {
        self.largest.clear();
        std::mem::take(&mut self.values)
    }

    /// Returns the maximum length of the values in JSON, in characters.
    pub(crate) fn written_length(&self) -> usize {
        let each = |value: &f64| format!("{value:?},").len();
        let values = self.values.iter().chain(&self.largest);
        values.map(each).sum()
    }

    /// Returns the series, and its peaks if values were merged.
    pub(crate) fn observations(
        self,
        source: &str,
        start_ms: u64,
        step_ms: u64,
    ) -> impl Iterator<Item = Observation> + use<> {
        let (metric, source) = (self.metric, source.to_owned());
        let both = [(false, self.values), (true, self.largest)].into_iter();
        let kept = both.filter(|(is_peak, values)| !is_peak || !values.is_empty());
        kept.map(move |(is_peak, values)| Observation {
            metric: metric.clone(),
            is_peak,
            source: source.clone(),
            start_ms,
            step_ms,
            values,
        })
    }
}

/// Rounds to six decimals. This keeps microseconds and is short in JSON.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::metric::{HostFigure, ListenerFigure};

    const STEP: Duration = Duration::from_millis(500);

    const COUNTER: Metric = Metric::Host(None, HostFigure::CpuPressure);
    const MEAN: Metric = Metric::Host(None, HostFigure::Busy);
    const LEVEL: Metric = Metric::Listener(ListenerFigure::AcceptQueue);

    fn series(metric: Metric, values: &[f64]) -> Series {
        let mut series = Series::new(metric);
        for value in values {
            series.push(*value, 1, STEP);
        }
        series
    }

    #[test]
    fn halving_keeps_sums_means_and_peaks() {
        for (metric, expected, largest, unit) in [
            // The fifth value is not merged in the first round, so it covers half a step.
            (COUNTER, [10.0, 9.0], [8.0, 10.0], "s/s"),
            (MEAN, [2.5, 4.5], [4.0, 5.0], "CPUs"),
            (LEVEL, [2.5, 4.5], [4.0, 5.0], "connections"),
        ] {
            let mut series = series(metric.clone(), &[1.0, 2.0, 3.0, 4.0, 5.0]);
            assert_eq!(series.clone().observations("s", 0, 500).count(), 1);
            series.halve(STEP);
            // This sample covers a doubled step of one second.
            series.push(4.0, 1, STEP * 2);
            series.halve(STEP * 2);
            let all: Vec<_> = series.observations("s", 0, 2000).collect();
            let [mean, max] = &all[..] else {
                panic!("{all:?}")
            };
            assert_eq!((&mean.metric, mean.is_peak), (&metric, false));
            assert_eq!((&max.metric, max.is_peak), (&metric, true));
            assert_eq!(max.unit(), unit);
            assert_eq!(mean.values, expected, "{metric:?}");
            assert_eq!(max.values, largest, "{metric:?}");
        }
    }

    #[test]
    fn fills_missed_steps_and_adds_the_last_increase() {
        for (metric, expected) in [
            (COUNTER, [1.0, 3.0, 3.0, 5.0]),
            (MEAN, [1.0, 9.0, 9.0, 9.0]),
            (LEVEL, [1.0, 9.0, 9.0, 9.0]),
        ] {
            let mut series = series(metric.clone(), &[1.0]);
            series.push(9.0, 3, STEP);
            series.fold(2.0);
            assert_eq!(series.values, expected, "{metric:?}");
        }
        let mut empty = series(COUNTER, &[]);
        empty.fold(2.0);
        assert_eq!(empty.len(), 0);
    }
}
