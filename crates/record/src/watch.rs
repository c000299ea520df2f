//! Observations of the server and the host during a load.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::BusyProcess;
use crate::metric::Observation;
use crate::remote::{ClockReading, RemoteObservation};

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
    /// Busiest processes outside the experiment during the measurement, in descending order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_processes: Vec<BusyProcess>,
    /// Cost of monitoring; null if not measured.
    pub watcher: Option<Watcher>,
    /// The clocks of the client's host at the end of the attempt.
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
/// Only the live view uses these readings. Figures for the whole run come from the finer series in
/// `Observed`.
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
    /// Name of the first process, truncated to 15 bytes by the kernel.
    pub name: String,
    /// Ids of the first processes; more than one if each has its own listening socket
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
    /// Id of the thread's process.
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

/// Cost of monitoring, caused by the threads that read the counters of host, server and store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Watcher {
    /// CPU time of these threads in seconds (`CLOCK_THREAD_CPUTIME_ID`).
    /// The figures for client and server exclude this time.
    pub cpu_s: f64,
    /// Duration of the monitoring in seconds.
    pub wall_s: f64,
}

/// Resources used by the process tree of the server or the store.
/// The figures cover the measurement and its drain.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Server {
    /// CPU time in seconds (`/proc/PID/stat` of all processes, including those that ended).
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
