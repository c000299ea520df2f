//! State of the live view and the progress lines, collected from events: the current run, the
//! trials of an experiment, and the trials of a search with the interval that remains.

use floodmark_record::Event;
use floodmark_record::capacity::{CapacityResult, TrialOutcome};
use floodmark_report::{Style, capacity_progress_line};

use crate::progress::{AttemptFigures, RunProgress};

/// The progress of a load, search or experiment. Memory use is bounded, except for one entry per
/// trial.
#[derive(Default)]
pub struct LiveState {
    /// Position in the schedule of an experiment; empty if there is no experiment.
    pub(crate) position: String,
    pub(crate) run: Option<RunProgress>,
    /// Empty if there is no experiment.
    pub(crate) trials: TrialList,
    pub(crate) search: Option<SearchProgress>,
    /// Whether a stop was requested.
    pub(crate) is_ending: bool,
}

impl LiveState {
    /// Sets the planned attempts of an experiment. Each attempt is given as the name of its trial.
    /// `are_searches` says whether each attempt is a capacity search.
    pub fn set_schedule(&mut self, attempts: impl IntoIterator<Item = String>, are_searches: bool) {
        self.trials = TrialList::new(attempts, are_searches);
    }

    /// Sets the position in the schedule, such as `3/6 nginx, process 2`.
    pub fn set_position(&mut self, position: &str) {
        self.position = position.to_owned();
    }

    /// Marks a trial as skipped.
    pub fn skip_trial(&mut self, trial: &str) {
        if let Some(at) = self.trials.find(trial) {
            self.trials.trials[at].is_skipped = true;
        }
    }

    /// Adds the latest trial of a capacity search.
    pub fn record_search(&mut self, result: &CapacityResult) {
        self.search.get_or_insert_default().record(result);
    }

    /// Adds an event of any kind.
    pub fn on(&mut self, event: &Event) {
        match event {
            Event::RunBegan { run, plan, .. } => {
                self.run = Some(RunProgress::new(plan));
                if let Some(trial) = &run.trial {
                    self.trials.current = self.trials.find(trial);
                }
            }
            Event::End(end) => {
                let ended = self.run.as_ref().map(|run| run.attempt(end));
                self.end_attempt(ended, false);
            }
            Event::ClientRan(ran) => self.end_attempt(Some(ran.into()), false),
            Event::CapacityEnded(_) => self.end_attempt(Some(AttemptFigures::default()), true),
            event => {
                if let Some(run) = &mut self.run {
                    run.on(event);
                }
            }
        }
    }

    /// Returns the position in the schedule; empty if there is no experiment.
    #[must_use]
    pub fn position(&self) -> &str {
        &self.position
    }

    /// Returns the progress of the run in one line. The line has fewer than `style.width` columns,
    /// except while connections are being opened.
    #[must_use]
    pub fn run_line(&self, style: Style) -> String {
        let Some(run) = &self.run else {
            return String::new();
        };
        match &run.opening {
            Some(opening) => opening.clone(),
            None => run.line(style),
        }
    }

    /// Returns the progress of the capacity search in one line of fewer than `width` columns.
    #[must_use]
    pub fn search_line(&self, width: usize) -> String {
        let line = self.search.as_ref().map_or("", |search| &search.line);
        line.chars().take(width.saturating_sub(1)).collect()
    }

    /// Returns the progress line to write to a log or pipe after `event`, if one is due. A line is
    /// due about every 5 to 10 s.
    pub fn plain_line(&mut self, event: &Event) -> Option<String> {
        let progress = self.run.as_mut()?;
        match event {
            Event::Connecting(report) => progress.plain_opening_line(report),
            Event::Second(_) => progress.plain_line(),
            _ => None,
        }
    }

    /// Adds the figures of an ended run or capacity search as an attempt. The runs of a search are
    /// not attempts.
    fn end_attempt(&mut self, figures: Option<AttemptFigures>, is_search: bool) {
        if let Some(figures) = figures
            && self.trials.are_searches == is_search
            && let Some(at) = self.trials.current.take()
        {
            self.trials.trials[at].attempts.push(figures);
        }
    }
}

/// One trial of a search, and the interval after this trial.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BracketStep {
    pub(crate) number: usize,
    pub(crate) rate_per_s: f64,
    pub(crate) outcome: TrialOutcome,
    /// Lower end of the interval; without an interval, the highest rate at which a trial met the
    /// objectives.
    pub(crate) low: Option<f64>,
    /// Upper end of the interval; without an interval, the lowest rate at which a trial missed an
    /// objective.
    pub(crate) high: Option<f64>,
}

/// A search for a capacity.
#[derive(Debug, Clone, Default)]
pub(crate) struct SearchProgress {
    /// The estimate so far and the remaining time, in one line.
    pub(crate) line: String,
    pub(crate) steps: Vec<BracketStep>,
}

impl SearchProgress {
    /// Adds the last trial of `result`. The steps of a new search replace those of an earlier one.
    pub(crate) fn record(&mut self, result: &CapacityResult) {
        let Some(last) = result.trials.last() else {
            return;
        };
        let number = result.trials.len();
        if self.steps.last().is_some_and(|step| step.number >= number) {
            self.steps.clear();
        }
        let rates = |outcome| {
            let of = result.trials.iter().filter(move |of| of.outcome == outcome);
            of.map(|trial| trial.rate_per_s)
        };
        let passed = rates(TrialOutcome::Pass).max_by(f64::total_cmp);
        let missed = rates(TrialOutcome::Miss).min_by(f64::total_cmp);
        self.line = capacity_progress_line(result);
        self.steps.push(BracketStep {
            number,
            rate_per_s: last.rate_per_s,
            outcome: last.outcome,
            low: result.low.or(passed),
            high: result.high.or(missed),
        });
    }

    /// Returns the range of rates covered by the last `count` steps, including their intervals.
    pub(crate) fn range(&self, count: usize) -> Option<(f64, f64)> {
        let last = self.steps.iter().rev().take(count);
        let ends = last.flat_map(|step| [Some(step.rate_per_s), step.low, step.high]);
        let ends: Vec<f64> = ends.flatten().filter(|end| end.is_finite()).collect();
        let low = ends.iter().copied().min_by(f64::total_cmp)?;
        let high = ends.iter().copied().max_by(f64::total_cmp)?;
        (low < high).then_some((low, high))
    }
}

/// One trial.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrialProgress {
    pub(crate) name: String,
    /// Number of planned attempts, summed over all server processes.
    pub(crate) planned: usize,
    /// Completed attempts.
    pub(crate) attempts: Vec<AttemptFigures>,
    pub(crate) is_skipped: bool,
}

impl TrialProgress {
    /// Returns the mean throughput, the largest p99, and the total number of requests that were not
    /// ok.
    pub(crate) fn figures(&self) -> AttemptFigures {
        let rates = self.attempts.iter().filter_map(|of| of.ok_per_s);
        let (sum, n) = rates.fold((0.0, 0), |(sum, n), per_s| (sum + per_s, n + 1));
        AttemptFigures {
            ok_per_s: (n > 0).then(|| sum / f64::from(n)),
            p99_ns: self.attempts.iter().filter_map(|of| of.p99_ns).max(),
            not_ok: self.attempts.iter().map(|of| of.not_ok).sum(),
        }
    }
}

/// The trials of an experiment, in the order of their first attempts.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrialList {
    pub(crate) trials: Vec<TrialProgress>,
    pub(crate) current: Option<usize>,
    /// Whether each attempt is a capacity search, which consists of several runs.
    pub(crate) are_searches: bool,
}

impl TrialList {
    /// Creates the list from the trial names of the planned attempts.
    pub(crate) fn new(attempts: impl IntoIterator<Item = String>, are_searches: bool) -> Self {
        let mut list = TrialList {
            are_searches,
            ..TrialList::default()
        };
        for name in attempts {
            match list.find(&name) {
                Some(at) => list.trials[at].planned += 1,
                None => list.trials.push(TrialProgress {
                    name,
                    planned: 1,
                    ..TrialProgress::default()
                }),
            }
        }
        list
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.trials.iter().position(|trial| trial.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{began, end, feed};
    use floodmark_record::capacity::{CapacityEnd, CapacityEnded};

    fn attempts(are_searches: bool) -> impl FnMut(&[Event]) -> usize {
        let mut state = LiveState::default();
        state.set_schedule(["a".to_owned(), "a".to_owned()], are_searches);
        move |events| {
            events.iter().for_each(|event| state.on(event));
            state.trials.trials[0].attempts.len()
        }
    }

    #[test]
    fn an_attempt_ends_with_its_run_or_with_its_search() {
        let ended = Event::CapacityEnded(CapacityEnded {
            elapsed_s: 30.0,
            reason: CapacityEnd::Settled,
            notes: Vec::new(),
        });
        let run = [began(Some("a")), end(0)];
        assert_eq!(attempts(false)(&run), 1);
        let mut search = attempts(true);
        assert_eq!(search(&run), 0);
        assert_eq!(search(&run), 0);
        assert_eq!(search(&[ended]), 1);
    }

    #[test]
    fn suspects_only_after_three_seconds() {
        let mut state = LiveState::default();
        state.on(&began(None));
        let suspicion = |state: &LiveState| state.run.as_ref()?.suspicion.clone();
        feed(&mut state, 2, 0);
        assert_eq!(suspicion(&state), None);
        feed(&mut state, 3, 0);
        assert!(suspicion(&state).unwrap().contains("client-cpu"));
    }
}
