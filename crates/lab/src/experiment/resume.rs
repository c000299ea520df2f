//! What a result that was cut short holds already, so that only the rest of its experiment is measured.
//!
//! The unit is a server process: one whose attempts were not all taken is measured anew, and what was taken of it does not count,
//! for the attempts of two processes are not those of one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use floodmark_observe::{Root, environment};
use floodmark_record::Event;
use floodmark_record::events::RunId;
use floodmark_record::experiment::Asked;
use floodmark_record::place::Place;
use floodmark_record::plan::Plan;
use floodmark_record::run::Environment;

use super::{Hosts, Planner, Refused};
use crate::fold::each_event;
use crate::folder::EVENTS;
use crate::manifest::Experiment;

/// What a result holds of an experiment.
#[derive(Debug, Default)]
pub struct Earlier {
    /// Trial and number of each server process whose attempts were all taken.
    pub whole: BTreeSet<(String, u32)>,
    /// All other runs.
    pub anew: Vec<RunId>,
}

/// A run as the events tell of it.
#[derive(Debug)]
struct Told {
    id: RunId,
    plan: Plan,
    place: Option<Place>,
    /// It ended, and nothing cut it short.
    done: bool,
    /// It was measured anew already.
    counts_not: bool,
}

impl Earlier {
    /// Reads what a result folder holds of an experiment.
    ///
    /// # Errors
    /// A folder without the result of an experiment, or with that of another one, of another load or of another machine: what is
    /// taken under other conditions cannot be put beside it. In words.
    pub fn read(
        folder: &Path,
        experiment: &Experiment,
        planner: &Planner<'_>,
    ) -> Result<Self, String> {
        let mut taken_on = None;
        let mut asked = None;
        let mut runs: Vec<Told> = Vec::new();
        each_event(&folder.join(EVENTS), |event| match event {
            Event::Opened { environment, .. } => taken_on = Some(environment),
            Event::Experiment(of) => asked = Some(of),
            Event::RunBegan { run, plan, .. } => runs.push(Told {
                id: run,
                plan,
                place: None,
                done: false,
                counts_not: false,
            }),
            Event::Placed(place) => {
                if let Some(last) = runs.last_mut() {
                    last.place = Some(place);
                }
            }
            Event::RunEnded { cut_short, .. } => {
                if let Some(last) = runs.last_mut() {
                    last.done = cut_short.is_none();
                }
            }
            Event::Resumed(resumed) => {
                for run in &mut runs {
                    run.counts_not |= resumed.anew.contains(&run.id);
                }
            }
            _ => {}
        })
        .map_err(|error| format!("--resume: {error}"))?;
        runs.retain(|run| !run.counts_not);
        let unlike = |what: String| {
            format!(
                "--resume {}: {what}; call it as it was called, or begin anew without --resume",
                folder.display()
            )
        };
        let asked = asked.ok_or_else(|| unlike("it is no result of an experiment".to_owned()))?;
        same_question(&asked, &experiment.asked()).map_err(unlike)?;
        if let Some(taken_on) = taken_on {
            same_machine(&taken_on, &environment::environment(&Root::host())).map_err(unlike)?;
        }
        same_load(&runs, experiment, planner).map_err(unlike)?;
        Ok(Self::of(&runs, experiment))
    }

    fn of(runs: &[Told], experiment: &Experiment) -> Self {
        let mut done: BTreeMap<(&str, u32), u32> = BTreeMap::new();
        for run in runs.iter().filter(|run| run.done) {
            let trial = run.id.trial.as_deref().unwrap_or_default();
            *done.entry((trial, run.id.process)).or_default() += 1;
        }
        let attempts = |trial: &str| {
            let named = experiment.trials.iter().find(|other| other.name == trial);
            named.map_or(u32::MAX, |trial| trial.load.attempts())
        };
        let whole: BTreeSet<(String, u32)> = done
            .into_iter()
            .filter(|((trial, _), taken)| *taken >= attempts(trial))
            .map(|((trial, process), _)| (trial.to_owned(), process))
            .collect();
        let is_whole = |id: &RunId| {
            let trial = id.trial.clone().unwrap_or_default();
            whole.contains(&(trial, id.process))
        };
        let anew = runs.iter().filter(|run| !is_whole(&run.id));
        Earlier {
            anew: anew.map(|run| run.id.clone()).collect(),
            whole,
        }
    }
}

fn same_question(then: &Asked, now: &Asked) -> Result<(), String> {
    if then.name != now.name {
        return Err(format!(
            "it is of the experiment \"{}\", not of \"{}\"",
            then.name, now.name
        ));
    }
    if then.trials != now.trials {
        return Err(format!("its trials are {}", then.trials.join(", ")));
    }
    // Adding processes until a difference shows would always show one.
    if then.processes != now.processes {
        return Err(format!(
            "it was begun with {} processes of each server, not with {}",
            then.processes, now.processes
        ));
    }
    match then == now {
        true => Ok(()),
        false => Err(
            "the experiment was changed since: its question, its claims or what it expects"
                .to_owned(),
        ),
    }
}

fn same_machine(then: &Environment, now: &Environment) -> Result<(), String> {
    for (what, then, now) in [
        ("kernel", &then.kernel, &now.kernel),
        (
            "number of CPUs",
            &then.cpus.to_string(),
            &now.cpus.to_string(),
        ),
    ] {
        if then != now {
            return Err(format!(
                "it was taken on another machine: its {what} is {then}, and here it is {now}"
            ));
        }
    }
    Ok(())
}

/// Whether each trial is loaded as it was, and where it was.
fn same_load(runs: &[Told], experiment: &Experiment, planner: &Planner<'_>) -> Result<(), String> {
    for trial in &experiment.trials {
        let of = |run: &&Told| run.id.trial.as_ref() == Some(&trial.name);
        for run in runs.iter().filter(of) {
            if run.id.setting != trial.setting {
                return Err(format!("{} had other settings then", trial.name));
            }
            let hosts = Hosts::of(&trial.at)
                .map_err(|(Refused::Wrong(what) | Refused::Machine(what))| what)?;
            if run.place != hosts.place {
                return Err(format!("{} ran on other hosts or CPUs then", trial.name));
            }
            let now = planner(trial, &hosts, &run.plan.target.url)?.plan;
            if comparable(&run.plan) != comparable(&now) {
                return Err(format!("{} was loaded otherwise then", trial.name));
            }
        }
    }
    Ok(())
}

/// A plan without what differs between the runs of a trial, as JSON has it: written and read again.
fn comparable(plan: &Plan) -> Option<Plan> {
    let mut plan = Plan {
        seed: 0,
        ports_per_source: None,
        ..plan.clone()
    };
    plan.target.resolve_us = None;
    let text = serde_json::to_string(&plan).ok()?;
    serde_json::from_str(&text).ok()
}
