//! Changes to an experiment from the command line.

use std::time::Duration;

use floodmark_plan::{LoadSpec, did_you_mean};
use floodmark_record::experiment::SweepPoint;

use super::experiment::{Experiment, names};
use super::trial::Trial;
use crate::capacity::check_budget;

/// Changes to an experiment from the command line.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Names of trials or systems to run. If the list is empty, all trials run.
    pub only: Vec<String>,
    /// Number of attempts on each process.
    pub attempts: Option<u32>,
    /// Number of fresh server processes per trial.
    pub processes: Option<u32>,
    /// Duration of each attempt.
    pub duration: Option<Duration>,
    /// Whether to prove verdicts by perturbation.
    pub prove: bool,
    /// Number of crash rounds per trial.
    pub rounds: Option<u32>,
    /// Time limit of a gate, or of each search for a capacity.
    pub budget: Option<Duration>,
}

impl Experiment {
    /// Applies changes from the command line.
    ///
    /// # Errors
    /// A trial is unknown, a change conflicts with the experiment, or a client does not support the
    /// changed load.
    pub fn changed(mut self, changes: &Changes) -> Result<Self, String> {
        let about = &mut self.description;
        let in_sweep = |name: &str, trial: &Trial| {
            let mut named = about.sweeps.iter().filter(|sweep| sweep.name == name);
            named.any(|sweep| sweep.points.iter().any(|point| point.trial == trial.name))
        };
        let is_meant = |name: &String, trial: &Trial| {
            trial.name == *name || trial.server.name == *name || in_sweep(name, trial)
        };
        for name in &changes.only {
            if !self.trials.iter().any(|trial| is_meant(name, trial)) {
                let known = self.trials.iter().map(|trial| trial.name.as_str());
                return Err(format!(
                    "--only {name}: no trial or system has this name; {}",
                    did_you_mean(name, known)
                ));
            }
        }
        if !changes.only.is_empty() {
            let is_kept = |trial: &Trial| changes.only.iter().any(|name| is_meant(name, trial));
            self.trials.retain(is_kept);
            about.trials = names(&self.trials);
            about.ladder.retain(|name| about.trials.contains(name));
            for sweep in &mut about.sweeps {
                let is_kept = |point: &SweepPoint| about.trials.contains(&point.trial);
                sweep.points.retain(is_kept);
            }
            about.sweeps.retain(|sweep| !sweep.points.is_empty());
        }
        self.change_rounds(changes)?;
        self.change_budget(changes)?;
        let conflicting = [
            ("--attempts", changes.attempts.is_some()),
            ("--duration", changes.duration.is_some()),
            ("--prove", changes.prove),
        ];
        if self.capacity.is_some()
            && let Some((flag, _)) = conflicting.iter().find(|(_, is_given)| *is_given)
        {
            return Err(format!(
                "{flag} conflicts with [capacity], which chooses its loads; remove the flag"
            ));
        }
        self.prove |= changes.prove;
        for trial in &mut self.trials {
            if let Some(attempts) = changes.attempts {
                trial.load.attempts = Some(attempts.into());
            }
            let client = trial.client.as_ref();
            let keeps_count = client.is_some_and(|client| client.only_counts(&trial.load));
            if let Some(duration) = changes.duration.filter(|_| !keeps_count) {
                if trial.load.burst.is_some() {
                    return Err(format!(
                        "{}: --duration conflicts with `burst`; edit the keys `burst` and `within` in the file",
                        trial.place
                    ));
                }
                trial.load.override_with(&LoadSpec {
                    duration: Some(duration),
                    ..LoadSpec::default()
                });
            }
            if let Some(client) = &trial.client {
                let fits = client.command(&trial.load);
                fits.map_err(|what| format!("{}: {what}", trial.place))?;
            }
        }
        if let Some(processes) = changes.processes {
            self.description.processes = processes;
        }
        Ok(self)
    }

    /// Applies the number of crash rounds, and refuses changes that crash rounds conflict with.
    fn change_rounds(&mut self, changes: &Changes) -> Result<(), String> {
        let Some(crash) = &mut self.description.crash else {
            return match changes.rounds {
                None => Ok(()),
                Some(_) => Err(
                    "--rounds: the experiment has no crash rounds; remove --rounds, or add [crash] to the file"
                        .to_owned(),
                ),
            };
        };
        crash.rounds = changes.rounds.unwrap_or(crash.rounds);
        let conflicting = [
            ("--attempts", changes.attempts.is_some()),
            ("--processes", changes.processes.is_some()),
            ("--duration", changes.duration.is_some()),
            ("--prove", changes.prove),
        ];
        match conflicting.iter().find(|(_, is_given)| *is_given) {
            None => Ok(()),
            Some((flag, _)) => Err(format!(
                "{flag} conflicts with crash rounds; use --rounds to change their number"
            )),
        }
    }

    /// Applies the time limit, and refuses changes that conflict with a gate.
    fn change_budget(&mut self, changes: &Changes) -> Result<(), String> {
        let conflicting = [
            ("--only", !changes.only.is_empty()),
            ("--processes", changes.processes.is_some()),
            ("--prove", changes.prove),
        ];
        if self.description.gate.is_some()
            && let Some((flag, _)) = conflicting.iter().find(|(_, is_given)| *is_given)
        {
            return Err(format!(
                "{flag} conflicts with [gate], which measures pairs of both trials until it decides; remove the flag"
            ));
        }
        let Some(budget) = changes.budget else {
            return Ok(());
        };
        if let Some(rules) = &mut self.description.gate {
            rules.budget_s = budget.as_secs_f64();
        } else if let (Some(search), Some(goal)) =
            (&mut self.capacity, &mut self.description.capacity)
        {
            check_budget(budget).map_err(|what| format!("--budget: {what}"))?;
            search.budget = budget;
            goal.budget_s = budget.as_secs_f64();
        } else {
            return Err(
                "--budget: the experiment has no time limit; remove --budget, or add [gate] or [capacity] to the file"
                    .to_owned(),
            );
        }
        Ok(())
    }
}
