//! Figures of a group: of the requests of one name in a mix.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::Counts;
use crate::run::Bytes;
use crate::times::Times;

/// What happened to a group in one second; see [`SecondRow`](crate::SecondRow) for which second a request belongs to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupRow {
    /// What happened.
    pub counts: Counts,
    /// Ok answers that met their deadline.
    pub good: u64,
    /// Ok answers up to the end of the sending window.
    pub ok_in_window: u64,
    /// Good answers up to the end of the sending window.
    pub good_in_window: u64,
    /// Bytes handed to the kernel.
    pub bytes_sent: u64,
    /// Bytes received while a request of the group was the latest on its connection.
    pub bytes_received: u64,
}

/// A group's figures of a run. They are the run's own, but for those of connections and of the client, which no group has to itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// Its request's name in the mix.
    pub name: String,
    /// Ok answers per second in the run's window; the groups' add up to the run's.
    pub throughput_per_s: Option<f64>,
    /// Ok answers within the deadline per second in the run's window.
    pub goodput_per_s: Option<f64>,
    /// What became of its requests, of the whole run.
    pub requests: Counts,
    /// Bytes of the measurement.
    pub bytes: Bytes,
    /// done − intended. This and the times below are of the whole measurement, whatever the run's window is: they are
    /// counted up in the load process and told at its end. Without a sample where it did not live to tell.
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

/// A group's second of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupPoint {
    /// Ok answers per second.
    pub throughput_per_s: f64,
    /// Ok answers within the deadline per second.
    pub goodput_per_s: f64,
    /// Requests that ended otherwise than ok.
    pub failed: u64,
}
