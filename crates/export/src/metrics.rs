//! The state of the exporter, computed from the events of the runs.

use std::collections::BTreeMap;

use floodmark_record::events::{Phase, RunId};
use floodmark_record::outcome::Counts;
use floodmark_record::plan::Plan;
use floodmark_record::times::TimeKind;
use floodmark_record::{Event, SecondRow};
use floodmark_stats::Histogram;

use crate::distribution::TimeDistribution;

/// Maximum number of targets with their own series. All further targets share one set of series.
const MAX_TARGETS: usize = 100;

/// System, trial and workload of the series that further targets share.
const OTHER: &str = "other";

/// A target of the load. Its series continue from run to run, so runs that last only a second are
/// not lost between two scrapes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LoadTarget {
    pub(crate) system: String,
    pub(crate) trial: Option<String>,
    pub(crate) workload: String,
}

/// Address and method of a target's requests, which OpenTelemetry's conventions require.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpPeer {
    pub(crate) address: String,
    /// `None` for a unix socket.
    pub(crate) port: Option<u16>,
    /// `_OTHER` for a mix.
    pub(crate) method: String,
}

impl HttpPeer {
    fn of(plan: &Plan) -> Self {
        let ip = plan.target.address.ip();
        let authority = &*plan.target.authority;
        // A host name has no colon, and an IPv6 address is in brackets.
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => host,
            _ => authority,
        };
        HttpPeer {
            address: host.trim_matches(['[', ']']).to_owned(),
            port: ip.map(|ip| ip.port()),
            method: match plan.mix {
                Some(_) => "_OTHER".to_owned(),
                None => plan.request.method.clone(),
            },
        }
    }
}

/// What the current run is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunState {
    Idle,
    Starting,
    Sending(Phase),
}

impl RunState {
    pub(crate) const ALL: [RunState; 4] = [
        RunState::Idle,
        RunState::Starting,
        RunState::Sending(Phase::Warmup),
        RunState::Sending(Phase::Measure),
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            RunState::Idle => "idle",
            RunState::Starting => "starting",
            RunState::Sending(phase) => phase.name(),
        }
    }
}

/// The current or latest run.
#[derive(Debug, Clone)]
pub(crate) struct CurrentRun {
    pub(crate) id: RunId,
    pub(crate) target: LoadTarget,
    pub(crate) is_open: bool,
    pub(crate) state: RunState,
    /// Requests sent so far, minus those that have ended.
    pub(crate) in_flight: u64,
    pub(crate) open_connections: u64,
}

/// Metrics of all runs of a command. Memory use is limited.
#[derive(Debug, Default)]
pub struct LoadMetrics {
    pub(crate) targets: BTreeMap<LoadTarget, TargetTotals>,
    pub(crate) run: Option<CurrentRun>,
    /// Number of runs that started.
    pub(crate) runs: u64,
}

impl LoadMetrics {
    /// Updates the metrics with an event. Returns whether the metrics changed.
    pub fn on(&mut self, event: &Event) -> bool {
        if let Event::RunBegan { run, plan, .. } = event {
            self.begin(run, plan);
            return true;
        }
        let Some(run) = &mut self.run else {
            return false;
        };
        let totals = self.targets.entry(run.target.clone()).or_default();
        match event {
            Event::Connecting(connecting) => run.open_connections = connecting.standing,
            Event::Began { phase, .. } => run.state = RunState::Sending(*phase),
            Event::Second(row) => {
                totals.phases.entry(row.phase).or_default().add(row);
                totals.client_cpu.add(row.user_s, row.system_s);
                let ended = row.counts.ended() + row.counts.in_flight_at_end;
                run.in_flight = (run.in_flight + row.counts.sent).saturating_sub(ended);
                run.open_connections = row.open_connections;
            }
            Event::ServerUsed(used) => {
                let cpu = totals.server_cpu.get_or_insert_default();
                cpu.add(used.user_s, used.system_s);
            }
            Event::StoreUsed(used) => {
                let cpu = totals.store_cpu.get_or_insert_default();
                cpu.add(used.user_s, used.system_s);
            }
            Event::End(_) | Event::ClientRan(_) => {
                run.state = RunState::Idle;
                run.in_flight = 0;
                run.open_connections = 0;
            }
            _ => return false,
        }
        true
    }

    fn begin(&mut self, id: &RunId, plan: &Plan) {
        let mut target = LoadTarget {
            system: id.system.clone(),
            trial: id.trial.clone(),
            workload: id.workload.clone(),
        };
        let mut peer = Some(HttpPeer::of(plan));
        if self.targets.len() >= MAX_TARGETS && !self.targets.contains_key(&target) {
            target = LoadTarget {
                system: OTHER.to_owned(),
                trial: Some(OTHER.to_owned()),
                workload: OTHER.to_owned(),
            };
            peer = None;
        }
        let totals = self.targets.entry(target.clone()).or_default();
        totals.peer = totals.peer.take().or(peer);
        self.runs += 1;
        self.run = Some(CurrentRun {
            id: id.clone(),
            target,
            is_open: plan.is_open(),
            state: RunState::Starting,
            in_flight: 0,
            open_connections: 0,
        });
    }
}

/// Totals of one phase (warm-up or measurement) across all runs of a target.
#[derive(Debug, Clone, Default)]
pub(crate) struct PhaseTotals {
    pub(crate) counts: Counts,
    pub(crate) good: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) connects: u64,
    /// Includes requests that timed out. For these, the recorded time is a lower bound.
    pub(crate) response: TimeDistribution,
    pub(crate) service: TimeDistribution,
}

impl PhaseTotals {
    fn add(&mut self, row: &SecondRow) {
        self.counts.merge(&row.counts);
        self.good += row.good;
        self.bytes_sent += row.bytes_sent;
        self.bytes_received += row.bytes_received;
        self.connects += row.connects;
        for (kind, text) in &row.histograms {
            let times = match kind {
                TimeKind::Response | TimeKind::Censored => &mut self.response,
                TimeKind::Service => &mut self.service,
                _ => continue,
            };
            // Skip a damaged histogram. Only this second's times are then missing.
            if let Ok(histogram) = Histogram::decode(text) {
                times.add(&histogram);
            }
        }
    }
}

/// CPU time of the client, the server or the store, in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CpuTotals {
    pub(crate) user_s: f64,
    pub(crate) system_s: f64,
}

impl CpuTotals {
    /// Adds CPU time. Ignores negative values, because a counter must not decrease.
    fn add(&mut self, user_s: f64, system_s: f64) {
        self.user_s += user_s.max(0.0);
        self.system_s += system_s.max(0.0);
    }
}

/// Totals of one target.
#[derive(Debug, Clone, Default)]
pub(crate) struct TargetTotals {
    pub(crate) phases: BTreeMap<Phase, PhaseTotals>,
    pub(crate) client_cpu: CpuTotals,
    /// Peer in the target's first run. Later server processes may use other ports, but their
    /// figures continue the same series. `None` in the totals that all further targets share.
    pub(crate) peer: Option<HttpPeer>,
    /// `None` if the server was not monitored.
    pub(crate) server_cpu: Option<CpuTotals>,
    /// `None` without a monitored store.
    pub(crate) store_cpu: Option<CpuTotals>,
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
