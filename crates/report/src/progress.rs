//! Live progress of a run, computed from the same events as the record.

use floodmark_record::events::{Connecting, PartRow, Phase, SecondRow};
use floodmark_record::outcome::Counts;
use floodmark_record::plan::Plan;
use floodmark_record::profile::RateStep;
use floodmark_record::times::TimeKind;
use floodmark_record::units::show_count;
use floodmark_record::watch::ServerUsed;
use floodmark_stats::Histogram;

mod lines;

/// Minimum time over which rates and CPU use are shown. CPU time is only accurate to a few
/// milliseconds.
const MIN_LENGTH_S: f64 = 0.1;

/// Number of connection reports per printed line if there is no terminal. About two reports arrive
/// per second.
const REPORTS_PER_LINE: u32 = 10;

/// Progress of one run. Memory use is constant.
#[derive(Debug, Clone, Default)]
pub struct LoadProgress {
    warmup_s: f64,
    /// Length of the sending window, or `None` if the length is not known in advance.
    length_s: Option<f64>,
    requests: Option<u64>,
    steps: Vec<RateStep>,
    /// Whether the rate changes. If so, the intended rate is shown.
    has_profile: bool,
    warming_up: bool,
    elapsed_s: f64,
    /// Totals of the current phase.
    counts: Counts,
    /// Totals of the parts of the second that has no row yet.
    parts: Counts,
    last: LastSecond,
    /// Time of the last line from [`LoadProgress::plain_line`], in seconds since the phase started.
    reported_s: f64,
    /// Number of connection reports so far.
    reports: u32,
}

/// Figures of the last second.
#[derive(Debug, Clone, Default)]
struct LastSecond {
    ok_per_s: f64,
    intended_per_s: f64,
    /// Response times; `None` if there was no ok response.
    response: Option<Histogram>,
    client_cpus: f64,
    /// CPUs used by the server, or `None` if the server is not monitored.
    server_cpus: Option<f64>,
    store_cpus: Option<f64>,
    open_connections: u64,
    /// Ok responses per second of each agent; `None` for a silent one. Empty without agents.
    agents_per_s: Vec<Option<f64>>,
}

impl LoadProgress {
    /// Creates the progress of a run that has not started.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        LoadProgress {
            warmup_s: plan.warmup.as_secs_f64(),
            length_s: match plan.schedule() {
                Some(schedule) => Some(schedule.window_s()),
                None => plan.duration_s(),
            },
            requests: plan.request_limit(),
            steps: plan.steps().unwrap_or_default().to_vec(),
            has_profile: plan.rate_changes(),
            warming_up: !plan.warmup.is_zero(),
            ..LoadProgress::default()
        }
    }

    /// Describes how many connections have been opened before the run.
    #[must_use]
    pub fn opening_line(report: &Connecting) -> String {
        let (open, all) = (show_count(report.standing), show_count(report.of));
        let failed = match report.failed {
            0 => String::new(),
            n => format!(", {} failed", show_count(n)),
        };
        format!("opening connections: {open} of {all}{failed}")
    }

    /// Returns the number of opened connections for a log or pipe, about every 5 s.
    pub fn plain_opening_line(&mut self, report: &Connecting) -> Option<String> {
        self.reports += 1;
        let due = self.reports.is_multiple_of(REPORTS_PER_LINE);
        due.then(|| Self::opening_line(report))
    }

    /// Sets the server's CPU use for the next row. Call this method before [`feed`](Self::feed).
    pub fn server_used(&mut self, used: &ServerUsed) {
        self.last.server_cpus = cpus(used).or(self.last.server_cpus);
    }

    /// Sets the store's CPU use for the next row. Call this method before [`feed`](Self::feed).
    pub fn store_used(&mut self, used: &ServerUsed) {
        self.last.store_cpus = cpus(used).or(self.last.store_cpus);
    }

    /// Sets the agents' throughput for the next row. Call this method before [`feed`](Self::feed).
    pub fn agent_rates(&mut self, ok_per_s: &[Option<f64>]) {
        self.last.agents_per_s = ok_per_s.to_vec();
    }

    /// Adds a part of a second. The row of this second replaces its parts.
    pub fn feed_part(&mut self, part: &PartRow) {
        self.enter(part.phase);
        self.parts.merge(&part.sums.counts);
        self.elapsed_s = part.to_ns as f64 / 1e9;
        // The first second has no row yet.
        if self.counts.intended == 0 && self.elapsed_s >= MIN_LENGTH_S {
            self.last.ok_per_s = self.parts.ok as f64 / self.elapsed_s;
            self.last.intended_per_s = self.parts.intended as f64 / self.elapsed_s;
        }
    }

    fn enter(&mut self, phase: Phase) {
        let warming_up = phase == Phase::Warmup;
        if warming_up != self.warming_up {
            self.warming_up = warming_up;
            self.counts = Counts::default();
            self.parts = Counts::default();
            self.reported_s = 0.0;
        }
    }

    /// Adds the row of one second.
    pub fn feed(&mut self, row: &SecondRow) {
        self.enter(row.phase);
        self.parts = Counts::default();
        self.counts.merge(&row.counts);
        self.elapsed_s = row.to_ns as f64 / 1e9;
        let last = &mut self.last;
        last.open_connections = row.open_connections;
        let length_s = row.to_ns.saturating_sub(row.from_ns) as f64 / 1e9;
        if length_s >= MIN_LENGTH_S {
            last.ok_per_s = row.counts.ok as f64 / length_s;
            last.intended_per_s = row.counts.intended as f64 / length_s;
            last.client_cpus = (row.user_s + row.system_s) / length_s;
        }
        // Ignore a damaged histogram; only this second's percentiles are then missing.
        let response = row.histograms.get(&TimeKind::Response);
        let response = response.and_then(|text| Histogram::decode(text).ok());
        last.response = response;
    }

    /// Returns the counts of the current phase.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = self.counts.clone();
        counts.merge(&self.parts);
        counts
    }

    /// Returns the response times of the last second; `None` if there was no ok response.
    #[must_use]
    pub fn response(&self) -> Option<&Histogram> {
        self.last.response.as_ref()
    }

    /// Returns the ok responses per second in the last second, or so far in the first second.
    #[must_use]
    pub fn ok_per_s(&self) -> f64 {
        self.last.ok_per_s
    }

    /// Returns the CPUs that client, server and store used in the last second; `None` for processes
    /// that are not monitored.
    #[must_use]
    pub fn role_cpus(&self) -> [(&'static str, Option<f64>); 3] {
        [
            ("client", Some(self.last.client_cpus)),
            ("server", self.last.server_cpus),
            ("store", self.last.store_cpus),
        ]
    }

    /// Returns the number of agents that send the load, at least 1.
    #[must_use]
    pub fn agent_count(&self) -> usize {
        self.last.agents_per_s.len().max(1)
    }

    /// Returns whether this is the warm-up.
    #[must_use]
    pub fn is_warming_up(&self) -> bool {
        self.warming_up
    }

    /// Returns the completed share of the current phase, from 0 to 1; `None` if its length is not
    /// known.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        let share = match (self.warming_up, self.requests, self.length_s) {
            (true, ..) => self.elapsed_s / self.warmup_s,
            (false, Some(n), _) => self.done() as f64 / n as f64,
            (false, None, length_s) => self.elapsed_s / length_s?,
        };
        share.is_finite().then(|| share.clamp(0.0, 1.0))
    }

    /// Returns the estimated remaining time of the current phase in seconds; `None` if unknown.
    #[must_use]
    pub fn left_s(&self) -> Option<f64> {
        let length_s = match self.warming_up {
            true => Some(self.warmup_s),
            false => self.length_s,
        };
        let left_s = match length_s {
            Some(length_s) => length_s - self.elapsed_s,
            None => self.left_of(self.requests?),
        };
        (left_s.is_finite() && left_s > 0.0).then_some(left_s)
    }
}

fn cpus(used: &ServerUsed) -> Option<f64> {
    (used.over_s >= MIN_LENGTH_S).then(|| (used.user_s + used.system_s) / used.over_s)
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
