//! What was seen of the server and of the machine beside a load.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::elsewhere::{Clocks, Elsewhere};
use crate::run::Observation;

/// What was read beside one attempt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Observed {
    /// The series.
    pub observations: Vec<Observation>,
    /// When the measurement began, milliseconds from the start of the series; null where it did not.
    #[serde(default)]
    pub measured_from_ms: Option<u64>,
    /// The server's processes; null where they were not found or may not be read.
    #[serde(default)]
    pub server: Option<ServerSeen>,
    /// The processes of the store behind it; null where there is none, or they were not found or may not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<ServerSeen>,
    /// What watching took.
    #[serde(default)]
    pub watcher: Option<Watcher>,
    /// How the clocks stood at its end; null in records that do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<Clocks>,
    /// What observed the server on another machine, where something did; what it read is among the series.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<Elsewhere>,
}

/// CPU of the server's or the store's processes between two readings about a second apart, for those who look on. What is folded of
/// a whole run are its finer series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerUsed {
    /// Time between the readings, seconds.
    pub over_s: f64,
    /// CPU in user mode, seconds, in whole clock ticks (`/proc/PID/stat` of all processes).
    pub user_s: f64,
    /// CPU in the kernel, seconds, in whole clock ticks.
    pub system_s: f64,
}

/// The server's processes: those that listen on the target's port, and their descendants. Of a store those that it was started as, or
/// that listen at its address.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerSeen {
    /// Name of its first process, cut to 15 bytes by the kernel.
    pub name: String,
    /// Its first processes: several where each listens by itself (`SO_REUSEPORT`).
    pub pids: Vec<u32>,
    /// Most processes at once, descendants included.
    pub processes: u64,
    /// Most resident memory of all processes together at any reading, bytes; pages that several of them map count for each.
    pub peak_rss_bytes: u64,
    /// The threads that used most CPU over the measurement, at most 16.
    pub threads: Vec<ServerThread>,
    /// All others together; null where there are none.
    pub other_threads: Option<OtherThreads>,
}

/// A thread of the server, over the measurement and what was awaited after it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerThread {
    /// Its process.
    pub pid: u32,
    /// Its id.
    pub tid: u32,
    /// Its name, cut to 15 bytes by the kernel.
    pub name: String,
    /// CPU in user mode, seconds, in whole clock ticks (`/proc/PID/task/TID/stat`).
    pub user_s: f64,
    /// CPU in the kernel, seconds, in whole clock ticks.
    pub system_s: f64,
    /// Time on a CPU, seconds (`schedstat`, finer than the ticks).
    pub on_cpu_s: f64,
    /// Time it was ready to run and waited for a CPU, seconds (`schedstat`).
    pub run_delay_s: f64,
}

/// Threads of the server that are not named.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OtherThreads {
    /// How many of them were seen.
    pub count: u64,
    /// CPU in user mode, seconds: that of the processes less that of the named threads, so threads and processes that were
    /// too short-lived to be seen are in it.
    pub user_s: f64,
    /// CPU in the kernel, seconds, in the same way.
    pub system_s: f64,
    /// Time that those that were seen waited for a CPU, seconds.
    pub run_delay_s: f64,
}

/// What watching took: the threads that read the counters of machine, server and store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Watcher {
    /// Its CPU, seconds (`CLOCK_THREAD_CPUTIME_ID`); in no figure of client or server.
    pub cpu_s: f64,
    /// How long it watched, seconds.
    pub wall_s: f64,
}

/// What the server, or the store behind it, used over the measurement and what was awaited after it, whole process tree.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Server {
    /// CPU, seconds (`/proc/PID/stat` of all processes, ended ones included).
    pub cpu_s: f64,
    /// Of that in user mode.
    pub user_s: f64,
    /// Of that in the kernel.
    pub system_s: f64,
    /// The time it is of, seconds: `cpu_s` over it is the CPUs that were used.
    pub wall_s: f64,
    /// CPU per request sent, microseconds.
    pub cpu_us_per_request: Option<f64>,
    /// Its processes and threads.
    #[serde(flatten)]
    pub seen: ServerSeen,
}
