//! Progress of a measurement on stderr. A terminal shows a full-screen view or one updated line; a
//! log or pipe gets separate lines. Each event is also forwarded to the metrics export.

use std::io::{IsTerminal, stderr};
use std::sync::mpsc::Sender;

use floodmark_host::{Stop, before_immediate_exit};
use floodmark_lab::capacity::CapacityEvents;
use floodmark_lab::experiment::{ExperimentListener, ScheduleProgress, TrialSchedule};
use floodmark_live::{LiveState, LiveView, MIN_SIZE, restore_terminal};
use floodmark_record::Event;
use floodmark_record::gate::GateResult;
use floodmark_record::tuning::{Tuning, TuningStep};
use floodmark_record::units::{Rate, show_rough_duration};
use floodmark_report::{capacity_trial_line, gate_pair, plain, tuning_action, tuning_step};

use crate::export::MetricsExport;
use crate::out;

/// Separator between the position in a schedule and the status of the run.
const SEPARATOR: &str = " · ";

/// What the progress lines outside the full-screen view describe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineKind {
    /// Each second of a load.
    Seconds,
    /// Each trial of a capacity search.
    Trials,
    /// Each attempt or server process; on a terminal, also each second.
    Attempts,
}

/// How progress is shown.
enum Painter {
    /// Not at all (`--quiet`).
    Quiet,
    /// Separate lines in a log or pipe.
    Lines(Box<LiveState>),
    /// One updated line on a terminal.
    OneLine(Box<LiveState>),
    /// A full-screen view on a terminal.
    View(LiveView),
}

/// Displays the progress of a measurement from its events.
pub struct Progress<'a> {
    painter: Painter,
    kind: LineKind,
    export: &'a MetricsExport,
    /// The current capacity search.
    search: Option<CapacityEvents>,
    /// The planned attempts of an experiment.
    schedule: Option<TrialSchedule>,
    /// Number of tuning steps that have been shown or were already known when the tuning run was
    /// resumed.
    tuning_steps: Option<usize>,
    /// Whether a progress line is visible on the terminal.
    drawn: bool,
}

impl<'a> Progress<'a> {
    /// Starts to display progress. A quiet display prints only problems. In the full-screen view,
    /// the key `q` sets `stop`, and the keys `+` and `-` send the new rate to `rates`.
    pub fn new(
        kind: LineKind,
        quiet: bool,
        stop: &Stop,
        rates: Option<Sender<Rate>>,
        export: &'a MetricsExport,
    ) -> Self {
        let painter = if quiet {
            Painter::Quiet
        } else if stderr().is_terminal() {
            open_view(stop, rates).map_or_else(|| Painter::OneLine(Box::default()), Painter::View)
        } else {
            Painter::Lines(Box::default())
        };
        Progress {
            painter,
            kind,
            export,
            search: None,
            schedule: None,
            tuning_steps: None,
            drawn: false,
        }
    }

    /// Sets the planned attempts of an experiment. `are_searches` says whether each attempt is a
    /// capacity search.
    pub fn set_schedule(&mut self, schedule: TrialSchedule, are_searches: bool) {
        self.update(|state| state.set_schedule(schedule.trials(), are_searches));
        self.schedule = Some(schedule);
    }

    /// Handles an event of any kind.
    pub fn on(&mut self, event: &Event) {
        if let Some(warning) = self.export.on(event) {
            self.on_problem(&warning);
        }
        self.begin_attempt(event);
        // If the output is not a terminal, one line per attempt is sufficient.
        let is_plain = matches!(self.painter, Painter::Lines(_));
        if matches!(self.painter, Painter::Quiet) || (is_plain && self.kind == LineKind::Attempts) {
            return;
        }
        if let Event::Ready(ready) = event {
            ready.notices.iter().for_each(|line| self.print_line(line));
        }
        self.update(|state| state.on(event));
        self.on_trial(event);
        if self.kind == LineKind::Trials {
            return;
        }
        match (&mut self.painter, event) {
            (Painter::OneLine(_), Event::Second(_) | Event::Connecting(_)) => self.draw(),
            (Painter::OneLine(_), Event::End(_)) => self.clear(),
            (Painter::Lines(state), event) => {
                if let Some(line) = state.plain_line(event) {
                    out::note(&format!("{line}\n"));
                }
            }
            _ => {}
        }
    }

    /// Shows the position of an attempt in the schedule.
    fn begin_attempt(&mut self, event: &Event) {
        let (Event::RunBegan { run, .. }, Some(schedule)) = (event, &mut self.schedule) else {
            return;
        };
        let Some(position) = schedule.begin(run) else {
            return;
        };
        let name = run.trial.as_deref().unwrap_or(&run.system);
        let line = schedule_line(name, run.process, run.attempt, &position);
        self.update(|state| state.set_position(&line));
        match self.painter {
            Painter::OneLine(_) => self.draw_line(&line),
            Painter::Lines(_) => self.print_line(&line),
            Painter::Quiet | Painter::View(_) => {}
        }
    }

    /// Shows a trial of a capacity search.
    fn on_trial(&mut self, event: &Event) {
        if let Event::CapacityBegan(began) = event {
            self.search = Some(CapacityEvents::new(began.clone()));
        }
        let Some(search) = &mut self.search else {
            return;
        };
        search.take(event);
        let Event::CapacityTrial(trial) = event else {
            return;
        };
        let result = search.result();
        self.update(|state| state.record_search(&result));
        if self.kind == LineKind::Trials {
            match &self.painter {
                Painter::OneLine(_) => self.draw(),
                Painter::Lines(_) => self.print_line(&capacity_trial_line(trial, &result)),
                Painter::Quiet | Painter::View(_) => {}
            }
        }
    }

    fn update(&mut self, change: impl FnOnce(&mut LiveState)) {
        match &mut self.painter {
            Painter::Quiet => {}
            Painter::Lines(state) | Painter::OneLine(state) => change(state),
            Painter::View(view) => view.update(change),
        }
    }

    /// Redraws the progress line on the terminal.
    fn draw(&mut self) {
        let Painter::OneLine(state) = &self.painter else {
            return;
        };
        let mut style = out::style(&stderr());
        let line = if self.kind == LineKind::Trials {
            state.search_line(style.width)
        } else {
            let position = state.position();
            style.width = style
                .width
                .saturating_sub(position.chars().count() + SEPARATOR.len());
            let separator = if position.is_empty() { "" } else { SEPARATOR };
            format!("{position}{separator}{}", state.run_line(style))
        };
        self.draw_line(&line);
    }

    fn draw_line(&mut self, line: &str) {
        out::note(&format!("\r\x1b[K{line}"));
        self.drawn = true;
    }

    /// Prints a line that stays on the terminal, unless the display is quiet.
    fn print_line(&mut self, line: &str) {
        if !matches!(self.painter, Painter::Quiet) {
            self.clear();
            out::note(&format!("{}\n", plain::line(line)));
        }
    }

    /// Clears the progress line on the terminal.
    fn clear(&mut self) {
        if self.drawn {
            out::note("\r\x1b[K");
            self.drawn = false;
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl ExperimentListener for Progress<'_> {
    fn on_event(&mut self, event: &Event) {
        self.on(event);
    }

    fn on_step(&mut self, step: &str) {
        self.print_line(step);
    }

    fn on_problem(&mut self, problem: &str) {
        // Print this even with --quiet, because it explains why the record is incomplete.
        self.clear();
        out::complain(&problem);
    }

    fn on_gate(&mut self, gate: &GateResult) {
        if let Some(line) = gate_pair(gate) {
            self.print_line(&line);
        }
    }

    fn on_trial_skipped(&mut self, trial: &str) {
        if let Some(schedule) = &mut self.schedule {
            schedule.leave_out(trial);
        }
        self.update(|state| state.skip_trial(trial));
    }

    fn on_next(&mut self, next: &TuningStep) {
        let process = (&next.values, next.process);
        let knob = next.knob.as_deref();
        self.print_line(&tuning_action(next.action, knob, process, &next.reason));
    }

    fn on_tuned(&mut self, tuning: &Tuning) {
        let shown = self.tuning_steps.unwrap_or(tuning.steps.len());
        for step in tuning.steps.iter().skip(shown) {
            self.print_line(&tuning_step(step));
        }
        self.tuning_steps = Some(tuning.steps.len());
    }
}

/// Opens the full-screen view. Returns `None` if the terminal is too small or too simple, or if
/// this process runs in the background.
fn open_view(stop: &Stop, rates: Option<Sender<Rate>>) -> Option<LiveView> {
    let (width, height) = terminal_size::terminal_size_of(stderr())?;
    let is_simple = std::env::var_os("TERM").is_none_or(|name| name == "dumb");
    if is_simple || width.0 < MIN_SIZE.0 || height.0 < MIN_SIZE.1 {
        return None;
    }
    let color = out::style(&stderr()).color;
    // SAFETY: `restore_terminal` is safe in signal handlers.
    unsafe { before_immediate_exit(restore_terminal) };
    LiveView::open(stop.flag(), rates, color).ok()
}

/// Formats the position in the schedule: `3/6 nginx, process 2 · next native · 18 s left`.
fn schedule_line(name: &str, process: u32, attempt: u32, position: &ScheduleProgress) -> String {
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
        line.push_str(&format!(" · {} left", show_rough_duration(left)));
    }
    line
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
            schedule_line("nginx", 2, 1, &position),
            "3/6 nginx, process 2 · next native · 18 s left"
        );
        position.next = None;
        position.left = None;
        assert_eq!(
            schedule_line("nginx", 2, 3, &position),
            "3/6 nginx, process 2, attempt 3 · last attempt"
        );
    }
}
