//! The readings of a sampler: groups of series, each at its own step.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use floodmark_record::elsewhere;
use floodmark_record::run::Observation;

use crate::group::{Group, Read};
use crate::series::{Kind, Subject};

/// Characters that the values of one run may take in the record: 4 MiB for all of its observations, less their heads.
pub(crate) const MOST_WRITTEN: usize = 3_700_000;

/// What a sampler has taken so far.
pub(crate) struct Samples {
    groups: Vec<Group>,
    missing: Vec<String>,
    /// Whether what was read is handed over while the sampling goes on; how many of the lines have been.
    drained: Option<usize>,
    /// Shortest step.
    pub(crate) step: Duration,
    /// Where the series begin.
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

    /// The same for readings that are handed over as they come, and not kept.
    pub(crate) fn drained(step: Duration) -> Self {
        Self {
            drained: Some(0),
            ..Self::new(step)
        }
    }

    /// The same for readings whose series begin at a moment, as those of other readings do.
    pub(crate) fn begun(begin: Instant, step: Duration) -> Self {
        Self {
            begin,
            ..Self::new(step)
        }
    }

    /// Whether something that was to be read could not be.
    pub(crate) fn fails(&self) -> bool {
        self.groups.iter().any(|group| group.next().is_none())
    }

    /// When the next reading is due.
    pub(crate) fn next(&self) -> Instant {
        let next = self.groups.iter().filter_map(Group::next).min();
        next.unwrap_or_else(|| Instant::now() + self.step)
    }

    /// Takes note of something that cannot be read; each is said once.
    pub(crate) fn missing(&mut self, line: String) {
        if !self.missing.contains(&line) {
            self.missing.push(line);
        }
    }

    /// Reads something at the sampler's own step, for at most a share of one CPU.
    pub(crate) fn add(
        &mut self,
        name: &str,
        share: f64,
        subjects: Vec<Subject>,
        read: impl FnMut(&mut Vec<f64>) -> std::io::Result<()> + 'static,
    ) {
        self.add_every(self.step, name, share, subjects, Box::new(read));
    }

    /// The same at a step, or at the sampler's own where that is longer.
    pub(crate) fn add_every(
        &mut self,
        step: Duration,
        name: &str,
        share: f64,
        subjects: Vec<Subject>,
        read: Read,
    ) {
        let step = step.max(self.step);
        match Group::open(name, subjects, read, (self.begin, step, share)) {
            Ok(group) if self.drained.is_some() => self.groups.push(group.drained()),
            Ok(group) => self.groups.push(group),
            Err(error) => {
                let text = error.to_string();
                self.missing(if text.contains(name) {
                    text
                } else {
                    format!("{name}: {text}")
                });
            }
        }
    }

    /// Reads all groups whose step is over.
    pub(crate) fn take(&mut self, now: Instant) {
        self.each(|group| group.take(now));
    }

    /// Reads all groups at the end of the run.
    pub(crate) fn take_last(&mut self, now: Instant) {
        self.each(|group| group.take_last(now));
    }

    fn each(&mut self, mut take: impl FnMut(&mut Group) -> Option<String>) {
        let gone: Vec<String> = self.groups.iter_mut().filter_map(&mut take).collect();
        gone.into_iter().for_each(|line| self.missing(line));
    }

    /// Hands over what was read since the last time: groups that are new or have become more, their values, and lines on what could
    /// not be read.
    pub(crate) fn drain(&mut self) -> (Vec<elsewhere::Group>, Vec<elsewhere::Values>, Vec<String>) {
        let lines = self.drained.unwrap_or_default();
        self.drained = Some(self.missing.len());
        let (mut new, mut values) = (Vec::new(), Vec::new());
        for (number, group) in (0..).zip(&mut self.groups) {
            new.extend(group.described(number));
            values.extend(group.drain(number));
        }
        (new, values, self.missing[lines..].to_vec())
    }

    /// The series, and what could not be read. Where they would take more room than so many characters, the longest are thinned out.
    pub(crate) fn finish(mut self, most: usize) -> (Vec<Observation>, Vec<String>) {
        let mut lengths: Vec<usize> = self.groups.iter().map(Group::written_length).collect();
        while lengths.iter().sum::<usize>() > most {
            let Some(longest) = (0..lengths.len()).max_by_key(|at| lengths[*at]) else {
                break;
            };
            self.groups[longest].halve();
            lengths[longest] = self.groups[longest].written_length();
        }
        let groups = self.groups.into_iter();
        (groups.flat_map(Group::observations).collect(), self.missing)
    }
}

pub(crate) fn subject(
    subject: &'static str,
    metric: impl Into<Cow<'static, str>>,
    unit: &'static str,
    kind: Kind,
) -> Subject {
    Subject {
        subject,
        metric: metric.into(),
        unit,
        kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::MOST_VALUES;
    use crate::{Root, host};
    use std::cell::Cell;
    use std::rc::Rc;

    const STEP: Duration = Duration::from_secs(1);

    fn series<'a>(observations: &'a [Observation], metric: &str) -> &'a Observation {
        observations
            .iter()
            .find(|observation| observation.metric == metric)
            .unwrap_or_else(|| panic!("no {metric}"))
    }

    #[test]
    fn a_long_run_halves_its_resolution() {
        let mut samples = Samples::new(STEP);
        let mut count = 0.0;
        let subjects = vec![subject("host", "m", "u", Kind::Increase)];
        samples.add("m", 1.0, subjects, move |into| {
            count += 1.0;
            into.push(count);
            Ok(())
        });
        let begin = samples.begin;
        for step in 1..=MOST_VALUES as u32 + 10 {
            samples.take(begin + STEP * step);
        }
        let (observations, _) = samples.finish(MOST_WRITTEN);
        let observation = series(&observations, "m");
        assert_eq!(observation.step_ms, 2000);
        assert_eq!(observation.values.len(), MOST_VALUES / 2 + 5);
        assert!(
            observation
                .values
                .iter()
                .all(|value| *value == 2.0 || *value == 1.0)
        );
        assert_eq!(series(&observations, "m.max").unit, "u/s");
    }

    #[test]
    fn the_record_of_a_run_stays_within_its_bound() {
        let mut samples = Samples::new(STEP);
        for metric in ["a", "b", "c"] {
            let subjects: Vec<Subject> = (0..40)
                .map(|_| subject("host", metric, "u", Kind::Level))
                .collect();
            samples.add(metric, 1.0, subjects, |into| {
                into.resize(40, 123_456_789.012_345);
                Ok(())
            });
        }
        let begin = samples.begin;
        for step in 1..=MOST_VALUES as u32 {
            samples.take(begin + STEP * step);
        }
        let (observations, _) = samples.finish(MOST_WRITTEN);
        let text: usize = observations
            .iter()
            .flat_map(|observation| &observation.values)
            .map(|value| format!("{value:?},").len())
            .sum();
        assert!(text <= MOST_WRITTEN, "{text}");
        assert!(
            text > MOST_WRITTEN / 4,
            "thinned out more than needed: {text}"
        );
    }

    #[test]
    fn what_is_handed_over_as_it_comes_is_all_there_and_nothing_of_it_is_kept() {
        let step = Duration::from_millis(50);
        let mut samples = Samples::drained(step);
        let counted = Rc::new(Cell::new(0.0));
        let count = Rc::clone(&counted);
        let subjects = vec![subject("host", "m", "u", Kind::Increase)];
        // Each reading costs more than its share of the first steps.
        samples.add("m", 0.002, subjects, move |into| {
            let begin = crate::watcher::thread_cpu();
            while crate::watcher::thread_cpu() - begin < Duration::from_micros(300) {}
            count.set(count.get() + 1.0);
            into.push(count.get());
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
                samples.missing("said".to_owned());
            }
            let (new, values, missing) = samples.drain();
            assert_eq!(new.len(), usize::from(at == 20), "described once");
            assert_eq!(missing.len(), usize::from(at == 200), "said once");
            for values in values {
                assert_eq!(values.start_ms, next_ms, "no gap and no overlap");
                next_ms += values.step_ms * values.values[0].len() as u64;
                sum += values.values[0].iter().sum::<f64>();
                steps.push(values.step_ms);
            }
        }
        let (first, last) = (steps[0], steps[steps.len() - 1]);
        assert!(first == 50 && last >= 200, "{steps:?}");
        assert!(next_ms + last > 10_000, "{next_ms} {steps:?}");
        // Each reading but the first, which the others are told against, is there once.
        assert!(
            (sum - (counted.get() - 1.0)).abs() < 1e-3,
            "{sum} {counted:?}"
        );
        let kept: usize = samples.groups.iter().map(Group::written_length).sum();
        assert_eq!(kept, 0);
        assert!(samples.drain().1.is_empty());
    }

    #[test]
    fn missed_steps_are_not_lost() {
        let mut samples = Samples::new(Duration::from_secs(1));
        host::open(&mut samples, &Root::host());
        let begin = samples.begin;
        samples.take(begin + Duration::from_millis(999));
        samples.take(begin + Duration::from_millis(3_400));
        samples.take(begin + Duration::from_millis(4_010));
        let (observations, _) = samples.finish(MOST_WRITTEN);
        assert_eq!(series(&observations, "busy").values.len(), 4);
    }

    #[test]
    fn a_machine_without_counters_says_so_once_each() {
        let folder = tempfile::tempdir().unwrap();
        let mut samples = Samples::new(Duration::from_secs(1));
        host::open(&mut samples, &Root::at(folder.path()));
        samples.take_last(Instant::now());
        let (observations, missing) = samples.finish(MOST_WRITTEN);
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
