//! One attempt in the record, and each agent's part of it. Measurements and judgments are separate.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::client::ExternalRun;
use crate::events::{Abort, AddressUse, EndReason, HeldConnections, RequestLogEnd, ThreadUsage};
use crate::host::{BusyProcess, Environment};
use crate::http2::Http2Use;
use crate::interval::Interval;
use crate::metric::Observation;
use crate::outcome::{Counts, NotOkResponse};
use crate::plan::Plan;
use crate::reason::Worded;
use crate::times::{BlockedTimes, Times};
use crate::tls::TlsRun;
use crate::verdict::{Verdict, Windows};
use crate::watch::{LogErrors, RemoteObservation, Server, Watcher};

/// One attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// System under test.
    pub system: String,
    /// Workload.
    pub workload: String,
    /// Name of the trial; null outside experiments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<String>,
    /// Number of the attempt on this server process, starting at 1.
    pub attempt: u32,
    /// Number of the server process, starting at 1.
    pub process: u32,
    /// Explicitly chosen server settings and their values.
    pub setting: BTreeMap<String, String>,
    /// Runtime of the server, such as `jvm`; null if not stated in the manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Wall-clock time of the start in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Plan of the run.
    pub plan: Plan,
    /// Placement of the client and the server. If null, no placement was requested, so the client
    /// and the server share this host and its CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Placement>,
    /// Reason why the run ended.
    pub ended: RunEnd,
    /// Length of the sending window in seconds.
    pub sending_s: f64,
    /// Part of the run that throughput and times cover.
    pub window: Window,
    /// Warm-up; null without a warm-up.
    pub warmup: Option<WarmupRun>,
    /// Validity of the result.
    pub validity: Validity,
    /// Ok responses per second in the window.
    pub throughput_per_s: Option<f64>,
    /// Confidence interval for the throughput within this run.
    pub throughput_interval: Option<Interval>,
    /// Ok responses per second that met their deadline, in the window.
    pub goodput_per_s: Option<f64>,
    /// Request counts over the whole measurement.
    pub requests: Counts,
    /// Number of malformed responses, resets, connect failures and unsent requests, by reason.
    pub errors: BTreeMap<String, u64>,
    /// The first response with each status that is not ok, for at most 5 statuses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_ok_responses: Vec<NotOkResponse>,
    /// Log of single requests (`--request-log`); null without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_log: Option<RequestLogEnd>,
    /// Response time: done − intended.
    pub response_time_us: Times,
    /// Service time: done − sent.
    pub service_time_us: Times,
    /// Shortest service time in the warm-up and the measurement, in µs; null without ok responses.
    /// If the server was idle at the start, this is the service time without queueing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_service_time_us: Option<f64>,
    /// Shortest TCP connect in the warm-up and the measurement, in µs; null if no connection was
    /// opened in this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_connect_time_us: Option<f64>,
    /// Time spent waiting for a connection or a stream: free − intended.
    pub blocked_us: Times,
    /// Blocked times by reason; missing if no request was blocked, and in records from older
    /// versions.
    #[serde(default, skip_serializing_if = "BlockedTimes::is_empty")]
    pub blocked_by: BlockedTimes,
    /// Lateness: sent − max(intended, free).
    pub lateness_us: Times,
    /// Durations of TCP connects.
    pub connect_time_us: Times,
    /// Durations of TLS handshakes, measured from the moment when the TCP connection is
    /// established.
    /// Empty for plain HTTP.
    #[serde(default)]
    pub handshake_time_us: Times,
    /// Time to first byte: first byte − sent.
    pub first_byte_us: Times,
    /// Times of requests that failed.
    pub error_time_us: Times,
    /// Times in which the rest of a request body could not be sent because the server gave no
    /// flow-control credit (HTTP/2), for requests that waited. They are part of the service time.
    #[serde(default, skip_serializing_if = "Times::is_empty")]
    pub window_us: Times,
    /// Round-trip times of PING frames (HTTP/2). Each connection with requests in flight sends one
    /// per second while responses arrive. `count` is the number of answers.
    #[serde(default, skip_serializing_if = "Times::is_empty")]
    pub ping_us: Times,
    /// Figures by group, in the order of the plan's mix; empty without a mix.
    #[serde(default)]
    pub groups: Vec<GroupFigures>,
    /// Longest stall of a load thread in ns; null if the load process died.
    pub longest_stall_ns: Option<u64>,
    /// Time of the last response, in seconds since the start of the measurement. Null unless the
    /// server stopped responding for the rest of the run.
    pub server_gone_since_s: Option<f64>,
    /// Periods of at least 200 ms without a response while requests were in flight; null if there
    /// were none. Also null for external clients, and in records from older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence: Option<Silence>,
    /// HTTP bytes sent and received during the measurement.
    pub bytes: HttpBytes,
    /// Connections of the run.
    pub connections: Connections,
    /// Use of TLS; null for plain HTTP, or if the load process died.
    pub tls: Option<TlsRun>,
    /// Use of HTTP/2; null for HTTP/1.1, or if the load process died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http2: Option<Http2Use>,
    /// Resources used by the client.
    pub client: ClientUsage,
    /// Agents that sent the load, in order; empty if one process on this host sent it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentRun>,
    /// Resources used by the server's processes.
    /// Null if the figures are not available; `missing` gives the reason.
    pub server: Option<Server>,
    /// Resources used by the store's processes; null without a store.
    /// Also null if the figures are not available; `missing` then gives the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Server>,
    /// Busiest processes outside the experiment during the measurement, in descending order of CPU
    /// use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_processes: Vec<BusyProcess>,
    /// Cost of monitoring; null without monitoring.
    pub watcher: Option<Watcher>,
    /// Observation of the server on a remote host; null without `--with`.
    #[serde(default, rename = "elsewhere", skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteObservation>,
    /// Figures for each second.
    pub series: Vec<SeriesRow>,
    /// Throughput in steps of 100 ms; null for runs of more than 30 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fine_throughput: Option<FineThroughput>,
    /// Figures for each step that the run reached; empty if the plan has no steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepFigures>,
    /// Whether the server fell behind an increasing rate; null if the rate did not increase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saturation: Option<Saturation>,
    /// Samples taken during the load.
    pub observations: Vec<Observation>,
    /// Start of the measurement, in milliseconds since the start of `observations`.
    /// The observations also cover the opening of connections and the warm-up.
    /// Null if the measurement did not start.
    pub measured_from_ms: Option<u64>,
    /// Facts that could not be read, and the reasons.
    pub missing: Vec<String>,
    /// Number of lines in the server's log for each error string in the server's manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log_errors: Vec<LogErrors>,
    /// Steady state of the run.
    pub steady: Steady,
    /// Results of the checks.
    pub checks: Vec<CheckResult>,
    /// Windows measured with and without each perturbation; empty without `--prove`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub perturbed: Vec<Windows>,
    /// Verdict on what limited the run; null if throughput was not measured.
    /// Also null in records from versions without verdicts.
    pub verdict: Option<Verdict>,
}

impl Run {
    /// Returns the server's limit on the streams of a connection. `None` if there is no limit, if it
    /// is unknown, or if the server allows no stream.
    #[must_use]
    pub fn max_streams(&self) -> Option<u32> {
        let settings = self.http2.as_ref()?.settings?;
        settings.max_streams.filter(|limit| *limit > 0)
    }

    /// Returns the maximum number of requests in flight on a connection: the plan's streams, or the
    /// server's limit if it is lower.
    #[must_use]
    pub fn streams(&self) -> u32 {
        let planned = self.plan.http.streams();
        self.max_streams()
            .map_or(planned, |limit| limit.min(planned))
    }

    /// Returns the maximum number of requests in flight that the plan and the server allow.
    #[must_use]
    pub fn max_in_flight(&self) -> u64 {
        u64::from(self.plan.connections) * u64::from(self.streams())
    }

    /// Returns the number of CPUs that the client may use.
    /// `all` is the number of CPUs that floodmark may use. Agents on one host share its CPUs.
    #[must_use]
    pub fn client_cpus(&self, all: u32) -> u32 {
        if !self.agents.is_empty() {
            return cpus(&self.agents);
        }
        self.place
            .as_ref()
            .map_or(all, |place| place.client.cpu_count)
    }

    /// Returns the known number of CPUs on the client's host. Includes CPUs that only a server or a
    /// store on this host may use.
    #[must_use]
    pub fn host_cpus(&self, environment: &Environment) -> u32 {
        let sides = [&self.server, &self.store].into_iter().flatten();
        let sides = sides.filter(|_| self.remote.is_none());
        let allowed = sides.filter_map(|side| side.seen.allowed_cpus.as_ref());
        let all: BTreeSet<u32> = allowed
            .chain(&environment.allowed_cpus)
            .flatten()
            .copied()
            .collect();
        environment.cpus.max(all.len() as u32).max(1)
    }

    /// Returns the number of requests affected by each error. Excludes the connect failures in
    /// `connections.unawaited`.
    pub fn request_errors(&self) -> impl Iterator<Item = (&str, u64)> {
        let unawaited = |name| self.connections.unawaited.get(name).copied().unwrap_or(0);
        let errors = self.errors.iter();
        let errors = errors.map(move |(name, n)| (&**name, n.saturating_sub(unawaited(name))));
        errors.filter(|(_, n)| *n > 0)
    }
}

/// How and why a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunEnd {
    /// Reason why the run ended.
    pub reason: EndReason,
    /// Explanation; null if the run completed.
    pub detail: Option<String>,
    /// The condition that ended the run; null unless the reason is `aborted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abort: Option<Abort>,
}

/// The part of a run that the figures cover.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// Start time, in seconds since the start of the measurement.
    pub from_s: f64,
    /// End time, in seconds since the start of the measurement.
    pub to_s: f64,
    /// Reason why this part was chosen.
    pub why: String,
}

/// Load sent before the measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WarmupRun {
    /// Length in seconds.
    pub duration_s: f64,
    /// Counts of the warm-up's requests.
    pub requests: Counts,
}

/// Whether the figures describe the server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Validity {
    /// Status.
    pub status: Status,
    /// Reasons for the status, with fixes.
    pub reasons: Vec<Worded>,
    /// Whether the throughput of an unsteady run is also a lower bound. For other runs, false: the
    /// status says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsteady_bound: bool,
    /// Notes that don't change the status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Validity {
    /// Returns whether the throughput is a lower bound, because floodmark's threads were saturated
    /// or agents were lost.
    #[must_use]
    pub fn is_lower_bound(&self) -> bool {
        match self.status {
            Status::Bound => true,
            Status::Unsteady => self.unsteady_bound,
            Status::Valid | Status::Invalid => false,
        }
    }
}

/// Status of [`Validity`].
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The figures describe the server and the network at this load.
    #[default]
    Valid,
    /// The throughput varied so much that a single figure does not describe it. If floodmark's
    /// threads were also saturated, the reasons say so.
    Unsteady,
    /// floodmark's threads were saturated: the throughput is a lower bound.
    Bound,
    /// floodmark did not send the load as planned: the figures are meaningless.
    Invalid,
}

/// Periods in which requests were in flight but no response arrived. Each period starts after a
/// response, lasts at least 200 ms and is measured in steps of 100 ms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Silence {
    /// Start of the longest period, in seconds since the start of the measurement.
    pub from_s: f64,
    /// End of the longest period, in seconds since the start of the measurement.
    pub to_s: f64,
    /// Number of requests in flight at the end of the longest period.
    pub in_flight: u64,
    /// Total length of all periods in seconds.
    pub total_s: f64,
}

/// HTTP bytes, excluding TCP/IP headers and TLS overhead.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HttpBytes {
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
}

/// Connections of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Connections {
    /// Number of connections opened.
    pub opened: u64,
    /// Maximum number of connections open at once; null if the load process died.
    pub peak: Option<u64>,
    /// Number of connections that never received a response, because their first request timed out
    /// or was in flight at the end.
    #[serde(default, skip_serializing_if = "crate::times::is_zero")]
    pub silent: u64,
    /// Number of local ports for each pair of a source address and a target address.
    /// Null if unknown or not needed (unix sockets).
    pub ports_per_source: Option<u64>,
    /// Raised open-file limit of the worker; null if unknown.
    pub fd_limit: Option<u64>,
    /// Use of each address of the target; empty if the load process died.
    #[serde(default)]
    pub addresses: Vec<AddressUse>,
    /// Original open-file limit of the worker; null if unknown.
    pub fd_limit_before: Option<u64>,
    /// Held connections; null without `--hold`.
    pub held: Option<HeldConnections>,
    /// Number of connect failures, by reason, that occurred while no request was waiting for the
    /// connection, or while the only waiting request had already been sent.
    /// They are also counted in `errors`, but not in `requests.connect_failed`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unawaited: BTreeMap<String, u64>,
}

/// Resources used by the client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientUsage {
    /// Name of the external client; null for floodmark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Command, log and figures of the external client; null for floodmark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ExternalRun>,
    /// CPU time in seconds.
    /// For an external client, this time covers the whole client process and its reaped child
    /// processes (`wait4`).
    pub cpu_s: f64,
    /// User-mode CPU time in seconds.
    pub user_s: f64,
    /// Kernel-mode CPU time in seconds.
    pub system_s: f64,
    /// CPU time per request sent, in microseconds.
    /// For an external client, the divisor is the number of responses and failures that the client
    /// counted.
    pub cpu_us_per_request: Option<f64>,
    /// Peak resident memory in bytes; null if unknown or if the load process died.
    pub peak_rss_bytes: Option<u64>,
    /// Threads during the sending window.
    pub threads: Vec<ThreadUsage>,
}

/// Figures for one second of a run. The last second and the ends of steps may cut a row off. A row
/// with less than 0.5 s of sending is joined to a neighboring row of its step, if there is one; rows
/// after the sending window stay separate.
///
/// Rates cover the part of the row before the end of the sending window. In a row after that end,
/// they are 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesRow {
    /// Start time, in seconds since the start of the measurement.
    pub from_s: f64,
    /// End time, in seconds since the start of the measurement.
    pub to_s: f64,
    /// Ok responses per second.
    pub throughput_per_s: f64,
    /// Ok responses per second that met their deadline.
    pub goodput_per_s: f64,
    /// Requests with an outcome other than ok.
    pub failed: u64,
    /// Median response time in microseconds.
    pub p50_us: Option<f64>,
    /// 90th percentile of response time in microseconds.
    pub p90_us: Option<f64>,
    /// 99th percentile of response time in microseconds.
    pub p99_us: Option<f64>,
    /// 99.9th percentile of response time in microseconds.
    pub p99_9_us: Option<f64>,
    /// Maximum response time in microseconds.
    pub max_us: Option<f64>,
    /// Distribution of response times; null if no response time was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_times: Option<TimeBuckets>,
    /// CPUs used by the load process in user mode.
    pub client_user_cpus: f64,
    /// CPUs used by the load process in kernel mode.
    pub client_system_cpus: f64,
    /// CPUs used by the server's processes in user mode; null if not monitored.
    pub server_user_cpus: Option<f64>,
    /// CPUs used by the server's processes in kernel mode.
    pub server_system_cpus: Option<f64>,
    /// CPUs used by the store's processes in user mode; null without a store or if not monitored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_user_cpus: Option<f64>,
    /// CPUs used by the store's processes in kernel mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_system_cpus: Option<f64>,
    /// Connections open at the end of the second.
    pub open_connections: u64,
    /// Figures by group, in the order of the plan's mix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupPoint>,
}

/// Figures for one rate step. The figures cover the requests that ended in the step.
/// Requests drained at the end are counted in the last step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepFigures {
    /// Start time, in seconds since the start of the measurement.
    pub from_s: f64,
    /// End time, in seconds since the start of the measurement.
    /// An interrupted run ends earlier than planned.
    pub to_s: f64,
    /// Offered rate, in requests per second.
    pub offered_per_s: f64,
    /// Ok responses per second.
    pub throughput_per_s: f64,
    /// Ok responses per second that met their deadline.
    pub goodput_per_s: f64,
    /// Counts of requests. The outcome equations hold only for the sum of all steps, because a
    /// request in flight at a boundary is sent in one step and ends in a later one.
    pub requests: Counts,
    /// Response times (done − intended) of the requests that ended in the step.
    pub response_time_us: Times,
}

/// Whether the server fell behind an increasing rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Saturation {
    /// The server fell behind the offered rate.
    FellBehind(FellBehind),
    /// The server kept up with the offered rate, up to the highest rate measured.
    KeptUp {
        /// Offered rate, in requests per second, at the end of the last complete second.
        up_to_per_s: f64,
        /// Method of detection.
        method: String,
    },
    /// The result is inconclusive.
    Undecided {
        /// Reason why the result is inconclusive.
        why: String,
    },
}

/// Point at which the server fell behind an increasing rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FellBehind {
    /// Time of this point, in seconds since the start of the measurement.
    pub at_s: f64,
    /// Offered rate at that time, in requests per second.
    pub offered_per_s: f64,
    /// Ok responses per second after that time.
    pub achieved_per_s: f64,
    /// Method of detection.
    pub method: String,
}

/// Steady state of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Steady {
    /// Class.
    pub class: SteadyClass,
    /// Start of the steady part, in seconds since the start of the measurement.
    /// Null without a steady part.
    pub from_s: Option<f64>,
    /// Times at which the throughput level changed, in seconds since the start of the measurement.
    pub changes_s: Vec<f64>,
}

/// Class of [`Steady`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SteadyClass {
    /// Throughput stayed at one level during the whole run.
    Steady,
    /// Throughput rose at first and was then steady. If `from_s` is null, it rose until the end.
    Warming,
    /// Throughput fell at first and was then steady. If `from_s` is null, it fell until the end.
    Slowing,
    /// There is no steady part at the end, or the run is too short to judge.
    Unsteady,
    /// Not judged because the plan changes the rate.
    Varied,
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckResult {
    /// Name of the check.
    pub name: String,
    /// Whether the check held; null if it was not evaluated.
    /// The command fails unless the check held, or was violated as the experiment expects.
    pub held: Option<bool>,
    /// Finding of the check, including the first violations, or the reason why the check was not
    /// evaluated.
    pub detail: String,
    /// Operations around the first violation, one per line. Lines that show the violation start
    /// with `>`. Empty if the check has no history.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<String>,
}

/// One agent's part of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentRun {
    /// Name of the agent: its place, and its number if the place has several agents.
    pub name: String,
    /// Name of the agent's host; empty if the agent never started.
    pub host: String,
    /// Boot ID of the host, which is the same in all containers on the host. Null if the agent
    /// never started or the ID cannot be read.
    #[serde(default)]
    pub boot_id: Option<String>,
    /// Whether the agent uses the CPUs of the coordinator's host, that is, whether the boot IDs are
    /// equal.
    pub shares_host: bool,
    /// Number of CPUs that the agent may use; 0 if it never started, in which case the other agents
    /// sent its share.
    pub cpus: u32,
    /// The agent's wall clock minus the coordinator's, in µs, at the start of the measurement.
    /// All times in the record are already corrected for this skew. Null if it was not measured.
    pub skew_us: Option<f64>,
    /// Maximum error of `skew_us` in µs, including the drift until the end of the load. Null if the
    /// skew was not measured.
    pub bound_us: Option<f64>,
    /// Delay between the planned and the actual start of the agent's measurement, in µs.
    pub late_start_us: f64,
    /// Ok responses per second over the agent's whole measurement; null if the agent was lost.
    pub throughput_per_s: Option<f64>,
    /// Counts of the agent's requests.
    pub requests: Counts,
    /// Longest stall of a load thread in ns; null if the agent was lost.
    pub longest_stall_ns: Option<u64>,
    /// Resources used by the agent.
    pub client: ClientUsage,
    /// Validity of the agent's part.
    pub validity: Validity,
    /// When and why the agent was lost; null if it was not lost.
    pub lost: Option<String>,
}

/// Returns the total number of CPUs that the agents may use. Agents on the same host share its
/// CPUs, so these CPUs are counted only once.
pub(crate) fn cpus(agents: &[AgentRun]) -> u32 {
    let mut hosts = BTreeMap::new();
    for agent in agents {
        let host = agent.boot_id.as_ref().unwrap_or(&agent.host);
        let cpus = hosts.entry(host).or_insert(0);
        *cpus = agent.cpus.max(*cpus);
    }
    hosts.values().sum()
}

/// Figures for a group in a run. Figures for connections and for the client are not split by group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupFigures {
    /// Name of the request in the mix.
    pub name: String,
    /// Ok responses per second in the run's window.
    /// The throughputs of all groups add up to the throughput of the run.
    pub throughput_per_s: Option<f64>,
    /// Ok responses per second that met their deadline, in the run's window.
    pub goodput_per_s: Option<f64>,
    /// Counts of the group's requests over the whole measurement.
    pub requests: Counts,
    /// HTTP bytes sent and received during the measurement.
    pub bytes: HttpBytes,
    /// Response time: done − intended. Empty if the load process died.
    /// The times of a group always cover the whole measurement.
    pub response_time_us: Times,
    /// Service time: done − sent.
    pub service_time_us: Times,
    /// Time spent waiting for a connection: free − intended.
    pub blocked_us: Times,
    /// Lateness: sent − max(intended, free).
    pub lateness_us: Times,
    /// Time to first byte: first byte − sent.
    pub first_byte_us: Times,
    /// Times of requests that failed.
    pub error_time_us: Times,
}

/// Figures for a group in one second of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupPoint {
    /// Ok responses per second.
    pub throughput_per_s: f64,
    /// Ok responses per second that met their deadline.
    pub goodput_per_s: f64,
    /// Requests with an outcome other than ok.
    pub failed: u64,
}

/// Placement of the roles of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Placement {
    /// Whether the client and the server share a network namespace.
    pub hosts: HostLayout,
    /// Placement of the client.
    pub client: RolePlacement,
    /// Placement of the server.
    pub server: RolePlacement,
    /// One-way network delay in seconds that floodmark's proxy adds; null without a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_s: Option<f64>,
    /// Placement of the server's database; null without a database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StorePlacement>,
}

/// Placement of the server's database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StorePlacement {
    /// Name of the store, or host and port of a store that was already running.
    pub name: String,
    /// Whether floodmark started an empty store for the server process.
    pub started: bool,
    /// Settings that differ from the store's defaults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub setting: BTreeMap<String, String>,
    /// Round-trip delay in seconds that floodmark's proxy adds; null without a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_s: Option<f64>,
}

/// Whether the client and the server share a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HostLayout {
    /// The client and the server share a network namespace and are connected over loopback.
    Shared,
    /// The client and the server are in separate network namespaces, which a pair of virtual
    /// interfaces connects.
    Separate,
}

/// Placement of one role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RolePlacement {
    /// CPUs to which the role is restricted, in the kernel's format (`0,2-3`).
    /// Null if the role is not restricted.
    pub cpus: Option<String>,
    /// Number of CPUs that the role may use.
    pub cpu_count: u32,
    /// Address in the role's own network namespace; null without such a namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Kernel settings of the role's network namespace, by name.
    /// All other settings have the kernel's defaults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
}

/// Throughput in steps of 100 ms, recorded only for short runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FineThroughput {
    /// Length of a step in seconds. The first step starts with the measurement.
    pub step_s: f64,
    /// Number of ok responses in each step.
    pub ok: Vec<u64>,
}

/// Number of responses by response time.
///
/// Bucket `i` contains the times from 2^(i/2) ns to 2^((i+1)/2) ns, so each bucket is 41 % wider
/// than the one before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimeBuckets {
    /// Index of the first bucket that is not empty.
    pub first: u32,
    /// Number of responses in each bucket, starting with bucket `first`.
    pub counts: Vec<u64>,
}

impl TimeBuckets {
    /// Creates buckets from pairs of a time in nanoseconds and the number of responses with this
    /// time. Returns `None` if there are no pairs.
    pub fn of(times: impl IntoIterator<Item = (u64, u64)>) -> Option<Self> {
        let index = |ns: u64| (2.0 * (ns.max(1) as f64).log2()).floor() as u32;
        let mut times = times.into_iter().map(|(ns, count)| (index(ns), count));
        let (first, count) = times.next()?;
        let mut buckets = TimeBuckets {
            first,
            counts: vec![count],
        };
        times.for_each(|(index, count)| buckets.add(index, count));
        Some(buckets)
    }

    /// Adds the counts of other buckets.
    pub fn merge(&mut self, other: &TimeBuckets) {
        let others = (other.first..).zip(&other.counts);
        others.for_each(|(index, count)| self.add(index, *count));
    }

    /// Returns the lower bound of bucket `index` in nanoseconds.
    #[must_use]
    pub fn lower_ns(index: u32) -> f64 {
        (f64::from(index) / 2.0).exp2()
    }

    fn add(&mut self, index: u32, count: u64) {
        if index < self.first {
            let missing = (self.first - index) as usize;
            self.counts.splice(0..0, vec![0; missing]);
            self.first = index;
        }
        let at = (index - self.first) as usize;
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_bucket_of_its_bounds() {
        let times = [(1_000_000, 2), (900, 1), (1_100_000, 3), (0, 1)];
        let mut buckets = TimeBuckets::of(times).unwrap();
        assert_eq!(buckets.first, 0);
        assert_eq!(buckets.counts.iter().sum::<u64>(), 7);
        let at = |buckets: &TimeBuckets, ns: f64| {
            let is_within = |index: &u32| {
                TimeBuckets::lower_ns(*index) <= ns && ns < TimeBuckets::lower_ns(index + 1)
            };
            let index = (0..200).find(is_within).unwrap();
            buckets.counts[(index - buckets.first) as usize]
        };
        assert_eq!(
            (at(&buckets, 1e6), at(&buckets, 1.1e6), at(&buckets, 900.0)),
            (2, 3, 1)
        );
        buckets.merge(&TimeBuckets::of([(900, 5), (50_000_000, 1)]).unwrap());
        assert_eq!((at(&buckets, 900.0), at(&buckets, 5e7)), (6, 1));
        assert_eq!(TimeBuckets::of([]), None);
    }
}
