//! The order and the total duration of an experiment's attempts.
//!
//! Each round measures every trial once, so that drift on the host affects all trials alike.

use std::time::Duration;

use floodmark_record::events::RunId;

use super::EarlierResult;
use crate::manifest::Experiment;

/// The attempts of an experiment, in the order in which they are measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialSchedule {
    entries: Vec<ScheduledAttempt>,
    /// Number of attempts that have started.
    begun: usize,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ScheduledAttempt {
    trial: String,
    process: u32,
    attempt: u32,
    length: Option<Duration>,
}

/// Progress of an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleProgress {
    /// Number of the attempt, from 1.
    pub number: usize,
    /// Number of attempts in total.
    pub of: usize,
    /// Trial of the next attempt; `None` if this attempt is the last.
    pub next: Option<String>,
    /// Total duration of this attempt and all later ones, excluding server starts; `None` if
    /// unknown.
    pub left: Option<Duration>,
}

impl TrialSchedule {
    /// Returns the schedule of an experiment.
    #[must_use]
    pub fn of(experiment: &Experiment) -> Self {
        // Crash rounds are not attempts, and a gate decides after each pair whether to continue.
        let about = &experiment.description;
        let is_unscheduled = about.crash.is_some() || about.gate.is_some();
        let processes = if is_unscheduled { 0 } else { about.processes };
        // A search has one entry, which counts as started when its first load starts.
        let budget = experiment.capacity.as_ref().map(|search| search.budget);
        let rounds = 1..=processes;
        let entries = rounds.flat_map(|process| {
            experiment.trials.iter().flat_map(move |trial| {
                (1..=trial.load.attempt_count()).map(move |attempt| ScheduledAttempt {
                    trial: trial.name.clone(),
                    process,
                    attempt,
                    length: budget.or_else(|| trial.load.length()),
                })
            })
        });
        TrialSchedule {
            entries: entries.collect(),
            begun: 0,
        }
    }

    /// Removes the processes that an earlier result already contains.
    #[must_use]
    pub fn after(mut self, earlier: &EarlierResult) -> Self {
        self.entries
            .retain(|entry| !earlier.contains(&entry.trial, entry.process));
        self
    }

    /// Returns the trial of each attempt, in order.
    pub fn trials(&self) -> impl Iterator<Item = String> {
        self.entries.iter().map(|entry| entry.trial.clone())
    }

    /// Marks a run as started. Returns the progress, or `None` if the run is not scheduled.
    pub fn begin(&mut self, run: &RunId) -> Option<ScheduleProgress> {
        let is_run = |entry: &ScheduledAttempt| {
            Some(&entry.trial) == run.trial.as_ref()
                && (entry.process, entry.attempt) == (run.process, run.attempt)
        };
        let at = self.entries.iter().position(is_run)?;
        self.begun = at + 1;
        let rest = &self.entries[at..];
        Some(ScheduleProgress {
            number: at + 1,
            of: self.entries.len(),
            next: rest.get(1).map(|entry| entry.trial.clone()),
            left: rest.iter().map(|entry| entry.length).sum(),
        })
    }

    /// Removes the attempts of a trial that have not started.
    pub fn leave_out(&mut self, trial: &str) {
        let later = self.entries.split_off(self.begun);
        let rest = later.into_iter().filter(|entry| entry.trial != trial);
        self.entries.extend(rest);
    }

    /// Returns the total duration of all attempts, or `None` if unknown.
    #[must_use]
    pub fn length(&self) -> Option<Duration> {
        self.entries.iter().map(|entry| entry.length).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_later_attempts_of_a_trial() {
        let entry = |trial: &str, process| ScheduledAttempt {
            trial: trial.to_owned(),
            process,
            attempt: 1,
            length: Some(Duration::from_secs(2)),
        };
        let mut schedule = TrialSchedule {
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
        // Only the second attempt is removed, because the first attempt has started.
        schedule.leave_out("a");
        let second = schedule.begin(&run("b", 1)).unwrap();
        assert_eq!((second.number, second.of), (2, 3));
        assert_eq!(second.next.as_deref(), Some("b"));
        assert_eq!(second.left, Some(Duration::from_secs(4)));
        let last = schedule.begin(&run("b", 2)).unwrap();
        assert_eq!((last.number, last.next), (3, None));
    }
}
