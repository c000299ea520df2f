//! Progress of a tuning on stderr: a line before and after each server process.

use floodmark_diagnose::tuning::NextProcess;
use floodmark_host::Stop;
use floodmark_lab::experiment::{ExperimentListener, TuningListener};
use floodmark_record::Event;
use floodmark_record::tuning::Tuning;
use floodmark_report::{tuning_action, tuning_step};

use crate::load::live::Live;
use crate::out;

/// Shows the progress of a tuning.
pub struct TuningProgress {
    live: Live,
    /// Number of steps shown, or already known when the tuning was resumed.
    shown: Option<usize>,
}

impl TuningProgress {
    /// Starts to display progress.
    pub fn new(quiet: bool, stop: &Stop) -> Self {
        TuningProgress {
            live: Live::new(quiet, stop),
            shown: None,
        }
    }

    fn print_line(&mut self, line: &str) {
        if !self.live.is_quiet() {
            self.live.print_line(&floodmark_report::plain::line(line));
        }
    }
}

impl ExperimentListener for TuningProgress {
    fn on_event(&mut self, event: &Event) {
        // Without a terminal, the lines around each process are sufficient.
        if self.live.is_terminal() {
            self.live.on(event);
        }
    }

    fn on_step(&mut self, what: &str) {
        self.print_line(what);
    }

    fn on_problem(&mut self, what: &str) {
        // Print this even with --quiet, because it explains why the record is incomplete.
        self.live.clear();
        out::complain(&what);
    }

    fn on_trial_skipped(&mut self, _: &str) {}
}

impl TuningListener for TuningProgress {
    fn on_next(&mut self, next: &NextProcess) {
        let (action, knob) = (next.action, next.knob.as_deref());
        let process = (&next.values, next.process);
        self.print_line(&tuning_action(action, knob, process, &next.reason));
    }

    fn on_tuned(&mut self, tuning: &Tuning) {
        let shown = self.shown.unwrap_or(tuning.steps.len());
        for step in tuning.steps.iter().skip(shown) {
            self.print_line(&tuning_step(step));
        }
        self.shown = Some(tuning.steps.len());
    }
}
