//! What the live view and the progress lines show, collected from events: the figures of the current run,
//! the trials of an experiment, and a search with its trials and the interval that they leave.

use std::collections::VecDeque;

use floodmark_diagnose::RecentFigures;
use floodmark_record::Event;
use floodmark_record::capacity::{CapacityResult, TrialOutcome};
use floodmark_record::client::ClientRan;
use floodmark_record::events::{SecondRow, WorkerEnd};
use floodmark_record::outcome::Counts;
use floodmark_record::plan::Plan;
use floodmark_record::times::TimeKind;
use floodmark_record::watch::HostUsed;
use floodmark_report::{LoadProgress, Style, capacity_progress_line, describe_plan};
use floodmark_stats::Histogram;

/// The progress of a load, search or experiment. Memory use is limited, except for one entry per trial.
#[derive(Default)]
pub struct LiveState {
    /// Position in the schedule of an experiment; empty outside experiments.
    pub(crate) position: String,
    pub(crate) run: Option<RunFigures>,
    /// Empty outside experiments.
    pub(crate) trials: TrialList,
    pub(crate) search: Option<SearchProgress>,
    /// Whether a stop was requested.
    pub(crate) is_ending: bool,
}

impl LiveState {
    /// Sets the planned attempts of an experiment, each by the name of its trial. `are_searches`
    /// says whether each attempt is a capacity search.
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

    /// Adds the last trial of a capacity search.
    pub fn record_search(&mut self, result: &CapacityResult) {
        self.search.get_or_insert_default().record(result);
    }

    /// Adds an event of any kind.
    pub fn on(&mut self, event: &Event) {
        match event {
            Event::RunBegan { run, plan, .. } => {
                self.run = Some(RunFigures::new(plan));
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

    /// Returns the position in the schedule; empty outside experiments.
    #[must_use]
    pub fn position(&self) -> &str {
        &self.position
    }

    /// Returns the progress of the run in one line of at most `style.width` columns.
    #[must_use]
    pub fn run_line(&self, style: Style) -> String {
        let Some(run) = &self.run else {
            return String::new();
        };
        match &run.opening {
            Some(opening) => opening.clone(),
            None => run.progress.line(style),
        }
    }

    /// Returns the progress of the capacity search in one line of fewer than `width` columns.
    #[must_use]
    pub fn search_line(&self, width: usize) -> String {
        let line = self.search.as_ref().map_or("", |search| &search.line);
        line.chars().take(width.saturating_sub(1)).collect()
    }

    /// Returns the line that a log or pipe gets after an event, about every 5 to 10 s.
    pub fn plain_line(&mut self, event: &Event) -> Option<String> {
        let progress = &mut self.run.as_mut()?.progress;
        match event {
            Event::Connecting(report) => progress.plain_opening_line(report),
            Event::Second(_) => progress.plain_line(),
            _ => None,
        }
    }

    /// Adds the figures of an attempt that ended with a run or with a capacity search.
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
    /// Lower end of the interval; without an interval, the highest rate that passed.
    pub(crate) low: Option<f64>,
    /// Upper end of the interval; without an interval, the lowest rate that missed.
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
    /// Adds the last trial of `result`. A new search replaces the steps of an earlier one.
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

/// Maximum number of seconds in the throughput history. The oldest second is dropped first.
const MAX_HISTORY: usize = 512;

/// Number of seconds that a suspicion covers. A single slow second supports no suspicion.
const RECENT_S: usize = 3;

/// Figures of one run, from its events.
pub(crate) struct RunFigures {
    /// URL and plan.
    pub(crate) heading: [String; 2],
    pub(crate) progress: LoadProgress,
    /// Progress in opening connections, until the load starts.
    pub(crate) opening: Option<String>,
    /// Ok responses per second, one value per second of the current phase.
    pub(crate) history: VecDeque<f64>,
    /// Response times of the current phase.
    pub(crate) response: Histogram,
    pub(crate) host: Option<HostUsed>,
    threads: u32,
    is_open: bool,
    /// Ok responses in the sending window of the current phase.
    ok_in_window: u64,
    recent: VecDeque<RecentSecond>,
    /// What seems to limit the run, if the figures support a suspicion.
    pub(crate) suspicion: Option<String>,
}

/// The part of a second that a suspicion needs.
struct RecentSecond {
    counts: Counts,
    lateness: Option<Histogram>,
    response: Option<Histogram>,
    /// CPUs that client, server and store used; `None` for processes that are not monitored.
    cpus: [Option<f64>; 3],
    host: Option<HostUsed>,
}

impl RunFigures {
    pub(crate) fn new(plan: &Plan) -> Self {
        RunFigures {
            heading: [plan.target.url.clone(), describe_plan(plan, 1)],
            progress: LoadProgress::new(plan),
            opening: None,
            history: VecDeque::new(),
            response: Histogram::new(),
            host: None,
            threads: plan.threads,
            is_open: plan.is_open(),
            ok_in_window: 0,
            recent: VecDeque::new(),
            suspicion: None,
        }
    }

    /// Adds an event of the run.
    pub(crate) fn on(&mut self, event: &Event) {
        match event {
            Event::Connecting(report) => self.opening = Some(LoadProgress::opening_line(report)),
            Event::Began { .. } => self.opening = None,
            Event::ServerUsed(used) => self.progress.server_used(used),
            Event::StoreUsed(used) => self.progress.store_used(used),
            Event::HostUsed(used) => self.host = Some(*used),
            Event::AgentRates { ok_per_s } => self.progress.agent_rates(ok_per_s),
            Event::Part(part) => {
                self.enter(part.from_ns);
                self.progress.feed_part(part);
            }
            Event::Second(row) => self.take_second(row),
            _ => {}
        }
    }

    /// Forgets the warm-up when the measurement starts.
    fn enter(&mut self, from_ns: u64) {
        if from_ns == 0 {
            self.history.clear();
            self.response.clear();
            self.recent.clear();
            self.suspicion = None;
            self.ok_in_window = 0;
        }
    }

    fn take_second(&mut self, row: &SecondRow) {
        self.enter(row.from_ns);
        self.progress.feed(row);
        if self.history.len() == MAX_HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(self.progress.ok_per_s());
        if let Some(times) = self.progress.response() {
            self.response.merge(times);
        }
        self.ok_in_window += row.ok_in_window;
        if self.recent.len() == RECENT_S {
            self.recent.pop_front();
        }
        let lateness = row.histograms.get(&TimeKind::Lateness);
        let lateness = lateness.filter(|_| self.is_open);
        self.recent.push_back(RecentSecond {
            counts: row.counts.clone(),
            lateness: lateness.and_then(|text| Histogram::decode(text).ok()),
            response: self.progress.response().filter(|_| self.is_open).cloned(),
            cpus: self.progress.role_cpus().map(|(_, cpus)| cpus),
            host: self.host,
        });
        self.suspicion = self.recent().and_then(|recent| recent.suspicion());
    }

    /// Returns the figures of the last three seconds, or `None` if the run is shorter.
    fn recent(&self) -> Option<RecentFigures> {
        if self.recent.len() < RECENT_S {
            return None;
        }
        let seconds = || self.recent.iter();
        let mean = |of: fn(&RecentSecond) -> Option<f64>| {
            let values: Option<Vec<f64>> = seconds().map(of).collect();
            values.map(|values| values.iter().sum::<f64>() / RECENT_S as f64)
        };
        let p99_us = |of: fn(&RecentSecond) -> Option<&Histogram>| {
            let mut all = seconds().filter_map(of);
            let mut merged = all.next()?.clone();
            all.for_each(|times| merged.merge(times));
            Some(merged.quantile(0.99)? as f64 / 1e3)
        };
        let mut counts = Counts::default();
        seconds().for_each(|second| counts.merge(&second.counts));
        let failed = counts.ended() - counts.ok + counts.connect_failed + counts.unsent;
        Some(RecentFigures {
            failed_share: failed as f64 / counts.intended.max(1) as f64,
            lateness_p99_us: p99_us(|second| second.lateness.as_ref()),
            response_p99_us: p99_us(|second| second.response.as_ref()),
            client_threads: self.threads * self.progress.agent_count() as u32,
            client_cpus: mean(|second| second.cpus[0]).unwrap_or_default(),
            server_cpus: mean(|second| second.cpus[1]),
            store_cpus: mean(|second| second.cpus[2]),
            host_cpus: self.host_cpus(),
            busy_cpus: mean(|second| second.host.map(|host| host.busy_s / host.over_s)),
        })
    }

    /// Returns the number of CPUs of the host, if known.
    pub(crate) fn host_cpus(&self) -> Option<f64> {
        let host = self.host?;
        Some((host.total_s / host.over_s).round().max(1.0))
    }

    /// Returns the CPUs that other programs used in the last second, if known.
    pub(crate) fn other_cpus(&self) -> Option<f64> {
        let host = self.host?;
        let [(_, client), (_, server_cpus), (_, store_cpus)] = self.progress.role_cpus();
        let figures = RecentFigures {
            client_cpus: client?,
            server_cpus,
            store_cpus,
            busy_cpus: Some(host.busy_s / host.over_s),
            ..RecentFigures::default()
        };
        figures.other_cpus()
    }

    /// Returns the figures of the run, which has ended.
    pub(crate) fn attempt(&self, end: &WorkerEnd) -> AttemptFigures {
        let window_s = end.window_ns as f64 / 1e9;
        AttemptFigures {
            ok_per_s: (window_s > 0.0).then(|| self.ok_in_window as f64 / window_s),
            p99_ns: self.response.quantile(0.99),
            not_ok: end.counts.intended.saturating_sub(end.counts.ok),
        }
    }
}

/// Figures of an attempt over the whole sending window. The record may use a shorter window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct AttemptFigures {
    pub(crate) ok_per_s: Option<f64>,
    pub(crate) p99_ns: Option<u64>,
    /// Intended requests without an ok response.
    pub(crate) not_ok: u64,
}

impl From<&ClientRan> for AttemptFigures {
    fn from(ran: &ClientRan) -> Self {
        let printed = &ran.tool.said;
        AttemptFigures {
            ok_per_s: printed.throughput_per_s,
            p99_ns: printed.p99_us.map(|us| (us * 1e3) as u64),
            not_ok: printed.wrong.unwrap_or(0) + printed.errors.unwrap_or(0),
        }
    }
}

/// One trial.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrialProgress {
    pub(crate) name: String,
    /// Number of planned attempts, over all server processes.
    pub(crate) planned: usize,
    /// Completed attempts.
    pub(crate) attempts: Vec<AttemptFigures>,
    pub(crate) is_skipped: bool,
}

impl TrialProgress {
    /// Returns the mean throughput, the largest p99, and the sum of requests that were not ok.
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
    /// Creates the list from the trial of each planned attempt.
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
