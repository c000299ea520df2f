//! One attempt as it is kept: what was measured, and apart from it what was judged.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::client::Tool;
use crate::elsewhere::Elsewhere;
use crate::events::{AddressUse, EndReason, Held, ThreadUse};
use crate::groups::{Group, GroupPoint};
use crate::logged::LogErrors;
use crate::outcome::Counts;
use crate::place::Place;
use crate::plan::Plan;
use crate::proof::Windows;
use crate::times::Times;
use crate::tls::TlsRun;
use crate::verdict::Verdict;
use crate::watch::{Server, Watcher};

/// Which floodmark took the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolInfo {
    /// `floodmark`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The command line as it was given.
    pub command: Vec<String>,
}

/// The machine a record was taken on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// Kernel release.
    pub kernel: String,
    /// CPUs this process may use.
    pub cpus: u32,
    /// CPU model, where the kernel tells.
    pub cpu_model: Option<String>,
    /// Memory, bytes.
    pub memory_bytes: Option<u64>,
    /// CPU quota of the cgroup in CPUs, where there is one.
    pub cgroup: Option<CgroupLimits>,
    /// Process limits by name (`nofile`).
    pub limits: BTreeMap<String, u64>,
    /// Kernel settings that matter for load, by their name under `/proc/sys`.
    pub sysctls: BTreeMap<String, String>,
}

/// Limits of the control group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CgroupLimits {
    /// CPUs per wall second allowed.
    pub cpu_quota: Option<f64>,
    /// Memory limit in bytes.
    pub memory_bytes: Option<u64>,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// The server under test.
    pub system: String,
    /// What it was asked to do.
    pub workload: String,
    /// The trial's name in its experiment; null where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<String>,
    /// Which repetition on the same server process, from 1.
    pub attempt: u32,
    /// Which fresh start of the server, from 1.
    pub process: u32,
    /// Knobs of the server that were set.
    pub setting: BTreeMap<String, String>,
    /// What the server runs on, such as `jvm`; null where its manifest does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Wall clock at the start, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// What was asked.
    pub plan: Plan,
    /// Where client and server were; null where nothing was asked for: on this machine, on the same CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// Whether it ran its course.
    pub ended: Ended,
    /// Length of the sending window, seconds.
    pub sending_s: f64,
    /// The part of the run that throughput and times are of.
    pub window: Window,
    /// What was sent before the measurement, where a warm-up was asked for.
    pub warmup: Option<Warmup>,
    /// Whether the figure can be read as the server's.
    pub validity: Validity,
    /// Ok answers per second in the window.
    pub throughput_per_s: Option<f64>,
    /// Its interval within this run.
    pub throughput_interval: Option<Interval>,
    /// Ok answers within the deadline per second in the window.
    pub goodput_per_s: Option<f64>,
    /// What became of every request of the measurement, always of the whole run.
    pub requests: Counts,
    /// Named reasons of malformed answers, failed connects and unsent requests.
    pub errors: BTreeMap<String, u64>,
    /// done − intended.
    pub response_time_us: Times,
    /// done − sent.
    pub service_time_us: Times,
    /// Shortest done − sent of the whole measurement, µs: what a request takes that meets no other, where the load began on an idle
    /// server; null where no answer was ok.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_service_time_us: Option<f64>,
    /// free − intended.
    pub blocked_us: Times,
    /// sent − max(intended, free).
    pub lateness_us: Times,
    /// Times of TCP connects.
    pub connect_time_us: Times,
    /// Times of TLS handshakes, each from the TCP connection on; without a sample for plain HTTP.
    #[serde(default)]
    pub handshake_time_us: Times,
    /// first byte − sent.
    pub first_byte_us: Times,
    /// Times of requests that failed.
    pub error_time_us: Times,
    /// The same by group, in the order of the plan's mix; empty without one.
    #[serde(default)]
    pub groups: Vec<Group>,
    /// Longest time by which a load thread came back late from a wait or a turn of its loop, ns; null where the load
    /// process did not live to tell.
    pub longest_stall_ns: Option<u64>,
    /// Since when no answer had come, seconds from the start, where the server went away.
    pub server_gone_since_s: Option<f64>,
    /// Bytes of the measurement.
    pub bytes: Bytes,
    /// Connections of the measurement.
    pub connections: Connections,
    /// What TLS took and gave; null for plain HTTP, or where the load process did not live to tell.
    #[serde(default)]
    pub tls: Option<TlsRun>,
    /// What the load process used.
    pub client: Client,
    /// What the server's processes used; null where they were not found or may not be read, `missing` says why.
    #[serde(default)]
    pub server: Option<Server>,
    /// What the processes of the store behind the server used; null where there is none, or they were not found or may not be
    /// read, which `missing` then says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Server>,
    /// What watching took; null where nothing was watched.
    #[serde(default)]
    pub watcher: Option<Watcher>,
    /// What observed the server on another machine (`--with`); null where nothing did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<Elsewhere>,
    /// Second by second.
    pub series: Vec<SeriesRow>,
    /// Step by step, where the plan has steps; those that were not reached are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepFigures>,
    /// Whether a growing rate went beyond what the server answered; null where no rate grew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saturation: Option<Saturation>,
    /// What was read beside the load.
    pub observations: Vec<Observation>,
    /// When the measurement began on the clock of `observations`, milliseconds from their start (connections that are opened
    /// before, and a warm-up, are in them too); null where it did not begin.
    #[serde(default)]
    pub measured_from_ms: Option<u64>,
    /// What could not be read, and why.
    pub missing: Vec<String>,
    /// Lines of the server's log in this attempt with each text that its manifest wants counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log_errors: Vec<LogErrors>,
    /// Whether and from when the run was steady.
    pub steady: Steady,
    /// Correctness of the answers.
    pub checks: Vec<CheckResult>,
    /// Windows with and without a change, taken after it to prove the verdict; empty where none were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub perturbed: Vec<Windows>,
    /// What limited it; null where there is no figure to explain, and in records that were made before this was judged.
    #[serde(default)]
    pub verdict: Option<Verdict>,
}

impl Run {
    /// How many CPUs its load process might use, where floodmark might use `all`.
    #[must_use]
    pub fn client_cpus(&self, all: u32) -> u32 {
        self.place
            .as_ref()
            .map_or(all, |place| place.client.cpu_count)
    }
}

/// Whether a run ran its course.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ended {
    /// Why the worker stopped.
    pub reason: EndReason,
    /// In words, where it did not run its course.
    pub detail: Option<String>,
}

/// The part of a run that figures are of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// Begin, seconds from the start of the measurement.
    pub from_s: f64,
    /// End, seconds from the start of the measurement.
    pub to_s: f64,
    /// Why this part.
    pub why: String,
}

/// What was sent before the measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Warmup {
    /// Its length in seconds.
    pub duration_s: f64,
    /// What became of its requests.
    pub requests: Counts,
}

/// Whether a figure can be read as the server's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Validity {
    /// The status.
    pub status: Status,
    /// Why, each with its mend.
    pub reasons: Vec<String>,
    /// Remarks that do not change the status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// See [`Validity`].
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The figure is what the server and network gave at this load.
    Valid,
    /// floodmark's own threads were full: the figure is a lower bound of the server.
    Bound,
    /// floodmark did not do what it was asked to: the figure means nothing.
    Invalid,
}

/// A confidence interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Level, such as 0.95.
    pub confidence: f64,
    /// How it was got.
    pub method: String,
}

/// Bytes of HTTP: without TCP/IP headers, before and after TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bytes {
    /// Sent.
    pub sent: u64,
    /// Received.
    pub received: u64,
}

/// Connections of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Connections {
    /// Opened in all.
    pub opened: u64,
    /// Most open at once; null where the load process did not live to tell.
    pub peak: Option<u64>,
    /// Local ports available for each source address and target address; null where they could not be read, and where
    /// none is needed (unix sockets).
    pub ports_per_source: Option<u64>,
    /// Open-file limit of the worker; null where it is not known.
    pub fd_limit: Option<u64>,
    /// What became of each address of the target; empty where the load process did not live to tell.
    #[serde(default)]
    pub addresses: Vec<AddressUse>,
    /// Its open-file limit before that was raised to what the plan needs; null where it could not be read.
    #[serde(default)]
    pub fd_limit_before: Option<u64>,
    /// What became of held connections (`--hold`); null where none were held.
    #[serde(default)]
    pub held: Option<Held>,
    /// Of the run's `errors` the failed connects that no request waited for: they kept none from being sent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unawaited: BTreeMap<String, u64>,
}

/// What the load process used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Client {
    /// Name of the other load generator that drove the run; null where floodmark did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How it ran and what it said; null where floodmark drove the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Tool>,
    /// CPU, seconds. Of another load generator over its whole life, with all processes that it started and waited for
    /// (`wait4`).
    pub cpu_s: f64,
    /// Of that in user mode.
    pub user_s: f64,
    /// Of that in the kernel.
    pub system_s: f64,
    /// CPU per request sent, microseconds. Of another load generator: per answer or failure that it counted.
    pub cpu_us_per_request: Option<f64>,
    /// Peak resident memory, bytes; null where the load process did not live to tell or the kernel does not.
    pub peak_rss_bytes: Option<u64>,
    /// Each thread over the sending window.
    pub threads: Vec<ThreadUse>,
}

/// One second of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesRow {
    /// Begin, seconds from the start of the measurement.
    pub from_s: f64,
    /// End.
    pub to_s: f64,
    /// Ok answers per second.
    pub throughput_per_s: f64,
    /// Ok answers within the deadline per second.
    pub goodput_per_s: f64,
    /// Requests that ended otherwise than ok.
    pub failed: u64,
    /// Median response time, microseconds.
    pub p50_us: Option<f64>,
    /// 90th percentile.
    pub p90_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// 99.9th percentile.
    pub p99_9_us: Option<f64>,
    /// Largest.
    pub max_us: Option<f64>,
    /// CPU of the load process in CPUs, user mode.
    pub client_user_cpus: f64,
    /// CPU of the load process in CPUs, kernel.
    pub client_system_cpus: f64,
    /// CPU of the server's processes in CPUs, user mode; null where they were not watched.
    #[serde(default)]
    pub server_user_cpus: Option<f64>,
    /// CPU of the server's processes in CPUs, kernel.
    #[serde(default)]
    pub server_system_cpus: Option<f64>,
    /// CPU of the store's processes in CPUs, user mode; null where there is no store, or it was not watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_user_cpus: Option<f64>,
    /// CPU of the store's processes in CPUs, kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_system_cpus: Option<f64>,
    /// Connections open at the end of the second.
    pub open_connections: u64,
    /// The same by group, in the order of the plan's mix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupPoint>,
}

/// One step of a plan's rates. What ended in it counts, as in the rows of the series, which are cut at its ends; what was
/// awaited after the sending window belongs to the last step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepFigures {
    /// Begin, seconds from the start of the measurement.
    pub from_s: f64,
    /// End; earlier than planned where the run was cut short in it.
    pub to_s: f64,
    /// Arrivals per second that the plan asks for.
    pub offered_per_s: f64,
    /// Ok answers per second.
    pub throughput_per_s: f64,
    /// Ok answers within the deadline per second.
    pub goodput_per_s: f64,
    /// What happened in it. Requests that were out at either end are sent in one step and end in another, so the outcome
    /// equations hold of all steps together.
    pub requests: Counts,
    /// done − intended, of requests that ended in it.
    pub response_time_us: Times,
}

/// Whether a growing rate went beyond what the server answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Saturation {
    /// From some rate on fewer requests were answered than were due.
    FellBehind(FellBehind),
    /// As many were answered as were due, up to the highest rate that was measured.
    KeptUp {
        /// Arrivals per second that the plan asks for at the end of the last whole second.
        up_to_per_s: f64,
        /// How it was taken.
        method: String,
    },
    /// What was measured does not say.
    Undecided {
        /// What is missing.
        why: String,
    },
}

/// Where a growing rate went beyond what the server answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FellBehind {
    /// From when on, seconds from the start of the measurement.
    pub at_s: f64,
    /// Arrivals per second that the plan asks for at that moment.
    pub offered_per_s: f64,
    /// Ok answers per second from then on.
    pub achieved_per_s: f64,
    /// How it was taken.
    pub method: String,
}

/// A series read beside the load.
///
/// A series that takes too much CPU to read, or room to keep, is read less often or thinned out: its step is doubled and two values
/// become one (counters add up, anything else gives its mean). What was largest at the resolution it was read with is then
/// kept beside it, as a series of the same name with `.max` behind it; for counters as a rate (`count/s`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Observation {
    /// Of what: `host`, `network`, `cgroup`, `disk`; `server`, `client` and `store` (process trees), `server sockets` and
    /// `client sockets` (the two ends of the target's connections on this machine), `listener`, `jvm` (the server's), `store jvm`;
    /// `server threads` and `store threads` (by kind: names without their numbers), `server upstreams` (connections that the server
    /// opened itself, by address);
    /// `postgresql` and `cassandra` (what the store says of itself); `server host`, `server network`, `server cgroup`,
    /// `server disk` where the server's are others than the client's.
    pub subject: String,
    /// Name of the counter, as its source spells it where it has one.
    pub metric: String,
    /// Unit of the values.
    pub unit: String,
    /// Where it was read.
    pub source: String,
    /// First value, milliseconds from the start of the run.
    pub start_ms: u64,
    /// Distance of the values, milliseconds.
    pub step_ms: u64,
    /// The values; counters as the increase within each step.
    pub values: Vec<f64>,
}

/// Whether a run came to a steady state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Steady {
    /// What it did.
    pub class: SteadyClass,
    /// From when on it was steady, seconds; null where it never was.
    pub from_s: Option<f64>,
    /// Where its level changed, seconds.
    pub changes_s: Vec<f64>,
}

/// See [`Steady`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SteadyClass {
    /// One level throughout.
    Steady,
    /// Slower first, then steady; without `from_s` faster throughout.
    Warming,
    /// Faster first, then steady; without `from_s` slower throughout.
    Slowing,
    /// No steady end, or too short to tell.
    Unsteady,
    /// Not judged: the rate was to change, so no level was to be expected.
    Varied,
}

/// Outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckResult {
    /// Its name.
    pub name: String,
    /// Whether what must hold held.
    pub held: bool,
    /// What was found, first offenders included.
    pub detail: String,
}
