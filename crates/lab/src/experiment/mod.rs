//! Runs an experiment: builds and starts its systems, loads them in rounds, stops them, and records
//! the results. An experiment with crash rounds also crashes and restarts them.
//!
//! A failure affects only the trial in which it occurs.

mod build;
mod client;
mod crash;
mod gate;
mod hosts;
mod measurement;
mod program;
mod resume;
mod server;
mod trial_schedule;
mod tuning;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use floodmark_host::{Cpus, Stop, open_files, sweep, sweep_directories};
use floodmark_observe::{Root, cpu};
use floodmark_plan::{FileError, PlanSpec, Planned, plan, target};
use floodmark_record::experiment::Resumed;
use floodmark_record::gate::GateResult;
use floodmark_record::host::ToolInfo;
use floodmark_record::tuning::{Tuning, TuningStep};
use floodmark_record::{Event, Record};

use crate::attempt;
use crate::directory::{Directory, own_temporary};
use crate::manifest::{Experiment, Filler, Trial};
use floodmark_workers::WorkerFailure;
use measurement::TrialProcess;
use program::{ProgramPaths, StartOrder};
use server::check_response;

pub use client::ExternalClient;
pub use crash::with_crash_load;
pub(crate) use gate::AUTO_WARMUP;
pub use hosts::{PlacementError, TrialHosts};
pub use resume::EarlierResult;
pub use server::LISTENING;
pub use trial_schedule::{ScheduleProgress, TrialSchedule};

/// Directory for leases, inside the temporary directory.
const LEASES: &str = "leases";
/// Directory for store data, inside the temporary directory.
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

/// Plans a trial's load on the server at this address.
///
/// # Errors
/// The trial cannot be planned. The error message is a single line.
fn plan_trial(trial: &Trial, hosts: &TrialHosts, server: SocketAddr) -> Result<Planned, String> {
    let spec = trial.spec(hosts.client.cpus.as_ref().map(Cpus::count));
    plan_spec(&spec, hosts, &trial.url(server))
}

/// Plans a trial's load on the server with this host and port, which is not running yet. The plan
/// shows only whether the settings are valid ([`PlanSpec::is_offline`]).
///
/// # Errors
/// The trial cannot be planned. The error message is a single line.
pub fn plan_offline(
    trial: &Trial,
    hosts: &TrialHosts,
    server: impl Display,
) -> Result<Planned, String> {
    let spec = PlanSpec {
        is_offline: true,
        ..trial.spec(hosts.client.cpus.as_ref().map(Cpus::count))
    };
    plan_spec(&spec, hosts, &trial.url(server))
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

/// Receives the events and the progress of an experiment.
pub trait ExperimentListener {
    /// Called with each event.
    fn on_event(&mut self, event: &Event);
    /// Called with a one-line message when a step begins.
    fn on_step(&mut self, step: &str);
    /// Called with a one-line message when something fails.
    fn on_problem(&mut self, problem: &str);
    /// Called when the rest of a trial is skipped.
    fn on_trial_skipped(&mut self, trial: &str);
    /// Called with the state of the experiment's gate after each pair for which a ratio was
    /// computed.
    fn on_gate(&mut self, _gate: &GateResult) {}
    /// Called before each server process of a tuning run.
    fn on_next(&mut self, _next: &TuningStep) {}
    /// Called with the result of a tuning run so far, after each server process.
    fn on_tuned(&mut self, _tuning: &Tuning) {}
}

/// Runs an experiment, or a tuning run as returned by [`Experiment::tuned`].
pub struct ExperimentRunner<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// Version and command line of the running floodmark.
    pub tool: ToolInfo,
    /// Path of the running executable.
    pub floodmark: PathBuf,
    /// The result to resume, if any.
    pub earlier: Option<&'a EarlierResult>,
    /// Time limit of a tuning run, excluding builds; `None` without a limit. A process that would
    /// probably exceed the limit is not started.
    pub budget: Option<Duration>,
    /// Stop flag that ends the experiment early.
    pub stop: &'a Stop,
}

impl ExperimentRunner<'_> {
    /// Runs the experiment and writes its result to a directory. The result of an interrupted
    /// experiment contains the measurements so far. The experiment ends after the first run whose
    /// events cannot be written to the directory.
    ///
    /// # Errors
    /// The directory cannot be read, or there is no temporary directory. Failures of workers and
    /// servers are part of the outcome.
    pub fn run(
        &self,
        directory: &mut Directory,
        listener: &mut dyn ExperimentListener,
    ) -> Result<ExperimentOutcome, FileError> {
        let temporary = own_temporary()?;
        match self.earlier {
            None => {
                attempt::open(directory, self.tool.clone());
                directory.append(&Event::Experiment(self.experiment.description.clone()));
            }
            Some(earlier) => directory.append(&Event::Resumed(Resumed {
                tool: self.tool.clone(),
                unix_ms: attempt::unix_ms(),
                anew: earlier.incomplete.clone(),
            })),
        }
        let mut running = RunningExperiment {
            runner: self,
            directory: &mut *directory,
            listener,
            leases: temporary.join(LEASES),
            temporary,
            left_out: BTreeSet::new(),
            failures: Vec::new(),
        };
        running.clean_up();
        running.prepare();
        let about = &self.experiment.description;
        let failure = match (&about.gate, &about.tuning) {
            (Some(rules), _) => running.measure_pairs(rules)?,
            (None, Some(tuning)) => running.tune(tuning)?,
            (None, None) => running.rounds(),
        };
        let failures = running.failures;
        let (record, worker_failure) = attempt::finish(directory, failure)?;
        Ok(ExperimentOutcome {
            record,
            failures,
            worker_failure,
        })
    }

    /// Returns the values of all placeholders in a trial's commands, except the port and the run
    /// directory.
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

/// A running experiment.
struct RunningExperiment<'a> {
    runner: &'a ExperimentRunner<'a>,
    directory: &'a mut Directory,
    listener: &'a mut dyn ExperimentListener,
    /// Temporary directory of the current user.
    temporary: PathBuf,
    /// Directory for the leases of running programs.
    leases: PathBuf,
    /// Names of skipped trials.
    left_out: BTreeSet<String>,
    /// One-line messages about failures.
    failures: Vec<String>,
}

impl RunningExperiment<'_> {
    /// Measures all trials in rounds, with fresh processes in each round. If a worker fails, ends
    /// the experiment and returns the failure.
    fn rounds(&mut self) -> Option<WorkerFailure> {
        let (experiment, earlier) = (self.runner.experiment, self.runner.earlier);
        for process in 1..=experiment.description.processes {
            for trial in &experiment.trials {
                if self.must_stop() {
                    return None;
                }
                let is_known = |earlier: &EarlierResult| earlier.contains(&trial.name, process);
                if self.left_out.contains(&trial.name) || earlier.is_some_and(is_known) {
                    continue;
                }
                let failure = self.measure_process(trial, process);
                if failure.is_some() {
                    return failure;
                }
            }
        }
        None
    }

    /// Returns whether the experiment was interrupted, or its directory cannot be written.
    fn must_stop(&self) -> bool {
        self.runner.stop.is_set() || self.directory.failure().is_some()
    }

    /// Starts a trial's server, measures it and stops it.
    fn measure_process(&mut self, trial: &Trial, process: u32) -> Option<WorkerFailure> {
        let hosts = self.hosts(trial)?;
        if let Some(settings) = &self.runner.experiment.description.crash {
            return self.crash_rounds(trial, &hosts, settings);
        }
        let mut process = self.begin_process(trial, process, &hosts)?;
        let failure = self.measure(&mut process);
        self.end_process(process);
        failure
    }

    /// Creates a trial's hosts. If this is not possible, records why and skips the trial.
    fn hosts(&mut self, trial: &Trial) -> Option<TrialHosts> {
        match TrialHosts::create(&trial.at) {
            Ok(hosts) => Some(hosts),
            Err(PlacementError::Unsupported(what)) => {
                self.leave_out(trial);
                self.skip(format!("{} skipped: {what}", trial.name));
                None
            }
            Err(PlacementError::Invalid(what)) => {
                self.fail_trial(trial, format!("{}: {what}", trial.place));
                None
            }
        }
    }

    /// Starts a trial's server and its store, if any, and checks the server's response. Returns
    /// `None` after a failure or an interruption.
    fn begin_process<'b>(
        &mut self,
        trial: &'b Trial,
        process: u32,
        hosts: &'b TrialHosts,
    ) -> Option<TrialProcess<'b>> {
        let name = format!("{}-{process}", trial.name);
        let (server, store, tls) = match self.start(trial, &name, StartOrder::First, hosts) {
            Ok(started) => started,
            Err(StepError::Failed(what)) => {
                self.fail_trial(trial, what);
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
        let earlier = self.runner.earlier;
        let reached = (hosts, tls.as_ref());
        if let Err(what) = check_response(&mut process.server, trial, reached, earlier) {
            self.fail_trial(trial, what);
            self.end_process(process);
            return None;
        }
        Some(process)
    }

    /// Stops a trial's server and its store, if any.
    fn end_process(&mut self, process: TrialProcess<'_>) {
        let (server, store) = (Some(process.server), process.store);
        for what in self.stop_programs(process.trial, server, store) {
            self.directory.append(&Event::Missing {
                missing: vec![what],
            });
        }
    }

    /// Returns the paths of a program's files.
    fn paths(&self, name: &str) -> ProgramPaths<'_> {
        // Use absolute paths, because programs run in other directories.
        let result = std::path::absolute(self.directory.path());
        let result = result.unwrap_or_else(|_| self.directory.path().to_owned());
        ProgramPaths {
            log: result.join(format!("{name}.log")),
            run: result.join(name),
            leases: &self.leases,
        }
    }

    /// Skips the rest of a trial.
    fn leave_out(&mut self, trial: &Trial) {
        if self.left_out.insert(trial.name.clone()) {
            self.listener.on_trial_skipped(&trial.name);
        }
    }

    /// Records that something was skipped, which does not count as a failure.
    fn skip(&mut self, what: String) {
        self.record_skip(what, false);
    }

    fn record_skip(&mut self, what: String, failed: bool) {
        self.listener.on_problem(&what);
        self.directory.append(&Event::Skipped { what, failed });
    }

    /// Records a failure.
    fn fail(&mut self, what: String) {
        self.failures.push(what.clone());
        self.record_skip(what, true);
    }

    /// Records a failure and skips the rest of the trial.
    fn fail_trial(&mut self, trial: &Trial, what: String) {
        self.leave_out(trial);
        self.fail(what);
    }

    /// Ends processes and removes data that were left behind by a killed floodmark process.
    fn clean_up(&mut self) {
        match sweep(&self.leases) {
            Ok(ended) if ended.is_empty() => {}
            Ok(ended) => self.listener.on_step(&format!(
                "ended {} left behind by a killed floodmark process",
                match ended.len() {
                    1 => "1 process".to_owned(),
                    n => format!("{n} processes"),
                }
            )),
            Err(error) => self.listener.on_problem(&format!(
                "cannot end processes left behind by a killed floodmark process: {}: {error}",
                self.leases.display()
            )),
        }
        let data = self.temporary.join(STORE_DATA);
        match sweep_directories(&data) {
            Ok(0) => {}
            Ok(_) => self
                .listener
                .on_step("removed store data left behind by a killed floodmark process"),
            Err(error) => self.listener.on_problem(&format!(
                "cannot remove store data left behind by a killed floodmark process: {}: {error}",
                data.display()
            )),
        }
    }
}

/// Returns the default value of {threads}: the number of the server's own CPUs, or half the CPUs if
/// the server has no dedicated CPUs.
#[must_use]
pub fn default_threads(hosts: &TrialHosts) -> u32 {
    match &hosts.server.cpus {
        Some(cpus) => cpus.count(),
        None => (cpu::allowed(&Root::host()) / 2).max(1),
    }
}
