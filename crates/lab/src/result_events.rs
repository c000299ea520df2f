//! Reads the event stream of a result directory, and folds its crash rounds into one result per
//! trial.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use floodmark_diagnose::gate::GateState;
use floodmark_diagnose::tuning::TuningState;
use floodmark_plan::FileError;
use floodmark_record::crash::{
    CrashBegan, CrashLoss, CrashResult, CrashRound, CrashSettings, RecoveryTimes,
};
use floodmark_record::experiment::{ExperimentDescription, Resumed};
use floodmark_record::host::{Environment, ToolInfo};
use floodmark_record::plan::Check;
use floodmark_record::{Counts, Event};
use floodmark_stats::attempts::median;
use floodmark_stats::crash::upper_bound;
use floodmark_stats::estimate::CONFIDENCE;

use crate::capacity::CapacityEvents;
use crate::directory::EVENTS;
use crate::run_events::RunEvents;
use floodmark_workers::EVENT_LIMIT;
use floodmark_workers::read_line;

/// The events of a result directory, except histograms.
#[derive(Debug, Default)]
pub struct ResultEvents {
    /// The tool, and the host on which it ran.
    pub opened: Option<(ToolInfo, Environment)>,
    /// The experiment, if the result belongs to an experiment.
    pub experiment: Option<ExperimentDescription>,
    /// One entry for each time the result was resumed.
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
    /// Failures and the time limit of a tuning run.
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

    /// Reads the events of a result that is about to be resumed.
    ///
    /// # Errors
    /// Fails like [`ResultEvents::read`]. The error is a message for the command line.
    pub fn to_resume(directory: &Path) -> Result<Self, String> {
        Self::read(&directory.join(EVENTS), &[]).map_err(|error| format!("--resume: {error}"))
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
                for search in &mut self.capacity {
                    search.remove_repeated(&resumed.anew);
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
            event @ (Event::CapacityTrial(_)
            | Event::CapacityLevel(_)
            | Event::CapacityEnded(_)) => {
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

/// Returns the error message for a result that does not match the command line.
pub fn differs(directory: &Path, what: &str) -> String {
    format!(
        "--resume {}: {what}; repeat the original command line, or start again without --resume",
        directory.display()
    )
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
        match Event::from_line(&line) {
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

/// The crash rounds of one trial.
#[derive(Debug)]
pub struct CrashEvents {
    /// Event at the start of the first round. Each resumption updates its `first_number`.
    pub began: CrashBegan,
    /// The complete rounds.
    pub rounds: Vec<CrashRound>,
}

impl CrashEvents {
    /// Records that a trial's rounds have started. The rounds of a resumed trial start more than
    /// once.
    pub fn begin(all: &mut Vec<Self>, began: CrashBegan) {
        let mut trials = all.iter_mut();
        match trials.find(|trial| trial.began.trial == began.trial) {
            Some(trial) => trial.began.first_number = began.first_number,
            None => all.push(CrashEvents {
                began,
                rounds: Vec::new(),
            }),
        }
    }

    /// Returns the number of the first request after the last complete round or resumption.
    pub fn first_number(&self) -> u64 {
        let last = self
            .rounds
            .last()
            .map_or(0, |round| round.state.next_number);
        self.began.first_number.max(last)
    }

    /// Adds a round to its trial.
    pub fn add(all: &mut [Self], round: CrashRound) {
        let mut trials = all.iter_mut();
        if let Some(trial) = trials.find(|trial| trial.began.trial == round.trial) {
            trial.rounds.push(round);
        }
    }

    /// Returns the result of the rounds.
    pub fn result(self, settings: &CrashSettings) -> CrashResult {
        let (began, rounds) = (self.began, self.rounds);
        let mut requests = Counts::default();
        rounds
            .iter()
            .for_each(|round| requests.merge(&round.counts));
        let sum = |of: fn(&CrashRound) -> u64| rounds.iter().map(of).sum();
        let inconclusive = rounds.iter().filter(|round| round.found.is_inconclusive());
        let inconclusive = inconclusive.count();
        let conclusive = (rounds.len() - inconclusive) as u64;
        let losses: Vec<CrashLoss> = rounds.iter().filter_map(loss_of).collect();
        CrashResult {
            check: began.plan.check.as_ref().map_or("", Check::name).to_owned(),
            kill: settings.kill,
            signal: settings.signal,
            rounds_requested: settings.rounds,
            rounds: rounds.len() as u32,
            inconclusive: inconclusive as u32,
            lost: losses.len() as u32,
            upper_bound: upper_bound(losses.len() as u64, conclusive),
            confidence: CONFIDENCE,
            first_ok: recovery_times(rounds.iter().map(|round| round.first_ok_ns)),
            full_speed: recovery_times(rounds.iter().map(|round| round.full_speed_ns)),
            requests,
            acknowledged: sum(|round| round.found.acknowledged),
            unknown: sum(|round| round.found.unknown),
            losses,
            trial: began.trial,
            system: began.system,
            workload: began.workload,
            plan: began.plan,
            place: began.place,
        }
    }
}

fn loss_of(round: &CrashRound) -> Option<CrashLoss> {
    let found = &round.found;
    (!found.violations.is_empty()).then(|| CrashLoss {
        round: round.round,
        signaled_s: round.signaled_ns as f64 / 1e9,
        acknowledged: found.acknowledged,
        unknown: found.unknown,
        recovered: found.recovered,
        violations: found.violations.clone(),
        history: found.history.clone(),
        responses: round.responses.clone(),
    })
}

fn recovery_times(ns: impl Iterator<Item = Option<u64>>) -> RecoveryTimes {
    let mut known: Vec<f64> = ns.flatten().map(|ns| ns as f64 / 1e6).collect();
    known.sort_unstable_by(f64::total_cmp);
    RecoveryTimes {
        count: known.len() as u32,
        min_ms: known.first().copied(),
        median_ms: (!known.is_empty()).then(|| median(&known)),
        max_ms: known.last().copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summarizes_known_times() {
        assert_eq!(
            recovery_times([None, None].into_iter()),
            RecoveryTimes::default()
        );
        let times = [Some(4_000_000), None, Some(1_000_000), Some(2_000_000)];
        let odd = recovery_times(times.into_iter());
        assert_eq!((odd.count, odd.median_ms), (3, Some(2.0)));
        assert_eq!((odd.min_ms, odd.max_ms), (Some(1.0), Some(4.0)));
        let even = recovery_times([Some(1_000_000), Some(2_000_000)].into_iter());
        assert_eq!(even.median_ms, Some(1.5));
    }
}
