//! Figures and progress of one run, computed from the same events as the record.

use std::collections::VecDeque;

use floodmark_diagnose::RecentFigures;
use floodmark_record::Event;
use floodmark_record::client::ClientRan;
use floodmark_record::events::{Connecting, PartRow, Phase, SecondRow, WorkerEnd};
use floodmark_record::outcome::Counts;
use floodmark_record::plan::{Plan, RateStep, step_at};
use floodmark_record::times::TimeKind;
use floodmark_record::units::{Rate, show_count, show_ns};
use floodmark_record::watch::{HostUsed, ServerUsed};
use floodmark_report::{Emphasis, Style, count_of, describe_plan, rate, seconds};
use floodmark_stats::Histogram;
use floodmark_stats::steady::SHORTEST_ROW_S;

/// Minimum length, in seconds, of the period used to compute the server's and store's CPU use and
/// the rate of the first second. CPU time is accurate only to a few milliseconds.
const MIN_LENGTH_S: f64 = 0.1;

/// Number of reports of opened connections per printed line if the output is not a terminal. About
/// two reports arrive per second.
const REPORTS_PER_LINE: u32 = 10;

/// Maximum number of seconds in the throughput history. The oldest second is dropped first.
const MAX_HISTORY: usize = 512;

/// Number of seconds on which a suspicion is based. A single slow second is not enough.
const RECENT_S: usize = 3;

/// Maximum length, in seconds, of a run for which a line is printed every 5 s if the output is not
/// a terminal. For longer runs, a line is printed every 10 s.
const SHORT_RUN_S: f64 = 60.0;

const SHORT_INTERVAL_S: f64 = 5.0;

const LONG_INTERVAL_S: f64 = 10.0;

/// Maximum number of agents whose throughput is shown individually.
const LISTED_AGENTS: usize = 4;

/// Factor by which a key changes the rate.
const RATE_FACTOR: f64 = 1.1;

/// Maximum number of keys by which the rate can be above or below the initial rate: about ten times
/// and a tenth of the initial rate.
const MAX_RATE_STEPS: i32 = 24;

/// A rate that keys change.
struct AdjustableRate {
    /// The plan, including the changes so far.
    plan: Plan,
    initial: Rate,
    /// Number of key presses that raised the rate minus the number that lowered it.
    steps: i32,
}

impl AdjustableRate {
    /// Returns the rate that the user has set. Its third digit is rounded, except in the initial
    /// rate.
    fn rate(&self) -> Rate {
        let per_s = self.initial.per_s() * RATE_FACTOR.powi(self.steps);
        let unit = 10f64.powf(per_s.log10().floor() - 2.0);
        let rounded = Rate::new((per_s / unit).round() * unit);
        rounded.filter(|_| self.steps != 0).unwrap_or(self.initial)
    }
}

/// Progress of one run. Memory use is constant, except for one step per rate change.
#[derive(Default)]
pub(crate) struct RunProgress {
    /// URL and plan.
    pub(crate) heading: [String; 2],
    /// Progress in opening connections, until the load starts.
    pub(crate) opening: Option<String>,
    /// Ok responses per second, one value per second of the current phase. Rows that are too short
    /// for a rate share the value of the row that makes them long enough.
    pub(crate) history: VecDeque<f64>,
    /// Response times of the current phase.
    pub(crate) response: Histogram,
    /// What seems to limit the run, if the figures support a suspicion.
    pub(crate) suspicion: Option<String>,
    pub(crate) last: LastSecond,
    warmup_s: f64,
    /// Length of the sending window, or `None` if the length is not known in advance.
    length_s: Option<f64>,
    /// Whether a duration limits the sending window. In the open model, a window with a number of
    /// requests has a length, but ends only when all requests have been sent.
    has_duration: bool,
    requests: Option<u64>,
    steps: Vec<RateStep>,
    /// Whether the plan changes the rate during the load. If so, the intended rate is also shown.
    has_profile: bool,
    /// Set if keys can change the rate.
    adjustable: Option<AdjustableRate>,
    /// Whether the measurement has started.
    is_measuring: bool,
    threads: u32,
    is_open: bool,
    warming_up: bool,
    elapsed_s: f64,
    /// Totals of the current phase.
    counts: Counts,
    /// Totals of the parts of the current second, until the row for the whole second replaces them.
    parts: Counts,
    /// Ok responses in the sending window of the current phase.
    ok_in_window: u64,
    recent: VecDeque<LastSecond>,
    /// Sums of the latest rows, if they are too short to compute a rate.
    unrated: RateSums,
    /// Time of the last line from [`RunProgress::plain_line`], in seconds since the phase started.
    reported_s: f64,
    /// Number of connection reports so far.
    reports: u32,
}

/// Sums from which rates and the client's CPU use are computed.
#[derive(Default)]
struct RateSums {
    length_ns: u64,
    ok: u64,
    intended: u64,
    cpu_s: f64,
}

/// Figures of the last second.
#[derive(Clone, Default)]
pub(crate) struct LastSecond {
    /// Ok responses per second. In the first second, the rate so far.
    pub(crate) ok_per_s: f64,
    intended_per_s: f64,
    counts: Counts,
    /// Response times; `None` if there was no ok response.
    pub(crate) response: Option<Histogram>,
    lateness: Option<Histogram>,
    /// Number of CPUs used by the client, the server and the store; `None` for processes that are
    /// not monitored.
    cpus: [Option<f64>; 3],
    host: Option<HostUsed>,
    open_connections: u64,
    /// Ok responses per second of each agent; `None` for an agent that is silent. Empty if the load
    /// uses no agents.
    agents_per_s: Vec<Option<f64>>,
}

impl RunProgress {
    /// Creates the progress of a run that has not started.
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut progress = RunProgress {
            adjustable: plan.adjustable_rate().map(|initial| AdjustableRate {
                plan: plan.clone(),
                initial,
                steps: 0,
            }),
            last: LastSecond {
                cpus: [Some(0.0), None, None],
                ..LastSecond::default()
            },
            warmup_s: plan.warmup.as_secs_f64(),
            length_s: match plan.schedule() {
                Some(schedule) => Some(schedule.window_s()),
                None => plan.duration_s(),
            },
            has_duration: plan.duration_s().is_some(),
            requests: plan.request_limit(),
            threads: plan.threads,
            is_open: plan.is_open(),
            warming_up: !plan.warmup.is_zero(),
            ..RunProgress::default()
        };
        progress.show_plan(plan);
        progress
    }

    /// Shows a plan, whose rate may have changed.
    fn show_plan(&mut self, plan: &Plan) {
        self.heading = [plan.target.url.clone(), describe_plan(plan, 1)];
        self.steps = plan.steps().unwrap_or_default().to_vec();
        self.has_profile = plan.rate_changes();
    }

    /// Raises or lowers the rate that the user has set by a number of steps. Returns the new rate,
    /// or `None` if keys cannot change the rate now.
    pub(crate) fn change_rate(&mut self, steps: i32) -> Option<Rate> {
        let adjustable = self.adjustable.as_mut().filter(|_| self.is_measuring)?;
        let steps = adjustable.steps + steps;
        if steps.abs() > MAX_RATE_STEPS {
            return None;
        }
        adjustable.steps = steps;
        Some(adjustable.rate())
    }

    /// Describes the keys that change the rate, and the rate that they have set; `None` if keys
    /// cannot change the rate now.
    pub(crate) fn rate_keys(&self) -> Option<String> {
        let adjustable = self.adjustable.as_ref().filter(|_| self.is_measuring)?;
        let set = match adjustable.steps {
            0 => "rate".to_owned(),
            _ => rate(adjustable.rate().per_s()),
        };
        Some(format!(" · +/- {set}"))
    }

    /// Adds an event of the run.
    pub(crate) fn on(&mut self, event: &Event) {
        let last = &mut self.last;
        match event {
            Event::Connecting(report) => self.opening = Some(opening_line(report)),
            Event::Began { phase, .. } => {
                self.opening = None;
                self.is_measuring = *phase == Phase::Measure;
            }
            Event::RateChanged(change) => {
                if let Some(adjustable) = &mut self.adjustable {
                    adjustable.plan.change_rate(*change);
                    let plan = adjustable.plan.clone();
                    self.show_plan(&plan);
                }
            }
            Event::ServerUsed(used) => last.cpus[1] = cpus(used).or(last.cpus[1]),
            Event::StoreUsed(used) => last.cpus[2] = cpus(used).or(last.cpus[2]),
            Event::HostUsed(used) => last.host = Some(*used),
            Event::AgentRates { ok_per_s } => last.agents_per_s.clone_from(ok_per_s),
            Event::Part(part) => self.add_part(part),
            Event::Second(row) => self.add_second(row),
            _ => {}
        }
    }

    /// Adds a part of a second. The row for this second later replaces its parts.
    fn add_part(&mut self, part: &PartRow) {
        self.enter(part.phase);
        self.parts.merge(&part.sums.counts);
        self.elapsed_s = part.to_ns as f64 / 1e9;
        // The first second has no row yet.
        if self.counts.intended == 0 && self.elapsed_s >= MIN_LENGTH_S {
            self.last.ok_per_s = self.parts.ok as f64 / self.elapsed_s;
            self.last.intended_per_s = self.parts.intended as f64 / self.elapsed_s;
        }
    }

    /// Discards the figures of the warm-up when the measurement starts.
    fn enter(&mut self, phase: Phase) {
        let warming_up = phase == Phase::Warmup;
        if warming_up != self.warming_up {
            self.warming_up = warming_up;
            self.counts = Counts::default();
            self.parts = Counts::default();
            self.reported_s = 0.0;
            self.history.clear();
            self.response.clear();
            self.recent.clear();
            self.unrated = RateSums::default();
            self.suspicion = None;
            self.ok_in_window = 0;
        }
    }

    /// Adds the row of one second.
    fn add_second(&mut self, row: &SecondRow) {
        self.enter(row.phase);
        self.parts = Counts::default();
        self.counts.merge(&row.counts);
        self.elapsed_s = row.to_ns as f64 / 1e9;
        self.ok_in_window += row.ok_in_window;
        // Ignore a damaged histogram; only this second's percentiles are then missing.
        let times = |kind| Histogram::decode(row.histograms.get(&kind)?).ok();
        let last = &mut self.last;
        last.counts = row.counts.clone();
        last.response = times(TimeKind::Response);
        last.lateness = times(TimeKind::Lateness);
        last.open_connections = row.open_connections;
        let sums = &mut self.unrated;
        sums.length_ns += row.to_ns.saturating_sub(row.from_ns);
        sums.ok += row.counts.ok;
        sums.intended += row.counts.intended;
        sums.cpu_s += row.user_s + row.system_s;
        let length_s = sums.length_ns as f64 / 1e9;
        if length_s >= SHORTEST_ROW_S {
            let sums = std::mem::take(sums);
            last.ok_per_s = sums.ok as f64 / length_s;
            last.intended_per_s = sums.intended as f64 / length_s;
            last.cpus[0] = Some(sums.cpu_s / length_s);
            if self.history.len() == MAX_HISTORY {
                self.history.pop_front();
            }
            self.history.push_back(last.ok_per_s);
        }
        if let Some(times) = &last.response {
            self.response.merge(times);
        }
        if self.recent.len() == RECENT_S {
            self.recent.pop_front();
        }
        self.recent.push_back(last.clone());
        self.suspicion = self.recent().and_then(|recent| recent.suspicion());
    }

    /// Returns the figures of the last three seconds, or `None` before the end of the third second
    /// of a phase.
    fn recent(&self) -> Option<RecentFigures> {
        if self.recent.len() < RECENT_S {
            return None;
        }
        let seconds = || self.recent.iter();
        let mean = |of: fn(&LastSecond) -> Option<f64>| {
            let values: Option<Vec<f64>> = seconds().map(of).collect();
            values.map(|values| values.iter().sum::<f64>() / RECENT_S as f64)
        };
        let p99_us = |of: fn(&LastSecond) -> Option<&Histogram>| {
            let mut all = seconds().filter(|_| self.is_open).filter_map(of);
            let mut merged = all.next()?.clone();
            all.for_each(|times| merged.merge(times));
            Some(merged.quantile(0.99)? as f64 / 1e3)
        };
        let mut counts = Counts::default();
        seconds().for_each(|second| counts.merge(&second.counts));
        Some(RecentFigures {
            failed_share: failed(&counts) as f64 / counts.intended.max(1) as f64,
            lateness_p99_us: p99_us(|second| second.lateness.as_ref()),
            response_p99_us: p99_us(|second| second.response.as_ref()),
            client_threads: self.threads * self.last.agents_per_s.len().max(1) as u32,
            client_cpus: mean(|second| second.cpus[0]).unwrap_or_default(),
            server_cpus: mean(|second| second.cpus[1]),
            store_cpus: mean(|second| second.cpus[2]),
            host_cpus: self.host_cpus(),
            busy_cpus: mean(|second| second.host.map(|host| host.busy_s / host.over_s)),
        })
    }

    /// Returns the number of CPUs of the host, if known.
    pub(crate) fn host_cpus(&self) -> Option<f64> {
        let host = self.last.host?;
        Some((host.total_s / host.over_s).round().max(1.0))
    }

    /// Returns the number of CPUs that other programs used in the last second, if known.
    pub(crate) fn other_cpus(&self) -> Option<f64> {
        let host = self.last.host?;
        let [client, server_cpus, store_cpus] = self.last.cpus;
        let figures = RecentFigures {
            client_cpus: client?,
            server_cpus,
            store_cpus,
            busy_cpus: Some(host.busy_s / host.over_s),
            ..RecentFigures::default()
        };
        figures.other_cpus()
    }

    /// Returns the final figures of the run.
    pub(crate) fn attempt(&self, end: &WorkerEnd) -> AttemptFigures {
        let window_s = end.window_ns as f64 / 1e9;
        AttemptFigures {
            ok_per_s: (window_s > 0.0).then(|| self.ok_in_window as f64 / window_s),
            p99_ns: self.response.quantile(0.99),
            not_ok: end.counts.intended.saturating_sub(end.counts.ok),
        }
    }

    /// Returns the counts of the current phase.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = self.counts.clone();
        counts.merge(&self.parts);
        counts
    }

    /// Returns how many CPUs the client, the server and the store each used in the last second;
    /// `None` for processes that are not monitored.
    pub(crate) fn role_cpus(&self) -> [(&'static str, Option<f64>); 3] {
        let [client, server, store] = self.last.cpus;
        [("client", client), ("server", server), ("store", store)]
    }

    /// Returns the completed share of the current phase, from 0 to 1; `None` if its length is not
    /// known.
    pub(crate) fn share(&self) -> Option<f64> {
        let requests = self.requests.filter(|_| !self.warming_up);
        let by_requests = requests.map(|n| self.done() as f64 / n as f64);
        let length_s = self
            .phase_s()
            .filter(|_| requests.is_none() || self.has_duration);
        let by_time = length_s.map(|length_s| self.elapsed_s / length_s);
        let shares = [by_requests, by_time].into_iter().flatten();
        let share = shares.filter(|share| share.is_finite()).reduce(f64::max)?;
        Some(share.clamp(0.0, 1.0))
    }

    /// Returns the estimated remaining time of the current phase in seconds; `None` if unknown.
    pub(crate) fn left_s(&self) -> Option<f64> {
        let by_time = self.phase_s().map(|length_s| length_s - self.elapsed_s);
        let requests = self.requests.filter(|_| !self.warming_up && !self.is_open);
        let by_requests = requests.map(|n| self.left_of(n));
        let left_s = by_time.into_iter().chain(by_requests).reduce(f64::min)?;
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

    /// Returns a line for a log or pipe with the number of opened connections, if one is due. A
    /// line is due about every 5 s.
    pub(crate) fn plain_opening_line(&mut self, report: &Connecting) -> Option<String> {
        self.reports += 1;
        let due = self.reports.is_multiple_of(REPORTS_PER_LINE);
        due.then(|| opening_line(report))
    }

    /// Returns the line for a terminal, without a line break. Parts at the end that do not fit are
    /// dropped.
    pub(crate) fn line(&self, style: Style) -> String {
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

    /// Returns the line for a log or pipe, if one is due. In a run of up to a minute, a line is due
    /// every 5 s; in longer runs, every 10 s.
    pub(crate) fn plain_line(&mut self) -> Option<String> {
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
        let counts = self.counts();
        let failed = Some(self.done() - counts.ok).filter(|n| *n > 0);
        let failed = failed.map(|n| format!("{} failed", show_count(n)));
        let time = |name: &str, share| {
            let ns = last.response.as_ref()?.quantile(share)?;
            Some(format!("{name} {}", show_ns(ns as f64)))
        };
        let ok = format!("{} ok", show_count(counts.ok));
        let connections = count_of(last.open_connections, "connection");
        let parts = [
            (Emphasis::Strong, Some(self.position())),
            (Emphasis::Plain, Some(self.achieved())),
            (Emphasis::Bad, failed),
            (Emphasis::Plain, time("p99", 0.99)),
            (Emphasis::Plain, time("p50", 0.50)),
            (Emphasis::Plain, self.agents()),
            (Emphasis::Plain, (self.elapsed_s > 0.0).then(|| self.cpus())),
            (Emphasis::Plain, Some(ok)),
            (Emphasis::Faint, Some(connections.replace('\u{a0}', " "))),
        ];
        let shown = parts.into_iter();
        shown.filter_map(|(emphasis, text)| Some((emphasis, text?)))
    }

    /// Returns the throughput in the last second, such as `900/s`, or `900/s of 1,000/s` if the
    /// rate changes.
    pub(crate) fn achieved(&self) -> String {
        let ok = rate(self.last.ok_per_s);
        if self.has_profile {
            format!("{ok} of {}", rate(self.last.intended_per_s))
        } else {
            ok
        }
    }

    /// Describes the throughput of the agents: `agents 500/s 480/s –`. If there are many agents,
    /// gives the range instead.
    pub(crate) fn agents(&self) -> Option<String> {
        let per_s = &self.last.agents_per_s;
        if per_s.len() <= LISTED_AGENTS {
            let each = per_s.iter();
            let each = each
                .map(|per_s| per_s.map_or_else(|| " –".to_owned(), |n| format!(" {}", rate(n))));
            let each: String = each.collect();
            return (!each.is_empty()).then(|| format!("agents{each}"));
        }
        let silent = match per_s.iter().filter(|per_s| per_s.is_none()).count() {
            0 => String::new(),
            n => format!(", {n} silent"),
        };
        let known = || per_s.iter().copied().flatten();
        let least = rate(known().min_by(f64::total_cmp)?);
        let most = rate(known().max_by(f64::total_cmp)?);
        Some(format!("{} agents {least} to {most}{silent}", per_s.len()))
    }

    /// Describes the CPU use in the last second: `CPUs 0.81 client 1.15 server`.
    fn cpus(&self) -> String {
        let used = self.role_cpus().into_iter();
        let used = used.filter_map(|(role, cpus)| Some(format!(" {:.2} {role}", cpus?)));
        format!("CPUs{}", used.collect::<String>())
    }

    /// Returns the number of requests that have ended or were never sent.
    fn done(&self) -> u64 {
        let counts = self.counts();
        counts.ok + failed(&counts)
    }

    /// Describes the progress: `3 s of 10 s`, `120,000 of 500,000 requests, 4 s left`, `warm-up 2 s
    /// of 5 s`.
    pub(crate) fn position(&self) -> String {
        if self.warming_up {
            return format!("warm-up {}", self.elapsed_of(self.warmup_s));
        }
        let counts = self.counts();
        let all_sent = self.requests.is_some_and(|n| counts.intended >= n)
            || self
                .length_s
                .is_some_and(|length_s| self.elapsed_s >= length_s);
        let in_flight = counts.sent.saturating_sub(counts.ended());
        if all_sent && in_flight > 0 {
            return format!("all sent, waiting for {} responses", show_count(in_flight));
        }
        let of = match (self.length_s, self.requests) {
            (Some(length_s), Some(n))
                if !self.is_open && self.left_of(n) < length_s - self.elapsed_s =>
            {
                return self.share_of(n);
            }
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

    /// Estimates how long the rest of `requests` will take, in seconds. The estimate may be
    /// infinite.
    fn left_of(&self, requests: u64) -> f64 {
        let done = self.done();
        requests.saturating_sub(done) as f64 * self.elapsed_s / done as f64
    }

    /// Returns text such as `120,000 of 500,000 requests, 4 s left`.
    fn share_of(&self, requests: u64) -> String {
        let left = match self.left_of(requests) {
            s if s.is_finite() && s > 0.0 => format!(", {} left", whole_seconds(s.ceil())),
            _ => String::new(),
        };
        let (done, all) = (show_count(self.done()), show_count(requests));
        format!("{done} of {all} requests{left}")
    }
}

/// Figures of an attempt over the whole sending window. The record may use a shorter window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct AttemptFigures {
    pub(crate) ok_per_s: Option<f64>,
    pub(crate) p99_ns: Option<u64>,
    /// Number of intended requests without an ok response.
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

/// Describes the progress of opening connections before the run.
fn opening_line(report: &Connecting) -> String {
    let (open, all) = (show_count(report.standing), show_count(report.of));
    let failed = match report.failed {
        0 => String::new(),
        n => format!(", {} failed", show_count(n)),
    };
    format!("opening connections: {open} of {all}{failed}")
}

/// Returns the number of requests that have ended without an ok response or were never sent.
pub(crate) fn failed(counts: &Counts) -> u64 {
    counts.ended() - counts.ok + counts.connect_failed + counts.unsent
}

fn cpus(used: &ServerUsed) -> Option<f64> {
    (used.over_s >= MIN_LENGTH_S).then(|| (used.user_s + used.system_s) / used.over_s)
}

fn whole_seconds(s: f64) -> String {
    format!("{s:.0} s")
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
