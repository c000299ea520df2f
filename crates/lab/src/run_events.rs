//! Collects the events of one run, except its histograms.

use std::collections::BTreeMap;

use floodmark_record::api_check::ItemsFile;
use floodmark_record::client::ClientRan;
use floodmark_record::events::{EndReason, PartRow, Phase, RunId, WorkerReady};
use floodmark_record::place::Placement;
use floodmark_record::plan::Plan;
use floodmark_record::run::{AgentRun, GroupPoint, RunEnd, SeriesRow};
use floodmark_record::stream::Event;
use floodmark_record::verdict::Windows;
use floodmark_record::watch::{Logged, Observed, ServerUsed};
use floodmark_record::{Counts, SecondRow, TimeKind, WorkerEnd};
use floodmark_stats::steady::SeriesPoint;

use crate::external_client;
use crate::fine_throughput::FineThroughputCounter;
use crate::silences::Silences;
use crate::time_histograms::TimeHistograms;

/// The events of one run.
#[derive(Debug)]
pub struct RunEvents {
    pub id: RunId,
    pub plan: Plan,
    pub unix_ms: u64,
    pub place: Option<Placement>,
    pub ready: Option<WorkerReady>,
    pub rows: Vec<MeasuredSecond>,
    /// Parts of the second that has no row yet.
    parts: Vec<PartRow>,
    pub silences: Silences,
    pub fine: FineThroughputCounter,
    pub warmup: Counts,
    pub warmup_to_ns: u64,
    pub end: Option<WorkerEnd>,
    /// The agents that sent the load.
    pub agents: Vec<AgentRun>,
    /// Items that were read back after the load.
    pub items: Option<ItemsFile>,
    /// Name of the external client.
    pub driven_by: Option<String>,
    pub client: Option<ClientRan>,
    pub observed: Observed,
    /// CPU time of the server during the next row.
    server_used: Option<ServerUsed>,
    /// CPU time of the store during the next row.
    store_used: Option<ServerUsed>,
    pub missing: Vec<String>,
    /// Throughput with and without a perturbation, measured after the run.
    pub perturbed: Vec<Windows>,
    pub logged: Logged,
    pub ended: bool,
    /// Why the run is incomplete.
    pub cut_short: Option<String>,
    /// Whether the record leaves out this run: a later run replaced it, or it was a trial of a search
    /// for the capacity.
    pub left_out: bool,
}

/// One second of the measurement, with figures computed from its histograms.
#[derive(Debug)]
pub struct MeasuredSecond {
    pub row: SecondRow,
    pub figures: SeriesRow,
}

impl MeasuredSecond {
    /// Computes the figures of a second.
    pub fn new(mut row: SecondRow, server: Option<ServerUsed>, store: Option<ServerUsed>) -> Self {
        let times = TimeHistograms::decode_responses(&row.histograms);
        let response_times = times.buckets(TimeKind::Response);
        let times = times.summary(TimeKind::Response);
        row.histograms = BTreeMap::new();
        let length_s = (row.to_ns - row.from_ns) as f64 / 1e9;
        let cpus = |used: Option<ServerUsed>| {
            used.map(|used| (used.user_s / used.over_s, used.system_s / used.over_s))
                .unzip()
        };
        let (server_user_cpus, server_system_cpus) = cpus(server);
        let (store_user_cpus, store_system_cpus) = cpus(store);
        let groups = row.groups.iter().map(|group| GroupPoint {
            throughput_per_s: group.ok_in_window as f64 / length_s,
            goodput_per_s: group.good_in_window as f64 / length_s,
            failed: failed(&group.counts),
        });
        let figures = SeriesRow {
            from_s: row.from_ns as f64 / 1e9,
            to_s: row.to_ns as f64 / 1e9,
            throughput_per_s: row.ok_in_window as f64 / length_s,
            goodput_per_s: row.good_in_window as f64 / length_s,
            failed: failed(&row.counts),
            p50_us: times.p50,
            p90_us: times.p90,
            p99_us: times.p99,
            p99_9_us: times.p99_9,
            max_us: times.max,
            response_times,
            client_user_cpus: row.user_s / length_s,
            client_system_cpus: row.system_s / length_s,
            server_user_cpus,
            server_system_cpus,
            store_user_cpus,
            store_system_cpus,
            open_connections: row.open_connections,
            groups: groups.collect(),
        };
        MeasuredSecond { row, figures }
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
            parts: Vec::new(),
            silences: Silences::default(),
            fine: FineThroughputCounter::default(),
            warmup: Counts::default(),
            warmup_to_ns: 0,
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
            Event::ServerUsed(used) => self.server_used = Some(used),
            Event::StoreUsed(used) => self.store_used = Some(used),
            Event::Part(part) => {
                self.silences.add(&part);
                self.fine.add(&part);
                self.parts.push(part);
            }
            Event::Second(row) => self.take_second(row),
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

    /// Adds a row for the last second if the worker died within it.
    pub fn complete(&mut self) {
        if self.end.is_none()
            && let Some(row) = SecondRow::of_parts(&self.parts, self.rows.len() as u64)
        {
            self.take_second(row);
        }
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
            (None, Some(client)) => external_client::counts(&client.tool.said),
            (None, None) => self.sum(|row| Some(&row.counts)),
        }
    }

    /// Returns the counts of a group in a mix over the whole measurement.
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
            (Some(client), _) => external_client::end_reason(client),
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
        }
    }
}

/// Returns the number of requests whose outcome is not ok.
fn failed(counts: &Counts) -> u64 {
    counts.ended() - counts.ok + counts.connect_failed
}
