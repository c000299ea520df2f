//! Figures of the current run.

use std::collections::VecDeque;

use floodmark_diagnose::RecentFigures;
use floodmark_record::Event;
use floodmark_record::events::{SecondRow, WorkerEnd};
use floodmark_record::outcome::Counts;
use floodmark_record::plan::Plan;
use floodmark_record::times::TimeKind;
use floodmark_record::watch::HostUsed;
use floodmark_report::{LoadProgress, describe_plan};
use floodmark_stats::Histogram;

use crate::trials::AttemptFigures;

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
