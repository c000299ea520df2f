//! A periodically sampled source with its series, step and cost.

use std::io;
use std::time::{Duration, Instant};

use floodmark_record::metric::MetricKind;
use floodmark_record::{Metric, Observation, watch};

use crate::clock::thread_cpu;
use crate::figures::Figures;
use crate::produced;
use crate::series::{MAX_VALUES, Series};

/// Reads the current value of each metric. Counters are cumulative. A metric may first appear in
/// any sample, and its earlier values are 0.
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
    /// Whether all samples succeeded. Sampling stops at the first failure, because a gap would
    /// shift later values.
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
    /// Whether values are drained. Drained values are never merged, because all values on a line
    /// must have the same step.
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
        // A group that is opened after `begin` starts with the current step.
        let steps = begin.elapsed().as_nanos() / step.as_nanos().max(1);
        let opened_after = step * u32::try_from(steps).unwrap_or(u32::MAX);
        let metrics = figures.metrics().iter().inspect(check_declared);
        Ok(Self {
            name: name.to_owned(),
            read,
            series: metrics.cloned().map(Series::new).collect(),
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

    /// Describes the series for an observer's file; `None` if no series is new.
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
    /// passed, the sample is added to the previous value. Otherwise, the sample becomes a new
    /// value.
    pub(crate) fn take_last(&mut self, now: Instant) -> Option<String> {
        if !self.alive {
            return None;
        }
        let elapsed = now.saturating_duration_since(self.last_at);
        let step = self.step;
        if self.steps_done == 0 || elapsed * 5 >= step {
            self.steps_done += 1;
            self.read(now, |series, value| series.push(value, 1, step))
        } else {
            self.read(now, Series::fold)
        }
    }

    fn steps_due(&self, now: Instant) -> usize {
        let elapsed = now.saturating_duration_since(self.last_at);
        (elapsed.as_secs_f64() / self.step.as_secs_f64()).floor() as usize
    }

    /// Doubles the step if there are too many values or samples cost too much. Waits for an even
    /// number of steps, so that each merged value covers two whole steps.
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

    /// Returns whether samples at half the step would stay well below the maximum CPU share. The
    /// margin allows for costs that vary on a busy host.
    fn cheap(&self) -> bool {
        let most = self.costs[0].max(self.costs[1]);
        self.step > self.finest && most.as_secs_f64() * 4.0 < self.share * self.step.as_secs_f64()
    }

    /// Doubles the step by merging each pair of steps.
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
            self.series.push(Series::of_zeros(metric.clone(), zeros));
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

/// In debug builds, checks that [`produced`] lists a metric. A store may report figures that
/// floodmark doesn't know.
fn check_declared(metric: &&Metric) {
    debug_assert!(
        matches!(metric, Metric::Other { .. }) || produced().contains(&metric.pattern()),
        "produced() does not list {metric:?}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::metric::{HostFigure, ListenerFigure};

    const STEP: Duration = Duration::from_millis(100);

    const COUNTER: Metric = Metric::Host(None, HostFigure::Steal);
    const LEVEL: Metric = Metric::Listener(ListenerFigure::AcceptQueue);

    /// Returns a group with a counter that grows by one per sample. A sample uses `busy` of CPU
    /// time.
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
