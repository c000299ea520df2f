//! Another load generator as the driver of a run: how it ran, and what it said.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A run of another load generator, as an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientRan {
    /// Its name: that of its folder.
    pub name: String,
    /// CPU of it and of all processes that it waited for, user part, seconds (`wait4`); null where it did not start.
    pub user_s: Option<f64>,
    /// The same, kernel part, seconds.
    pub system_s: Option<f64>,
    /// Peak resident memory of the largest of these processes, bytes.
    pub peak_rss_bytes: Option<u64>,
    /// How it ran and what it said.
    pub tool: Tool,
    /// Why its run is none, in one line: it did not start, ended in a way that is no success, or said nothing that could be read.
    pub failure: Option<String>,
    /// Whether it was told to end before its time.
    pub interrupted: bool,
}

/// How another load generator ran, and what it said.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tool {
    /// What it says its version is, the first line with a number; null where it has no way to say.
    pub version: Option<String>,
    /// Its command, word by word.
    pub command: Vec<String>,
    /// File within the result folder that holds its output.
    pub log: String,
    /// From its start to its end, seconds.
    pub wall_s: f64,
    /// Its figures. What it did not print is null.
    pub said: Said,
    /// The server's own counter before and after it; null where the workload has none.
    pub counter: Option<Counter>,
}

/// Figures that another load generator prints.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Said {
    /// Requests per second.
    pub throughput_per_s: Option<f64>,
    /// Whole answers, whatever their status.
    pub answers: Option<u64>,
    /// Of these the answers whose status it does not call a success.
    pub wrong: Option<u64>,
    /// Requests that had no whole answer.
    pub errors: Option<u64>,
    /// Mean time of a request, microseconds.
    pub mean_us: Option<f64>,
    /// Median, microseconds.
    pub p50_us: Option<f64>,
    /// 90th percentile, microseconds.
    pub p90_us: Option<f64>,
    /// 95th percentile, microseconds.
    pub p95_us: Option<f64>,
    /// 99th percentile, microseconds.
    pub p99_us: Option<f64>,
    /// Largest, microseconds.
    pub max_us: Option<f64>,
}

/// A counter of the server that goes up by one with each answer, read by requests of floodmark's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counter {
    /// Before the client started.
    pub before: u64,
    /// After it had ended.
    pub after: u64,
    /// Requests by which it was read between these two; they are in the counter too.
    pub readings: u64,
}

impl Counter {
    /// Answers to others than floodmark between the two readings.
    #[must_use]
    pub fn answers(&self) -> u64 {
        // The last reading is a request of its own.
        self.after
            .saturating_sub(self.before)
            .saturating_sub(1 + self.readings)
    }
}
