//! Reads an interrupted result, so that only the remaining processes have to be measured.
//!
//! A server process that was not measured completely is measured again. All its earlier attempts
//! are superseded, because attempts are comparable only on the same process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use floodmark_observe::{Root, environment};
use floodmark_plan::LoadSpec;
use floodmark_plan::spec::HttpVersion;
use floodmark_record::body::RequestBody;
use floodmark_record::events::{EndReason, RunId};
use floodmark_record::experiment::ExperimentDescription;
use floodmark_record::host::Environment;
use floodmark_record::plan::{Plan, RequestPlan};
use floodmark_record::run::Placement;

use super::{TrialHosts, plan_offline, with_crash_load};
use crate::capacity;
use crate::manifest::{Experiment, Trial};
use crate::result_events::{CrashEvents, ResultEvents, differs};
use crate::run_events::RunEvents;

/// The completed part of an earlier result.
#[derive(Debug, Default)]
pub struct EarlierResult {
    /// Trial and process number of each completely measured server process.
    complete: BTreeSet<(String, u32)>,
    /// The runs of all other server processes.
    pub incomplete: Vec<RunId>,
    /// The crash rounds of each trial.
    crash: BTreeMap<String, CrashEvents>,
    /// Number of crash rounds per trial; 0 without crash rounds.
    crash_rounds: u32,
    /// The gRPC message of each trial that calls a method.
    messages: BTreeMap<String, RequestBody>,
}

impl EarlierResult {
    /// Reads a result directory to find out which server processes of the experiment were measured
    /// completely.
    ///
    /// # Errors
    /// The directory contains no result of this experiment, or the load or the host has changed.
    pub fn read(directory: &Path, experiment: &Experiment) -> Result<Self, String> {
        let mut events = ResultEvents::to_resume(directory)?;
        events.runs.retain(|run| !run.left_out);
        let different = |what: String| differs(directory, &what);
        let asked = events.experiment.as_ref();
        let asked = asked.ok_or_else(|| differs(directory, "not the result of an experiment"))?;
        check_experiment(asked, &experiment.description).map_err(different)?;
        if let Some((_, environment)) = &events.opened {
            let now = environment::environment(&Root::host());
            check_host(environment, &now).map_err(different)?;
        }
        check_loads(&events, experiment).map_err(different)?;
        let complete: BTreeSet<(String, u32)> = if experiment.capacity.is_some() {
            // A process whose search ended with a result is complete. All runs of other processes
            // are repeated.
            let ended = events.capacity.iter().filter(|search| search.is_complete());
            ended.map(|search| process_of(&search.began.run)).collect()
        } else {
            complete_processes(&events.runs, experiment)
        };
        let calls = events.runs.iter().filter(|run| run.plan.request.is_grpc);
        let messages = calls.map(|run| (process_of(&run.id).0, run.plan.request.body.clone()));
        let messages = messages.collect();
        let ids = events.runs.into_iter().map(|run| run.id);
        let named = |trial: CrashEvents| (trial.began.trial.clone(), trial);
        let crash = experiment.description.crash.as_ref();
        Ok(EarlierResult {
            incomplete: ids
                .filter(|id| !complete.contains(&process_of(id)))
                .collect(),
            complete,
            crash: events.crash.into_iter().map(named).collect(),
            crash_rounds: crash.map_or(0, |crash| crash.rounds),
            messages,
        })
    }

    /// Reads the interrupted result of a tuning run. Derives the trials from the runs of the
    /// result: one trial per measured setting.
    ///
    /// # Errors
    /// The same as for [`EarlierResult::read`].
    pub fn read_tuning(directory: &Path, experiment: &Experiment) -> Result<Self, String> {
        let events = ResultEvents::to_resume(directory)?;
        let mut measured = experiment.clone();
        measured.trials.clear();
        for base in &experiment.trials {
            for run in &events.runs {
                let name = run.id.trial.clone().unwrap_or_default();
                if !measured.trials.iter().any(|trial| trial.name == name) {
                    let mut trial = base.clone();
                    trial.name = name;
                    trial.setting.clone_from(&run.id.setting);
                    measured.trials.push(trial);
                }
            }
        }
        Self::read(directory, &measured)
    }

    /// Returns whether a server process of a trial was measured completely.
    #[must_use]
    pub fn contains(&self, trial: &str, process: u32) -> bool {
        let last = self
            .crash_events(trial)
            .and_then(|trial| trial.rounds.last());
        let has_all_rounds = last.is_some_and(|last| last.round >= self.crash_rounds);
        has_all_rounds || self.complete.contains(&(trial.to_owned(), process))
    }

    /// Returns whether all server processes of an experiment were measured completely.
    #[must_use]
    pub fn is_complete(&self, experiment: &Experiment) -> bool {
        let mut trials = experiment.trials.iter();
        let processes = experiment.description.processes;
        trials.all(|trial| (1..=processes).all(|process| self.contains(&trial.name, process)))
    }

    /// Returns whether a trial sent a different gRPC message than the one in `request`. The message
    /// may depend on the description that the running server provides.
    #[must_use]
    pub fn has_other_message(&self, trial: &str, request: &RequestPlan) -> bool {
        let message = self.messages.get(trial);
        message.is_some_and(|message| *message != request.body)
    }

    /// Returns the crash rounds of a trial. `None` if no round has begun.
    #[must_use]
    pub fn crash_events(&self, trial: &str) -> Option<&CrashEvents> {
        self.crash.get(trial)
    }
}

/// Returns the server processes that completed all attempts of their trial, or whose last attempt
/// was aborted by a condition: the experiment skips the attempts after it.
fn complete_processes(runs: &[RunEvents], experiment: &Experiment) -> BTreeSet<(String, u32)> {
    let mut attempts: BTreeMap<(String, u32), u32> = BTreeMap::new();
    for run in runs {
        if run.end_reason().reason == EndReason::Aborted {
            attempts.insert(process_of(&run.id), u32::MAX);
        } else if run.ended && run.cut_short.is_none() {
            let count = attempts.entry(process_of(&run.id)).or_default();
            *count = count.saturating_add(1);
        }
    }
    let scheduled = |name: &str| {
        let trial = experiment.trials.iter().find(|trial| trial.name == name);
        trial.map_or(u32::MAX, |trial| trial.load.attempt_count())
    };
    attempts.retain(|(trial, _), attempts| *attempts >= scheduled(trial));
    attempts.into_keys().collect()
}

fn process_of(id: &RunId) -> (String, u32) {
    (id.trial.clone().unwrap_or_default(), id.process)
}

fn check_experiment(
    then: &ExperimentDescription,
    now: &ExperimentDescription,
) -> Result<(), String> {
    if then.name != now.name {
        return Err(format!(
            "the result belongs to the experiment \"{}\", not \"{}\"",
            then.name, now.name
        ));
    }
    if then.trials != now.trials {
        return Err(format!(
            "the result has different trials: {}",
            then.trials.join(", ")
        ));
    }
    // If processes could be added until a difference appears, every comparison would find one.
    if then.processes != now.processes {
        return Err(format!(
            "the number of processes per trial was {}, not {}",
            then.processes, now.processes
        ));
    }
    if then.tuning != now.tuning {
        return Err(
            "the result tunes a different trial, different knobs or a different figure".to_owned(),
        );
    }
    if then != now {
        return Err(
            "the experiment's question, claims, expectations, abort-if, crash rounds, objectives or gate has changed"
                .to_owned(),
        );
    }
    Ok(())
}

fn check_host(then: &Environment, now: &Environment) -> Result<(), String> {
    let facts = [
        ("kernel", then.kernel.clone(), now.kernel.clone()),
        (
            "number of CPUs",
            then.cpus.to_string(),
            now.cpus.to_string(),
        ),
    ];
    match facts.into_iter().find(|(_, then, now)| then != now) {
        None => Ok(()),
        Some((what, then, now)) => Err(format!(
            "the result was measured on another host: {what} {then}, not {now}"
        )),
    }
}

/// Checks that the runs and the crash rounds of each trial have the same settings, placement and
/// load as before.
fn check_loads(earlier: &ResultEvents, experiment: &Experiment) -> Result<(), String> {
    for trial in &experiment.trials {
        let changed = |what: &str| Err(format!("the {what} of {} has changed", trial.name));
        for run in &earlier.runs {
            if run.id.trial.as_ref() != Some(&trial.name) {
                continue;
            }
            if run.id.setting != trial.setting {
                return changed("setting");
            }
            let load = |plan: Plan| match experiment.capacity {
                None => Some(plan),
                Some(_) if run.id.attempt == 1 => Some(capacity::closed_load(&plan)),
                // The other loads of a search follow from its first load and its objectives.
                Some(_) => None,
            };
            if let Some(what) = difference((&run.place, &run.plan), trial, load)? {
                return changed(what);
            }
        }
        for CrashEvents { began, .. } in &earlier.crash {
            if began.trial == trial.name
                && let Some(what) =
                    difference((&began.place, &began.plan), &with_crash_load(trial), Some)?
            {
                return changed(what);
            }
        }
    }
    Ok(())
}

/// Returns "placement" or "load" if a trial differs in this respect from an earlier run. `load`
/// receives the plan of the trial, and returns the plan to compare, or `None` to skip the
/// comparison.
fn difference(
    (place, plan): (&Option<Placement>, &Plan),
    trial: &Trial,
    load: impl FnOnce(Plan) -> Option<Plan>,
) -> Result<Option<&'static str>, String> {
    let hosts = TrialHosts::create(&trial.at).map_err(|error| error.to_string())?;
    if *place != hosts.place {
        return Ok(Some("placement"));
    }
    let mut trial = trial.clone();
    if trial.load.http() == HttpVersion::Auto {
        // The server chose the version.
        trial.load.override_with(&LoadSpec {
            http: Some(plan.http.into()),
            ..LoadSpec::default()
        });
    }
    let mut now = plan_offline(&trial, &hosts, &plan.target.authority)?.plan;
    if trial.load.grpc.is_some() && trial.load.proto.is_none() {
        // The message is compared after the server has started.
        now.request.body.clone_from(&plan.request.body);
    }
    Ok(load(now)
        .filter(|now| comparable(plan) != comparable(now))
        .map(|_| "load"))
}

/// Clears the fields that differ between runs of a trial. Returns the plan after a JSON round trip.
fn comparable(plan: &Plan) -> Option<Plan> {
    let mut plan = Plan {
        seed: 0,
        ports_per_source: None,
        ..plan.clone()
    };
    plan.target.resolve_us = None;
    let json = serde_json::to_vec(&plan).ok()?;
    serde_json::from_slice(&json).ok()
}
