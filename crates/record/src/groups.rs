//! Figures of a group: the requests with the same name in a mix.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::Counts;
use crate::run::HttpBytes;
use crate::times::Times;

/// Figures of a group in one second; [`SecondRow`](crate::SecondRow) defines the second in which a
/// request counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupRow {
    /// Counts of requests.
    pub counts: Counts,
    /// Ok responses that met their deadline.
    pub good: u64,
    /// Ok responses up to the end of the sending window.
    pub ok_in_window: u64,
    /// Ok responses that met their deadline, up to the end of the sending window.
    pub good_in_window: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received while the latest request on the connection belonged to the group.
    pub bytes_received: u64,
}

/// Figures of a group in a run. Connections and the client have no figures by group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupFigures {
    /// Name of the request in the mix.
    pub name: String,
    /// Ok responses per second in the run's window; the throughputs of all groups add up to the
    /// run's.
    pub throughput_per_s: Option<f64>,
    /// Ok responses within the deadline per second in the run's window.
    pub goodput_per_s: Option<f64>,
    /// Counts of the group's requests in the whole measurement.
    pub requests: Counts,
    /// Bytes of HTTP in the measurement.
    pub bytes: HttpBytes,
    /// done − intended. All times of a group cover the whole measurement, because the load process
    /// reports them only at its end. Empty if the load process died.
    pub response_time_us: Times,
    /// done − sent.
    pub service_time_us: Times,
    /// free − intended.
    pub blocked_us: Times,
    /// sent − max(intended, free).
    pub lateness_us: Times,
    /// first byte − sent.
    pub first_byte_us: Times,
    /// Times of requests that failed.
    pub error_time_us: Times,
}

/// Figures of a group in one second of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupPoint {
    /// Ok responses per second.
    pub throughput_per_s: f64,
    /// Ok responses within the deadline per second.
    pub goodput_per_s: f64,
    /// Requests with an outcome other than ok.
    pub failed: u64,
}
