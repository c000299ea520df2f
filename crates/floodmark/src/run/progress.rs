//! Progress of an experiment on stderr: the live view or one updated line on a terminal, otherwise a
//! line per attempt.

use floodmark_host::Stop;
use floodmark_lab::experiment::{ExperimentListener, ScheduleProgress, TrialSchedule};
use floodmark_record::Event;
use floodmark_record::gate::GateResult;
use floodmark_record::units::show_duration;
use std::time::Duration;

use crate::load::live::Live;
use crate::out;

/// Shows the progress of an experiment.
pub struct ExperimentProgress {
    schedule: TrialSchedule,
    live: Live,
}

impl ExperimentProgress {
    /// Starts to display progress. `are_searches` says whether each attempt is a capacity search.
    pub fn new(schedule: TrialSchedule, are_searches: bool, quiet: bool, stop: &Stop) -> Self {
        let live = Live::new(quiet, stop);
        // A gate has no schedule.
        if schedule.trials().next().is_some() {
            live.update_view(|state| state.set_schedule(schedule.trials(), are_searches));
        }
        ExperimentProgress { schedule, live }
    }

    fn print_line(&mut self, line: &str) {
        if !self.live.is_quiet() {
            self.live.print_line(&floodmark_report::plain::line(line));
        }
    }
}

impl ExperimentListener for ExperimentProgress {
    fn on_event(&mut self, event: &Event) {
        if let Event::RunBegan { run, .. } = event
            && let Some(position) = self.schedule.begin(run)
        {
            let name = run.trial.as_deref().unwrap_or(&run.system);
            let line = line(name, run.process, run.attempt, &position);
            if self.live.is_terminal() {
                self.live.set_prefix(&line);
            } else {
                self.print_line(&line);
            }
        }
        // Without a terminal, the line printed above is sufficient.
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

    fn on_gate(&mut self, gate: &GateResult) {
        if let Some(line) = floodmark_report::gate_pair(gate) {
            self.print_line(&line);
        }
    }

    fn on_trial_skipped(&mut self, trial: &str) {
        self.schedule.leave_out(trial);
        self.live.update_view(|state| state.skip_trial(trial));
    }
}

/// Formats the position in the schedule: `3/6 nginx, process 2 · next native · 18 s left`.
fn line(name: &str, process: u32, attempt: u32, position: &ScheduleProgress) -> String {
    let mut line = format!(
        "{}/{} {name}, process {process}",
        position.number, position.of
    );
    if attempt > 1 {
        line.push_str(&format!(", attempt {attempt}"));
    }
    match &position.next {
        Some(next) => line.push_str(&format!(" · next {next}")),
        None => line.push_str(" · last attempt"),
    }
    if let Some(left) = position.left {
        line.push_str(&format!(" · {} left", about(left)));
    }
    line
}

/// Formats an estimated duration in whole seconds or minutes.
pub fn about(length: Duration) -> String {
    let seconds = length.as_secs_f64().ceil();
    match seconds {
        s if s < 120.0 => show_duration(Duration::from_secs_f64(s)),
        s => format!("{} min", (s / 60.0).ceil()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_current_and_next_trial_and_the_time_left() {
        let mut position = ScheduleProgress {
            number: 3,
            of: 6,
            next: Some("native".to_owned()),
            left: Some(Duration::from_millis(17_500)),
        };
        assert_eq!(
            line("nginx", 2, 1, &position),
            "3/6 nginx, process 2 · next native · 18 s left"
        );
        position.next = None;
        position.left = None;
        assert_eq!(
            line("nginx", 2, 3, &position),
            "3/6 nginx, process 2, attempt 3 · last attempt"
        );
        assert_eq!(about(Duration::from_secs(600)), "10 min");
    }
}
