//! Runs an experiment: builds and starts its systems, loads them in rounds, stops them, and records
//! the results. An experiment with crash rounds also crashes and restarts them.
//!
//! A failure affects only the trial in which it occurs.

mod build;
mod child;
mod client;
mod counter;
mod crash;
mod delay_proxy;
mod gate;
mod hosts;
mod measurement;
mod prerequisites;
mod program;
mod proof;
mod resume;
mod server;
mod state;
mod store;
mod trial_schedule;
mod tuning;

use std::collections::BTreeSet;
use std::path::PathBuf;

use floodmark_host::{Cpus, Stop, open_files, sweep, sweep_folders};
use floodmark_observe::{Root, cpu};
use floodmark_plan::{FileError, PlanSpec, Planned, plan, target};
use floodmark_record::experiment::Resumed;
use floodmark_record::host::ToolInfo;
use floodmark_record::{Event, Record};

use crate::attempt;
use crate::folder::{Folder, own_temporary};
use crate::manifest::{Experiment, Filler, Trial};
use floodmark_workers::WorkerFailure;
use measurement::TrialProcess;
use program::{RunningProgram, StartOrder};
use state::ExperimentState;
use store::StoreInstance;

pub use client::ExternalClient;
pub use crash::with_crash_load;
pub use delay_proxy::LISTENING;
pub use hosts::{PlacementError, TrialHosts};
pub use resume::EarlierResult;
pub use state::ExperimentListener;
pub use trial_schedule::{ScheduleProgress, TrialSchedule};
pub use tuning::{TuningListener, TuningRunner};

/// Folder for leases, inside the temporary folder.
const LEASES: &str = "leases";
/// Folder for store data, inside the temporary folder.
const STORE_DATA: &str = "stores";

/// Why a step was not completed.
#[derive(Debug)]
enum StepError {
    /// floodmark was interrupted.
    Interrupted,
    /// The step failed, with a message.
    Failed(String),
}

impl From<String> for StepError {
    fn from(what: String) -> Self {
        StepError::Failed(what)
    }
}

impl StepError {
    /// Adds a prefix to the message.
    fn of(self, prefix: &str) -> Self {
        match self {
            StepError::Failed(what) => StepError::Failed(format!("{prefix}: {what}")),
            StepError::Interrupted => StepError::Interrupted,
        }
    }
}

/// Plans a trial's load on the trial's hosts. `url` is the server's URL.
///
/// # Errors
/// The trial cannot be planned. The error message is a single line.
pub fn plan_trial(trial: &Trial, hosts: &TrialHosts, url: &str) -> Result<Planned, String> {
    let spec = trial.spec(hosts.client.cpus.as_ref().map(Cpus::count));
    plan_spec(&spec, hosts, url)
}

/// Plans a load on a trial's hosts.
fn plan_spec(spec: &PlanSpec, hosts: &TrialHosts, url: &str) -> Result<Planned, String> {
    let resolved = target::resolve(url, spec).map_err(|error| error.to_string())?;
    // The client raises its soft limit on open files to the hard limit.
    let open_files = Some(open_files().hard);
    // Read the ports and kernel settings of the client's network.
    hosts
        .client
        .within(|| plan(spec, resolved, open_files))
        .map_err(|error| error.to_string())?
        .map_err(|error| format!("load: {error}"))
}

/// Result of an experiment.
#[derive(Debug)]
pub struct ExperimentOutcome {
    /// The record.
    pub record: Record,
    /// One-line messages about failures.
    pub failures: Vec<String>,
    /// Why the worker failed, if it did. The record then contains everything measured before.
    pub worker_failure: Option<String>,
}

/// Runs an experiment.
pub struct ExperimentRunner<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// Version and command line of the running floodmark.
    pub tool: ToolInfo,
    /// Path of the running executable.
    pub floodmark: PathBuf,
    /// The result to resume, if any.
    pub earlier: Option<&'a EarlierResult>,
    /// Ends the experiment early.
    pub stop: &'a Stop,
}

impl<'a> ExperimentRunner<'a> {
    /// Runs the experiment into a folder. An interrupted experiment keeps its measurements. The
    /// experiment ends after the first run that cannot write to the folder.
    ///
    /// # Errors
    /// The folder cannot be read, or there is no temporary folder. Failures of workers and servers
    /// are part of the outcome.
    pub fn run(
        &self,
        folder: &mut Folder,
        listener: &mut dyn ExperimentListener,
    ) -> Result<ExperimentOutcome, FileError> {
        let temporary = own_temporary()?;
        match self.earlier {
            None => {
                attempt::open(folder, self.tool.clone());
                folder.append(&Event::Experiment(self.experiment.description.clone()));
            }
            Some(earlier) => folder.append(&Event::Resumed(Resumed {
                tool: self.tool.clone(),
                unix_ms: attempt::unix_ms(),
                anew: earlier.incomplete.clone(),
            })),
        }
        let mut state = ExperimentState {
            folder,
            listener,
            leases: temporary.join(LEASES),
            temporary,
            left_out: BTreeSet::new(),
            failures: Vec::new(),
        };
        clean_up(&mut state);
        prerequisites::prepare(self, &mut state);
        let failure = match &self.experiment.description.gate {
            None => self.rounds(&mut state),
            Some(rules) => gate::measure_pairs(self, rules, &mut state)?,
        };
        let failures = state.failures;
        let (record, worker_failure) = attempt::finish(folder, failure)?;
        Ok(ExperimentOutcome {
            record,
            failures,
            worker_failure,
        })
    }

    /// Measures all trials in rounds, with fresh processes in each round. If a worker fails, ends
    /// the experiment and returns the failure.
    fn rounds(&self, state: &mut ExperimentState<'a, '_>) -> Option<WorkerFailure> {
        for process in 1..=self.experiment.description.processes {
            for trial in &self.experiment.trials {
                if self.stop.is_set() || state.folder.failure().is_some() {
                    return None;
                }
                let is_known = |earlier: &EarlierResult| earlier.contains(&trial.name, process);
                if state.left_out.contains(&*trial.name) || self.earlier.is_some_and(is_known) {
                    continue;
                }
                let failure = self.measure_process(trial, process, state);
                if failure.is_some() {
                    return failure;
                }
            }
        }
        None
    }

    /// Starts a trial's server, measures it and stops it.
    fn measure_process(
        &self,
        trial: &'a Trial,
        process: u32,
        state: &mut ExperimentState<'a, '_>,
    ) -> Option<WorkerFailure> {
        let hosts = hosts(trial, state)?;
        if let Some(settings) = &self.experiment.description.crash {
            return crash::run(self, trial, &hosts, settings, state);
        }
        let mut process = self.begin_process(trial, process, &hosts, state)?;
        let failure = measurement::measure(self, &mut process, state);
        self.end_process(process, state);
        failure
    }

    /// Starts a trial's server and its store, if any, and checks the server's response. Returns
    /// `None` after a failure or an interruption.
    fn begin_process<'b>(
        &self,
        trial: &'a Trial,
        process: u32,
        hosts: &'b TrialHosts,
        state: &mut ExperimentState<'a, '_>,
    ) -> Option<TrialProcess<'a, 'b>> {
        let name = format!("{}-{process}", trial.name);
        let (server, store) = match self.start(trial, &name, StartOrder::First, hosts, state) {
            Ok(started) => started,
            Err(StepError::Failed(what)) => {
                state.fail_trial(trial, what);
                return None;
            }
            Err(StepError::Interrupted) => return None,
        };
        let mut process = TrialProcess {
            trial,
            process,
            hosts,
            server,
            store,
        };
        if let Some(fault) = server::response_fault(&mut process.server, trial, hosts) {
            let what = format!("{}: unexpected response: {fault}", trial.name);
            state.fail_trial(trial, what);
            self.end_process(process, state);
            return None;
        }
        Some(process)
    }

    /// Stops a trial's server and its store, if any.
    fn end_process(&self, process: TrialProcess<'a, '_>, state: &mut ExperimentState<'a, '_>) {
        let TrialProcess {
            trial,
            server,
            store,
            ..
        } = process;
        let store_name = trial.at.store.as_ref().map_or("", |behind| behind.name());
        // Stop the server first, so that it does not log the loss of its store.
        let killed = [
            server.stop("the server", self.stop),
            store.and_then(|store| store.stop(store_name, self.stop)),
        ];
        for what in killed.into_iter().flatten() {
            state
                .listener
                .on_problem(&format!("{}: {what}", trial.name));
            state.folder.append(&Event::Missing {
                missing: vec![what],
            });
        }
    }

    /// Starts a trial's store, if any, and then its server. `order` is that of the server.
    fn start(
        &self,
        trial: &Trial,
        name: &str,
        order: StartOrder,
        hosts: &TrialHosts,
        state: &ExperimentState<'_, '_>,
    ) -> Result<(RunningProgram, Option<StoreInstance>), StepError> {
        let data = state.temporary.join(STORE_DATA);
        let store = trial.at.store.as_ref().map(|behind| {
            let paths = state.paths(&format!("{name}-store"));
            let filler = self.filler(trial, hosts);
            StoreInstance::start(self, behind, hosts, filler, paths, &data)
                .map_err(|error| error.of(&trial.name))
        });
        let store = store.transpose()?;
        let reached = store.as_ref().map(|store| &*store.reached);
        let server = server::start(self, trial, hosts, reached, state.paths(name), order)?;
        Ok((server, store))
    }

    /// Returns the values of all placeholders in a trial's commands, except the port and the
    /// folder.
    fn filler(&self, trial: &Trial, hosts: &TrialHosts) -> Filler {
        let mut filler = Filler::default();
        filler.set("host", hosts.address.to_string());
        filler.set("floodmark", self.floodmark.display().to_string());
        filler.set("threads", default_threads(hosts).to_string());
        let workload = trial.workload.map_or("", |workload| workload.name());
        filler.set("workload", workload);
        filler
    }
}

/// Creates a trial's hosts, or skips or fails the trial.
fn hosts<'a>(trial: &'a Trial, state: &mut ExperimentState<'a, '_>) -> Option<TrialHosts> {
    match TrialHosts::create(&trial.at) {
        Ok(hosts) => Some(hosts),
        Err(PlacementError::Unsupported(what)) => {
            state.leave_out(trial);
            state.skip(format!("{} skipped: {what}", trial.name));
            None
        }
        Err(PlacementError::Invalid(what)) => {
            state.fail_trial(trial, format!("{}: {what}", trial.place));
            None
        }
    }
}

/// Returns the default value of {threads}: the number of the server's own CPUs, or half the CPUs.
#[must_use]
pub fn default_threads(hosts: &TrialHosts) -> u32 {
    match &hosts.server.cpus {
        Some(cpus) => cpus.count(),
        None => (cpu::allowed(&Root::host()) / 2).max(1),
    }
}

/// Ends processes and removes data that were left behind when floodmark was killed.
fn clean_up(state: &mut ExperimentState<'_, '_>) {
    match sweep(&state.leases) {
        Ok(ended) if ended.is_empty() => {}
        Ok(ended) => state.listener.on_step(&format!(
            "ended {} left behind when floodmark was killed",
            match ended.len() {
                1 => "1 process".to_owned(),
                n => format!("{n} processes"),
            }
        )),
        Err(error) => state.listener.on_problem(&format!(
            "cannot end processes left behind when floodmark was killed: {}: {error}",
            state.leases.display()
        )),
    }
    let data = state.temporary.join(STORE_DATA);
    match sweep_folders(&data) {
        Ok(0) => {}
        Ok(_) => state
            .listener
            .on_step("removed store data left behind when floodmark was killed"),
        Err(error) => state.listener.on_problem(&format!(
            "cannot remove store data left behind when floodmark was killed: {}: {error}",
            data.display()
        )),
    }
}
