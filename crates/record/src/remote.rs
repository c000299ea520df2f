//! The file that `floodmark observe` writes, and the part of the file that a record keeps.
//!
//! The file is JSON Lines and can be read while it grows. It contains, in this order:
//!
//! - one [`ObserverLine::Opened`];
//! - about one [`ObserverLine::Second`] per second;
//! - one [`ObserverLine::Group`] before the first values of each group;
//! - one [`ObserverLine::Ended`], unless the observer was killed.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metric::{Metric, MetricKind};
use crate::run::{Environment, ToolInfo};
use crate::watch::{OtherThreads, ServerThread};

/// Version of the file format. The version increases when a field is removed or changes meaning.
pub const OBSERVER_FILE_VERSION: u32 = 1;

/// One line of an observer's file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum ObserverLine {
    /// The first line.
    Opened(Box<ObserverOpened>),
    /// Describes the series of a group.
    Group(SeriesGroup),
    /// Samples taken since the previous line of this type.
    Second(ObservedSecond),
    /// The response to a ping (`floodmark observe --pings`). Only in a stream, never in a file.
    Pong {
        /// The time in the ping, in ns.
        sent_ns: i64,
        /// `CLOCK_MONOTONIC` of the observer's host, in ns.
        monotonic_ns: i64,
    },
    /// The offset between the hosts' clocks, measured with pings (`floodmark load --observe`). The
    /// latest line applies, because the clocks drift.
    Offset(MeasuredOffset),
    /// The last line; missing if the observer was killed.
    Ended {
        /// Reason why the observation ended.
        why: String,
    },
}

/// A measured offset between the monotonic clocks of two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredOffset {
    /// `CLOCK_MONOTONIC` of the observer's host minus that of the client's host, in ns.
    pub offset_ns: i64,
    /// Maximum error of the offset in ns: half of the shortest round trip.
    pub bound_ns: u64,
}

/// Description of the observed server and its observer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObserverOpened {
    /// Version of the file format.
    pub schema: u32,
    /// Version and command line of the floodmark process that observes.
    pub tool: ToolInfo,
    /// The server's host.
    pub environment: Environment,
    /// Port that the server listens on.
    pub port: u16,
    /// Name of the server's first process, truncated to 15 bytes by the kernel.
    pub name: String,
    /// Process ids of the server's first processes.
    pub pids: Vec<u32>,
    /// CPUs on which at least one of the server's threads may run; null if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_cpus: Option<BTreeSet<u32>>,
    /// The host's clocks when the series began.
    pub clocks: ClockReading,
}

/// Simultaneous readings of all clocks on a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockReading {
    /// Reading of the series clock: milliseconds since the series began.
    pub at_ms: f64,
    /// Boot id of the host (`/proc/sys/kernel/random/boot_id`); null if not available.
    /// Monotonic times are comparable only within one boot.
    pub boot_id: Option<String>,
    /// `CLOCK_MONOTONIC`, ns.
    pub monotonic_ns: u64,
    /// The wall clock (`CLOCK_REALTIME`), ns since 1970.
    pub unix_ns: u64,
    /// Whether the kernel reports that the wall clock is synchronized.
    /// The clock is synchronized if `adjtimex` reports neither `TIME_ERROR` nor `STA_UNSYNC`.
    pub synchronised: bool,
    /// Maximum error of the wall clock in microseconds (`maxerror` of `adjtimex`).
    /// Null if not available.
    pub max_error_us: Option<u64>,
}

/// Series that are sampled at the same times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesGroup {
    /// Number of the group.
    pub group: u32,
    /// Source of the samples.
    pub source: String,
    /// Series of the group.
    pub series: Vec<ObservedSeries>,
}

/// Description of one series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedSeries {
    /// Sampled metric.
    #[serde(flatten)]
    pub metric: Metric,
    /// Relation between a value and its step.
    pub kind: MetricKind,
}

/// Samples taken since the previous line of this type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedSecond {
    /// Start of the period in milliseconds on the series clock.
    /// The period starts when the previous line's period ends.
    pub from_ms: u64,
    /// End of the period in milliseconds on the series clock.
    /// Every step up to this time is in this line or an earlier line.
    pub to_ms: u64,
    /// The host's clocks at the end of the period.
    pub clocks: ClockReading,
    /// New values.
    pub groups: Vec<GroupValues>,
    /// The server threads with the highest CPU use in this period, at most 64.
    pub threads: Vec<ServerThread>,
    /// Sum over all other threads; null if there are no other threads.
    pub other_threads: Option<OtherThreads>,
    /// CPU time in seconds that the sampling thread used since the series began.
    pub watcher_cpu_s: f64,
    /// New read errors, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// New values of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupValues {
    /// Number of the group.
    pub group: u32,
    /// Start of the first step in milliseconds on the series clock.
    pub start_ms: u64,
    /// Length of each step in milliseconds. The length may change from line to line.
    pub step_ms: u64,
    /// Values of each series, in the order of the group. All series have the same number of values.
    pub values: Vec<Vec<f64>>,
}

/// Observation of the server on its own host during a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RemoteObservation {
    /// The server's host.
    pub environment: Environment,
    /// Mapping from the remote clock to the client's clock.
    pub aligned: ClockAlignment,
    /// Start of the observation, in milliseconds on the same clock as the run's observations.
    pub from_ms: u64,
    /// End of the observation, in milliseconds on the same clock as the run's observations.
    pub to_ms: u64,
    /// CPU time that the observer used during the run, in seconds.
    /// The figures for client and server exclude this time.
    pub watcher_cpu_s: f64,
}

/// Mapping between the clocks of two hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockAlignment {
    /// Method used to find the offset.
    pub method: AlignmentMethod,
    /// Offset in milliseconds: the time on the client's clock minus the time on the observer's
    /// series clock.
    pub offset_ms: f64,
    /// Maximum error of the offset in either direction, in milliseconds.
    pub error_ms: f64,
    /// Correlation between client and server CPU use; only in records with method `load`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<f64>,
    /// Evidence against the alignment; null if there is none. Only in records with method `load`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub but: Option<String>,
}

/// Method of finding the offset between two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlignmentMethod {
    /// Client and observer ran on the same host and read the same clock.
    SameClock,
    /// Both kernels report that their wall clock is synchronized.
    WallClocks,
    /// The offset was measured with pings (`floodmark load --observe`).
    Pings,
    /// The CPU use of client and server was correlated; only in records from earlier versions.
    Load,
}

/// Returns the JSON Schema of [`ObserverLine`], stored in `docs/observer.schema.json`.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(ObserverLine).to_value()
}
