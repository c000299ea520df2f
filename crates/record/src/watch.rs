//! Observations of the server and the host during a load, on this host or a remote one.
//!
//! `floodmark observe` writes its observations to a file of JSON Lines, which can be read while it
//! is being written. The file contains:
//!
//! - one [`ObserverLine::Opened`], the first line;
//! - about one [`ObserverLine::Second`] per second;
//! - one [`ObserverLine::Group`] before the first values of each group;
//! - one [`ObserverLine::Ended`], the last line, unless the observer was killed.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::{BusyProcess, Environment, ToolInfo};
use crate::metric::{Metric, MetricKind, Observation};

/// Samples taken during one attempt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// Sampled series.
    pub observations: Vec<Observation>,
    /// Start of the measurement, in milliseconds since the start of the series.
    /// Null if the measurement did not start.
    pub measured_from_ms: Option<u64>,
    /// The server's processes; null if they were not found or could not be read.
    pub server: Option<ServerSeen>,
    /// The store's processes; null without a store, or if they were not found or could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<ServerSeen>,
    /// Busiest processes outside the experiment during the measurement, in descending order of CPU
    /// use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_processes: Vec<BusyProcess>,
    /// Cost of monitoring; null if not measured.
    pub watcher: Option<Watcher>,
    /// Readings of the clocks of the client's host at the end of the attempt.
    /// Null in records from older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<ClockReading>,
    /// Observation of the server on a remote host; null if there is none.
    /// `observations` also contains the remote series.
    #[serde(default, rename = "elsewhere", skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteObservation>,
}

/// CPU time that the server's or the store's processes used between two readings. The readings are
/// about a second apart.
/// The live view, figures for single seconds, exported metrics and capacity trials use these
/// readings. Other figures for a whole run come from the finer series in `Observed`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerUsed {
    /// Time between the readings in seconds.
    pub over_s: f64,
    /// User-mode CPU time in seconds, a multiple of the clock tick (`/proc/PID/stat` of all
    /// processes).
    pub user_s: f64,
    /// Kernel-mode CPU time in seconds, a multiple of the clock tick.
    pub system_s: f64,
}

/// CPU time used by all programs on the host between two readings. The readings are about a second
/// apart. Only the live view uses these readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct HostUsed {
    /// Time between the readings in seconds.
    pub over_s: f64,
    /// CPU time of programs and interrupts in seconds (`/proc/stat`).
    pub busy_s: f64,
    /// Idle, busy and stolen CPU time in seconds.
    pub total_s: f64,
}

/// Processes of the server or the store, including their descendants.
/// The server's processes listen on the target's port.
/// The store's processes were started by floodmark or listen on the store's address.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerSeen {
    /// Name of the first process in `pids`, truncated to 15 bytes by the kernel.
    pub name: String,
    /// PIDs of the initial processes; more than one if each has its own listening socket
    /// (`SO_REUSEPORT`).
    pub pids: Vec<u32>,
    /// CPUs on which at least one of the threads may run; null if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_cpus: Option<BTreeSet<u32>>,
    /// Maximum number of simultaneous processes, including descendants.
    pub processes: u64,
    /// Peak total resident memory of all processes, in bytes.
    /// A page shared by several processes is counted once per process.
    pub peak_rss_bytes: u64,
    /// The threads with the highest CPU use during the measurement, at most 16.
    pub threads: Vec<ServerThread>,
    /// Sum over all other threads; null if there are no other threads.
    pub other_threads: Option<OtherThreads>,
}

/// CPU use of one server thread during the measurement and its drain.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerThread {
    /// PID of the thread's process.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Name of the thread, truncated to 15 bytes by the kernel.
    pub name: String,
    /// User-mode CPU time in seconds, a multiple of the clock tick (`/proc/PID/task/TID/stat`).
    pub user_s: f64,
    /// Kernel-mode CPU time in seconds, a multiple of the clock tick.
    pub system_s: f64,
    /// Time on a CPU in seconds (`schedstat`, finer than clock ticks).
    pub on_cpu_s: f64,
    /// Time during which the thread was runnable but waited for a CPU, in seconds (`schedstat`).
    pub run_delay_s: f64,
}

/// Sum over the server's threads that are not listed by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OtherThreads {
    /// Number of such threads that were observed.
    pub count: u64,
    /// User-mode CPU time in seconds: the total of all processes minus that of the listed threads.
    /// This time includes threads and processes that ended before they could be observed.
    pub user_s: f64,
    /// Kernel-mode CPU time in seconds, computed in the same way.
    pub system_s: f64,
    /// Time during which the observed threads were runnable but waited for a CPU, in seconds.
    pub run_delay_s: f64,
}

/// Cost of monitoring: the CPU use of the threads that read the counters of the host, the server
/// and the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Watcher {
    /// CPU time of these threads in seconds (`CLOCK_THREAD_CPUTIME_ID`).
    /// The figures for the client and the server exclude this time.
    pub cpu_s: f64,
    /// Duration of the monitoring in seconds.
    pub wall_s: f64,
}

/// Resources used by the process tree of the server or the store.
/// The figures cover the measurement and its drain.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Server {
    /// CPU time in seconds (`/proc/PID/stat` of all processes, including those that have ended).
    pub cpu_s: f64,
    /// User-mode CPU time in seconds.
    pub user_s: f64,
    /// Kernel-mode CPU time in seconds.
    pub system_s: f64,
    /// Length of the measurement and its drain in seconds.
    /// The mean number of CPUs used is `cpu_s` ÷ `wall_s`.
    pub wall_s: f64,
    /// CPU time per request sent, in microseconds; null if not available.
    pub cpu_us_per_request: Option<f64>,
    /// Processes and threads.
    #[serde(flatten)]
    pub seen: ServerSeen,
}

/// Version of the file format. The version increases when a field is removed or its meaning
/// changes.
pub const OBSERVER_FILE_VERSION: u32 = 1;

/// One line of an observer's file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum ObserverLine {
    /// The first line.
    Opened(Box<ObserverOpened>),
    /// Description of the series of a group.
    Group(SeriesGroup),
    /// Samples taken since the previous line of this type.
    Second(ObservedSecond),
    /// The response to a ping (`floodmark observe --pings`). Occurs only in a stream, never in a
    /// file.
    Pong {
        /// The time in the ping, in ns.
        sent_ns: i64,
        /// `CLOCK_MONOTONIC` of the observer's host, in ns.
        monotonic_ns: i64,
    },
    /// The offset between the hosts' clocks, measured with pings (`floodmark load --observe`). Only
    /// the latest line of this type applies, because the clocks drift.
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
    /// Name of the first process in `pids`, truncated to 15 bytes by the kernel.
    pub name: String,
    /// PIDs of the server's initial processes.
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
    /// Boot ID of the host (`/proc/sys/kernel/random/boot_id`); null if not available.
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
    /// Number that identifies the group.
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
    /// How a value in the series describes its step.
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
    /// Number that identifies the group.
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
    /// The figures for the client and the server exclude this time.
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
    /// Correlation between the CPU use of the client and that of the server; only in records with
    /// method `load`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<f64>,
    /// Evidence against the alignment; null if there is none. Only in records with method `load`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub but: Option<String>,
}

/// Method used to find the offset between two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlignmentMethod {
    /// The client and the observer ran on the same host and read the same clock.
    SameClock,
    /// Both kernels report that their wall clocks are synchronized.
    WallClocks,
    /// The offset was measured with pings (`floodmark load --observe`).
    Pings,
    /// The offset was found by correlating the CPU use of the client and the server; only in
    /// records from earlier versions.
    Load,
}

/// Returns the JSON Schema of [`ObserverLine`], stored in `docs/observer.schema.json`.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(ObserverLine).to_value()
}

/// Runtime and logged errors of the server. The server's manifest names the runtime and the error
/// strings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// Runtime of the server, such as `jvm`; null if not stated in the manifest.
    pub runtime: Option<String>,
    /// Number of log lines in this attempt for each configured error string.
    /// Empty if no strings are configured or the log could not be read.
    pub errors: Vec<LogErrors>,
}

/// Number of log lines that contain a given string.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogErrors {
    /// String to search for.
    pub text: String,
    /// Number of lines with this string since the end of the previous attempt.
    /// For the first attempt, lines are counted from the start of that attempt.
    pub lines: u64,
}
