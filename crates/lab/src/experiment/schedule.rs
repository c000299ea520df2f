//! In which order an experiment measures, and how long that takes: rounds over all trials, so that what changes on the machine in
//! the meantime meets all of them alike.

use std::time::Duration;

use floodmark_record::events::RunId;

use super::Earlier;
use crate::manifest::Experiment;

/// Measurements in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    entries: Vec<Entry>,
    /// How many of them have begun.
    begun: usize,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    trial: String,
    process: u32,
    attempt: u32,
    length: Option<Duration>,
}

/// How far an experiment is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// Number of the measurement, from 1.
    pub number: usize,
    /// How many there are.
    pub of: usize,
    /// The next measurement's trial, where there is another one.
    pub next: Option<String>,
    /// How long this and all that come after it send, where that is known; starting servers comes on top.
    pub left: Option<Duration>,
}

impl Schedule {
    /// The order in which an experiment measures.
    #[must_use]
    pub fn of(experiment: &Experiment) -> Self {
        let rounds = 1..=experiment.processes;
        let entries = rounds.flat_map(|process| {
            experiment.trials.iter().flat_map(move |trial| {
                (1..=trial.load.attempts()).map(move |attempt| Entry {
                    trial: trial.name.clone(),
                    process,
                    attempt,
                    length: trial.load.length(),
                })
            })
        });
        Schedule {
            entries: entries.collect(),
            begun: 0,
        }
    }

    /// What was measured before does not come again.
    #[must_use]
    pub fn after(mut self, earlier: &Earlier) -> Self {
        self.entries.retain(|entry| {
            !earlier
                .whole
                .contains(&(entry.trial.clone(), entry.process))
        });
        self
    }

    /// A run begins; where it stands, if it is one of these.
    pub fn begin(&mut self, run: &RunId) -> Option<Position> {
        let is = |entry: &Entry| {
            Some(&entry.trial) == run.trial.as_ref()
                && (entry.process, entry.attempt) == (run.process, run.attempt)
        };
        let at = self.entries.iter().position(is)?;
        self.begun = at + 1;
        let rest = &self.entries[at..];
        Some(Position {
            number: at + 1,
            of: self.entries.len(),
            next: rest.get(1).map(|entry| entry.trial.clone()),
            left: rest.iter().map(|entry| entry.length).sum(),
        })
    }

    /// A trial is not measured any more: what has not begun of it never will.
    pub fn leave_out(&mut self, trial: &str) {
        let later = self.entries.split_off(self.begun);
        let still = later.into_iter().filter(|entry| entry.trial != trial);
        self.entries.extend(still);
    }

    /// How long all of it sends, where that is known.
    #[must_use]
    pub fn length(&self) -> Option<Duration> {
        self.entries.iter().map(|entry| entry.length).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_does_not_come() {
        let entry = |trial: &str, process| Entry {
            trial: trial.to_owned(),
            process,
            attempt: 1,
            length: Some(Duration::from_secs(2)),
        };
        let mut schedule = Schedule {
            entries: vec![entry("a", 1), entry("b", 1), entry("a", 2), entry("b", 2)],
            begun: 0,
        };
        let run = |trial: &str, process| RunId {
            system: "s".to_owned(),
            workload: "hello".to_owned(),
            trial: Some(trial.to_owned()),
            setting: std::collections::BTreeMap::new(),
            process,
            attempt: 1,
        };
        assert_eq!(schedule.length(), Some(Duration::from_secs(8)));
        assert_eq!(schedule.begin(&run("c", 1)), None);
        let first = schedule.begin(&run("a", 1)).unwrap();
        assert_eq!((first.number, first.of), (1, 4));
        assert_eq!(first.next.as_deref(), Some("b"));
        // Its first measurement is done, the second one is not to come.
        schedule.leave_out("a");
        let second = schedule.begin(&run("b", 1)).unwrap();
        assert_eq!((second.number, second.of), (2, 3));
        assert_eq!(second.next.as_deref(), Some("b"));
        assert_eq!(second.left, Some(Duration::from_secs(4)));
        let last = schedule.begin(&run("b", 2)).unwrap();
        assert_eq!((last.number, last.next), (3, None));
    }
}
