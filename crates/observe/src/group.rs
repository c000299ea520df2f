//! One place that is read again and again: its series, how often it is read, and what that costs.

use std::io;
use std::time::{Duration, Instant};

use floodmark_record::elsewhere;
use floodmark_record::run::Observation;

use crate::series::{Kind, MOST_VALUES, Series, Subject};
use crate::watcher::thread_cpu;

/// Something that is read again and again.
pub(crate) trait Source {
    /// Reads the value of each series, cumulative where it is a counter, into an emptied list.
    fn read(&mut self, into: &mut Vec<f64>) -> io::Result<()>;

    /// Series that the last reading has found anew: their values stood behind all others. They were zero before.
    fn found(&mut self) -> Vec<Subject> {
        Vec::new()
    }
}

impl<F: FnMut(&mut Vec<f64>) -> io::Result<()>> Source for F {
    fn read(&mut self, into: &mut Vec<f64>) -> io::Result<()> {
        self(into)
    }
}

/// What a group reads.
pub(crate) type Read = Box<dyn Source>;

/// Longest step that costs may lead to.
const LONGEST: Duration = Duration::from_secs(8);

/// What is read together, at steps of its own.
///
/// A group may take a share of one CPU. Where two readings in a row took more than that of a step, the step is doubled, and what
/// was read so far is thinned out to it. Where values are handed over as they come, it is halved again once readings are cheap.
pub(crate) struct Group {
    name: String,
    read: Read,
    series: Vec<Series>,
    last: Vec<f64>,
    now: Vec<f64>,
    /// Whether it could be read every time so far; afterwards it is left alone, as a gap would shift later values.
    alive: bool,
    share: f64,
    step: Duration,
    /// The step that it began with.
    finest: Duration,
    /// When the last step ended by the clock.
    last_at: Instant,
    /// When the last reading was taken, at or after the end of its step.
    read_at: Instant,
    steps_done: usize,
    /// CPU of the last reading and of the one before.
    costs: [Duration; 2],
    /// Where the values that are kept begin, from the start of the series.
    kept_from: Duration,
    /// Series that have been described.
    told: usize,
    /// Whether values are handed over while it goes on: then none are ever joined here, so that those of one line of a file are
    /// of the same step.
    drained: bool,
}

impl Group {
    /// Takes the first reading, which counters are told against.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn open(
        name: &str,
        subjects: Vec<Subject>,
        mut read: Read,
        (begin, step, share): (Instant, Duration, f64),
    ) -> io::Result<Self> {
        let mut last = Vec::with_capacity(subjects.len());
        read.read(&mut last)?;
        let found = read.found();
        // What is opened later begins with the step that it is opened in.
        let steps = begin.elapsed().as_nanos() / step.as_nanos().max(1);
        let opened_after = step * u32::try_from(steps).unwrap_or(u32::MAX);
        Ok(Self {
            name: name.to_owned(),
            read,
            now: Vec::with_capacity(last.len()),
            last,
            series: subjects.into_iter().chain(found).map(Series::new).collect(),
            alive: true,
            share,
            step,
            finest: step,
            last_at: begin + opened_after,
            read_at: Instant::now(),
            steps_done: 0,
            costs: [Duration::ZERO; 2],
            kept_from: opened_after,
            told: 0,
            drained: false,
        })
    }

    /// The same for values that are handed over as they come.
    pub(crate) fn drained(self) -> Self {
        Self {
            drained: true,
            ..self
        }
    }

    /// What its values are of, as group of a file, where that has not been told yet or has become more since.
    pub(crate) fn described(&mut self, number: u32) -> Option<elsewhere::Group> {
        if std::mem::replace(&mut self.told, self.series.len()) == self.series.len() {
            return None;
        }
        let series = self.series.iter().map(|series| elsewhere::Series {
            subject: series.subject.subject.to_owned(),
            metric: series.subject.metric.to_string(),
            unit: series.subject.unit.to_owned(),
            kind: series.subject.kind,
        });
        Some(elsewhere::Group {
            group: number,
            source: self.name.clone(),
            series: series.collect(),
        })
    }

    /// Hands over the values that were read since the last time, if there are any, and forgets them.
    pub(crate) fn drain(&mut self, number: u32) -> Option<elsewhere::Values> {
        let steps = u32::try_from(std::mem::take(&mut self.steps_done)).unwrap_or(u32::MAX);
        let (start, step) = (self.kept_from, self.step);
        self.kept_from += step * steps;
        if self.cheap() {
            self.step = (step / 2).max(self.finest);
        }
        (steps > 0 && !self.series.is_empty()).then(|| elsewhere::Values {
            group: number,
            start_ms: u64::try_from(start.as_millis()).unwrap_or(u64::MAX),
            step_ms: u64::try_from(step.as_millis()).unwrap_or(u64::MAX),
            values: self.series.iter_mut().map(Series::drain).collect(),
        })
    }

    /// When it is to be read next; none where it is left alone.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.alive.then(|| self.last_at + self.step)
    }

    /// Reads it if its step is over, or several are where the sampler was kept from running. What cannot be read any more is said
    /// once.
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

    /// Reads it at the end of the run, in the middle of a step: what is left of it is a value of its own, or joined to the one
    /// before where it is less than a fifth of a step.
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

    /// Doubles the step where there are too many values or readings cost too much; only after an even number of steps, so that
    /// values stay where they belong.
    fn thin_out(&mut self, now: Instant) {
        let every = if self.drained { usize::MAX } else { 2 };
        while self.steps_done.is_multiple_of(every)
            && (self.steps_done + self.steps_due(now) > MOST_VALUES || self.costly())
        {
            self.halve();
        }
    }

    fn costly(&self) -> bool {
        let least = self.costs[0].min(self.costs[1]);
        self.step < LONGEST && least.as_secs_f64() > self.share * self.step.as_secs_f64()
    }

    /// Whether readings of half the step would cost clearly less than they may: what once was dear, on a crowded machine, need not
    /// stay so.
    fn cheap(&self) -> bool {
        let most = self.costs[0].max(self.costs[1]);
        self.step > self.finest && most.as_secs_f64() * 4.0 < self.share * self.step.as_secs_f64()
    }

    /// Makes one step of each two.
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
        self.now.clear();
        let read = self.read.read(&mut self.now);
        self.costs = [thread_cpu().saturating_sub(before), self.costs[0]];
        if let Err(error) = read {
            self.alive = false;
            let count = self.series.first().map_or(0, Series::len);
            return Some(match count {
                _ if self.drained => {
                    format!("{}: could be read until now only: {error}", self.name)
                }
                0 => format!("{}: {error}", self.name),
                _ => format!(
                    "{}: could be read for the first {count} values only: {error}",
                    self.name
                ),
            });
        }
        for subject in self.read.found() {
            let zeros = self.series.first().map_or(self.steps_done, Series::len);
            self.series.push(Series::of_zeros(subject, zeros));
            self.last.push(0.0);
        }
        for ((series, now), last) in self.series.iter_mut().zip(&self.now).zip(&self.last) {
            let grown = (now - last).max(0.0);
            let value = match series.subject.kind {
                Kind::Increase => grown,
                Kind::Mean => grown / elapsed.as_secs_f64().max(1e-3),
                Kind::Level => *now,
            };
            keep(series, value);
        }
        std::mem::swap(&mut self.last, &mut self.now);
        None
    }

    /// Characters that its values take in JSON.
    pub(crate) fn written_length(&self) -> usize {
        self.series.iter().map(Series::written_length).sum()
    }

    /// The series.
    pub(crate) fn observations(self) -> impl Iterator<Item = Observation> {
        let step_ms = u64::try_from(self.step.as_millis()).unwrap_or(u64::MAX);
        let start_ms = u64::try_from(self.kept_from.as_millis()).unwrap_or(u64::MAX);
        let name = self.name;
        self.series
            .into_iter()
            .filter(|series| series.len() > 0)
            .flat_map(move |series| series.observations(&name, start_ms, step_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    fn subject(kind: Kind) -> Subject {
        Subject {
            subject: "host",
            metric: "m".into(),
            unit: "u",
            kind,
        }
    }

    /// A counter that grows by one with each reading, which takes `busy` of CPU.
    fn group(busy: Duration, share: f64, begin: Instant) -> Group {
        let mut count = 0.0;
        let read = move |into: &mut Vec<f64>| {
            let begin = thread_cpu();
            while thread_cpu() - begin < busy {}
            count += 1.0;
            into.push(count);
            Ok(())
        };
        let subjects = vec![subject(Kind::Increase)];
        Group::open("g", subjects, Box::new(read), (begin, STEP, share)).unwrap()
    }

    fn taken(mut group: Group, begin: Instant, steps: u32) -> Vec<Observation> {
        for step in 1..=steps {
            assert_eq!(group.take(begin + STEP * step), None);
        }
        group.observations().collect()
    }

    #[test]
    fn what_costs_too_much_is_read_less_often_and_nothing_is_lost() {
        let begin = Instant::now();
        // 1 ms of 100 ms is a hundredth of a CPU; a quarter of that is allowed, so every 400 ms at most.
        let cheap = taken(group(Duration::ZERO, 0.5, begin), begin, 64);
        assert_eq!((cheap.len(), cheap[0].step_ms), (1, 100));
        let dear = taken(group(Duration::from_millis(1), 0.0025, begin), begin, 64);
        // A noisy machine charges a reading with more: the step may be a bit longer, never shorter.
        assert!((400..=1600).contains(&dear[0].step_ms), "{dear:?}");
        assert_eq!(dear[1].metric, "m.max");
        let readings: f64 = dear[0].values.iter().sum();
        assert!(readings < 24.0 && readings > 4.0, "{dear:?}");
        assert_eq!(
            dear[0].values.len() as u64,
            6400 / dear[0].step_ms,
            "values stay where they belong: {dear:?}"
        );
    }

    #[test]
    fn what_became_cheap_is_read_as_often_as_before_where_values_are_handed_over() {
        use std::cell::Cell;
        use std::rc::Rc;
        let (begin, busy) = (Instant::now(), Rc::new(Cell::new(Duration::from_millis(1))));
        let (told, mut count) = (Rc::clone(&busy), 0.0);
        let read = move |into: &mut Vec<f64>| {
            let begin = thread_cpu();
            while thread_cpu() - begin < told.get() {}
            count += 1.0;
            into.push(count);
            Ok(())
        };
        let subjects = vec![subject(Kind::Increase)];
        let group = Group::open("g", subjects, Box::new(read), (begin, STEP, 0.0025)).unwrap();
        let mut group = group.drained();
        let mut lines = Vec::new();
        let mut dearest = 0;
        for step in 1..=400 {
            assert_eq!(group.take(begin + STEP * step), None);
            if step % 10 == 0 {
                lines.extend(group.drain(0));
            }
            if step == 200 {
                dearest = lines.iter().map(|line| line.step_ms).max().unwrap();
                busy.set(Duration::ZERO);
            }
        }
        assert!(dearest >= 400, "{dearest}");
        assert_eq!(lines.last().unwrap().step_ms, 100);
        // Lines follow each other without a gap, whatever their steps.
        for pair in lines.windows(2) {
            let values = pair[0].values[0].len() as u64;
            assert_eq!(
                pair[0].start_ms + values * pair[0].step_ms,
                pair[1].start_ms
            );
        }
    }

    /// A level, a counter that comes up in the third reading and stands at 5 then, and grows by 2 with each.
    struct Growing {
        readings: u32,
        found: Vec<Subject>,
    }

    impl Source for Growing {
        fn read(&mut self, into: &mut Vec<f64>) -> io::Result<()> {
            self.readings += 1;
            into.push(1.0);
            if self.readings >= 3 {
                into.push(f64::from(self.readings * 2 - 1));
            }
            if self.readings == 3 {
                self.found.push(subject(Kind::Increase));
            }
            Ok(())
        }

        fn found(&mut self) -> Vec<Subject> {
            std::mem::take(&mut self.found)
        }
    }

    #[test]
    fn what_is_found_later_was_zero_before_and_keeps_its_place() {
        for (steps, step_ms, expected) in [
            (4_u32, 100, vec![0.0, 5.0, 2.0, 2.0]),
            // Beyond the most values two of them become one.
            (MOST_VALUES as u32 + 2, 200, vec![5.0, 4.0, 4.0, 4.0]),
        ] {
            let begin = Instant::now();
            let growing = Growing {
                readings: 0,
                found: vec![subject(Kind::Level)],
            };
            let group = Group::open("g", Vec::new(), Box::new(growing), (begin, STEP, 1.0));
            let taken = taken(group.unwrap(), begin, steps);
            let found: Vec<&Observation> = taken.iter().filter(|o| o.metric == "m").collect();
            assert_eq!((found.len(), found[0].step_ms), (2, step_ms));
            assert_eq!(found[0].values.len(), found[1].values.len());
            assert_eq!(found[1].values[..4], expected);
        }
    }

    #[test]
    fn a_group_that_fails_says_so_once() {
        let begin = Instant::now();
        let mut left = 2;
        let read = move |into: &mut Vec<f64>| {
            left -= 1;
            into.push(1.0);
            if left < 0 {
                return Err(io::Error::other("gone"));
            }
            Ok(())
        };
        let subjects = vec![subject(Kind::Level)];
        let mut group = Group::open("g", subjects, Box::new(read), (begin, STEP, 1.0)).unwrap();
        assert_eq!(group.take(begin + STEP), None);
        let gone = group.take(begin + STEP * 2).unwrap();
        assert_eq!(gone, "g: could be read for the first 1 values only: gone");
        assert_eq!(group.take(begin + STEP * 3), None);
        assert_eq!(group.take_last(begin + STEP * 4), None);
        assert_eq!(group.next(), None);
    }
}
