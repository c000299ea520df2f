//! The server and the store of a trial with crash rounds.

use std::io;
use std::time::Duration;

use floodmark_check::FoundItems;
use floodmark_host::{ProcessSet, Signal};
use floodmark_observe::{Root, family};
use floodmark_plan::Planned;
use floodmark_record::crash::{CrashSettings, CrashSignal, CrashTarget};
use floodmark_record::units::show_duration;

use crate::experiment::program::RunningProgram;
use crate::experiment::store::StoreInstance;
use crate::experiment::{ExperimentRunner, ExperimentState, StepError, TrialHosts, server};
use crate::manifest::Trial;
use crate::readback::SetReader;

/// Maximum time until killed processes have ended.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The processes of a trial with crash rounds.
pub(super) struct CrashProcesses<'a, 'b> {
    pub(super) runner: &'b ExperimentRunner<'a>,
    /// The trial, with the port on which its server listens.
    pub(super) trial: &'b Trial,
    pub(super) hosts: &'b TrialHosts,
    pub(super) settings: &'b CrashSettings,
    pub(super) planned: &'b Planned,
    /// Name of the server's log and run folder.
    pub(super) name: &'b str,
    /// The server; `None` while it is down.
    pub(super) server: Option<RunningProgram>,
    pub(super) store: Option<StoreInstance>,
    /// A problem that does not end the round. It is reported after the round.
    pub(super) problem: Option<String>,
    /// Current part of the round, for messages.
    pub(super) phase: &'static str,
}

/// Stopped processes. Dropping this value resumes them.
pub(super) struct StoppedProcesses(ProcessSet);

impl StoppedProcesses {
    /// Resumes the processes.
    pub(super) fn resume(self) -> Result<(), StepError> {
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
    /// Returns the program that fails.
    fn target(&self) -> Option<&RunningProgram> {
        match self.settings.kill {
            CrashTarget::Server => self.server.as_ref(),
            CrashTarget::Store => self.store.as_ref()?.program.as_ref(),
        }
    }

    /// Opens the program that fails, and all its descendants. Some databases start each process in a
    /// group of its own, so a signal to the program's group does not reach them.
    fn targets(&self) -> Result<ProcessSet, StepError> {
        let pid = self.target().map(RunningProgram::pid);
        let pids = pid
            .map(|pid| family(&Root::host(), pid))
            .unwrap_or_default();
        ProcessSet::open(&pids).map_err(|error| unsignaled("find", &error))
    }

    /// Stops the program that fails, and its descendants.
    pub(super) fn stop(&self) -> Result<StoppedProcesses, StepError> {
        let stopped = StoppedProcesses(self.targets()?);
        let signaled = stopped.0.signal(Signal::STOP);
        signaled.map_err(|error| unsignaled("stop", &error))?;
        Ok(stopped)
    }

    /// Ends the program that fails, and its descendants, with the signal of the experiment.
    pub(super) fn end(&mut self) -> Result<(), StepError> {
        let targets = self.targets()?;
        let signal = match self.settings.signal {
            CrashSignal::Term => Signal::TERM,
            CrashSignal::Kill | CrashSignal::Stop => Signal::KILL,
        };
        // Stopping the program sends SIGTERM. A second SIGTERM could end a clean shutdown.
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
        let killed = program.and_then(|program| program.stop(name, self.runner.stop));
        if let Some(what) = killed.filter(|_| signal == Signal::TERM) {
            self.problem = Some(format!("{}: {what}", self.trial.name));
        }
        // Descendants that outlive the program would keep its port.
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

    /// Starts the ended program again. A store must accept connections; the load shows when a server
    /// is ready.
    pub(super) fn restart(&mut self, state: &ExperimentState<'_, '_>) -> Result<(), StepError> {
        match (self.settings.kill, &mut self.store, &self.trial.at.store) {
            (CrashTarget::Store, Some(store), Some(behind)) => {
                let paths = state.paths(&format!("{}-store", self.name));
                let Some(program) = behind.started() else {
                    return Ok(());
                };
                store
                    .restart(program, self.hosts, paths, self.runner.stop)
                    .map_err(|error| error.of(&self.trial.name))
            }
            _ => {
                let store = self.store.as_ref().map(|store| &*store.reached);
                let spec = server::spec(self.runner, self.trial, self.hosts, store);
                self.server = Some(spec.restart(state.paths(self.name))?);
                Ok(())
            }
        }
    }

    /// Reads all items of the set that the plan checks. `sent` is an upper bound on the number of
    /// items sent. Returns `None` for other checks.
    pub(super) fn items(&self, sent: u64) -> Result<Option<FoundItems>, StepError> {
        let stop = self.runner.stop;
        let flag = stop.flag();
        let Some(set) = SetReader::of(&self.hosts.client, &self.planned.plan, &flag) else {
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

    /// Describes a process that has exited. Returns `None` if all processes are running.
    pub(super) fn exit(&mut self) -> Option<String> {
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
        let store = self
            .trial
            .at
            .store
            .as_ref()
            .map_or("", |store| store.name());
        Some(format!("{name}: the store {store} exited {phase} {exit}"))
    }

    /// Describes a server that does not answer after a restart.
    pub(super) fn not_recovered(&mut self, within: Duration) -> String {
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
