//! Crash rounds of a trial (docs/decisions/0029-crash-rounds.md).
//!
//! All rounds share one durable state: the store, and the server's run directory. Each round starts
//! with the state that the previous round left behind.

mod load;
mod round;

use std::io;
use std::time::Duration;

use floodmark_check::{ApiState, FoundItems};
use floodmark_host::{ProcessSet, Signal};
use floodmark_observe::{Root, family};
use floodmark_plan::Planned;
use floodmark_record::Event;
use floodmark_record::crash::{CrashBegan, CrashRound, CrashSettings, CrashSignal, CrashTarget};
use floodmark_record::plan::Plan;
use floodmark_record::units::{show_count, show_duration};

use super::program::{RunningProgram, StartOrder, restartable_address, within};
use super::server::{StoreInstance, check_response};
use super::{RunningExperiment, StepError, TrialHosts, plan_trial};
use crate::attempt::unix_ms;
use crate::manifest::Trial;
use crate::readback::SetReader;
use floodmark_workers::WorkerFailure;
use round::{NextRound, RoundError};

/// Length of a round's load. floodmark ends the load earlier, once the server has recovered.
const LOAD_LENGTH: Duration = Duration::from_secs(3600);

/// Maximum number of losses per trial to show while the rounds are running.
const LOSSES_SHOWN: u32 = 3;

/// Number of rounds between two progress messages.
const PROGRESS_EVERY: u32 = 10;

/// Maximum number of requests per second that a load sends.
const MAX_RATE_PER_S: f64 = 1e6;

/// Maximum time in seconds for which a round sends requests, excluding the warm-up, the time until
/// the signal, the pause of a stopped server, and the restart.
const REST_OF_ROUND_S: f64 = 10.0;

/// Upper bound on the number (`{seq}`) of the first request. JSON numbers are exact below 2⁵³.
const MAX_NUMBER: u64 = 1 << 52;

/// Maximum time to wait for killed processes to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns a trial whose load lasts until floodmark ends it.
#[must_use]
pub fn with_crash_load(trial: &Trial) -> Trial {
    let mut trial = trial.clone();
    trial.load.duration = Some(LOAD_LENGTH);
    trial
}

impl RunningExperiment<'_> {
    /// Runs the crash rounds of a trial, except those that the earlier result already contains.
    pub(super) fn crash_rounds(
        &mut self,
        trial: &Trial,
        hosts: &TrialHosts,
        settings: &CrashSettings,
    ) -> Option<WorkerFailure> {
        let failed = match self.try_crash_rounds(trial, hosts, settings) {
            Ok(()) | Err(RoundError::Step(StepError::Interrupted)) => return None,
            Err(RoundError::Worker(failure)) => return Some(failure),
            Err(RoundError::LoadEnded) => format!("{}: the load ended too early", trial.name),
            Err(RoundError::Step(StepError::Failed(what))) => what,
        };
        self.fail_trial(trial, failed);
        None
    }

    fn try_crash_rounds(
        &mut self,
        trial: &Trial,
        hosts: &TrialHosts,
        settings: &CrashSettings,
    ) -> Result<(), RoundError> {
        let own = placed(trial, hosts)?;
        let name = format!("{}-1", own.name);
        let earlier = self.runner.earlier;
        let earlier = earlier.and_then(|earlier| earlier.crash_events(&trial.name));
        // A store that floodmark starts is empty, so the state is new.
        let starts_store = (trial.at.store.as_ref()).is_some_and(|store| store.started().is_some());
        let order = match earlier {
            Some(_) if !starts_store => StartOrder::Resumed,
            _ => StartOrder::First,
        };
        let (server, store, tls) = self.start(&own, &name, order, hosts)?;
        let planned = plan_trial(&own, hosts, server.address)
            .map_err(|what| format!("{}: {what}", own.place))?;
        let mut processes = CrashProcesses {
            experiment: self,
            trial: &own,
            hosts,
            settings,
            planned: &planned,
            name: &name,
            server: Some(server),
            store,
            phase: "at the start",
        };
        if let Some(server) = &mut processes.server {
            check_response(server, &own, (hosts, tls.as_ref()), None)?;
        }
        // The set may contain items before the first round, including the items of an interrupted
        // round.
        let found = processes.items(u64::MAX)?.unwrap_or_default();
        let unused = earlier.map_or(1, |earlier| {
            let ready_within = own.server.start.ready_within();
            let skipped = numbers_per_round(settings, &planned.plan, ready_within);
            earlier.first_number().saturating_add(skipped)
        });
        let first_number = unused.max(number_after(&found)?);
        let workload = trial.workload.map(|workload| workload.name());
        let began = Event::CrashBegan(CrashBegan {
            trial: trial.name.clone(),
            system: trial.server.name.clone(),
            workload: workload.unwrap_or(&trial.path).to_owned(),
            plan: planned.plan.clone(),
            place: hosts.place.clone(),
            first_number,
            unix_ms: unix_ms(),
        });
        processes.experiment.directory.append(&began);
        let last = earlier.and_then(|earlier| earlier.rounds.last());
        let next = NextRound {
            number: last.map_or(1, |last| last.round + 1),
            is_fresh_start: true,
            earlier: last.filter(|_| !starts_store).map(|last| last.state),
            first_number,
        };
        let ran = processes.rounds(next, ApiState::with_items(found));
        let CrashProcesses { server, store, .. } = processes;
        self.stop_programs(trial, server, store);
        ran
    }
}

/// The processes of a trial with crash rounds.
struct CrashProcesses<'a, 'b> {
    experiment: &'b mut RunningExperiment<'a>,
    /// The trial, with the port on which its server listens.
    trial: &'b Trial,
    hosts: &'b TrialHosts,
    settings: &'b CrashSettings,
    planned: &'b Planned,
    /// Name of the server's log and run directory.
    name: &'b str,
    /// The server; `None` while it is down.
    server: Option<RunningProgram>,
    store: Option<StoreInstance>,
    /// Current part of the round, for messages.
    phase: &'static str,
}

/// Processes paused by SIGSTOP. Dropping this value resumes them.
struct StoppedProcesses(ProcessSet);

impl StoppedProcesses {
    /// Resumes the processes.
    fn resume(self) -> Result<(), StepError> {
        self.0
            .signal(Signal::CONT)
            .map_err(|error| unsignaled("resume", &error))
    }
}

impl Drop for StoppedProcesses {
    fn drop(&mut self) {
        let _ = self.0.signal(Signal::CONT);
    }
}

fn unsignaled(action: &str, error: &io::Error) -> StepError {
    StepError::Failed(format!(
        "cannot {action} the processes of a crash round: {error}"
    ))
}

impl CrashProcesses<'_, '_> {
    fn rounds(&mut self, mut next: NextRound, mut api: ApiState) -> Result<(), RoundError> {
        let (name, of) = (&self.trial.name, self.settings.rounds);
        let mut lost = 0;
        while next.number <= of && !self.experiment.must_stop() {
            if next.is_fresh_start || next.number.is_multiple_of(PROGRESS_EVERY) {
                let number = next.number;
                let step = format!("{name}: crash round {number} of {of}, {lost} with lost data");
                self.experiment.listener.on_step(&step);
            }
            let round = next.run(self, &mut api)?;
            next = NextRound {
                number: round.round + 1,
                is_fresh_start: false,
                earlier: Some(round.state),
                first_number: round.state.next_number,
            };
            if let Some(violation) = round.found.violations.first() {
                lost += 1;
                if lost <= LOSSES_SHOWN {
                    let number = round.round;
                    let problem = format!("{name}: crash round {number} lost data: {violation}");
                    self.experiment.listener.on_problem(&problem);
                }
            }
            self.record(round);
        }
        Ok(())
    }

    /// Records a round and syncs the events, so that complete rounds survive if floodmark is
    /// killed.
    fn record(&mut self, round: CrashRound) {
        let event = Event::CrashRound(round);
        self.experiment.directory.append(&event);
        self.experiment.directory.sync();
        self.experiment.listener.on_event(&event);
    }

    /// Returns whether each round restarts the server.
    fn restarts_server(&self) -> bool {
        self.settings.kill == CrashTarget::Server && self.settings.signal != CrashSignal::Stop
    }

    /// Opens the crash target (server or store) and all its descendants. Some databases start each
    /// process in its own group, so a signal to the target's group would not reach all processes.
    fn targets(&self) -> Result<ProcessSet, StepError> {
        let pid = match self.settings.kill {
            CrashTarget::Server => self.server.as_ref().map(RunningProgram::pid),
            CrashTarget::Store => self.store.as_ref().and_then(StoreInstance::pid),
        };
        let pids = pid.map_or_else(Vec::new, |pid| family(&Root::host(), pid));
        ProcessSet::open(&pids).map_err(|error| unsignaled("find", &error))
    }

    /// Pauses the crash target and its descendants with SIGSTOP.
    fn stop(&self) -> Result<StoppedProcesses, StepError> {
        let stopped = StoppedProcesses(self.targets()?);
        match stopped.0.signal(Signal::STOP) {
            Ok(()) => Ok(stopped),
            Err(error) => Err(unsignaled("stop", &error)),
        }
    }

    /// Ends the crash target and its descendants with the experiment's signal.
    fn end(&mut self) -> Result<(), StepError> {
        let targets = self.targets()?;
        let signal = match self.settings.signal {
            CrashSignal::Term => Signal::TERM,
            CrashSignal::Kill | CrashSignal::Stop => Signal::KILL,
        };
        // `program.stop` below sends SIGTERM. A second SIGTERM could cut a clean shutdown short.
        if signal == Signal::KILL {
            let signaled = targets.signal(signal);
            signaled.map_err(|error| unsignaled("end", &error))?;
        }
        let program = match self.settings.kill {
            CrashTarget::Server => self.server.take(),
            CrashTarget::Store => self.store.as_mut().and_then(|store| store.program.take()),
        };
        let name = self.settings.kill.name();
        // A program that ignores SIGTERM is killed, which is also a crash.
        let killed = program.and_then(|program| program.stop(name, self.experiment.runner.stop));
        if let Some(what) = killed.filter(|_| signal == Signal::TERM) {
            let problem = format!("{}: {what}", self.trial.name);
            self.experiment.listener.on_problem(&problem);
        }
        // Descendants that outlive the program could keep its port in use.
        let _ = targets.signal(Signal::KILL);
        match targets.wait(KILL_TIMEOUT) {
            Ok(true) => Ok(()),
            Ok(false) => Err(StepError::Failed(format!(
                "{}: the {name} is still running {} after SIGKILL",
                self.trial.name,
                show_duration(KILL_TIMEOUT)
            ))),
            Err(error) => Err(unsignaled("wait for", &error)),
        }
    }

    /// Restarts the crash target. If it is the store, waits until the store accepts connections.
    /// Does not wait for the server, because the load shows when the server is ready.
    fn restart(&mut self) -> Result<(), StepError> {
        let runner = self.experiment.runner;
        match (self.settings.kill, &mut self.store, &self.trial.at.store) {
            (CrashTarget::Store, Some(store), Some(behind)) => {
                let paths = self.experiment.paths(&format!("{}-store", self.name));
                let Some(program) = behind.started() else {
                    return Ok(());
                };
                store
                    .restart(program, self.hosts, paths, runner.stop)
                    .map_err(|error| error.of(&self.trial.name))
            }
            _ => {
                let store = self.store.as_ref().map(|store| &*store.reached);
                let spec = runner.server(self.trial, self.hosts, store);
                self.server = Some(spec.restart(self.experiment.paths(self.name))?);
                Ok(())
            }
        }
    }

    /// Reads all items of the set that the plan checks. `sent` is an upper bound on the number of
    /// items sent. Returns `None` if the plan does not check a set.
    fn items(&self, sent: u64) -> Result<Option<FoundItems>, StepError> {
        let stop = self.experiment.runner.stop;
        let flag = stop.flag();
        let planned = self.planned;
        let set = SetReader::of(&self.hosts.client, &planned.plan, planned, &flag);
        let Some(set) = set else {
            return Ok(None);
        };
        set.items(sent).map(Some).map_err(|why| {
            if stop.is_set() {
                StepError::Interrupted
            } else {
                StepError::Failed(format!(
                    "{}: the items could not be read back: {why}",
                    self.trial.name
                ))
            }
        })
    }

    /// Describes a server or store that has exited. Returns `None` if all processes are running.
    fn exit(&mut self) -> Option<String> {
        let (name, phase) = (&self.trial.name, self.phase);
        if let Some(server) = &mut self.server
            && let Some(status) = server.exit_status()
        {
            let last_words = server.last_words();
            return Some(format!(
                "{name}: the server exited {phase} ({status}){last_words}{}",
                port_advice(&last_words)
            ));
        }
        let exit = self.store.as_mut().and_then(StoreInstance::exit)?;
        let store = self.trial.at.store.as_ref();
        let store = store.map_or("", |store| store.name());
        Some(format!("{name}: the store {store} exited {phase} {exit}"))
    }

    /// Describes a server that does not recover after the restart.
    fn not_recovered(&mut self, within: Duration) -> String {
        let last_words = self.server.as_mut().map(RunningProgram::last_words);
        format!(
            "{}: no ok response within {} after the restart of the {}{}",
            self.trial.name,
            show_duration(within),
            self.settings.kill.name(),
            last_words.unwrap_or_default()
        )
    }
}

/// Returns advice if a program could not listen on its port again.
fn port_advice(last_words: &str) -> &'static str {
    if last_words.to_lowercase().contains("in use") {
        "; set SO_REUSEADDR in the server, so that it can listen again while old connections are in TIME_WAIT"
    } else {
        ""
    }
}

/// Returns the trial with a load for crash rounds and with a port on which its server can listen
/// again after a crash.
fn placed(trial: &Trial, hosts: &TrialHosts) -> Result<Trial, String> {
    let mut trial = with_crash_load(trial);
    if trial.port.is_none() {
        let address = within(&hosts.server, || restartable_address(hosts.address));
        let address = address.map_err(|what| format!("{}: {what}", trial.name))?;
        trial.port = Some(address.port());
    }
    Ok(trial)
}

/// Returns the maximum number of requests in a round. A resumed experiment skips that many numbers,
/// because the interrupted round may have used them.
fn numbers_per_round(settings: &CrashSettings, plan: &Plan, ready_within: Duration) -> u64 {
    let waits = plan.warmup + plan.timeout + ready_within;
    let longest_s = waits.as_secs_f64() + settings.to_s + REST_OF_ROUND_S;
    (longest_s * MAX_RATE_PER_S) as u64
}

/// Returns a number that is larger than the numbers of all items.
fn number_after(found: &FoundItems) -> Result<u64, String> {
    let largest = found.numbers.iter().max().copied().unwrap_or(0);
    match largest.checked_add(1).filter(|next| *next <= MAX_NUMBER) {
        Some(next) => Ok(next),
        None => Err(format!(
            "the set contains an item with the number {}; remove items with numbers of at least {}",
            show_count(largest),
            show_count(MAX_NUMBER)
        )),
    }
}
