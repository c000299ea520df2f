//! All sample groups of a sampler, each with its own step.

use std::time::{Duration, Instant};

use floodmark_record::watch::{GroupValues, SeriesGroup};
use floodmark_record::{Metric, Observation};

use crate::figures::Figures;
use crate::sample_group::SampleGroup;

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
}

impl Samples {
    pub(crate) fn new(step: Duration) -> Self {
        Self {
            groups: Vec::new(),
            missing: Vec::new(),
            drained: None,
            step,
            begin: Instant::now(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::MAX_VALUES;
    use crate::targets::SharedHostCpu;
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
        host::open(&mut samples, &Root::host(), &SharedHostCpu::default());
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
        let folder = tempfile::tempdir().unwrap();
        let mut samples = Samples::new(Duration::from_secs(1));
        host::open(
            &mut samples,
            &Root::at(folder.path()),
            &SharedHostCpu::default(),
        );
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
