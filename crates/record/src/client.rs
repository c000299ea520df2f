//! Runs driven by an external client.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Event: an external client ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientRan {
    /// Name of the client and of its folder.
    pub name: String,
    /// User-mode CPU time in seconds, including waited-for children (`wait4`).
    /// Null if the client did not start.
    pub user_s: Option<f64>,
    /// Kernel-mode CPU time in seconds, including waited-for children.
    /// Null if the client did not start.
    pub system_s: Option<f64>,
    /// Highest peak resident memory in bytes among the client and its waited-for children.
    /// Null if the client did not start.
    pub peak_rss_bytes: Option<u64>,
    /// Command, log and figures of the client.
    pub tool: ExternalRun,
    /// One-line reason for the lack of a result; null if the run has a result.
    pub failure: Option<String>,
    /// Whether floodmark interrupted the client.
    pub interrupted: bool,
}

/// Command, log and figures of an external client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExternalRun {
    /// First line of the client's version output that contains a digit; null if no line does.
    pub version: Option<String>,
    /// Command as a list of arguments.
    pub command: Vec<String>,
    /// Name of the log file with the client's output, within the result folder.
    pub log: String,
    /// Time from the client's start to its end in seconds.
    pub wall_s: f64,
    /// Figures that the client printed.
    pub said: PrintedFigures,
    /// Readings of the server's own counter; null without a counter or if reading failed.
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

/// Readings of a server's counter that grows by one per response.
/// Each reading is a request that floodmark sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counter {
    /// Value before the client starts.
    pub before: u64,
    /// Value after the client ends.
    pub after: u64,
    /// Number of readings between `before` and `after`; each reading adds one to the counter.
    pub readings: u64,
}

impl Counter {
    /// Returns the number of responses sent to the external client.
    #[must_use]
    pub fn answers(&self) -> u64 {
        // The final reading also adds one to the counter.
        self.after
            .saturating_sub(self.before)
            .saturating_sub(1 + self.readings)
    }
}
