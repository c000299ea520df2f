//! Searches for the highest rate at which a server meets its objectives.
//!
//! [`CapacityRun`] sends the loads, `floodmark_stats::capacity` chooses their rates, and
//! [`CapacityEvents`] derives the result from the recorded trials.

mod levels;
mod loads;
mod planner;
mod run;
mod searches;

use std::path::Path;

use floodmark_record::Event;
use floodmark_record::capacity::{
    CapacityBegan, CapacityEnd, CapacityEnded, CapacityKind, CapacityLevel, CapacityResult,
    CapacityTrial,
};
use floodmark_record::events::RunId;
use floodmark_stats::estimate::CONFIDENCE;

use crate::result_events::{ResultEvents, differs};
use levels::respect_levels;
use searches::CapacitySearches;

pub use levels::LevelPlanner;
pub(crate) use loads::closed_load;
pub use loads::{LoadLengths, PlannedTrial, slow_s, tail_shares};
pub use planner::TrialPlanner;
pub use run::{CapacityRun, check_budget};

/// Half-width of the capacity's interval at which a search ends, as a share of the capacity.
pub const CAPACITY_PRECISION: f64 = 0.02;

/// The events of one search.
#[derive(Debug, Clone, PartialEq)]
pub struct CapacityEvents {
    /// The server process and the settings.
    pub began: CapacityBegan,
    /// The trials so far.
    pub trials: Vec<CapacityTrial>,
    /// The loads after the search so far.
    pub levels: Vec<CapacityLevel>,
    /// How the search last ended. A search that was interrupted and resumed ends more than once.
    pub ended: Option<CapacityEnded>,
}

impl CapacityEvents {
    /// Returns a search that has just started.
    #[must_use]
    pub fn new(began: CapacityBegan) -> Self {
        CapacityEvents {
            began,
            trials: Vec::new(),
            levels: Vec::new(),
            ended: None,
        }
    }

    /// Adds an event. Ignores events that do not belong to a search.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::CapacityTrial(trial) => self.trials.push(trial.clone()),
            Event::CapacityLevel(level) => self.levels.push(level.clone()),
            Event::CapacityEnded(ended) => self.ended = Some(ended.clone()),
            _ => {}
        }
    }

    /// Removes the loads after the search whose runs are about to be repeated.
    pub fn remove_repeated(&mut self, repeated: &[RunId]) {
        let run = &self.began.run;
        self.levels.retain(|level| {
            let id = RunId {
                attempt: level.attempt,
                ..run.clone()
            };
            !repeated.contains(&id)
        });
    }

    /// Returns whether the search ended with a result.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.ended.as_ref().is_some_and(|ended| {
            let result = [
                CapacityEnd::Settled,
                CapacityEnd::Budget,
                CapacityEnd::Trials,
            ];
            result.contains(&ended.reason)
        })
    }

    /// Returns the result of the trials and the later loads so far.
    #[must_use]
    pub fn result(&self) -> CapacityResult {
        let mut searches = CapacitySearches::new(&self.began.settings, false);
        self.trials.iter().for_each(|trial| searches.record(trial));
        let trials = searches.trials().to_vec();
        let mut result = CapacityResult {
            trial: self.began.run.trial.clone(),
            process: self.began.run.process,
            settings: self.began.settings.clone(),
            finding: CapacityKind::Unfinished,
            rate_per_s: None,
            low: None,
            high: None,
            level: CONFIDENCE,
            bound: None,
            answered_per_s: None,
            levels: self.levels.clone(),
            proved_per_s: None,
            falling: None,
            last_per_s: None,
            scatter: None,
            is_confirmed: false,
            end: self.ended.clone(),
            trials,
        };
        searches.add_finding(&mut result);
        respect_levels(&mut result);
        result
    }
}

/// An interrupted search.
#[derive(Debug)]
pub struct EarlierSearch {
    /// The events of the search.
    pub events: CapacityEvents,
    /// Runs that are not trials. They are repeated when the search resumes.
    pub others: Vec<RunId>,
    /// Number of the last attempt.
    pub last_attempt: u32,
    /// Next free request number.
    pub first_number: u64,
}

impl EarlierSearch {
    /// Returns the length of the search so far, in seconds.
    fn elapsed_s(&self) -> f64 {
        let last = self.events.trials.last();
        let trials_s = last.map_or(0.0, |last| last.at_s + last.transient_s + last.judged_s);
        let ended = self.events.ended.as_ref();
        ended.map_or(trials_s, |ended| ended.elapsed_s.max(trials_s))
    }

    /// Returns the design effect of the last trial.
    fn design_effect(&self) -> Option<f64> {
        self.events.trials.last()?.design_effect
    }

    /// Reads an interrupted search from its result directory. `system` and `workload` describe the
    /// server and the requests that the command line specifies.
    ///
    /// # Errors
    /// The directory contains no interrupted search, or the settings of the search differ.
    pub fn read(
        directory: &Path,
        (system, workload): (&str, &str),
        objectives: &[String],
    ) -> Result<Self, String> {
        let mut events = ResultEvents::to_resume(directory)?;
        let different = |what| Err(differs(directory, what));
        let search = events.capacity.pop();
        let Some(mut search) = search.filter(|_| events.experiment.is_none()) else {
            return different("not the result of an interrupted floodmark capacity command");
        };
        let run = &search.began.run;
        if (run.system.as_str(), run.workload.as_str()) != (system, workload) {
            return different("the URL or the mix differs");
        }
        if search.began.settings.objectives != objectives {
            return different("the objectives differ");
        }
        let last_attempt = events.runs.iter().map(|run| run.id.attempt).max();
        let numbers = events.runs.iter().filter_map(|run| run.end.as_ref());
        let first_number = numbers.map(|end| end.next_number).max();
        let others = events.runs.iter().filter(|run| !run.left_out);
        let others: Vec<RunId> = others.map(|run| run.id.clone()).collect();
        search.remove_repeated(&others);
        Ok(EarlierSearch {
            others,
            events: search,
            last_attempt: last_attempt.unwrap_or(0),
            first_number: first_number.unwrap_or(1),
        })
    }
}
