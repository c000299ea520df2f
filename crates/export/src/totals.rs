//! Totals of one target.

use std::collections::BTreeMap;

use floodmark_record::SecondRow;
use floodmark_record::events::Phase;
use floodmark_record::outcome::Counts;
use floodmark_record::times::TimeKind;
use floodmark_record::watch::ServerUsed;
use floodmark_stats::Histogram;

use crate::distribution::TimeDistribution;
use crate::metrics::HttpPeer;

/// Totals of one phase (warm-up or measurement) over all runs of a target.
#[derive(Debug, Clone, Default)]
pub(crate) struct PhaseTotals {
    pub(crate) counts: Counts,
    pub(crate) good: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) connects: u64,
    /// Includes requests that timed out, with the lower bounds of their times.
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
            // Ignore a damaged histogram; only this second's times are then missing.
            if let Ok(histogram) = Histogram::decode(text) {
                times.add(&histogram);
            }
        }
    }
}

/// CPU time of client, server or store in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CpuTotals {
    pub(crate) user_s: f64,
    pub(crate) system_s: f64,
}

impl CpuTotals {
    /// Adds the CPU time of a server or store. Ignores negative readings, because a counter only
    /// grows.
    pub(crate) fn add(&mut self, used: &ServerUsed) {
        self.user_s += used.user_s.max(0.0);
        self.system_s += used.system_s.max(0.0);
    }
}

/// Totals of one target.
#[derive(Debug, Clone, Default)]
pub(crate) struct TargetTotals {
    pub(crate) phases: BTreeMap<Phase, PhaseTotals>,
    pub(crate) client_cpu: CpuTotals,
    /// Peer in the first run. Later server processes can have other ports, but their figures continue
    /// the same series. `None` for targets that share their series.
    pub(crate) peer: Option<HttpPeer>,
    /// `None` if the server was not monitored.
    pub(crate) server_cpu: Option<CpuTotals>,
    /// `None` without a monitored store.
    pub(crate) store_cpu: Option<CpuTotals>,
}

impl TargetTotals {
    /// Adds the row of one second.
    pub(crate) fn add(&mut self, row: &SecondRow) {
        self.phases.entry(row.phase).or_default().add(row);
        self.client_cpu.user_s += row.user_s.max(0.0);
        self.client_cpu.system_s += row.system_s.max(0.0);
    }
}
