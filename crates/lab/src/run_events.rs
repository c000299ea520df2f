//! Collects the events of one run: its rows, its throughput in 100 ms intervals, the periods
//! without a response, and how it ended. Computes the figures of an external client's run from the
//! client's output and CPU time. Histograms are added up separately.

use std::collections::BTreeMap;

use floodmark_record::api_check::ItemsFile;
use floodmark_record::client::{ClientRan, PrintedFigures};
use floodmark_record::events::{Abort, EndReason, PartRow, Phase, RunId, WorkerReady};
use floodmark_record::plan::{Http, Plan};
use floodmark_record::reason::TOO_FEW_ROWS;
use floodmark_record::run::{
    AgentRun, ClientUsage, FineThroughput, GroupPoint, Placement, Run, RunEnd, SeriesRow, Silence,
    TimeBuckets, Window,
};
use floodmark_record::stream::Event;
use floodmark_record::units::show_ns;
use floodmark_record::verdict::Windows;
use floodmark_record::watch::{Logged, Observed, ServerUsed};
use floodmark_record::{Counts, SecondRow, TimeKind, Times, WorkerEnd};
use floodmark_stats::Histogram;
use floodmark_stats::steady::SeriesPoint;

/// The events of one run.
#[derive(Debug)]
pub struct RunEvents {
    pub id: RunId,
    pub plan: Plan,
    pub unix_ms: u64,
    pub place: Option<Placement>,
    pub ready: Option<WorkerReady>,
    pub rows: Vec<MeasuredSecond>,
    /// Number of `rows` that do not come from an event: 1 if the last row consists of parts that
    /// arrived before the worker died, else 0. Such a row has no CPU use, connections or times.
    pub rows_of_parts: usize,
    /// Parts of the second that has no row yet.
    parts: Vec<PartRow>,
    pub silences: Silences,
    pub fine: FineThroughputCounter,
    pub warmup: Counts,
    pub warmup_to_ns: u64,
    /// The condition because of which the worker was told to stop.
    abort: Option<Abort>,
    pub end: Option<WorkerEnd>,
    /// The agents that sent the load.
    pub agents: Vec<AgentRun>,
    /// Items that were read back after the load.
    pub items: Option<ItemsFile>,
    /// Name of the external client.
    pub driven_by: Option<String>,
    pub client: Option<ClientRan>,
    pub observed: Observed,
    /// CPU time that the server used in the second that the next row covers.
    server_used: Option<ServerUsed>,
    /// CPU time that the store used in the second that the next row covers.
    store_used: Option<ServerUsed>,
    pub missing: Vec<String>,
    /// Throughput with and without a perturbation, measured after the run.
    pub perturbed: Vec<Windows>,
    pub logged: Logged,
    pub ended: bool,
    /// Why the run is incomplete.
    pub cut_short: Option<String>,
    /// Whether the record omits this run, because it was superseded by a later run or was a trial
    /// of a capacity search.
    pub left_out: bool,
}

/// One second of the measurement, with figures computed from its histograms.
#[derive(Debug, Clone)]
pub struct MeasuredSecond {
    pub row: SecondRow,
    pub figures: SeriesRow,
    /// CPU time that the server used.
    server: Option<ServerUsed>,
    /// CPU time that the store used.
    store: Option<ServerUsed>,
}

impl MeasuredSecond {
    /// Computes the figures of a second.
    pub fn new(mut row: SecondRow, server: Option<ServerUsed>, store: Option<ServerUsed>) -> Self {
        let times = ResponseTimes::of(&TimeHistograms::decode_responses(&row.histograms));
        row.histograms = BTreeMap::new();
        let length_s = (row.to_ns - row.from_ns) as f64 / 1e9;
        let cpus = |used: Option<ServerUsed>| {
            used.map(|used| (used.user_s / used.over_s, used.system_s / used.over_s))
                .unzip()
        };
        let (server_user_cpus, server_system_cpus) = cpus(server);
        let (store_user_cpus, store_system_cpus) = cpus(store);
        let mut figures = SeriesRow {
            from_s: row.from_ns as f64 / 1e9,
            to_s: row.to_ns as f64 / 1e9,
            failed: failed(&row.counts),
            client_user_cpus: row.user_s / length_s,
            client_system_cpus: row.system_s / length_s,
            server_user_cpus,
            server_system_cpus,
            store_user_cpus,
            store_system_cpus,
            open_connections: row.open_connections,
            ..SeriesRow::default()
        };
        times.fill(&mut figures);
        let mut second = MeasuredSecond {
            row,
            figures,
            server,
            store,
        };
        second.set_rates(second.row.to_ns);
        second
    }

    /// Joins the next second to this one. The result has no response times. If CPU use is known for
    /// only one of the seconds, the result has the CPU use of that second.
    pub fn join(self, next: MeasuredSecond) -> Self {
        let used = |before: Option<ServerUsed>, next: Option<ServerUsed>| {
            let (Some(before), Some(next)) = (before, next) else {
                return before.or(next);
            };
            Some(ServerUsed {
                over_s: before.over_s + next.over_s,
                user_s: before.user_s + next.user_s,
                system_s: before.system_s + next.system_s,
            })
        };
        let (server, store) = (used(self.server, next.server), used(self.store, next.store));
        let mut row = SecondRow {
            open_connections: 0,
            ..self.row
        };
        row.merge(&next.row);
        MeasuredSecond::new(row, server, store)
    }

    /// Computes the rates only up to the end of the sending window, unless the second starts after
    /// the window.
    pub fn end_at(&mut self, sending_end_ns: u64) {
        if self.row.from_ns < sending_end_ns {
            self.set_rates(self.row.to_ns.min(sending_end_ns));
        }
    }

    /// Computes the rates for the time until `end_ns`.
    fn set_rates(&mut self, end_ns: u64) {
        let length_s = (end_ns - self.row.from_ns) as f64 / 1e9;
        let per_s = |n: u64| n as f64 / length_s;
        self.figures.throughput_per_s = per_s(self.row.ok_in_window);
        self.figures.goodput_per_s = per_s(self.row.good_in_window);
        let groups = self.row.groups.iter().map(|group| GroupPoint {
            throughput_per_s: per_s(group.ok_in_window),
            goodput_per_s: per_s(group.good_in_window),
            failed: failed(&group.counts),
        });
        self.figures.groups = groups.collect();
    }

    /// Returns this second as a point of the throughput curve. The second is cut off at `end_s`.
    pub fn point(&self, end_s: f64) -> SeriesPoint {
        SeriesPoint {
            from_s: self.figures.from_s,
            to_s: self.figures.to_s.min(end_s),
            throughput_per_s: self.figures.throughput_per_s,
            p50_us: self.figures.p50_us,
        }
    }
}

impl RunEvents {
    /// Returns a run that has just started.
    pub fn new(id: RunId, plan: Plan, unix_ms: u64) -> Self {
        RunEvents {
            id,
            plan,
            unix_ms,
            place: None,
            ready: None,
            rows: Vec::new(),
            rows_of_parts: 0,
            parts: Vec::new(),
            silences: Silences::default(),
            fine: FineThroughputCounter::default(),
            warmup: Counts::default(),
            warmup_to_ns: 0,
            abort: None,
            end: None,
            agents: Vec::new(),
            items: None,
            driven_by: None,
            client: None,
            observed: Observed::default(),
            server_used: None,
            store_used: None,
            missing: Vec::new(),
            perturbed: Vec::new(),
            logged: Logged::default(),
            ended: false,
            cut_short: None,
            left_out: false,
        }
    }

    /// Adds an event of the run.
    pub fn take(&mut self, event: Event) {
        match event {
            Event::Placed(place) => self.place = Some(place),
            Event::Driven { by } => self.driven_by = Some(by),
            Event::Ready(ready) => self.ready = Some(ready),
            Event::RateChanged(change) => self.plan.change_rate(change),
            Event::ServerUsed(used) => self.server_used = Some(used),
            Event::StoreUsed(used) => self.store_used = Some(used),
            Event::Part(part) => {
                self.silences.add(&part);
                self.fine.add(&part);
                self.parts.push(part);
            }
            Event::Second(row) => self.take_second(row),
            Event::Aborted(abort) => self.abort = Some(abort),
            Event::End(end) => self.end = Some(end),
            Event::Agents { agents } => self.agents = agents,
            Event::ReadBack(items) => self.items = Some(items),
            Event::ClientRan(ran) => self.client = Some(ran),
            Event::Observed(observed) => self.observed = observed,
            Event::Logged(logged) => self.logged = logged,
            Event::Missing { missing } => self.missing.extend(missing),
            Event::RunEnded { cut_short, .. } => {
                self.ended = true;
                self.cut_short = cut_short;
            }
            // Progress events, and events about the whole result.
            _ => {}
        }
    }

    /// Adds a row for the last second if the worker died during that second, and limits the rates
    /// to the sending window.
    pub fn complete(&mut self) {
        if self.end.is_none()
            && let Some(row) = SecondRow::of_parts(&self.parts, self.rows.len() as u64)
        {
            let rows = self.rows.len();
            self.take_second(row);
            self.rows_of_parts = self.rows.len() - rows;
        }
        let end_ns = self.window_ns();
        self.rows.iter_mut().for_each(|row| row.end_at(end_ns));
    }

    fn take_second(&mut self, row: SecondRow) {
        self.parts.clear();
        let (server, store) = (self.server_used.take(), self.store_used.take());
        if row.phase == Phase::Warmup {
            self.warmup.merge(&row.counts);
            self.warmup_to_ns = row.to_ns;
        } else {
            self.rows.push(MeasuredSecond::new(row, server, store));
        }
    }

    /// Returns the end of the sending window, in ns.
    pub fn window_ns(&self) -> u64 {
        if let Some(client) = &self.client {
            return (client.tool.wall_s * 1e9) as u64;
        }
        let last = || self.rows.last().map_or(0, |r| r.row.to_ns);
        self.end.as_ref().map_or_else(last, |end| end.window_ns)
    }

    /// Returns the counts of the whole measurement. If the worker died, adds up the counts of its
    /// rows, and counts requests without an outcome as in flight.
    pub fn counts(&self) -> Counts {
        match (&self.end, &self.client) {
            (Some(end), _) => end.counts.clone(),
            (None, Some(client)) => client_counts(&client.tool.said),
            (None, None) => self.sum(|row| Some(&row.counts)),
        }
    }

    /// Returns the counts of a group in a mix for the whole measurement.
    pub fn group_counts(&self, group: usize) -> Counts {
        self.sum(|row| row.groups.get(group).map(|group| &group.counts))
    }

    fn sum(&self, of: impl Fn(&SecondRow) -> Option<&Counts>) -> Counts {
        let mut counts = Counts::default();
        let rows = self.rows.iter().filter_map(|row| of(&row.row));
        rows.for_each(|row| counts.merge(row));
        counts.complete();
        counts
    }

    /// Returns how and why the run ended.
    pub fn end_reason(&self) -> RunEnd {
        let (reason, detail) = match (&self.client, &self.end) {
            (Some(client), _) => client_end(client),
            (None, Some(end)) if end.reason == EndReason::Interrupted && self.abort.is_some() => {
                (EndReason::Aborted, None)
            }
            (None, Some(end)) => (end.reason, None),
            (None, None) => {
                let detail = match &self.driven_by {
                    Some(name) => format!("floodmark exited before {name} finished"),
                    None => "the client process died".to_owned(),
                };
                (EndReason::Interrupted, Some(detail))
            }
        };
        RunEnd {
            reason,
            detail: self.cut_short.clone().or(detail),
            abort: self.abort.clone().filter(|_| reason == EndReason::Aborted),
        }
    }
}

/// Returns the number of requests whose outcome is not ok.
fn failed(counts: &Counts) -> u64 {
    counts.ended() - counts.ok + counts.connect_failed
}

/// Histograms by kind of time. A missing histogram counts as empty.
#[derive(Debug, Default)]
pub struct TimeHistograms(BTreeMap<TimeKind, Histogram>);

impl TimeHistograms {
    /// Decodes the histograms for the selected kinds of time. Ignores invalid histograms.
    pub fn decode(texts: &BTreeMap<TimeKind, String>, select: impl Fn(TimeKind) -> bool) -> Self {
        let selected = texts.iter().filter(|(kind, _)| select(**kind));
        let decoded =
            selected.filter_map(|(kind, text)| Some((*kind, Histogram::decode(text).ok()?)));
        Self(decoded.collect())
    }

    /// Decodes the response times, and the lower bounds for requests without a response.
    pub fn decode_responses(texts: &BTreeMap<TimeKind, String>) -> Self {
        Self::decode(texts, |kind| {
            matches!(
                kind,
                TimeKind::Response | TimeKind::Censored | TimeKind::InFlight
            )
        })
    }

    /// Adds the values of other histograms.
    pub fn merge(&mut self, other: &Self) {
        for (kind, histogram) in &other.0 {
            self.0.entry(*kind).or_default().merge(histogram);
        }
    }

    /// Returns the shortest time of a kind, in ns.
    pub fn min_ns(&self, kind: TimeKind) -> Option<u64> {
        self.0.get(&kind)?.min()
    }

    /// Returns the distribution of one kind of time, or `None` if no times were recorded.
    pub fn buckets(&self, kind: TimeKind) -> Option<TimeBuckets> {
        TimeBuckets::of(self.0.get(&kind)?.recorded())
    }

    /// Returns a summary of one kind of time. Response times include the lower bounds for requests
    /// without a response.
    pub fn summary(&self, kind: TimeKind) -> Times {
        let empty = Histogram::new();
        let of = |kind| self.0.get(&kind).unwrap_or(&empty);
        let (timed_out, in_flight) = match kind {
            TimeKind::Response => (of(TimeKind::Censored), of(TimeKind::InFlight)),
            _ => (&empty, &empty),
        };
        Histogram::summarise(of(kind), timed_out, in_flight)
    }
}

/// Percentiles and distribution of the response times in a row of the series.
#[derive(Debug)]
pub struct ResponseTimes {
    summary: Times,
    buckets: Option<TimeBuckets>,
}

impl ResponseTimes {
    /// Summarizes the response times among `times`.
    pub fn of(times: &TimeHistograms) -> Self {
        ResponseTimes {
            summary: times.summary(TimeKind::Response),
            buckets: times.buckets(TimeKind::Response),
        }
    }

    /// Sets the response times of a row.
    pub fn fill(self, row: &mut SeriesRow) {
        row.p50_us = self.summary.p50;
        row.p90_us = self.summary.p90;
        row.p99_us = self.summary.p99;
        row.p99_9_us = self.summary.p99_9;
        row.max_us = self.summary.max;
        row.response_times = self.buckets;
    }
}

/// Length of a step, in ns: one part.
const STEP_NS: u64 = 100_000_000;

/// Maximum number of steps: enough for 30 s of load and 1 s of drain.
const MAX_STEPS: usize = 310;

/// Counts the ok responses in each step of a measurement.
#[derive(Debug, Default)]
pub struct FineThroughputCounter {
    ok: Vec<u64>,
    /// Whether the run has more than [`MAX_STEPS`].
    is_too_long: bool,
}

impl FineThroughputCounter {
    /// Adds a part of the run.
    pub fn add(&mut self, part: &PartRow) {
        if part.phase != Phase::Measure || self.is_too_long {
            return;
        }
        let step = (part.from_ns / STEP_NS) as usize;
        if step >= MAX_STEPS {
            self.is_too_long = true;
            self.ok = Vec::new();
            return;
        }
        if self.ok.len() <= step {
            self.ok.resize(step + 1, 0);
        }
        self.ok[step] += part.sums.counts.ok;
    }

    /// Returns the throughput, or `None` if the run was too long or had no parts.
    pub fn finish(self) -> Option<FineThroughput> {
        (!self.ok.is_empty()).then_some(FineThroughput {
            step_s: STEP_NS as f64 / 1e9,
            ok: self.ok,
        })
    }
}

/// Minimum length of a silence, in ns: two parts.
const MIN_NS: u64 = 200_000_000;

/// Consecutive parts in which requests were in flight but no bytes were received.
#[derive(Debug)]
struct SilentParts {
    from_ns: u64,
    to_ns: u64,
    /// Number of requests in flight at the end.
    in_flight: u64,
}

/// Collects the silences of a measurement from its parts.
#[derive(Debug, Default)]
pub struct Silences {
    /// Number of requests in flight at the end of the previous part.
    in_flight: u64,
    has_responded: bool,
    /// The silence that the previous part belongs to.
    current: Option<SilentParts>,
    ended: Vec<SilentParts>,
}

impl Silences {
    /// Adds the next part of the run.
    pub fn add(&mut self, part: &PartRow) {
        let is_silent = part.sums.bytes_received == 0;
        self.has_responded |= !is_silent;
        if part.phase != Phase::Measure {
            return;
        }
        let counts = &part.sums.counts;
        let is_waiting = self.in_flight > 0;
        let ended = counts.ended() + counts.in_flight_at_end;
        self.in_flight = (self.in_flight + counts.sent).saturating_sub(ended);
        if !(is_silent && is_waiting && self.has_responded) {
            let ended = self.current.take();
            self.ended
                .extend(ended.filter(|of| of.to_ns - of.from_ns >= MIN_NS));
            return;
        }
        let from_ns = self.current.as_ref().map_or(part.from_ns, |of| of.from_ns);
        self.current = Some(SilentParts {
            from_ns,
            to_ns: part.to_ns,
            in_flight: self.in_flight.max(counts.in_flight_at_end),
        });
    }

    /// Summarizes the silences of a sending window that ends at `end_ns`. Excludes a silence after
    /// which no response arrived, because the server may have stopped responding.
    pub fn until(&self, end_ns: u64) -> Option<Silence> {
        let within: Vec<(&SilentParts, u64)> = self
            .ended
            .iter()
            .map(|of| (of, of.to_ns.min(end_ns).saturating_sub(of.from_ns)))
            .filter(|(_, ns)| *ns >= MIN_NS)
            .collect();
        let (longest, length_ns) = within.iter().max_by_key(|(_, ns)| *ns)?;
        let total_ns: u64 = within.iter().map(|(_, ns)| ns).sum();
        Some(Silence {
            from_s: longest.from_ns as f64 / 1e9,
            to_s: (longest.from_ns + length_ns) as f64 / 1e9,
            in_flight: longest.in_flight,
            total_s: total_ns as f64 / 1e9,
        })
    }
}

/// Returns the outcome counts that the client prints. External clients do not print the number of
/// requests in flight.
fn client_counts(said: &PrintedFigures) -> Counts {
    let (answers, failed) = (said.answers.unwrap_or(0), said.errors.unwrap_or(0));
    let wrong = said.wrong.unwrap_or(0).min(answers);
    Counts {
        intended: answers + failed,
        sent: answers + failed,
        ok: answers - wrong,
        wrong,
        failed,
        ..Counts::default()
    }
}

/// Returns how the run ended. For an incomplete run, also returns the reason.
fn client_end(ran: &ClientRan) -> (EndReason, Option<String>) {
    let reason = match (&ran.failure, ran.interrupted) {
        (Some(_), _) => EndReason::ClientFailed,
        (None, true) => EndReason::Interrupted,
        (None, false) => EndReason::Completed,
    };
    (reason, client_failure(ran))
}

/// Fills a run with the client's figures.
pub fn fill_from_client(run: &mut Run, ran: ClientRan) {
    let tool = ran.tool;
    let said = &tool.said;
    run.throughput_per_s = client_throughput(said, tool.wall_s);
    run.goodput_per_s = None;
    run.window = Window {
        from_s: 0.0,
        to_s: tool.wall_s,
        why: format!("the whole run of {}", ran.name),
    };
    let times = Times {
        mean: said.mean_us,
        p50: said.p50_us,
        p90: said.p90_us,
        p95: said.p95_us,
        p99: said.p99_us,
        max: said.max_us,
        ..Times::default()
    };
    if times != Times::default() {
        let count = said.answers.unwrap_or(0);
        run.response_time_us = Times { count, ..times };
    }
    let cpu_s = ran
        .user_s
        .zip(ran.system_s)
        .map(|(user, system)| user + system);
    let requests = run.requests.sent;
    run.client = ClientUsage {
        cpu_s: cpu_s.unwrap_or(0.0),
        user_s: ran.user_s.unwrap_or(0.0),
        system_s: ran.system_s.unwrap_or(0.0),
        cpu_us_per_request: cpu_s
            .filter(|_| requests > 0)
            .map(|cpu_s| cpu_s * 1e6 / requests as f64),
        peak_rss_bytes: ran.peak_rss_bytes,
        threads: Vec::new(),
        name: Some(ran.name),
        tool: Some(tool),
    };
}

/// Returns the number of ok responses per second: the rate that the client prints, times the share
/// of ok responses. If the client prints no rate, divides the ok responses by the run's length.
fn client_throughput(said: &PrintedFigures, wall_s: f64) -> Option<f64> {
    let counts = client_counts(said);
    let answers = said.answers.filter(|answers| *answers > 0)?;
    let ok = counts.ok as f64;
    match said.throughput_per_s {
        Some(per_s) => Some(per_s * ok / answers as f64),
        None => (wall_s > 0.0).then(|| ok / wall_s),
    }
}

/// Returns why an external client's run failed or is incomplete.
pub fn client_failure(ran: &ClientRan) -> Option<String> {
    let interrupted = || format!("{} was interrupted before it printed its figures", ran.name);
    ran.failure
        .clone()
        .or_else(|| ran.interrupted.then(interrupted))
}

/// Returns why a worker's run is incomplete, if it is. `http` is the version in the plan, and
/// `abort` the condition that stopped the worker, if any.
pub fn interruption(end: &WorkerEnd, http: Http, abort: Option<&Abort>) -> Option<String> {
    let handshake_failure = end.tls.as_ref().and_then(|tls| tls.failure.as_deref());
    match (end.reason, handshake_failure) {
        // A worker never reports `ClientFailed` or `Aborted`.
        (EndReason::Completed | EndReason::ClientFailed | EndReason::Aborted, _) => None,
        (EndReason::NotHttp, _) => Some(format!("the server does not speak {}", http.name())),
        (EndReason::RowsUsedUp, _) => Some(format!(
            "{TOO_FEW_ROWS}: they were used after {}",
            show_ns(end.ended_ns as f64)
        )),
        (EndReason::Interrupted, _) => Some(match abort {
            Some(abort) => abort.to_string(),
            None => format!("interrupted after {}", show_ns(end.ended_ns as f64)),
        }),
        (EndReason::ServerGone, Some(why)) if end.connects == 0 => {
            Some(format!("no TLS handshake succeeded: {why}"))
        }
        (EndReason::ServerGone, _) => {
            let mut errors = end.errors.keys().map(String::as_str);
            let error = errors.find(|name| name.starts_with("connect") || *name == "unreachable");
            let error = error.unwrap_or("connect_failed").replace('_', " ");
            Some(match end.last_response_ns.filter(|since| *since > 0) {
                _ if end.counts.ok + end.connects == 0 => {
                    format!("the server is unreachable ({error})")
                }
                None => format!("the server never responded ({error})"),
                Some(since) => format!(
                    "the server stopped responding {} into the run ({error})",
                    show_ns(since as f64)
                ),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::Counts;
    use floodmark_record::events::GroupRow;

    fn part(phase: Phase, step: u64, ok: u64) -> PartRow {
        PartRow {
            phase,
            from_ns: step * STEP_NS,
            to_ns: (step + 1) * STEP_NS,
            sums: GroupRow {
                counts: Counts {
                    ok,
                    ..Counts::default()
                },
                ..GroupRow::default()
            },
            groups: Vec::new(),
        }
    }

    #[test]
    fn missing_parts_are_zero_and_the_warmup_is_left_out() {
        let mut counter = FineThroughputCounter::default();
        counter.add(&part(Phase::Warmup, 1, 9));
        counter.add(&part(Phase::Measure, 0, 5));
        counter.add(&part(Phase::Measure, 3, 7));
        let found = counter.finish().unwrap();
        assert_eq!((found.step_s, found.ok), (0.1, vec![5, 0, 0, 7]));
        assert_eq!(FineThroughputCounter::default().finish(), None);
    }

    #[test]
    fn a_long_run_has_no_fine_throughput() {
        let mut counter = FineThroughputCounter::default();
        (0..400).for_each(|step| counter.add(&part(Phase::Measure, step, 5)));
        assert_eq!(counter.finish(), None);
    }

    const PART_NS: u64 = 100_000_000;

    /// Returns `(from_s, to_s, in_flight, total_s)` for a window of `end` parts. Each element of
    /// `parts` consists of the number of requests sent and the number of ok responses.
    fn silence(phase: Phase, parts: &[(u64, u64)], end: u64) -> Option<(f64, f64, u64, f64)> {
        let mut silences = Silences::default();
        for (i, (sent, ok)) in (0..).zip(parts) {
            silences.add(&PartRow {
                phase,
                from_ns: i * PART_NS,
                to_ns: (i + 1) * PART_NS,
                sums: GroupRow {
                    counts: Counts {
                        sent: *sent,
                        ok: *ok,
                        ..Counts::default()
                    },
                    bytes_received: 100 * ok,
                    ..GroupRow::default()
                },
                groups: Vec::new(),
            });
        }
        let found = silences.until(end * PART_NS)?;
        Some((found.from_s, found.to_s, found.in_flight, found.total_s))
    }

    #[test]
    fn measures_periods_without_a_response_while_requests_wait() {
        let measured = |parts: &[(u64, u64)], end| silence(Phase::Measure, parts, end);
        let busy = (50, 50);
        let stall = [(58, 50), busy, (0, 0), (0, 0), (0, 0), busy, busy];
        assert_eq!(measured(&stall, 7), Some((0.2, 0.5, 8, 0.3)));
        assert_eq!(silence(Phase::Warmup, &stall, 7), None);
        // The window ends during the silence.
        assert_eq!(measured(&stall, 4), Some((0.2, 0.4, 8, 0.2)));
        assert_eq!(measured(&stall, 3), None);
        let twice = [&stall[..], &[(0, 0), (1, 0), (0, 8), (0, 0), (0, 0)]].concat();
        assert_eq!(
            measured(&twice, 12),
            Some((0.2, 0.5, 8, 0.5)),
            "the last silence does not end"
        );
        assert_eq!(
            measured(&[(8, 0), (0, 0), (0, 0), busy], 4),
            None,
            "no response yet"
        );
        let idle = [busy, (0, 0), (0, 0), busy];
        assert_eq!(measured(&idle, 4), None, "no request waits");
        let short = [(58, 50), (0, 0), busy, (0, 0), busy];
        assert_eq!(measured(&short, 5), None);
    }
}

#[cfg(test)]
mod external_client_tests {
    use super::*;

    #[test]
    fn excludes_unsuccessful_responses_from_throughput() {
        let said = PrintedFigures {
            throughput_per_s: Some(1000.0),
            answers: Some(2000),
            wrong: Some(500),
            errors: Some(7),
            ..PrintedFigures::default()
        };
        assert_eq!(client_throughput(&said, 2.5), Some(750.0));
        let counts = client_counts(&said);
        assert_eq!((counts.ok, counts.wrong, counts.failed), (1500, 500, 7));
        assert_eq!(counts.balance(), Ok(()));
        let unreported = PrintedFigures {
            throughput_per_s: None,
            ..said
        };
        assert_eq!(client_throughput(&unreported, 2.5), Some(600.0));
        assert_eq!(client_throughput(&PrintedFigures::default(), 2.5), None);
    }
}
