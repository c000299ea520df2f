//! What is kept of a run's events while folding: everything but the histograms.

use std::collections::BTreeMap;

use floodmark_record::client::ClientRan;
use floodmark_record::events::{EndReason, Phase, RunId, WorkerReady};
use floodmark_record::groups::GroupPoint;
use floodmark_record::logged::Logged;
use floodmark_record::place::Place;
use floodmark_record::plan::Plan;
use floodmark_record::proof::Windows;
use floodmark_record::run::{Ended, SeriesRow};
use floodmark_record::units::show_ns;
use floodmark_record::watch::{Observed, ServerUsed};
use floodmark_record::{Counts, SecondRow, TimeKind, WorkerEnd};
use floodmark_stats::Histogram;

/// One run's events, without histograms.
#[derive(Debug)]
pub struct Tally {
    pub id: RunId,
    pub plan: Plan,
    pub unix_ms: u64,
    pub place: Option<Place>,
    pub ready: Option<WorkerReady>,
    pub rows: Vec<Row>,
    pub warmup: Counts,
    pub warmup_to_ns: u64,
    pub end: Option<WorkerEnd>,
    /// The load generator that drove it, where it was not floodmark.
    pub driven_by: Option<String>,
    pub client: Option<ClientRan>,
    pub observed: Observed,
    /// What the server used in the second whose row comes next.
    pub server_used: Option<ServerUsed>,
    /// The same of the store behind it.
    pub store_used: Option<ServerUsed>,
    pub missing: Vec<String>,
    /// Windows with and without a change, taken after it.
    pub perturbed: Vec<Windows>,
    pub logged: Logged,
    pub cut_short: Option<String>,
    /// Whether the run was measured anew later.
    pub counts_not: bool,
}

/// A second of the measurement, its histograms reduced to figures.
#[derive(Debug)]
pub struct Row {
    pub row: SecondRow,
    pub figures: SeriesRow,
}

impl Tally {
    pub fn new(id: RunId, plan: Plan, unix_ms: u64) -> Self {
        Tally {
            id,
            plan,
            unix_ms,
            place: None,
            ready: None,
            rows: Vec::new(),
            warmup: Counts::default(),
            warmup_to_ns: 0,
            end: None,
            driven_by: None,
            client: None,
            observed: Observed::default(),
            server_used: None,
            store_used: None,
            missing: Vec::new(),
            perturbed: Vec::new(),
            logged: Logged::default(),
            cut_short: None,
            counts_not: false,
        }
    }

    pub fn take(&mut self, mut row: SecondRow) {
        let (server, store) = (self.server_used.take(), self.store_used.take());
        if row.phase == Phase::Warmup {
            self.warmup.merge(&row.counts);
            self.warmup_to_ns = row.to_ns;
            return;
        }
        let times = response_times(&row.histograms);
        row.histograms = BTreeMap::new();
        let length_s = (row.to_ns - row.from_ns) as f64 / 1e9;
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
            client_user_cpus: row.user_s / length_s,
            client_system_cpus: row.system_s / length_s,
            server_user_cpus: server.map(|used| used.user_s / used.over_s),
            server_system_cpus: server.map(|used| used.system_s / used.over_s),
            store_user_cpus: store.map(|used| used.user_s / used.over_s),
            store_system_cpus: store.map(|used| used.system_s / used.over_s),
            open_connections: row.open_connections,
            groups: row
                .groups
                .iter()
                .map(|group| GroupPoint {
                    throughput_per_s: group.ok_in_window as f64 / length_s,
                    goodput_per_s: group.good_in_window as f64 / length_s,
                    failed: failed(&group.counts),
                })
                .collect(),
        };
        self.rows.push(Row { row, figures });
    }

    /// The end of the sending window, ns.
    pub fn window_ns(&self) -> u64 {
        if let Some(client) = &self.client {
            return (client.tool.wall_s * 1e9) as u64;
        }
        let last = || self.rows.last().map_or(0, |r| r.row.to_ns);
        self.end.as_ref().map_or_else(last, |end| end.window_ns)
    }

    /// Counts of the whole measurement. Where the worker did not live to say its last word they are the sums of its
    /// rows, and what had no outcome by then was in flight.
    pub fn counts(&self) -> Counts {
        if let Some(end) = &self.end {
            return end.counts.clone();
        }
        if let Some(client) = &self.client {
            return crate::client::counts(&client.tool.said);
        }
        self.sum(|row| Some(&row.counts))
    }

    /// Counts of a group over the whole measurement.
    pub fn group_counts(&self, group: usize) -> Counts {
        self.sum(|row| row.groups.get(group).map(|group| &group.counts))
    }

    fn sum(&self, of: impl Fn(&SecondRow) -> Option<&Counts>) -> Counts {
        let mut counts = Counts::default();
        let rows = self.rows.iter().filter_map(|row| of(&row.row));
        rows.for_each(|row| counts.merge(row));
        counts.in_flight_at_end += counts
            .sent
            .saturating_sub(counts.ended() + counts.in_flight_at_end);
        counts.unsent += counts
            .intended
            .saturating_sub(counts.sent + counts.unsent + counts.connect_failed);
        counts
    }

    pub fn ended(&self) -> Ended {
        if let Some(client) = &self.client {
            let ended = crate::client::ended(client);
            // That its server or store went away, another load generator does not say.
            return Ended {
                detail: self.cut_short.clone().or(ended.detail),
                ..ended
            };
        }
        let reason = self
            .end
            .as_ref()
            .map_or(EndReason::Interrupted, |end| end.reason);
        let silent = || {
            self.end.is_none().then(|| match &self.driven_by {
                Some(name) => format!("floodmark was ended before {name} was"),
                None => "the load process ended without its last word".to_owned(),
            })
        };
        Ended {
            reason,
            detail: self.cut_short.clone().or_else(silent),
        }
    }
}

/// Requests that ended otherwise than ok.
fn failed(counts: &Counts) -> u64 {
    counts.ended() - counts.ok + counts.connect_failed
}

fn response_times(histograms: &BTreeMap<TimeKind, String>) -> floodmark_record::Times {
    let read = |kind| {
        histograms
            .get(&kind)
            .and_then(|text| Histogram::decode(text).ok())
            .unwrap_or_default()
    };
    Histogram::summarise(&read(TimeKind::Response), &read(TimeKind::Censored))
}

/// Why another load generator's run is none, or did not run its course, in words.
pub fn why_no_run(ran: &ClientRan) -> Option<String> {
    match &ran.failure {
        Some(failure) => Some(failure.clone()),
        None if ran.interrupted => {
            Some(format!("{} was ended before it said its figures", ran.name))
        }
        None => None,
    }
}

/// The first handshake that failed, in words.
fn handshake_failure(end: &WorkerEnd) -> Option<&str> {
    end.tls.as_ref()?.failure.as_deref()
}

/// Why a run that its worker ended did not run its course, in words.
pub fn why_cut_short(end: &WorkerEnd) -> Option<String> {
    match end.reason {
        // A worker never says the latter.
        EndReason::Completed | EndReason::ClientFailed => None,
        EndReason::NotHttp => Some("what answered does not speak HTTP/1.1".to_owned()),
        EndReason::Interrupted => Some(format!(
            "interrupted after {}",
            show_ns(end.ended_ns as f64)
        )),
        EndReason::ServerGone if end.connects == 0 && handshake_failure(end).is_some() => {
            handshake_failure(end).map(|why| format!("no TLS handshake succeeded: {why}"))
        }
        EndReason::ServerGone => {
            let why = end
                .errors
                .keys()
                .find(|name| name.starts_with("connect") || name.as_str() == "unreachable");
            let why = why
                .map_or("connect_failed", String::as_str)
                .replace('_', " ");
            Some(if end.counts.ok + end.connects == 0 {
                format!("the server could not be reached ({why})")
            } else {
                let since = end.server_gone_since_ns.unwrap_or(end.ended_ns);
                format!(
                    "the server went away {} into the run ({why})",
                    show_ns(since as f64)
                )
            })
        }
    }
}
