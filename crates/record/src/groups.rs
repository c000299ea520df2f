//! Figures for groups. A group consists of the requests in a mix that have the same name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::Counts;
use crate::run::HttpBytes;
use crate::times::Times;

/// Figures for a group in one second.
/// [`SecondRow`](crate::SecondRow) defines the second in which a request is counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupRow {
    /// Counts of requests.
    pub counts: Counts,
    /// Ok responses that met their deadline.
    pub good: u64,
    /// Ok responses received by the end of the sending window.
    pub ok_in_window: u64,
    /// Ok responses that met their deadline and arrived by the end of the sending window.
    pub good_in_window: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received while the latest request on the connection belonged to the group.
    pub bytes_received: u64,
}

impl GroupRow {
    /// Adds the figures of another thread, group or time.
    pub fn merge(&mut self, other: &GroupRow) {
        self.counts.merge(&other.counts);
        self.good += other.good;
        self.ok_in_window += other.ok_in_window;
        self.good_in_window += other.good_in_window;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
    }

    /// Adds the figures of each group to its sum. Groups without a sum get one.
    pub fn merge_each(sums: &mut Vec<GroupRow>, groups: &[GroupRow]) {
        let count = sums.len().max(groups.len());
        sums.resize_with(count, GroupRow::default);
        for (sum, group) in sums.iter_mut().zip(groups) {
            sum.merge(group);
        }
    }
}

/// Figures for a group in a run. Figures for connections and for the client are not split by group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupFigures {
    /// Name of the request in the mix.
    pub name: String,
    /// Ok responses per second in the run's window.
    /// The throughputs of all groups add up to the throughput of the run.
    pub throughput_per_s: Option<f64>,
    /// Ok responses per second that met their deadline, in the run's window.
    pub goodput_per_s: Option<f64>,
    /// Counts of the group's requests over the whole measurement.
    pub requests: Counts,
    /// Bytes of HTTP in the measurement.
    pub bytes: HttpBytes,
    /// Response time: done − intended. Empty if the load process died.
    /// The times of a group always cover the whole measurement.
    pub response_time_us: Times,
    /// Service time: done − sent.
    pub service_time_us: Times,
    /// Time spent waiting for a connection: free − intended.
    pub blocked_us: Times,
    /// Lateness: sent − max(intended, free).
    pub lateness_us: Times,
    /// Time to first byte: first byte − sent.
    pub first_byte_us: Times,
    /// Times of requests that failed.
    pub error_time_us: Times,
}

/// Figures for a group in one second of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupPoint {
    /// Ok responses per second.
    pub throughput_per_s: f64,
    /// Ok responses per second that met their deadline.
    pub goodput_per_s: f64,
    /// Requests with an outcome other than ok.
    pub failed: u64,
}
