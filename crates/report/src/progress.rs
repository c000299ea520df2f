//! Live progress of a run, computed from the same events as the record.

use floodmark_record::events::{Connecting, PartRow, Phase, SecondRow};
use floodmark_record::outcome::Counts;
use floodmark_record::plan::Plan;
use floodmark_record::profile::{RateStep, step_at};
use floodmark_record::times::TimeKind;
use floodmark_record::units::{show_count, show_ns};
use floodmark_record::watch::ServerUsed;
use floodmark_stats::Histogram;

use crate::model::document::Emphasis;
use crate::model::figures::{count_of, extremes, joined, optional, rate, seconds};
use crate::style::Style;

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
        last.response = response.and_then(|text| Histogram::decode(text).ok());
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
        let share = match self.requests.filter(|_| !self.warming_up) {
            Some(n) => self.done() as f64 / n as f64,
            None => self.elapsed_s / self.phase_s()?,
        };
        share.is_finite().then(|| share.clamp(0.0, 1.0))
    }

    /// Returns the estimated remaining time of the current phase in seconds; `None` if unknown.
    #[must_use]
    pub fn left_s(&self) -> Option<f64> {
        let left_s = match self.phase_s() {
            Some(length_s) => length_s - self.elapsed_s,
            None => self.left_of(self.requests?),
        };
        (left_s.is_finite() && left_s > 0.0).then_some(left_s)
    }

    /// Returns the length of the current phase, if it is known in advance.
    fn phase_s(&self) -> Option<f64> {
        if self.warming_up {
            Some(self.warmup_s)
        } else {
            self.length_s
        }
    }
}

fn cpus(used: &ServerUsed) -> Option<f64> {
    (used.over_s >= MIN_LENGTH_S).then(|| (used.user_s + used.system_s) / used.over_s)
}

/// Maximum length of a run that prints a line every 5 s if there is no terminal. Longer runs print
/// a line every 10 s.
const SHORT_RUN_S: f64 = 60.0;

const SHORT_INTERVAL_S: f64 = 5.0;

const LONG_INTERVAL_S: f64 = 10.0;

/// Maximum number of agents whose throughput is shown individually.
const LISTED_AGENTS: usize = 4;

impl LoadProgress {
    /// Returns the line for a terminal, without a line break. Parts at the end that do not fit are
    /// dropped.
    #[must_use]
    pub fn line(&self, style: Style) -> String {
        let mut line = String::new();
        let mut columns = 0;
        for (emphasis, text) in self.parts() {
            let gap = if columns == 0 { 0 } else { 2 };
            let width = gap + text.chars().count();
            // Leave the last column free, because some terminals wrap a full line.
            if columns + width >= style.width {
                break;
            }
            line.push_str(&" ".repeat(gap));
            line.push_str(&style.paint(emphasis, &text));
            columns += width;
        }
        line
    }

    /// Returns the line for a log or pipe. A run of up to a minute prints a line every 5 s; longer
    /// runs print a line every 10 s.
    pub fn plain_line(&mut self) -> Option<String> {
        let every_s = match self.length_s {
            Some(length_s) if length_s <= SHORT_RUN_S => SHORT_INTERVAL_S,
            _ => LONG_INTERVAL_S,
        };
        // Rows do not end exactly on whole seconds.
        if self.elapsed_s - self.reported_s < every_s - 0.5 {
            return None;
        }
        self.reported_s = self.elapsed_s;
        let parts: Vec<String> = self.parts().map(|(_, text)| text).collect();
        Some(format!("{}: {}", parts[0], parts[1..].join(", ")))
    }

    /// Returns the position and the figures, most important first. Rates, times and CPU use cover
    /// the last second.
    fn parts(&self) -> impl Iterator<Item = (Emphasis, String)> {
        let last = &self.last;
        let time = |name: &str, ns: u64| format!("{name} {}", show_ns(ns as f64));
        let counts = self.counts();
        let failed = Some(self.done() - counts.ok).filter(|n| *n > 0);
        let quantile = |q| last.response.as_ref().and_then(|times| times.quantile(q));
        let failed = failed.map(|n| format!("{} failed", show_count(n)));
        let ok = format!("{} ok", show_count(counts.ok));
        let connections = count_of(last.open_connections, "connection");
        let parts = [
            (Emphasis::Strong, Some(self.position())),
            (Emphasis::Plain, Some(self.achieved())),
            (Emphasis::Bad, failed),
            (Emphasis::Plain, quantile(0.99).map(|ns| time("p99", ns))),
            (Emphasis::Plain, quantile(0.50).map(|ns| time("p50", ns))),
            (Emphasis::Plain, self.agents()),
            (Emphasis::Plain, (self.elapsed_s > 0.0).then(|| self.cpus())),
            (Emphasis::Plain, Some(ok)),
            (Emphasis::Faint, Some(connections.replace('\u{a0}', " "))),
        ];
        let shown = parts.into_iter();
        shown.filter_map(|(emphasis, text)| Some((emphasis, text?)))
    }

    /// Returns the throughput in the last second, such as `900/s`, or `900/s of 1,000/s` if the rate
    /// changes.
    #[must_use]
    pub fn achieved(&self) -> String {
        let ok = rate(self.last.ok_per_s);
        if self.has_profile {
            format!("{ok} of {}", rate(self.last.intended_per_s))
        } else {
            ok
        }
    }

    /// Describes the throughput of the agents: `agents 500/s 480/s –`, or a range for many agents.
    #[must_use]
    pub fn agents(&self) -> Option<String> {
        let per_s = &self.last.agents_per_s;
        if per_s.len() <= LISTED_AGENTS {
            let each = joined(per_s.iter().map(|per_s| optional(*per_s, rate)), " ");
            return (!each.is_empty()).then(|| format!("agents {each}"));
        }
        let silent = match per_s.iter().filter(|per_s| per_s.is_none()).count() {
            0 => String::new(),
            n => format!(", {n} silent"),
        };
        let (least, most) = extremes(&Vec::from_iter(per_s.iter().copied().flatten()))?;
        let (least, most) = (rate(least), rate(most));
        Some(format!("{} agents {least} to {most}{silent}", per_s.len()))
    }

    /// Describes the CPUs used in the last second: `CPUs 0.81 client 1.15 server`.
    fn cpus(&self) -> String {
        let used = self.role_cpus().into_iter();
        let used = used.filter_map(|(role, cpus)| Some(format!("{:.2} {role}", cpus?)));
        format!("CPUs {}", joined(used, " "))
    }

    /// Returns the number of requests that have ended or were never sent.
    pub(super) fn done(&self) -> u64 {
        let counts = [&self.counts, &self.parts];
        let done = counts.map(|of| of.ended() + of.connect_failed + of.unsent);
        done.iter().sum()
    }

    /// Describes the progress: `3 s of 10 s`, `120,000 of 500,000 requests, 4 s left`, `warm-up 2 s
    /// of 5 s`.
    #[must_use]
    pub fn position(&self) -> String {
        if self.warming_up {
            return format!("warm-up {}", self.elapsed_of(self.warmup_s));
        }
        let counts = self.counts();
        let all_sent = match (self.requests, self.length_s) {
            (Some(n), _) => counts.intended >= n,
            (None, Some(length_s)) => self.elapsed_s >= length_s,
            (None, None) => false,
        };
        let in_flight = counts.sent.saturating_sub(counts.ended());
        if all_sent && in_flight > 0 {
            return format!("all sent, waiting for {} responses", show_count(in_flight));
        }
        let of = match (self.length_s, self.requests) {
            (Some(length_s), _) => self.elapsed_of(length_s),
            (None, Some(n)) => return self.share_of(n),
            (None, None) => return whole_seconds(self.elapsed_s),
        };
        let step = step_at(&self.steps, self.elapsed_s) + 1;
        match self.steps.len() {
            0 => of,
            n => format!("step {step} of {n}, {of}"),
        }
    }

    /// Returns text such as `3 s of 10 s`. The elapsed time shown never exceeds `length_s`.
    fn elapsed_of(&self, length_s: f64) -> String {
        let all = seconds(length_s);
        if self.elapsed_s.round() < length_s {
            format!("{} of {all}", whole_seconds(self.elapsed_s))
        } else {
            format!("{all} of {all}")
        }
    }

    /// Estimates the time for the rest of `requests` in seconds. The estimate may be infinite.
    pub(super) fn left_of(&self, requests: u64) -> f64 {
        let done = self.done();
        requests.saturating_sub(done) as f64 * self.elapsed_s / done as f64
    }

    /// Returns text such as `120,000 of 500,000 requests, 4 s left`.
    fn share_of(&self, requests: u64) -> String {
        let done = self.done();
        let left_s = self.left_of(requests);
        let left = match left_s {
            s if s.is_finite() && s > 0.0 => format!(", {} left", whole_seconds(s.ceil())),
            _ => String::new(),
        };
        let (done, all) = (show_count(done), show_count(requests));
        format!("{done} of {all} requests{left}")
    }
}

fn whole_seconds(s: f64) -> String {
    format!("{s:.0} s")
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
