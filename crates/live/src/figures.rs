//! Figures of the current run and of the trials of an experiment.

use std::collections::VecDeque;

use floodmark_diagnose::RecentFigures;
use floodmark_record::Event;
use floodmark_record::client::ClientRan;
use floodmark_record::events::{SecondRow, WorkerEnd};
use floodmark_record::outcome::Counts;
use floodmark_record::plan::Plan;
use floodmark_record::times::TimeKind;
use floodmark_record::watch::HostUsed;
use floodmark_report::{LoadProgress, describe_plan};
use floodmark_stats::Histogram;

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
    client_cpus: f64,
    server_cpus: Option<f64>,
    store_cpus: Option<f64>,
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
        let [(_, client), (_, server_cpus), (_, store_cpus)] = self.progress.role_cpus();
        self.recent.push_back(RecentSecond {
            counts: row.counts.clone(),
            lateness: lateness.and_then(|text| Histogram::decode(text).ok()),
            response: self.progress.response().filter(|_| self.is_open).cloned(),
            client_cpus: client.unwrap_or_default(),
            server_cpus,
            store_cpus,
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
            client_cpus: mean(|second| Some(second.client_cpus)).unwrap_or_default(),
            server_cpus: mean(|second| second.server_cpus),
            store_cpus: mean(|second| second.store_cpus),
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

    /// Marks a trial as running.
    pub(crate) fn begin(&mut self, name: &str) {
        self.current = self.find(name);
    }

    /// Adds the figures of the attempt that ended.
    pub(crate) fn end_attempt(&mut self, figures: AttemptFigures) {
        if let Some(at) = self.current.take() {
            self.trials[at].attempts.push(figures);
        }
    }

    /// Marks a trial as skipped.
    pub(crate) fn skip(&mut self, name: &str) {
        if let Some(at) = self.find(name) {
            self.trials[at].is_skipped = true;
        }
    }
}
