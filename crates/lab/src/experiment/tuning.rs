//! Tunes a server: measures one server process after another, each with the setting that the search
//! selects next.

use std::time::{Duration, Instant};

use floodmark_diagnose::tuning::{TuningState, judge};
use floodmark_plan::FileError;
use floodmark_record::Event;
use floodmark_record::tuning::{FailedSetting, TuningDescription, TuningStep};
use floodmark_workers::WorkerFailure;

use super::RunningExperiment;
use crate::fold::fold_with;

impl RunningExperiment<'_> {
    /// Measures processes until the search is complete or the time is up. Returns the failure of a
    /// worker, if any.
    ///
    /// # Errors
    /// The events cannot be read.
    pub(super) fn tune(
        &mut self,
        tuning: &TuningDescription,
    ) -> Result<Option<WorkerFailure>, FileError> {
        // The trial was skipped, because its server, store or client is not available.
        if !self.left_out.is_empty() {
            return Ok(None);
        }
        let begin = Instant::now();
        let mut longest = Duration::ZERO;
        loop {
            let record = fold_with(self.directory.path(), self.directory.unsaved())?;
            let failed = record.tuning.iter().flat_map(|tuning| &tuning.failed);
            let state = TuningState {
                failed: failed.cloned().collect(),
                out_of_time_s: None,
            };
            let (tuned, next) = judge(&record, tuning, state);
            self.listener.on_tuned(&tuned);
            let Some(next) = next.filter(|_| !self.must_stop()) else {
                return Ok(None);
            };
            // The first process shows how long a process takes.
            if let Some(budget) = self.runner.budget
                && !longest.is_zero()
                && begin.elapsed() + longest > budget
            {
                let budget_s = budget.as_secs_f64();
                self.directory.append(&Event::OutOfTime { budget_s });
                return Ok(None);
            }
            self.listener.on_next(&next);
            let process_begin = Instant::now();
            let failure = self.measure_setting(tuning, &next);
            longest = longest.max(process_begin.elapsed());
            if failure.is_some() {
                return Ok(failure);
            }
        }
    }

    /// Measures one server process. Records a failure of the server as a failed setting.
    fn measure_setting(
        &mut self,
        tuning: &TuningDescription,
        next: &TuningStep,
    ) -> Option<WorkerFailure> {
        let earlier = self.failures.len();
        let trial = self.runner.experiment.trials[0].with_knobs(tuning, &next.values);
        let failure = self.measure_process(&trial, next.process);
        // Clear the set, so that it does not report this skip again for the next process.
        let is_left_out = !std::mem::take(&mut self.left_out).is_empty();
        let what = self.failures[earlier..].last().cloned();
        if is_left_out || what.is_some() {
            self.directory.append(&Event::SettingFailed(FailedSetting {
                trial: next.trial.clone(),
                what: what.unwrap_or_else(|| "skipped; see the reason above".to_owned()),
            }));
        }
        failure
    }
}
