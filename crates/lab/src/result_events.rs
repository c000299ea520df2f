//! Reads the event stream of a result folder.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use floodmark_diagnose::gate::GateState;
use floodmark_diagnose::tuning::TuningState;
use floodmark_plan::FileError;
use floodmark_record::Event;
use floodmark_record::experiment::{ExperimentDescription, Resumed};
use floodmark_record::host::{Environment, ToolInfo};

use crate::capacity::CapacityEvents;
use crate::crash_results::CrashEvents;
use crate::run_events::RunEvents;
use floodmark_workers::EVENT_LIMIT;
use floodmark_workers::read_line;

/// The events of a result folder, except histograms.
#[derive(Debug, Default)]
pub struct ResultEvents {
    /// The tool, and the host on which it ran.
    pub opened: Option<(ToolInfo, Environment)>,
    /// The experiment, if the result belongs to an experiment.
    pub experiment: Option<ExperimentDescription>,
    /// Each time the result was resumed.
    pub resumed: Vec<Resumed>,
    /// One-line messages about skipped systems, trials and steps.
    pub skipped: Vec<String>,
    /// Entries of `skipped` that report failures.
    pub failures: Vec<String>,
    /// The runs, including those that the record leaves out.
    pub runs: Vec<RunEvents>,
    /// The crash rounds of each trial.
    pub crash: Vec<CrashEvents>,
    /// The searches for a capacity.
    pub capacity: Vec<CapacityEvents>,
    /// Failures and the time limit of a tuning.
    pub tuning: TuningState,
    /// Number of pairs and time limit of a gate.
    pub gate: GateState,
}

impl ResultEvents {
    /// Reads an event stream, and then the events in `unsaved`. Ignores an incomplete last line.
    ///
    /// # Errors
    /// The file cannot be read, or a line is invalid.
    pub fn read(path: &Path, unsaved: &[Event]) -> Result<Self, FileError> {
        let mut all = Self::default();
        each_event(path, unsaved, |event| all.take(event))?;
        all.runs.iter_mut().for_each(RunEvents::complete);
        Ok(all)
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Opened {
                tool, environment, ..
            } => self.opened = Some((tool, environment)),
            Event::Experiment(asked) => self.experiment = Some(asked),
            Event::Resumed(resumed) => {
                for run in &mut self.runs {
                    run.left_out |= resumed.anew.contains(&run.id);
                }
                // An experiment repeats incomplete searches.
                if self.experiment.is_some() {
                    self.capacity.retain(CapacityEvents::is_complete);
                }
                // A resumed experiment retries skipped systems.
                self.skipped.clear();
                self.failures.clear();
                self.tuning = TuningState::default();
                self.resumed.push(resumed);
            }
            Event::Skipped { what, failed } => {
                self.failures.extend(failed.then(|| what.clone()));
                self.skipped.push(what);
            }
            Event::RunBegan { run, plan, unix_ms } => {
                self.runs.push(RunEvents::new(run, plan, unix_ms));
            }
            Event::Proved {
                run,
                windows,
                missing,
            } => {
                // A superseded run has the same name as the run that replaced it.
                if let Some(run) = self.runs.iter_mut().rfind(|other| other.id == run) {
                    run.perturbed = windows;
                    run.missing.extend(missing);
                }
            }
            Event::CrashBegan(began) => CrashEvents::begin(&mut self.crash, began),
            Event::CrashRound(round) => CrashEvents::add(&mut self.crash, round),
            Event::CapacityBegan(began) => self.capacity.push(CapacityEvents::new(began)),
            event @ (Event::CapacityTrial(_) | Event::CapacityEnded(_)) => {
                if matches!(event, Event::CapacityTrial(_))
                    && let Some(run) = self.runs.last_mut()
                {
                    run.left_out = true;
                }
                if let Some(search) = self.capacity.last_mut() {
                    search.take(&event);
                }
            }
            Event::SettingFailed(failed) => self.tuning.failed.push(failed),
            Event::GateTurns(turns) => self.gate.turns.push(turns),
            Event::GatePlanned { max_pairs } => self.gate.max_pairs = Some(max_pairs),
            Event::OutOfTime { budget_s } => {
                self.tuning.out_of_time_s = Some(budget_s);
                self.gate.is_out_of_time = true;
            }
            event => {
                if let Some(run) = self.runs.last_mut() {
                    run.take(event);
                }
            }
        }
    }
}

/// Calls `on` for each event in a file, and then for each event in `unsaved`. Ignores an incomplete
/// last line.
pub fn each_event(
    path: &Path,
    unsaved: &[Event],
    mut on: impl FnMut(Event),
) -> Result<(), FileError> {
    let unread = |error| FileError::in_file(path, error);
    let mut reader = BufReader::new(File::open(path).map_err(unread)?);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let complete = read_line(&mut reader, &mut line, EVENT_LIMIT)
            .map_err(|error| FileError::on_line(path, number, error))?;
        match serde_json::from_slice(&line) {
            Ok(event) => on(event),
            // The process or the host died while the line was being written.
            Err(_) if !complete => break,
            Err(error) => {
                let what = format!("not a floodmark event: {error}");
                return Err(FileError::on_line(path, number, what));
            }
        }
    }
    unsaved.iter().cloned().for_each(on);
    Ok(())
}
