//! Runs an experiment: builds and starts its systems, loads them in rounds, stops them, and keeps all of it in one record.
//!
//! What goes wrong with one trial is one line and ends that trial; the others go on.

mod build;
mod client;
mod counter;
mod delayed;
mod hosts;
mod launch;
mod measure;
mod probe;
mod proof;
mod provide;
mod resume;
mod schedule;
mod server;
mod store;

use std::collections::BTreeSet;
use std::path::PathBuf;

use floodmark_host::{Stop, sweep, sweep_folders};
use floodmark_observe::{Root, cpu};
use floodmark_record::experiment::Resumed;
use floodmark_record::plan::Plan;
use floodmark_record::run::ToolInfo;
use floodmark_record::tls::TrustAnchor;
use floodmark_record::{Event, Record};

use crate::attempt::{self, LabError, Listener};
use crate::folder::{Folder, own_temporary};
use crate::manifest::{Experiment, Filler, Server, Trial};
use launch::Places;
use measure::Up;
use server::Running;
use store::{Around, Standing};

pub use delayed::LISTENING;
pub use hosts::{Hosts, Refused};
pub use resume::Earlier;
pub use schedule::{Position, Schedule};

/// Why something did not come about.
#[derive(Debug)]
enum Ended {
    /// It was told to stop.
    Interrupted,
    /// In one line.
    Failed(String),
}

/// What is sent to a server that runs.
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// The certificate authorities to trust.
    pub anchors: Vec<TrustAnchor>,
    /// What floodmark has to settle for.
    pub notices: Vec<String>,
}

/// Makes the plan of a trial on its hosts for its server's URL; what cannot be planned in words.
pub type Planner<'a> = dyn Fn(&Trial, &Hosts, &str) -> Result<Planned, String> + 'a;

/// Somebody who is told what goes on beside the events.
pub trait Watcher: Listener {
    /// What is done now, in one line.
    fn doing(&mut self, what: &str);
    /// What went wrong, in one line.
    fn trouble(&mut self, what: &str);
    /// A trial is not measured any more.
    fn left_out(&mut self, trial: &str);
}

/// What an experiment came to.
#[derive(Debug)]
pub struct Outcome {
    /// The record of what was measured.
    pub record: Record,
    /// What failed, one line each.
    pub failures: Vec<String>,
}

/// An experiment and what it takes to run it.
pub struct Runner<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// Makes plans.
    pub planner: &'a Planner<'a>,
    /// How floodmark was called.
    pub tool: ToolInfo,
    /// The program that runs.
    pub floodmark: PathBuf,
    /// What the folder holds already, where a result that was cut short is gone on with.
    pub earlier: Option<&'a Earlier>,
    /// Ends it.
    pub stop: &'a Stop,
}

impl Ended {
    /// The same of a part of a trial.
    fn of(self, trial: &str) -> Self {
        match self {
            Ended::Failed(what) => Ended::Failed(format!("{trial}: {what}")),
            Ended::Interrupted => Ended::Interrupted,
        }
    }
}

/// What a run of an experiment has come to so far.
struct State<'a, 'b> {
    folder: &'b mut Folder,
    watcher: &'b mut dyn Watcher,
    leases: PathBuf,
    /// Trials that are not tried again.
    out: BTreeSet<&'a str>,
    failures: Vec<String>,
}

impl<'a> State<'a, '_> {
    fn leave_out(&mut self, trial: &'a Trial) {
        self.watcher.left_out(&trial.name);
        self.out.insert(&trial.name);
    }

    /// Where a program of that name puts its log and its files.
    fn places(&self, name: &str) -> Places<'_> {
        // Programs run in folders of their own, where a relative path would lead elsewhere.
        let result = std::path::absolute(self.folder.path());
        let result = result.unwrap_or_else(|_| self.folder.path().to_owned());
        Places {
            log: result.join(format!("{name}.log")),
            run: result.join(name),
            leases: &self.leases,
        }
    }

    fn skip(&mut self, what: String) -> Result<(), LabError> {
        self.watcher.trouble(&what);
        self.folder.append(&Event::Skipped { what })?;
        Ok(())
    }

    fn fail(&mut self, what: String) -> Result<(), LabError> {
        self.failures.push(what.clone());
        self.skip(what)
    }
}

impl<'a> Runner<'a> {
    /// Runs the experiment into a folder. Where it is told to stop, what was taken until then is kept.
    ///
    /// # Errors
    /// A folder that cannot be written, a load process that fails. What goes wrong with a server is in the outcome.
    pub fn run(&self, folder: &mut Folder, watcher: &mut dyn Watcher) -> Result<Outcome, LabError> {
        match self.earlier {
            None => {
                attempt::open(folder, self.tool.clone())?;
                folder.append(&Event::Experiment(self.experiment.asked()))?;
            }
            Some(earlier) => folder.append(&Event::Resumed(Resumed {
                tool: self.tool.clone(),
                unix_ms: attempt::unix_ms(),
                anew: earlier.anew.clone(),
            }))?,
        }
        let mut state = State {
            folder,
            watcher,
            leases: own_temporary().join("leases"),
            out: BTreeSet::new(),
            failures: Vec::new(),
        };
        self.clean_up(&mut state);
        provide::provide(self, &mut state)?;
        let failure = self.rounds(&mut state)?;
        let failures = state.failures;
        let record = attempt::finish(folder, failure)?;
        Ok(Outcome { record, failures })
    }

    /// Ends what an earlier floodmark left running when it was killed.
    fn clean_up(&self, state: &mut State<'a, '_>) {
        match sweep(&state.leases) {
            Ok(ended) if ended.is_empty() => {}
            Ok(ended) => {
                let processes = match ended.len() {
                    1 => "1 process".to_owned(),
                    n => format!("{n} processes"),
                };
                state.watcher.doing(&format!(
                    "ended {processes} that a killed floodmark left running"
                ));
            }
            Err(error) => state.watcher.trouble(&format!(
                "what a killed floodmark may have left running is not known: {}: {error}",
                state.leases.display()
            )),
        }
        let data = store::data_folder();
        match sweep_folders(&data) {
            Ok(0) => {}
            Ok(_) => state
                .watcher
                .doing("removed the stores' data that a killed floodmark left"),
            Err(error) => state.watcher.trouble(&format!(
                "the stores' data that a killed floodmark left is still there: {}: {error}",
                data.display()
            )),
        }
    }

    /// Measures all trials in turn, each time on fresh processes; the load process's failure, which ends it.
    fn rounds(
        &self,
        state: &mut State<'a, '_>,
    ) -> Result<Option<crate::worker::WorkerFailure>, LabError> {
        for process in 1..=self.experiment.processes {
            for trial in &self.experiment.trials {
                if self.stop.is_set() {
                    return Ok(None);
                }
                if state.out.contains(trial.name.as_str()) || self.is_whole(trial, process) {
                    continue;
                }
                let failure = self.one_process(trial, process, state)?;
                if failure.is_some() {
                    return Ok(failure);
                }
            }
        }
        Ok(None)
    }

    /// Whether a trial's process was measured before.
    fn is_whole(&self, trial: &Trial, process: u32) -> bool {
        let of = (trial.name.clone(), process);
        self.earlier
            .is_some_and(|earlier| earlier.whole.contains(&of))
    }

    /// Starts a trial's server, measures it as often as asked, and stops it.
    fn one_process(
        &self,
        trial: &'a Trial,
        process: u32,
        state: &mut State<'a, '_>,
    ) -> Result<Option<crate::worker::WorkerFailure>, LabError> {
        let name = format!("{}-{process}", trial.name);
        let hosts = match Hosts::of(&trial.at) {
            Ok(hosts) => hosts,
            Err(Refused::Machine(what)) => {
                state.leave_out(trial);
                state.skip(format!("{} is skipped: {what}", trial.name))?;
                return Ok(None);
            }
            Err(Refused::Wrong(what)) => {
                state.leave_out(trial);
                state.fail(format!("{}: {what}", trial.place))?;
                return Ok(None);
            }
        };
        let filler = self.filler(trial, &hosts);
        let started = self.stand(trial, &name, &hosts, &filler, state);
        let (mut running, mut standing) = match started {
            Ok(both) => both,
            Err(ended) => {
                if let Ended::Failed(what) = ended {
                    state.leave_out(trial);
                    state.fail(what)?;
                }
                return Ok(None);
            }
        };
        let mut failure = None;
        if let Some(fault) = running.fault(trial, &hosts) {
            state.leave_out(trial);
            let what = format!(
                "{} is not measured, for it answers wrongly: {fault}",
                trial.name
            );
            state.fail(what)?;
        } else {
            let up = Up {
                hosts: &hosts,
                running: &mut running,
                standing: standing.as_mut(),
            };
            failure = measure::measure(self, trial, process, up, state)?;
        }
        let store = trial.at.store.as_ref().map_or("", |behind| behind.name());
        // The server first: it would only complain that its store is gone.
        let forced = [
            running.stop(self.stop),
            standing.and_then(|standing| standing.stop(store, self.stop)),
        ];
        for what in forced.into_iter().flatten() {
            state.watcher.trouble(&format!("{}: {what}", trial.name));
            state.folder.append(&Event::Missing {
                missing: vec![what],
            })?;
        }
        Ok(failure)
    }

    /// Starts the store of a trial, where it has one, and then its server.
    fn stand(
        &self,
        trial: &Trial,
        name: &str,
        hosts: &Hosts,
        filler: &Filler,
        state: &State<'_, '_>,
    ) -> Result<(Running, Option<Standing>), Ended> {
        let places = |name: String| state.places(&name);
        let data = store::data_folder();
        let standing = match &trial.at.store {
            None => None,
            Some(behind) => {
                let around = Around {
                    places: places(format!("{name}-store")),
                    data: &data,
                    floodmark: &self.floodmark,
                };
                let standing = Standing::start(behind, hosts, filler.clone(), around, self.stop);
                Some(standing.map_err(|ended| ended.of(&trial.name))?)
            }
        };
        let reached = standing.as_ref().map(|standing| standing.reached.as_str());
        let running = self.serve(
            trial,
            hosts,
            filler.clone(),
            reached,
            places(name.to_owned()),
        );
        running.map(|running| (running, standing))
    }

    /// Starts the server of a trial before a store that stands.
    fn serve(
        &self,
        trial: &Trial,
        hosts: &Hosts,
        mut filler: Filler,
        reached: Option<&str>,
        places: Places<'_>,
    ) -> Result<Running, Ended> {
        filler.set("store", reached.unwrap_or("none"));
        if let Server::System(system) = &trial.server {
            system.fill(&trial.setting, &mut filler);
        }
        Running::start(trial, hosts, filler, places, self.stop)
    }

    /// What placeholders stand for in the commands of a trial, but for the port and the folder.
    fn filler(&self, trial: &Trial, hosts: &Hosts) -> Filler {
        let mut filler = Filler::default();
        filler.set("host", hosts.address.to_string());
        filler.set("floodmark", self.floodmark.display().to_string());
        let half = (cpu::allowed(&Root::host()) / 2).max(1).to_string();
        let threads = hosts.server_cpus.map_or(half, |cpus| cpus.to_string());
        filler.set("threads", threads);
        filler.set(
            "workload",
            trial.workload.map_or("", |workload| workload.name()),
        );
        filler
    }
}
