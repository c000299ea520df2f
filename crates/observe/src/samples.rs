//! All sample groups of a sampler. A group is a periodically sampled source with its series, its
//! step and its cost.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use floodmark_record::metric::MetricKind;
use floodmark_record::watch::{self, GroupValues, SeriesGroup};
use floodmark_record::{Metric, Observation};

use crate::clock::thread_cpu;
use crate::produced;
use crate::sampler::LiveCpu;

/// Maximum length of one run's values in JSON, in characters. All observations together stay below
/// 4 MiB.
pub(crate) const MAX_JSON_LENGTH: usize = 3_700_000;

/// Samples taken so far.
pub(crate) struct Samples {
    groups: Vec<SampleGroup>,
    missing: Vec<String>,
    /// Number of messages already drained; `None` if samples are kept until the end of the run.
    drained: Option<usize>,
    /// Shortest step of any group.
    pub(crate) step: Duration,
    /// Start of the series.
    pub(crate) begin: Instant,
    /// The last samples of the CPU time.
    pub(crate) live: Arc<Mutex<LiveCpu>>,
}

impl Samples {
    pub(crate) fn new(step: Duration) -> Self {
        Self {
            groups: Vec::new(),
            missing: Vec::new(),
            drained: None,
            step,
            begin: Instant::now(),
            live: Arc::default(),
        }
    }

    /// Returns an empty collection for samples that are drained while sampling continues.
    pub(crate) fn drained(step: Duration) -> Self {
        Self {
            drained: Some(0),
            ..Self::new(step)
        }
    }

    /// Returns whether any group has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.groups.iter().any(|group| group.next().is_none())
    }

    /// Returns the time of the next sample.
    pub(crate) fn next(&self) -> Instant {
        let next = self.groups.iter().filter_map(SampleGroup::next).min();
        next.unwrap_or_else(|| Instant::now() + self.step)
    }

    /// Adds a message, unless the list already contains it.
    pub(crate) fn missing(&mut self, line: String) {
        if !self.missing.contains(&line) {
            self.missing.push(line);
        }
    }

    /// Adds a group with a maximum CPU share. The group's step is at least the sampler's own step.
    pub(crate) fn add(
        &mut self,
        name: &str,
        (step, share): (Duration, f64),
        metrics: Vec<Metric>,
        read: impl FnMut(&mut Figures) -> std::io::Result<()> + 'static,
    ) {
        let timing = (self.begin, step.max(self.step), share);
        match SampleGroup::open(name, metrics, Box::new(read), timing) {
            Ok(mut group) => {
                group.drained = self.drained.is_some();
                self.groups.push(group);
            }
            Err(error) => {
                let text = error.to_string();
                let has_name = text.contains(name);
                self.missing(if has_name {
                    text
                } else {
                    format!("{name}: {text}")
                });
            }
        }
    }

    /// Adds a group whose source returns the values of all `metrics`.
    pub(crate) fn add_values<V: IntoIterator<Item = f64>>(
        &mut self,
        name: &str,
        timing: (Duration, f64),
        metrics: Vec<Metric>,
        mut read: impl FnMut() -> std::io::Result<V> + 'static,
    ) {
        self.add(name, timing, metrics, move |figures| {
            figures.extend(read()?);
            Ok(())
        });
    }

    /// Samples all groups whose step has ended.
    pub(crate) fn take(&mut self, now: Instant) {
        self.each(|group| group.take(now));
    }

    /// Samples all groups at the end of the run.
    pub(crate) fn take_last(&mut self, now: Instant) {
        self.each(|group| group.take_last(now));
    }

    fn each(&mut self, mut take: impl FnMut(&mut SampleGroup) -> Option<String>) {
        let gone: Vec<String> = self.groups.iter_mut().filter_map(&mut take).collect();
        gone.into_iter().for_each(|line| self.missing(line));
    }

    /// Returns new or extended groups, and all values and messages since the previous call.
    pub(crate) fn drain(&mut self) -> (Vec<SeriesGroup>, Vec<GroupValues>, Vec<String>) {
        let lines = self.drained.unwrap_or_default();
        self.drained = Some(self.missing.len());
        let (mut new, mut values) = (Vec::new(), Vec::new());
        for (number, group) in (0..).zip(&mut self.groups) {
            new.extend(group.described(number));
            values.extend(group.drain(number));
        }
        (new, values, self.missing[lines..].to_vec())
    }

    /// Returns the series and the messages. Halves the resolution of the longest series until all
    /// values fit in `max_length` characters.
    pub(crate) fn finish(mut self, max_length: usize) -> (Vec<Observation>, Vec<String>) {
        let lengths = self.groups.iter().map(SampleGroup::written_length);
        let mut lengths: Vec<usize> = lengths.collect();
        while lengths.iter().sum::<usize>() > max_length {
            let Some(longest) = (0..lengths.len()).max_by_key(|at| lengths[*at]) else {
                break;
            };
            self.groups[longest].halve();
            lengths[longest] = self.groups[longest].written_length();
        }
        let observations = self.groups.into_iter().flat_map(SampleGroup::observations);
        (observations.collect(), self.missing)
    }
}

/// A function that reads the current value of each metric. Counters are cumulative. A metric may
/// first appear in any sample; its earlier values are then 0.
pub(crate) type Read = Box<dyn FnMut(&mut Figures) -> io::Result<()>>;

/// Maximum step of a group whose samples are expensive.
const MAX_STEP: Duration = Duration::from_secs(8);

/// Series that are sampled together with the same step.
///
/// A group has a maximum CPU share. When two consecutive samples exceed this share, the step
/// doubles and earlier values are merged. If values are drained, the step halves again once samples
/// are cheap.
pub(crate) struct SampleGroup {
    name: String,
    read: Read,
    series: Vec<Series>,
    figures: Figures,
    /// Values of the previous sample.
    last: Vec<f64>,
    /// Whether all samples have succeeded so far. Sampling stops at the first failure, because a
    /// gap would shift later values.
    alive: bool,
    share: f64,
    step: Duration,
    /// Initial step, which is also the shortest step.
    finest: Duration,
    /// Nominal end of the last step.
    last_at: Instant,
    /// Time of the last sample, at or after the end of its step.
    read_at: Instant,
    steps_done: usize,
    /// CPU time of the last two samples, most recent first.
    costs: [Duration; 2],
    /// Start of the retained values, relative to the start of the series.
    kept_from: Duration,
    /// Number of series that have already been described.
    described_series: usize,
    /// Whether values are drained. Drained values are never merged, because all values in a line of
    /// the observer's file must have the same step.
    pub(crate) drained: bool,
}

impl SampleGroup {
    /// Takes the first sample, which is the baseline for counters.
    ///
    /// # Errors
    /// The source can't be read.
    pub(crate) fn open(
        name: &str,
        metrics: Vec<Metric>,
        mut read: Read,
        (begin, step, share): (Instant, Duration, f64),
    ) -> io::Result<Self> {
        let mut figures = Figures::with(metrics);
        read(&mut figures)?;
        // If a group is opened later than `begin`, its first step is the current one.
        let steps = begin.elapsed().as_nanos() / step.as_nanos().max(1);
        let opened_after = step * u32::try_from(steps).unwrap_or(u32::MAX);
        let metrics = figures.metrics().iter().inspect(check_declared);
        Ok(Self {
            name: name.to_owned(),
            read,
            series: metrics
                .map(|metric| Series::new(metric.clone(), 0))
                .collect(),
            last: Vec::new(),
            figures,
            alive: true,
            share,
            step,
            finest: step,
            last_at: begin + opened_after,
            read_at: Instant::now(),
            steps_done: 0,
            costs: [Duration::ZERO; 2],
            kept_from: opened_after,
            described_series: 0,
            drained: false,
        })
    }

    /// Describes all series of the group for an observer's file. Returns `None` if no series is
    /// new.
    pub(crate) fn described(&mut self, number: u32) -> Option<watch::SeriesGroup> {
        if std::mem::replace(&mut self.described_series, self.series.len()) == self.series.len() {
            return None;
        }
        let metrics = self.figures.metrics().iter();
        let series = metrics.map(|metric| watch::ObservedSeries {
            metric: metric.clone(),
            kind: metric.kind(),
        });
        Some(watch::SeriesGroup {
            group: number,
            source: self.name.clone(),
            series: series.collect(),
        })
    }

    /// Returns and removes the values added since the previous call.
    pub(crate) fn drain(&mut self, number: u32) -> Option<watch::GroupValues> {
        let steps = u32::try_from(std::mem::take(&mut self.steps_done)).unwrap_or(u32::MAX);
        let (start, step) = (self.kept_from, self.step);
        self.kept_from += step * steps;
        if self.cheap() {
            self.step = (step / 2).max(self.finest);
        }
        (steps > 0 && !self.series.is_empty()).then(|| watch::GroupValues {
            group: number,
            start_ms: ms(start),
            step_ms: ms(step),
            values: self.series.iter_mut().map(Series::drain).collect(),
        })
    }

    /// Returns the time of the next sample; `None` after a failure.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.alive.then(|| self.last_at + self.step)
    }

    /// Takes a sample if at least one step has ended. Returns a message on the first failure.
    pub(crate) fn take(&mut self, now: Instant) -> Option<String> {
        if !self.alive {
            return None;
        }
        self.thin_out(now);
        let steps = self.steps_due(now);
        if steps == 0 {
            return None;
        }
        self.last_at += self.step * u32::try_from(steps).unwrap_or(u32::MAX);
        let step = self.step;
        let gone = self.read(now, |series, value| series.push(value, steps, step));
        if gone.is_none() {
            self.steps_done += steps;
        }
        gone
    }

    /// Takes the last sample, which usually falls within a step. If less than a fifth of a step has
    /// passed, the sample is merged into the previous value. Otherwise, the sample becomes a new
    /// value; for a level, the new value repeats the previous one, because the load may have ended.
    pub(crate) fn take_last(&mut self, now: Instant) -> Option<String> {
        if !self.alive {
            return None;
        }
        let elapsed = now.saturating_duration_since(self.last_at);
        let step = self.step;
        if self.steps_done == 0 || elapsed * 5 >= step {
            self.steps_done += 1;
            self.read(now, |series, value| series.push_last(value, step))
        } else {
            self.read(now, Series::fold)
        }
    }

    fn steps_due(&self, now: Instant) -> usize {
        let elapsed = now.saturating_duration_since(self.last_at);
        (elapsed.as_secs_f64() / self.step.as_secs_f64()).floor() as usize
    }

    /// Doubles the length of a step if there are too many values or samples cost too much. Waits
    /// for an even number of steps, so that each merged value covers two whole steps.
    fn thin_out(&mut self, now: Instant) {
        let every = if self.drained { usize::MAX } else { 2 };
        while self.steps_done.is_multiple_of(every)
            && (self.steps_done + self.steps_due(now) > MAX_VALUES || self.costly())
        {
            self.halve();
        }
    }

    fn costly(&self) -> bool {
        let least = self.costs[0].min(self.costs[1]);
        self.step < MAX_STEP && least.as_secs_f64() > self.share * self.step.as_secs_f64()
    }

    /// Returns whether samples at half the step length would stay well below the maximum CPU share.
    /// The margin allows for costs that vary on a busy host.
    fn cheap(&self) -> bool {
        let most = self.costs[0].max(self.costs[1]);
        self.step > self.finest && most.as_secs_f64() * 4.0 < self.share * self.step.as_secs_f64()
    }

    /// Doubles the length of a step by merging adjacent steps in pairs.
    pub(crate) fn halve(&mut self) {
        for series in &mut self.series {
            series.halve(self.step);
        }
        self.step *= 2;
        self.steps_done = self.steps_done.div_ceil(2);
    }

    fn read(&mut self, now: Instant, mut keep: impl FnMut(&mut Series, f64)) -> Option<String> {
        let elapsed = now.saturating_duration_since(self.read_at);
        self.read_at = now;
        let before = thread_cpu();
        self.last.clear();
        self.last.extend(self.figures.values());
        self.figures.begin();
        let read = (self.read)(&mut self.figures);
        self.costs = [thread_cpu().saturating_sub(before), self.costs[0]];
        if let Err(error) = read {
            self.alive = false;
            let count = self.series.first().map_or(0, Series::len);
            let after = match count {
                _ if self.drained => "sampling stopped: ".to_owned(),
                0 => String::new(),
                _ => format!("sampling stopped after sample {count}: "),
            };
            return Some(format!("{}: {after}{error}", self.name));
        }
        for metric in &self.figures.metrics()[self.series.len()..] {
            let zeros = self.series.first().map_or(self.steps_done, Series::len);
            check_declared(&metric);
            self.series.push(Series::new(metric.clone(), zeros));
            self.last.push(0.0);
        }
        let samples = self.figures.values().iter().zip(&self.last);
        for (series, (now, last)) in self.series.iter_mut().zip(samples) {
            let grown = (now - last).max(0.0);
            let value = match series.metric.kind() {
                MetricKind::Counter => grown,
                MetricKind::Mean => grown / elapsed.as_secs_f64().max(1e-3),
                MetricKind::Level => *now,
            };
            keep(series, value);
        }
        None
    }

    /// Returns the length of the values in JSON, in characters.
    pub(crate) fn written_length(&self) -> usize {
        self.series.iter().map(Series::written_length).sum()
    }

    /// Returns the series.
    pub(crate) fn observations(self) -> impl Iterator<Item = Observation> {
        let step_ms = ms(self.step);
        let start_ms = ms(self.kept_from);
        let name = self.name;
        self.series
            .into_iter()
            .filter(|series| series.len() > 0)
            .flat_map(move |series| series.observations(&name, start_ms, step_ms))
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// In debug builds, checks that [`produced`] lists a metric. [`Metric::Other`] is exempt, because a
/// store may report figures that floodmark doesn't know.
fn check_declared(metric: &&Metric) {
    debug_assert!(
        matches!(metric, Metric::Other { .. }) || produced().contains(&metric.pattern()),
        "produced() does not list {metric:?}"
    );
}

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
    /// Returns a series of `steps` zeros, for the steps before the metric first appeared.
    fn new(metric: Metric, steps: usize) -> Self {
        Self {
            metric,
            values: vec![0.0; steps],
            largest: Vec::new(),
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

    /// Converts a sample to a peak: an increase per second for counters, otherwise the value
    /// itself.
    fn as_peak(&self, value: f64, step: Duration) -> f64 {
        if self.is_counter() {
            value / step.as_secs_f64()
        } else {
            value
        }
    }

    /// Adds the last sample as a new value. For a level, repeats the previous value instead,
    /// because the load may have ended.
    fn push_last(&mut self, value: f64, step: Duration) {
        let is_level = self.metric.kind() == MetricKind::Level;
        let before = self.values.last().copied().filter(|_| is_level);
        self.push(before.unwrap_or(value), 1, step);
    }

    /// Adds a counter's final increase to the last value, because the remaining time is too short
    /// to be measured in kernel clock ticks. Leaves a level unchanged, because the load may have
    /// ended.
    pub(crate) fn fold(&mut self, value: f64) {
        let is_counter = self.is_counter();
        if let Some(last) = self.values.last_mut().filter(|_| is_counter) {
            *last = rounded(*last + value);
        }
    }

    /// Merges adjacent values in pairs. Counters are added, and other values are averaged. An
    /// unpaired last value is unchanged. `step` is the length that each value covered before.
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

    /// Returns an upper bound on the total length of the values in JSON, in characters.
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

/// Rounds to six decimals. This preserves microseconds and keeps the JSON short.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// The values of one source, in the order in which their metrics first appeared.
///
/// A source appends the values of its initial metrics in order, or sets values by metric.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    metrics: Vec<Metric>,
    positions: HashMap<Metric, usize>,
    values: Vec<f64>,
    /// Number of values appended to the current sample.
    appended: usize,
}

impl Figures {
    /// Returns figures in which each of `metrics` has a series, even if its values stay 0.
    pub(crate) fn with(metrics: impl IntoIterator<Item = Metric>) -> Self {
        let mut figures = Self::default();
        for metric in metrics {
            figures.add(metric);
        }
        figures
    }

    fn add(&mut self, metric: Metric) -> usize {
        let position = self.metrics.len();
        self.positions.insert(metric.clone(), position);
        self.metrics.push(metric);
        self.values.push(0.0);
        position
    }

    /// Begins a sample. A level that is not set becomes 0; a counter that is not set keeps its
    /// value.
    pub(crate) fn begin(&mut self) {
        self.appended = 0;
        for (value, metric) in self.values.iter_mut().zip(&self.metrics) {
            if metric.kind() != MetricKind::Counter {
                *value = 0.0;
            }
        }
    }

    /// Appends values of the initial metrics, in the order of the metrics.
    pub(crate) fn extend(&mut self, values: impl IntoIterator<Item = f64>) {
        for value in values {
            self.values[self.appended] = value;
            self.appended += 1;
        }
    }

    /// Sets a counter, or adds to a level. A metric has no series until its value differs from 0.
    pub(crate) fn set(&mut self, metric: Metric, value: f64) {
        let position = match self.positions.get(&metric) {
            Some(position) => *position,
            None if value == 0.0 => return,
            None => self.add(metric),
        };
        match self.metrics[position].kind() {
            MetricKind::Counter => self.values[position] = value,
            MetricKind::Mean | MetricKind::Level => self.values[position] += value,
        }
    }

    /// Returns the metrics, in the order in which they first appeared.
    pub(crate) fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// Returns the value of each metric.
    pub(crate) fn values(&self) -> &[f64] {
        &self.values
    }
}

#[cfg(test)]
mod samples_tests {
    use super::*;
    use crate::{Root, host};
    use floodmark_record::metric::{HostFigure, ListenerFigure};
    use std::cell::Cell;
    use std::rc::Rc;

    const STEP: Duration = Duration::from_secs(1);

    const COUNTER: Metric = Metric::Host(None, HostFigure::Steal);

    fn series<'a>(
        observations: &'a [Observation],
        metric: &Metric,
        is_peak: bool,
    ) -> &'a Observation {
        observations
            .iter()
            .find(|observation| observation.metric == *metric && observation.is_peak == is_peak)
            .unwrap_or_else(|| panic!("no {metric:?}"))
    }

    #[test]
    fn a_long_run_halves_its_resolution() {
        let mut samples = Samples::new(STEP);
        let mut count = 0.0;
        let metrics = vec![COUNTER];
        samples.add("m", (STEP, 1.0), metrics, move |into| {
            count += 1.0;
            into.extend([count]);
            Ok(())
        });
        let begin = samples.begin;
        for step in 1..=MAX_VALUES as u32 + 10 {
            samples.take(begin + STEP * step);
        }
        let (observations, _) = samples.finish(MAX_JSON_LENGTH);
        let observation = series(&observations, &COUNTER, false);
        assert_eq!(observation.step_ms, 2000);
        assert_eq!(observation.values.len(), MAX_VALUES / 2 + 5);
        assert!(
            observation
                .values
                .iter()
                .all(|value| *value == 2.0 || *value == 1.0)
        );
        assert_eq!(
            series(&observations, &COUNTER, true).unit(),
            "CPU-seconds/s"
        );
    }

    #[test]
    fn limits_the_length_of_all_values() {
        let mut samples = Samples::new(STEP);
        for name in ["a", "b", "c"] {
            let metrics = vec![Metric::Listener(ListenerFigure::AcceptQueue); 40];
            samples.add(name, (STEP, 1.0), metrics, |into| {
                into.extend([123_456_789.012_345; 40]);
                Ok(())
            });
        }
        let begin = samples.begin;
        for step in 1..=MAX_VALUES as u32 {
            samples.take(begin + STEP * step);
        }
        let (observations, _) = samples.finish(MAX_JSON_LENGTH);
        let text: usize = observations
            .iter()
            .flat_map(|observation| &observation.values)
            .map(|value| format!("{value:?},").len())
            .sum();
        assert!(text <= MAX_JSON_LENGTH, "{text}");
        assert!(
            text > MAX_JSON_LENGTH / 4,
            "merged more values than needed: {text}"
        );
    }

    #[test]
    fn drains_all_values_and_keeps_none() {
        let step = Duration::from_millis(50);
        let mut samples = Samples::drained(step);
        let counted = Rc::new(Cell::new(0.0));
        let count = Rc::clone(&counted);
        let metrics = vec![COUNTER];
        // Each sample exceeds its CPU share at the initial step.
        samples.add("m", (step, 0.002), metrics, move |into| {
            let begin = crate::clock::thread_cpu();
            while crate::clock::thread_cpu() - begin < Duration::from_micros(300) {}
            count.set(count.get() + 1.0);
            into.extend([count.get()]);
            Ok(())
        });
        let begin = samples.begin;
        let (mut next_ms, mut sum, mut steps) = (0, 0.0, Vec::new());
        for at in 1..=200 {
            samples.take(begin + step * at);
            if at % 20 != 0 {
                continue;
            }
            if at == 200 {
                samples.missing("file: not found".to_owned());
            }
            let (new, values, missing) = samples.drain();
            assert_eq!(new.len(), usize::from(at == 20), "described once");
            assert_eq!(missing.len(), usize::from(at == 200), "reported once");
            for values in values {
                assert_eq!(values.start_ms, next_ms, "lines have no gap or overlap");
                next_ms += values.step_ms * values.values[0].len() as u64;
                sum += values.values[0].iter().sum::<f64>();
                steps.push(values.step_ms);
            }
        }
        let (first, last) = (steps[0], steps[steps.len() - 1]);
        assert!(first == 50 && last >= 200, "{steps:?}");
        assert!(next_ms + last > 10_000, "{next_ms} {steps:?}");
        // Every sample counts once, except the first, which is the baseline.
        assert!(
            (sum - (counted.get() - 1.0)).abs() < 1e-3,
            "{sum} {counted:?}"
        );
        let kept: usize = samples.groups.iter().map(SampleGroup::written_length).sum();
        assert_eq!(kept, 0);
        assert!(samples.drain().1.is_empty());
    }

    #[test]
    fn fills_missed_steps() {
        let mut samples = Samples::new(Duration::from_secs(1));
        host::open(&mut samples, &Root::host());
        let begin = samples.begin;
        samples.take(begin + Duration::from_millis(999));
        samples.take(begin + Duration::from_millis(3_400));
        samples.take(begin + Duration::from_millis(4_010));
        let (observations, _) = samples.finish(MAX_JSON_LENGTH);
        assert_eq!(
            series(&observations, &Metric::Host(None, HostFigure::Busy), false)
                .values
                .len(),
            4
        );
    }

    #[test]
    fn reports_each_missing_counter_file_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut samples = Samples::new(Duration::from_secs(1));
        host::open(&mut samples, &Root::at(directory.path()));
        samples.take_last(Instant::now());
        let (observations, missing) = samples.finish(MAX_JSON_LENGTH);
        assert!(observations.is_empty());
        for name in [
            "netstat",
            "snmp",
            "sockstat",
            "/proc/stat",
            "pressure/cpu",
            "pressure/io",
            "pressure/memory",
            "diskstats",
            "cpu.stat",
        ] {
            let lines = missing.iter().filter(|line| line.contains(name));
            assert_eq!(lines.count(), 1, "{name}: {missing:?}");
        }
    }
}

#[cfg(test)]
mod sample_group_tests {
    use super::*;
    use floodmark_record::metric::{HostFigure, ListenerFigure};

    const STEP: Duration = Duration::from_millis(100);

    const COUNTER: Metric = Metric::Host(None, HostFigure::Steal);
    const LEVEL: Metric = Metric::Listener(ListenerFigure::AcceptQueue);

    /// Returns a group with a counter that grows by one per sample. Each sample uses the CPU time
    /// `busy`.
    fn group(busy: Duration, share: f64, begin: Instant) -> SampleGroup {
        let mut count = 0.0;
        let read = move |into: &mut Figures| {
            let begin = thread_cpu();
            while thread_cpu() - begin < busy {}
            count += 1.0;
            into.extend([count]);
            Ok(())
        };
        let metrics = vec![COUNTER];
        SampleGroup::open("g", metrics, Box::new(read), (begin, STEP, share)).unwrap()
    }

    fn taken(mut group: SampleGroup, begin: Instant, steps: u32) -> Vec<Observation> {
        for step in 1..=steps {
            assert_eq!(group.take(begin + STEP * step), None);
        }
        group.observations().collect()
    }

    #[test]
    fn slows_down_expensive_samples_without_losing_values() {
        let begin = Instant::now();
        // A sample of 1 ms per 100 ms takes 1 % of a CPU. The maximum share is 0.25 %, so samples
        // must be at least 400 ms apart.
        let cheap = taken(group(Duration::ZERO, 0.5, begin), begin, 64);
        assert_eq!((cheap.len(), cheap[0].step_ms), (1, 100));
        let expensive = taken(group(Duration::from_millis(1), 0.0025, begin), begin, 64);
        // On a busy host, samples take more CPU time, so the step may be longer, but never shorter.
        assert!(
            (400..=1600).contains(&expensive[0].step_ms),
            "{expensive:?}"
        );
        assert!(expensive[1].is_peak && expensive[1].metric == COUNTER);
        let readings: f64 = expensive[0].values.iter().sum();
        assert!(readings < 24.0 && readings > 4.0, "{expensive:?}");
        assert_eq!(
            expensive[0].values.len() as u64,
            6400 / expensive[0].step_ms,
            "the number of values does not match the step: {expensive:?}"
        );
    }

    #[test]
    fn restores_the_step_of_drained_groups_once_samples_are_cheap() {
        use std::cell::Cell;
        use std::rc::Rc;
        let (begin, busy) = (Instant::now(), Rc::new(Cell::new(Duration::from_millis(1))));
        let (shared, mut count) = (Rc::clone(&busy), 0.0);
        let read = move |into: &mut Figures| {
            let begin = thread_cpu();
            while thread_cpu() - begin < shared.get() {}
            count += 1.0;
            into.extend([count]);
            Ok(())
        };
        let metrics = vec![COUNTER];
        let group = SampleGroup::open("g", metrics, Box::new(read), (begin, STEP, 0.0025)).unwrap();
        let mut group = SampleGroup {
            drained: true,
            ..group
        };
        let mut lines = Vec::new();
        let mut longest = 0;
        for step in 1..=400 {
            assert_eq!(group.take(begin + STEP * step), None);
            if step % 10 == 0 {
                lines.extend(group.drain(0));
            }
            if step == 200 {
                longest = lines.iter().map(|line| line.step_ms).max().unwrap();
                busy.set(Duration::ZERO);
            }
        }
        assert!(longest >= 400, "{longest}");
        assert_eq!(lines.last().unwrap().step_ms, 100);
        // Lines are contiguous, even if their steps differ.
        for pair in lines.windows(2) {
            let values = pair[0].values[0].len() as u64;
            assert_eq!(
                pair[0].start_ms + values * pair[0].step_ms,
                pair[1].start_ms
            );
        }
    }

    /// Returns a source with a level and a counter. The counter first appears in the third sample,
    /// starts at 5 and grows by 2.
    fn growing() -> Read {
        let mut samples = 0;
        Box::new(move |into: &mut Figures| {
            samples += 1;
            into.set(LEVEL, 1.0);
            if samples >= 3 {
                into.set(COUNTER, f64::from(samples * 2 - 1));
            }
            Ok(())
        })
    }

    #[test]
    fn fills_series_that_appear_later_with_zeros() {
        for (steps, step_ms, expected) in [
            (4_u32, 100, vec![0.0, 5.0, 2.0, 2.0]),
            // Beyond the maximum, pairs of values are merged.
            (MAX_VALUES as u32 + 2, 200, vec![5.0, 4.0, 4.0, 4.0]),
        ] {
            let begin = Instant::now();
            let group = SampleGroup::open("g", Vec::new(), growing(), (begin, STEP, 1.0));
            let taken = taken(group.unwrap(), begin, steps);
            let found: Vec<&Observation> = taken.iter().filter(|o| !o.is_peak).collect();
            assert_eq!((found.len(), found[0].step_ms), (2, step_ms));
            assert_eq!(found[0].values.len(), found[1].values.len());
            assert_eq!(found[1].values[..4], expected);
        }
    }

    #[test]
    fn reports_a_failure_once() {
        let begin = Instant::now();
        let mut left = 2;
        let read = move |into: &mut Figures| {
            left -= 1;
            into.extend([1.0]);
            if left < 0 {
                return Err(io::Error::other("gone"));
            }
            Ok(())
        };
        let metrics = vec![LEVEL];
        let mut group =
            SampleGroup::open("g", metrics, Box::new(read), (begin, STEP, 1.0)).unwrap();
        assert_eq!(group.take(begin + STEP), None);
        let gone = group.take(begin + STEP * 2).unwrap();
        assert_eq!(gone, "g: sampling stopped after sample 1: gone");
        assert_eq!(group.take(begin + STEP * 3), None);
        assert_eq!(group.take_last(begin + STEP * 4), None);
        assert_eq!(group.next(), None);
    }
}

#[cfg(test)]
mod series_tests {
    use super::*;
    use floodmark_record::metric::{HostFigure, ListenerFigure};

    const STEP: Duration = Duration::from_millis(500);

    const COUNTER: Metric = Metric::Host(None, HostFigure::CpuPressure);
    const MEAN: Metric = Metric::Host(None, HostFigure::Busy);
    const LEVEL: Metric = Metric::Listener(ListenerFigure::AcceptQueue);

    fn series(metric: Metric, values: &[f64]) -> Series {
        let mut series = Series::new(metric, 0);
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
            // The step has doubled, so this sample covers one second.
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

    #[test]
    fn the_last_value_of_a_level_repeats_the_one_before() {
        for (metric, last) in [(COUNTER, 0.0), (MEAN, 0.0), (LEVEL, 9.0)] {
            let mut series = series(metric.clone(), &[9.0]);
            series.push_last(0.0, STEP);
            assert_eq!(series.values, [9.0, last], "{metric:?}");
        }
        let mut only = series(LEVEL, &[]);
        only.push_last(3.0, STEP);
        assert_eq!(only.values, [3.0]);
    }
}

#[cfg(test)]
mod figures_tests {
    use super::*;
    use floodmark_record::metric::PostgresqlFigure::{Active, Commits, Idle};

    #[test]
    fn series_begin_at_the_first_nonzero_value_and_keep_their_position() {
        let [active, idle, commits] = [Active, Idle, Commits].map(Metric::Postgresql);
        let mut figures = Figures::with([active.clone()]);
        figures.set(idle.clone(), 0.0);
        figures.set(commits.clone(), 0.0);
        assert_eq!(figures.values(), [0.0]);
        figures.begin();
        figures.set(commits.clone(), 7.0);
        figures.set(idle.clone(), 2.0);
        figures.set(idle.clone(), 1.0);
        assert_eq!(figures.values(), [0.0, 7.0, 3.0]);
        assert_eq!(figures.metrics(), [active.clone(), commits, idle]);
        figures.begin();
        figures.set(active, 1.0);
        assert_eq!(figures.values(), [1.0, 7.0, 0.0]);
        figures.begin();
        figures.extend([5.0, 9.0]);
        assert_eq!(figures.values(), [5.0, 9.0, 0.0]);
    }
}
