//! Runs driven by an external client.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Event: an external client ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientRan {
    /// Name of the client, which is also the name of its directory.
    pub name: String,
    /// User-mode CPU time in seconds of the client and its reaped child processes (`wait4`).
    /// Null if the client did not start.
    pub user_s: Option<f64>,
    /// Kernel-mode CPU time in seconds of the client and its reaped child processes.
    /// Null if the client did not start.
    pub system_s: Option<f64>,
    /// Peak resident memory in bytes: the maximum over the client and its reaped child processes.
    /// Null if the client did not start.
    pub peak_rss_bytes: Option<u64>,
    /// Command, log and figures of the client.
    pub tool: ExternalRun,
    /// Reason why there is no result, in one line; null if there is a result.
    pub failure: Option<String>,
    /// Whether floodmark interrupted the client.
    pub interrupted: bool,
}

/// Command, log and figures of an external client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExternalRun {
    /// First line with a digit in the client's version output; null if there is no such line.
    pub version: Option<String>,
    /// Command as a list of arguments.
    pub command: Vec<String>,
    /// Path of the log file that contains the client's output, relative to the result directory.
    pub log: String,
    /// Duration of the client process in seconds.
    pub wall_s: f64,
    /// Figures that the client printed.
    pub said: PrintedFigures,
    /// Readings of the server's own counter; null if there is no counter or it could not be read.
    pub counter: Option<Counter>,
}

/// Figures printed by an external client. A figure that the client does not print is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PrintedFigures {
    /// Requests per second.
    pub throughput_per_s: Option<f64>,
    /// Complete responses of any status.
    pub answers: Option<u64>,
    /// Complete responses that the client does not count as successful.
    pub wrong: Option<u64>,
    /// Requests without a complete response.
    pub errors: Option<u64>,
    /// Mean request time in microseconds.
    pub mean_us: Option<f64>,
    /// Median request time in microseconds.
    pub p50_us: Option<f64>,
    /// 90th percentile of request time in microseconds.
    pub p90_us: Option<f64>,
    /// 95th percentile of request time in microseconds.
    pub p95_us: Option<f64>,
    /// 99th percentile of request time in microseconds.
    pub p99_us: Option<f64>,
    /// Maximum request time in microseconds.
    pub max_us: Option<f64>,
}

/// Readings of a counter that the server increments for each response.
/// floodmark sends one request per reading.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counter {
    /// Value before the client starts.
    pub before: u64,
    /// Value after the client ends.
    pub after: u64,
    /// Number of additional readings between `before` and `after`. Each reading increments the
    /// counter.
    pub readings: u64,
}

impl Counter {
    /// Returns the number of responses sent to the external client.
    #[must_use]
    pub fn answers(&self) -> u64 {
        // The final reading also increments the counter.
        self.after
            .saturating_sub(self.before)
            .saturating_sub(1 + self.readings)
    }
}
