//! The host and the floodmark version that produced a result, and the output of `floodmark doctor`:
//! facts about a host, and findings derived from them.
//!
//! `floodmark-observe` collects [`HostFacts`], `floodmark-diagnose` derives each [`HostFinding`],
//! and `floodmark-report` prints the results.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Output of `floodmark doctor --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkup {
    /// Version of the format, [`crate::SCHEMA_VERSION`].
    pub schema: u32,
    /// Facts read from the host.
    pub facts: HostFacts,
    /// Findings, warnings first.
    pub findings: Vec<HostFinding>,
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Distorts measurements.
    Warning,
    /// Matters for some measurements.
    Note,
    /// The host does not expose the figure.
    Unknown,
    /// No action needed.
    Ok,
}

/// One finding about the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFinding {
    /// Topic, such as `open files` or `local ports`.
    pub topic: String,
    /// Severity.
    pub level: Level,
    /// Finding with figures.
    pub found: String,
    /// Measurements that the problem distorts; null if there are none.
    pub spoils: Option<String>,
    /// Commands that fix the problem, one per line, ready to paste.
    /// Lines that start with `#` are comments.
    #[serde(default)]
    pub mend: Vec<String>,
}

/// Facts about a host. A fact that could not be read is null; `missing` gives the reason.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Kernel release.
    pub kernel: String,
    /// Processors.
    pub cpus: CpuFacts,
    /// CPU quota of the control group; null without a quota.
    pub quota: Option<QuotaFacts>,
    /// CPU frequency scaling; null if not exposed, as on most virtual machines.
    pub frequency: Option<FrequencyFacts>,
    /// Activity of the host during a short sample.
    pub load: LoadFacts,
    /// Open-file limit of this process.
    pub open_files: Option<LimitFacts>,
    /// Local ports for outgoing connections.
    pub ports: Option<PortFacts>,
    /// Kernel settings for closed connections.
    pub time_wait: TimeWaitFacts,
    /// Kernel settings for the accept queue.
    pub accept_queue: AcceptQueueFacts,
    /// Connection tracking; null if its kernel module is not loaded.
    pub conntrack: Option<ConntrackFacts>,
    /// Availability of io_uring.
    pub io_uring: IoUringFacts,
    /// Clock of the host.
    pub clock: ClockFacts,
    /// Facts that could not be read, and the reasons.
    pub missing: Vec<String>,
}

/// Processors of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuFacts {
    /// Online CPUs; null if unknown.
    pub online: Option<u32>,
    /// CPUs that this process may use.
    pub allowed: u32,
    /// CPUs that this process may use, in the kernel's format: `0-3,8`.
    pub allowed_list: String,
    /// CPU model; null if unknown.
    pub model: Option<String>,
}

/// CPU quota of a control group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QuotaFacts {
    /// CPU seconds allowed per second of wall-clock time.
    pub cpus: f64,
    /// Accounting period in milliseconds.
    pub period_ms: f64,
    /// File that sets the quota.
    pub file: String,
    /// Content of the file if there is no limit: `max` or `-1`.
    pub unlimited: String,
    /// Number of throttled periods since the group was created.
    pub throttled_periods: Option<u64>,
}

/// Frequency scaling.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrequencyFacts {
    /// Number of CPUs by governor.
    pub governors: BTreeMap<String, u32>,
    /// Scaling driver, such as `intel_pstate`.
    pub driver: Option<String>,
}

/// Activity of the host during a short sample.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadFacts {
    /// Length of the sample in seconds.
    pub seconds: f64,
    /// Mean number of busy CPUs, excluding stolen time; null if unknown.
    pub busy_cpus: Option<f64>,
    /// Mean number of CPUs taken by the hypervisor; null if unknown.
    pub stolen_cpus: Option<f64>,
    /// Share of CPU time since boot that the hypervisor gave to other guests, from 0 to 1.
    pub stolen_since_boot: Option<f64>,
    /// Mean number of CPUs used by the sampling process.
    pub own_cpus: f64,
    /// Other processes with the highest CPU use, in descending order; at most
    /// [`LoadFacts::BUSIEST`].
    pub busiest: Vec<BusyProcess>,
    /// Load average over one minute.
    pub load_average: Option<f64>,
}

impl LoadFacts {
    /// Maximum number of processes in `busiest`.
    pub const BUSIEST: usize = 5;
}

/// Minimum mean CPU use of other programs or virtual machines, in CPUs, that counts as a
/// disturbance.
pub const OTHER_CPUS: f64 = 0.1;

/// A process that used CPU time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BusyProcess {
    /// Process id.
    pub pid: u32,
    /// Name of the process, truncated to 15 bytes by the kernel.
    pub name: String,
    /// Mean number of CPUs used.
    pub cpus: f64,
}

/// Lists processes with the number of CPUs that each one used: `rustc (pid 12) 0.61, cc1 (pid 13)
/// 0.20`.
#[must_use]
pub fn show_processes(processes: &[BusyProcess]) -> String {
    let show = |of: &BusyProcess| format!("{} (pid {}) {:.2}", of.name, of.pid, of.cpus);
    let shown: Vec<String> = processes.iter().map(show).collect();
    shown.join(", ")
}

/// A process limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitFacts {
    /// Current limit.
    pub soft: u64,
    /// Highest value to which the process may raise the soft limit.
    pub hard: u64,
}

/// Local ports for outgoing connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortFacts {
    /// Lowest port.
    pub low: u16,
    /// Highest port.
    pub high: u16,
    /// Number of reserved ports within the range.
    pub reserved: u32,
}

impl PortFacts {
    /// Returns the number of usable ports per source address and target.
    #[must_use]
    pub fn usable(&self) -> u64 {
        (u64::from(self.high) + 1)
            .saturating_sub(u64::from(self.low))
            .saturating_sub(u64::from(self.reserved))
    }
}

/// Kernel settings for closed connections. A setting that the kernel lacks is null.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeWaitFacts {
    /// `net.ipv4.tcp_tw_reuse`: 0 (never), 1 (always) or 2 (only on loopback).
    pub reuse: Option<u64>,
    /// `net.ipv4.tcp_tw_reuse_delay` in milliseconds. Kernels without this setting use 1 second.
    pub reuse_delay_ms: Option<u64>,
    /// `net.ipv4.tcp_timestamps`, which is required for reuse.
    pub timestamps: Option<u64>,
    /// `net.ipv4.tcp_max_tw_buckets`.
    pub max: Option<u64>,
    /// Number of connections in TIME_WAIT on this host, on either the client or the server side.
    pub now: Option<u64>,
    /// Number of local ports in TIME_WAIT on the source address that has the most of them.
    /// Connections that the server closed first are excluded, because they hold the server's port.
    pub ports_held: Option<u64>,
}

/// Kernel settings for the accept queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptQueueFacts {
    /// `net.core.somaxconn`: upper bound for the length of every accept queue.
    pub somaxconn: Option<u64>,
    /// `net.ipv4.tcp_max_syn_backlog`.
    pub syn_backlog: Option<u64>,
    /// `net.ipv4.tcp_syncookies`.
    pub syncookies: Option<u64>,
}

/// Connection tracking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConntrackFacts {
    /// Number of tracked connections.
    pub count: u64,
    /// Maximum number of tracked connections.
    pub max: u64,
}

/// Availability of io_uring.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoUringFacts {
    /// Whether a ring could be created.
    pub available: bool,
    /// Error number of `io_uring_setup`; null if it succeeded.
    pub errno: Option<i32>,
    /// `kernel.io_uring_disabled`: 0 (allowed), 1 (only for privileged processes and one group) or
    /// 2 (forbidden).
    pub disabled: Option<u64>,
}

/// Clock that floodmark reads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClockFacts {
    /// Clock source of the kernel.
    pub source: Option<String>,
    /// Other available clock sources.
    pub available: Vec<String>,
    /// Cost of one clock reading in nanoseconds: the minimum over several rounds.
    pub read_ns: f64,
}

/// Description of a host in a record.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// Kernel release.
    pub kernel: String,
    /// Number of CPUs that the floodmark process may use.
    pub cpus: u32,
    /// CPUs that the floodmark process may use; null if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_cpus: Option<BTreeSet<u32>>,
    /// CPU model; null if unknown.
    pub cpu_model: Option<String>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Limits of the control group; null without limits.
    pub cgroup: Option<CgroupLimits>,
    /// Process limits by name (`nofile`).
    pub limits: BTreeMap<String, u64>,
    /// Kernel settings that affect the load, by name under `/proc/sys`.
    pub sysctls: BTreeMap<String, String>,
}

/// Limits of the control group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CgroupLimits {
    /// CPU seconds allowed per second of wall-clock time; null without a limit.
    pub cpu_quota: Option<f64>,
    /// Memory limit in bytes; null without a limit.
    pub memory_bytes: Option<u64>,
}

/// Version and command line of a floodmark process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolInfo {
    /// Always `floodmark`.
    pub name: String,
    /// Version.
    pub version: String,
    /// Command line as given, as a list of arguments.
    pub command: Vec<String>,
    /// Labels of the result.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

/// A label such as `branch=main`: a key and a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label(String, String);

impl FromStr for Label {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() || value.is_empty() {
            return Err(format!(
                "\"{text}\" is not a label; write KEY=VALUE, such as branch=main"
            ));
        }
        Ok(Label(key.to_owned(), value.to_owned()))
    }
}

/// Labels by key. If a key occurs several times, the last value applies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    /// Returns whether there are no labels.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether these labels include all `wanted` labels.
    #[must_use]
    pub fn contain(&self, wanted: &[Label]) -> bool {
        let has = |Label(key, value): &Label| self.0.get(key) == Some(value);
        wanted.iter().all(has)
    }
}

impl FromIterator<Label> for Labels {
    fn from_iter<I: IntoIterator<Item = Label>>(labels: I) -> Self {
        let pairs = labels.into_iter().map(|Label(key, value)| (key, value));
        Labels(pairs.collect())
    }
}

impl Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.0.iter().map(|(key, value)| format!("{key}={value}"));
        f.write_str(&pairs.collect::<Vec<_>>().join(", "))
    }
}

impl ToolInfo {
    /// Returns the description of a floodmark process with this version and command line.
    #[must_use]
    pub fn floodmark(version: &str, command: Vec<String>) -> Self {
        ToolInfo {
            name: "floodmark".to_owned(),
            version: version.to_owned(),
            command,
            labels: Labels::default(),
        }
    }
}
