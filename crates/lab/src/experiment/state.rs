//! State and progress messages of a running experiment.

use std::collections::BTreeSet;
use std::path::PathBuf;

use floodmark_record::Event;
use floodmark_record::gate::GateResult;

use super::program::ProgramPaths;
use crate::folder::Folder;
use crate::manifest::Trial;

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
    /// Called with the state of the experiment's gate after each pair that has a ratio.
    fn on_gate(&mut self, _gate: &GateResult) {}
}

/// The state of a running experiment.
pub struct ExperimentState<'a, 'b> {
    pub folder: &'b mut Folder,
    pub listener: &'b mut dyn ExperimentListener,
    /// Temporary folder of the current user.
    pub temporary: PathBuf,
    /// Folder for the leases of running programs.
    pub leases: PathBuf,
    /// Skipped trials.
    pub left_out: BTreeSet<&'a str>,
    /// One-line messages about failures.
    pub failures: Vec<String>,
}

impl<'a> ExperimentState<'a, '_> {
    /// Skips the rest of a trial.
    pub fn leave_out(&mut self, trial: &'a Trial) {
        if self.left_out.insert(&trial.name) {
            self.listener.on_trial_skipped(&trial.name);
        }
    }

    /// Returns the paths of a program's files.
    pub fn paths(&self, name: &str) -> ProgramPaths<'_> {
        // Use absolute paths, because programs run in other folders.
        let result = std::path::absolute(self.folder.path());
        let result = result.unwrap_or_else(|_| self.folder.path().to_owned());
        ProgramPaths {
            log: result.join(format!("{name}.log")),
            run: result.join(name),
            leases: &self.leases,
        }
    }

    /// Records a skip. A skip does not count as a failure.
    pub fn skip(&mut self, what: String) {
        self.record_skip(what, false);
    }

    fn record_skip(&mut self, what: String, failed: bool) {
        self.listener.on_problem(&what);
        self.folder.append(&Event::Skipped { what, failed });
    }

    /// Records a failure.
    pub fn fail(&mut self, what: String) {
        self.failures.push(what.clone());
        self.record_skip(what, true);
    }

    /// Records a failure and skips the rest of its trial.
    pub fn fail_trial(&mut self, trial: &'a Trial, what: String) {
        self.leave_out(trial);
        self.fail(what);
    }
}
