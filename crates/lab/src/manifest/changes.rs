//! Applies command-line flags to an experiment, and prepares an experiment for `floodmark tune`.

use std::collections::BTreeMap;
use std::time::Duration;

use floodmark_plan::{LoadSpec, did_you_mean};
use floodmark_record::experiment::{ExperimentDescription, SweepPoint};
use floodmark_record::tuning::{KnobKind, KnobValues, TunedKnob, TuningDescription, TuningGoal};

use super::experiment::{Experiment, names};
use super::modes::first_given;
use super::program::Knob;
use super::trial::{Trial, check_trial_name};
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
                return Err(unknown_only(name, &names(&self.trials)));
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
        if self.capacity.is_some() {
            let conflicting = [
                ("--attempts", changes.attempts.is_some()),
                ("--duration", changes.duration.is_some()),
                ("--prove", changes.prove),
            ];
            let capacity = "[capacity], which chooses its loads; remove the flag";
            refuse(&conflicting, capacity)?;
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

    /// Applies the number of crash rounds, and rejects changes that conflict with crash rounds.
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
        let rounds = "crash rounds; use --rounds to change their number";
        refuse(&conflicting, rounds)
    }

    /// Applies the time limit, and rejects changes that conflict with a gate.
    fn change_budget(&mut self, changes: &Changes) -> Result<(), String> {
        if self.description.gate.is_some() {
            let conflicting = [
                ("--only", !changes.only.is_empty()),
                ("--processes", changes.processes.is_some()),
                ("--prove", changes.prove),
            ];
            let gate =
                "[gate], which measures pairs of both trials until it decides; remove the flag";
            refuse(&conflicting, gate)?;
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

/// Returns the error message for an `--only` that matches no trial.
fn unknown_only(name: &str, known: &[String]) -> String {
    let fix = did_you_mean(name, known.iter().map(String::as_str));
    format!("--only {name}: no trial or system has this name; {fix}")
}

/// Rejects flags that conflict with a kind of experiment.
fn refuse(flags: &[(&str, bool)], kind: &str) -> Result<(), String> {
    match first_given(flags) {
        Some(flag) => Err(format!("{flag} conflicts with {kind}")),
        None => Ok(()),
    }
}

/// Maximum number of knobs that a tuning run changes.
const MOST_KNOBS: usize = 2;

/// Substrings of the names of knobs that set the size of a thread pool.
const THREADS: [&str; 4] = ["thread", "worker", "process", "executor"];
/// Substrings of the names of knobs that set the size of a connection pool.
const CONNECTIONS: [&str; 2] = ["conn", "pool"];

/// What to tune.
#[derive(Debug, Clone)]
pub struct TuningRequest {
    /// Name of the trial, its sweep or its system; `None` for the only trial with knobs.
    pub only: Option<String>,
    /// Names of the knobs to tune. If the list is empty, the knobs that set the number of threads
    /// or connections are tuned, or all numeric knobs if there are no such knobs.
    pub knobs: Vec<String>,
    /// Figure to maximize.
    pub goal: TuningGoal,
}

impl Experiment {
    /// Returns an experiment that tunes one trial. Its only trial has the default setting. The
    /// experiment keeps its capacity search only if tuning maximizes the capacity.
    /// `default_threads` returns the default value of the knob `threads` if its definition has
    /// none.
    ///
    /// # Errors
    /// Fails in any of these cases:
    /// - The experiment has crash rounds or `abort-if`.
    /// - The goal is the capacity, but the experiment has no objectives.
    /// - No trial or several trials match the request.
    /// - The knobs do not exist or cannot be tuned.
    ///
    /// The error message is a single line.
    pub fn tuned(
        self,
        request: &TuningRequest,
        default_threads: impl Fn(&Trial) -> Result<u64, String>,
    ) -> Result<Self, String> {
        if self.description.crash.is_some() {
            return Err(
                "the experiment has crash rounds, which measure no throughput; tune another experiment"
                    .to_owned(),
            );
        }
        if !self.abort_if.is_empty() {
            return Err(
                "`abort-if` conflicts with tuning, which needs the figures of whole measurements; remove it"
                    .to_owned(),
            );
        }
        let is_capacity = request.goal == TuningGoal::Capacity;
        if is_capacity && self.capacity.is_none() {
            return Err(
                "--for capacity: the experiment has no objectives; add [capacity] with slo = [\"p99 < 20ms\"]"
                    .to_owned(),
            );
        }
        let base = choose(bases(&self), request.only.as_deref())?;
        let at = |what: String| format!("{}: {what}", base.place);
        let names = knob_names(&base, &request.knobs).map_err(at)?;
        let knobs = names
            .iter()
            .map(|name| tuned_knob(&base, name, &default_threads));
        let tuning = TuningDescription {
            trial: base.name.clone(),
            goal: request.goal,
            knobs: knobs.collect::<Result<_, _>>().map_err(at)?,
        };
        let widest = |knob: &TunedKnob| (knob.name.clone(), knob.high);
        let longest = tuning.trial_name(&tuning.knobs.iter().map(widest).collect());
        check_trial_name(&longest).map_err(at)?;
        let start = tuning.knobs.iter();
        let start = start
            .map(|knob| (knob.name.clone(), knob.default))
            .collect();
        Ok(Experiment {
            trials: vec![base.with_knobs(&tuning, &start)],
            description: ExperimentDescription {
                name: self.description.name,
                question: self.description.question,
                trials: vec![base.name],
                processes: 1,
                capacity: self.description.capacity.filter(|_| is_capacity),
                tuning: Some(tuning),
                ..ExperimentDescription::default()
            },
            prove: false,
            capacity: self.capacity.filter(|_| is_capacity),
            abort_if: Vec::new(),
        })
    }
}

impl Trial {
    /// Returns the trial that measures a setting in a tuning run.
    #[must_use]
    pub fn with_knobs(&self, tuning: &TuningDescription, values: &KnobValues) -> Self {
        let mut trial = self.clone();
        trial.name = tuning.trial_name(values);
        let values = values.iter();
        let values = values.map(|(name, value)| (name.clone(), value.to_string()));
        trial.setting.extend(values);
        trial
    }
}

/// Returns the trials that can be tuned. A sweep counts as one trial, without the values of its
/// knobs.
fn bases(experiment: &Experiment) -> Vec<Trial> {
    let mut bases: Vec<Trial> = Vec::new();
    for trial in &experiment.trials {
        let mut sweeps = experiment.description.sweeps.iter();
        let sweep = sweeps.find(|sweep| sweep.points.iter().any(|p| p.trial == trial.name));
        let mut base = trial.clone();
        if let Some(sweep) = sweep {
            base.name.clone_from(&sweep.name);
            base.setting.retain(|knob, _| !sweep.knobs.contains(knob));
        }
        if !bases.iter().any(|other| other.name == base.name) {
            bases.push(base);
        }
    }
    bases
}

fn choose(mut bases: Vec<Trial>, only: Option<&str>) -> Result<Trial, String> {
    if let Some(only) = only {
        let known = names(&bases);
        bases.retain(|trial| trial.name == only || trial.server.name == only);
        if bases.is_empty() {
            return Err(unknown_only(only, &known));
        }
    } else {
        bases.retain(|trial| {
            let mut knobs = trial.server.knobs.values();
            knobs.any(|knob| is_numeric(knob) || has_no_limit(knob))
        });
    }
    match bases.len() {
        0 => Err(
            "no trial of the experiment has a numeric knob; add knobs = { threads = { low = 1, high = 200 } } to \
             [[trial]], and {threads} to its command"
                .to_owned(),
        ),
        1 => Ok(bases.remove(0)),
        _ => Err(format!(
            "the experiment has several trials with knobs ({}); choose one with --only",
            names(&bases).join(", ")
        )),
    }
}

/// Returns the names of the knobs to tune.
fn knob_names(trial: &Trial, requested: &[String]) -> Result<Vec<String>, String> {
    let server = &trial.server;
    let numeric = || server.knobs.iter().filter(|(_, knob)| is_numeric(knob));
    let known: Vec<&str> = numeric().map(|(name, _)| name.as_str()).collect();
    let mut knobs = server.knobs.iter();
    let is_wanted = |name| requested.contains(name) || known.is_empty();
    match knobs.find(|(name, knob)| is_wanted(name) && has_no_limit(knob)) {
        Some((name, _)) => {
            return Err(format!(
                "the knob \"{name}\" has no upper limit; add high = … to it"
            ));
        }
        None if known.is_empty() => {
            return Err(format!("{} has no numeric knob", server.name));
        }
        None => {}
    }
    for (i, name) in requested.iter().enumerate() {
        if requested[..i].contains(name) {
            return Err(format!("--knob {name} is given twice; remove one of them"));
        }
        if !known.contains(&name.as_str()) {
            let fix = did_you_mean(name, known.iter().copied());
            return Err(match server.knobs.get(name) {
                Some(_) => format!("--knob {name}: the knob is not numeric; {fix}"),
                None => format!("--knob {name}: {} has no such knob; {fix}", server.name),
            });
        }
    }
    let sizes_pool = |(name, knob): &(&String, &Knob)| kind(name, knob) != KnobKind::Other;
    let names: Vec<String> = match requested {
        [] if numeric().any(|one| sizes_pool(&one)) => {
            let pools = numeric().filter(sizes_pool);
            // Threads use connections, so the number of threads is tuned first.
            let (mut threads, others): (Vec<_>, Vec<_>) =
                pools.partition(|(name, knob)| kind(name, knob) == KnobKind::Threads);
            threads.extend(others);
            threads.into_iter().map(|(name, _)| name.clone()).collect()
        }
        [] => numeric().map(|(name, _)| name.clone()).collect(),
        some => some.to_vec(),
    };
    if names.len() > MOST_KNOBS {
        Err(format!(
            "tuning changes at most {MOST_KNOBS} knobs; choose from {} with --knob",
            known.join(", ")
        ))
    } else {
        Ok(names)
    }
}

fn is_numeric(knob: &Knob) -> bool {
    let mut values = knob.values.iter();
    if knob.values.is_empty() {
        knob.limits().1.is_some()
    } else {
        values.all(|value| value.0.parse::<u64>().is_ok())
    }
}

/// Returns whether a knob is numeric and has no upper limit.
fn has_no_limit(knob: &Knob) -> bool {
    let default = knob.default.as_ref();
    let is_open = knob.values.is_empty() && knob.limits().1.is_none();
    is_open && default.is_none_or(|default| default.0.parse::<u64>().is_ok())
}

/// Returns the kind of pool whose size a knob sets. If the knob's definition does not state the
/// kind, infers it from the knob's name.
fn kind(name: &str, knob: &Knob) -> KnobKind {
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    knob.sizes.unwrap_or(match () {
        () if has(&THREADS) => KnobKind::Threads,
        () if has(&CONNECTIONS) => KnobKind::Connections,
        () => KnobKind::Other,
    })
}

fn tuned_knob(
    trial: &Trial,
    name: &str,
    default_threads: impl Fn(&Trial) -> Result<u64, String>,
) -> Result<TunedKnob, String> {
    let invalid = |what: &str| Err(format!("the knob \"{name}\" {what}"));
    let knob = &trial.server.knobs[name];
    if !trial.server.uses(name) {
        return invalid(&format!(
            "has no effect; add {{{name}}} to the server's command"
        ));
    }
    let mut values: Vec<u64> = knob
        .values
        .iter()
        .filter_map(|v| v.0.parse().ok())
        .collect();
    values.sort_unstable();
    values.dedup();
    let (low, high) = knob.limits();
    let low = low.or(values.first().copied()).unwrap_or(1).max(1);
    let high = high.or(values.last().copied()).unwrap_or(0);
    values.retain(|value| (low..=high).contains(value));
    if low >= high || values.len() == 1 {
        return invalid("has only one value above 0; raise its `high`");
    }
    let given: BTreeMap<_, _> = trial.server.setting(&trial.setting);
    let default = match given.get(name) {
        Some(value) => value.parse().ok(),
        None => Some(default_threads(trial)?.clamp(low, high)),
    };
    let Some(default) = default.filter(|default| *default == 0 || (low..=high).contains(default))
    else {
        return invalid(&format!(
            "has a default outside its range from {low} to {high}; change one of them"
        ));
    };
    Ok(TunedKnob {
        name: name.to_owned(),
        sizes: kind(name, knob),
        default,
        low,
        high,
        values,
    })
}

#[cfg(test)]
#[path = "tuned_tests.rs"]
mod tests;
