//! What `floodmark doctor` found on a machine: plain facts, and apart from them what was judged.
//!
//! `floodmark-observe` fills [`Facts`], `floodmark-diagnose` turns them into [`Finding`]s, `floodmark-report` draws those.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `floodmark doctor --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Checkup {
    /// The format's version, [`crate::SCHEMA_VERSION`].
    pub schema: u32,
    /// What was read.
    pub facts: Facts,
    /// What follows from it, warnings first.
    pub findings: Vec<Finding>,
}

/// How much a finding matters.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It will spoil measurements.
    Warning,
    /// Good to know: it matters for some measurements.
    Note,
    /// Nothing to do.
    Ok,
}

/// One thing about the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// What it is about: `open files`, `local ports`.
    pub topic: String,
    /// How much it matters.
    pub level: Level,
    /// What was found, with figures.
    pub found: String,
    /// What it would spoil; none where nothing.
    pub spoils: Option<String>,
    /// Commands that mend it, one a line to be pasted; a line that begins with `#` is a remark.
    #[serde(default)]
    pub mend: Vec<String>,
}

/// What was read of a machine. A fact that could not be read is null, and `missing` says why.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// Kernel release.
    pub kernel: String,
    /// Processors.
    pub cpus: CpuFacts,
    /// CPU quota of the control group, where there is one.
    pub quota: Option<QuotaFacts>,
    /// Frequency scaling; null where the machine does not expose it, as most virtual ones.
    pub frequency: Option<FrequencyFacts>,
    /// What the machine was doing during a short sample.
    pub load: LoadFacts,
    /// Open files that a process may have.
    pub open_files: Option<LimitFacts>,
    /// Local ports for outgoing connections.
    pub ports: Option<PortFacts>,
    /// Rules for closed connections.
    pub time_wait: TimeWaitFacts,
    /// Rules for connections that a server has not accepted yet.
    pub accept_queue: AcceptQueueFacts,
    /// Connection tracking, where the kernel has it loaded.
    pub conntrack: Option<ConntrackFacts>,
    /// Whether io_uring can be used.
    pub io_uring: IoUringFacts,
    /// The clock.
    pub clock: ClockFacts,
    /// What could not be read, and why.
    pub missing: Vec<String>,
}

/// Processors of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuFacts {
    /// CPUs that are online; null where the kernel does not tell.
    pub online: Option<u32>,
    /// CPUs that this process may run on.
    pub allowed: u32,
    /// The same as the kernel lists them: `0-3,8`.
    pub allowed_list: String,
    /// CPU model, where the kernel tells.
    pub model: Option<String>,
}

/// CPU quota of a control group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuotaFacts {
    /// CPU seconds allowed per wall second.
    pub cpus: f64,
    /// Period over which it is accounted, milliseconds.
    pub period_ms: f64,
    /// The file that sets it.
    pub file: String,
    /// What that file holds where there is no limit: `max` or `-1`.
    pub unlimited: String,
    /// Periods in which the group ran into its quota, since it exists.
    pub throttled_periods: Option<u64>,
}

/// Frequency scaling.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FrequencyFacts {
    /// How many CPUs have each governor.
    pub governors: BTreeMap<String, u32>,
    /// The scaling driver, such as `intel_pstate`.
    pub driver: Option<String>,
}

/// What the machine was doing during a short sample.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadFacts {
    /// Length of the sample, seconds.
    pub seconds: f64,
    /// CPUs busy in the mean, stolen time left out; null where it could not be read.
    pub busy_cpus: Option<f64>,
    /// CPUs taken by the hypervisor in the mean.
    pub stolen_cpus: Option<f64>,
    /// Share of all CPU time since boot that the hypervisor took, 0 to 1.
    pub stolen_since_boot: Option<f64>,
    /// CPUs that the sampling process itself used.
    pub own_cpus: f64,
    /// Other processes that used most, largest first, at most [`LoadFacts::BUSIEST`].
    pub busiest: Vec<BusyProcess>,
    /// Load average over one minute.
    pub load_average: Option<f64>,
}

impl LoadFacts {
    /// How many processes are kept in `busiest`.
    pub const BUSIEST: usize = 5;
}

/// A process that used the CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BusyProcess {
    /// Its id.
    pub pid: u32,
    /// Its name, cut to 15 bytes by the kernel.
    pub name: String,
    /// CPUs it used in the mean.
    pub cpus: f64,
}

/// A limit of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitFacts {
    /// What holds now.
    pub soft: u64,
    /// How far the process may raise it itself.
    pub hard: u64,
}

/// Local ports for outgoing connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortFacts {
    /// Lowest.
    pub low: u16,
    /// Highest.
    pub high: u16,
    /// How many within the range are reserved and so never given out.
    pub reserved: u32,
}

impl PortFacts {
    /// Ports that can be given out for each source address and target.
    #[must_use]
    pub fn usable(&self) -> u64 {
        (u64::from(self.high) + 1)
            .saturating_sub(u64::from(self.low))
            .saturating_sub(u64::from(self.reserved))
    }
}

/// Rules for closed connections; null where the kernel does not have the setting.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimeWaitFacts {
    /// `net.ipv4.tcp_tw_reuse`: 0 never, 1 always, 2 on loopback only.
    pub reuse: Option<u64>,
    /// `net.ipv4.tcp_tw_reuse_delay`, milliseconds (1 second on kernels without the setting).
    pub reuse_delay_ms: Option<u64>,
    /// `net.ipv4.tcp_timestamps`; reuse needs them.
    pub timestamps: Option<u64>,
    /// `net.ipv4.tcp_max_tw_buckets`.
    pub max: Option<u64>,
    /// Connections in TIME_WAIT now, on either side of a connection.
    pub now: Option<u64>,
    /// Ports of the local range that these hold, at the source address that holds most. Where the server closed first, its
    /// own port rests and none of the range does.
    pub ports_held: Option<u64>,
}

/// Rules for connections that a server has not accepted yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AcceptQueueFacts {
    /// `net.core.somaxconn`: upper bound of any accept queue.
    pub somaxconn: Option<u64>,
    /// `net.ipv4.tcp_max_syn_backlog`.
    pub syn_backlog: Option<u64>,
    /// `net.ipv4.tcp_syncookies`.
    pub syncookies: Option<u64>,
}

/// Connection tracking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConntrackFacts {
    /// Connections tracked now.
    pub count: u64,
    /// Largest number of them.
    pub max: u64,
}

/// Whether io_uring can be used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IoUringFacts {
    /// Whether a ring could be set up.
    pub available: bool,
    /// The error number of `io_uring_setup`, where it failed.
    pub errno: Option<i32>,
    /// `kernel.io_uring_disabled`: 0 allowed, 1 for a group and the privileged, 2 nobody.
    pub disabled: Option<u64>,
}

/// The clock that times are taken with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockFacts {
    /// The kernel's clock source.
    pub source: Option<String>,
    /// Those that it could use instead.
    pub available: Vec<String>,
    /// Cost of one reading, nanoseconds, best of several rounds.
    pub read_ns: f64,
}
