//! Runs a tuning: measures one server process after the other, each with the setting that the search
//! needs next.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use floodmark_diagnose::tuning::{NextProcess, TuningState, judge};
use floodmark_host::Stop;
use floodmark_plan::FileError;
use floodmark_record::Event;
use floodmark_record::experiment::Resumed;
use floodmark_record::host::ToolInfo;
use floodmark_record::tuning::{FailedSetting, Tuning};
use floodmark_workers::WorkerFailure;

use super::{
    EarlierResult, ExperimentListener, ExperimentOutcome, ExperimentRunner, ExperimentState,
    LEASES, clean_up, prerequisites,
};
use crate::attempt;
use crate::fold::fold_with;
use crate::folder::{Folder, own_temporary};
use crate::manifest::Experiment;

/// Receives the events and the progress of a tuning.
pub trait TuningListener: ExperimentListener {
    /// Called before each server process.
    fn on_next(&mut self, next: &NextProcess);
    /// Called with the result so far, after each server process.
    fn on_tuned(&mut self, tuning: &Tuning);
}

/// Runs a tuning.
pub struct TuningRunner<'a> {
    /// The experiment, as returned by [`Experiment::tuned`].
    pub experiment: &'a Experiment,
    /// Version and command line of the running floodmark.
    pub tool: ToolInfo,
    /// Path of the running executable.
    pub floodmark: PathBuf,
    /// The result to resume, if any.
    pub earlier: Option<&'a EarlierResult>,
    /// Time limit, without the time for builds. No process starts that would probably exceed it.
    pub budget: Duration,
    /// Ends the tuning early.
    pub stop: &'a Stop,
}

impl TuningRunner<'_> {
    /// Runs the tuning into a folder. An interrupted tuning keeps its measurements.
    ///
    /// # Errors
    /// The folder cannot be read, or there is no temporary folder. Failures of workers and servers
    /// are part of the outcome.
    pub fn run(
        &self,
        folder: &mut Folder,
        listener: &mut dyn TuningListener,
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
        let mut session = TuningSession {
            runner: ExperimentRunner {
                experiment: self.experiment,
                tool: self.tool.clone(),
                floodmark: self.floodmark.clone(),
                earlier: None,
                stop: self.stop,
            },
            temporary,
            failures: Vec::new(),
        };
        let mut worker_failure = None;
        if session.prepare(folder, listener) {
            worker_failure = self.search(&mut session, folder, listener)?;
        }
        let (record, worker_failure) = attempt::finish(folder, worker_failure)?;
        Ok(ExperimentOutcome {
            record,
            failures: session.failures,
            worker_failure,
        })
    }

    /// Measures processes until the search is complete or the time is up.
    fn search(
        &self,
        session: &mut TuningSession<'_>,
        folder: &mut Folder,
        listener: &mut dyn TuningListener,
    ) -> Result<Option<WorkerFailure>, FileError> {
        let Some(tuning) = &self.experiment.description.tuning else {
            return Ok(None);
        };
        let begin = Instant::now();
        let mut longest = Duration::ZERO;
        loop {
            let record = fold_with(folder.path(), folder.unsaved())?;
            let failed = record.tuning.iter().flat_map(|tuning| &tuning.failed);
            let state = TuningState {
                failed: failed.cloned().collect(),
                out_of_time_s: None,
            };
            let (tuned, next) = judge(&record, tuning, state);
            listener.on_tuned(&tuned);
            let Some(next) = next else {
                return Ok(None);
            };
            if self.stop.is_set() || folder.failure().is_some() {
                return Ok(None);
            }
            // The first process shows how long a process takes.
            if !longest.is_zero() && begin.elapsed() + longest > self.budget {
                let budget_s = self.budget.as_secs_f64();
                folder.append(&Event::OutOfTime { budget_s });
                return Ok(None);
            }
            listener.on_next(&next);
            let process_begin = Instant::now();
            let failure = session.measure(&next, folder, listener);
            longest = longest.max(process_begin.elapsed());
            if failure.is_some() {
                return Ok(failure);
            }
        }
    }
}

/// The running tuning.
struct TuningSession<'a> {
    runner: ExperimentRunner<'a>,
    temporary: PathBuf,
    /// One-line messages about failures.
    failures: Vec<String>,
}

impl TuningSession<'_> {
    /// Builds the server, its store and its client. Returns whether they are available.
    fn prepare(&mut self, folder: &mut Folder, listener: &mut dyn TuningListener) -> bool {
        let mut state = self.state(folder, listener);
        clean_up(&mut state);
        prerequisites::prepare(&self.runner, &mut state);
        let is_available = state.left_out.is_empty();
        self.failures.extend(state.failures);
        is_available
    }

    /// Measures one server process. Records a failure of the server as a failed setting.
    fn measure(
        &mut self,
        next: &NextProcess,
        folder: &mut Folder,
        listener: &mut dyn TuningListener,
    ) -> Option<WorkerFailure> {
        let base = &self.runner.experiment.trials[0];
        let tuning = self.runner.experiment.description.tuning.as_ref()?;
        let trial = base.with_knobs(tuning, &next.values);
        let mut state = self.state(folder, listener);
        let failure = self
            .runner
            .measure_process(&trial, next.process, &mut state);
        let is_left_out = !state.left_out.is_empty();
        let failures = state.failures;
        if is_left_out || !failures.is_empty() {
            let what = failures.last().cloned();
            folder.append(&Event::SettingFailed(FailedSetting {
                trial: next.trial.clone(),
                what: what.unwrap_or_else(|| "skipped; see the reason above".to_owned()),
            }));
        }
        self.failures.extend(failures);
        failure
    }

    fn state<'s, 'f>(
        &self,
        folder: &'f mut Folder,
        listener: &'f mut dyn TuningListener,
    ) -> ExperimentState<'s, 'f> {
        ExperimentState {
            folder,
            listener,
            leases: self.temporary.join(LEASES),
            temporary: self.temporary.clone(),
            left_out: BTreeSet::new(),
            failures: Vec::new(),
        }
    }
}
