//! Reports of a load worker: progress, figures for each second, and totals. This module also merges
//! the figures of several threads or workers.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::http2::Http2Use;
use crate::kept::{SHOWN, ScoringSummary};
use crate::outcome::{Counts, MAX_STATUSES, NotOkResponse};
use crate::plan::Address;
use crate::times::TimeKind;
use crate::tls::TlsUse;

/// Identifies an attempt within a result.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct RunId {
    /// Name of the system; outside experiments, the URL's authority.
    pub system: String,
    /// Name of the workload; outside experiments, the name of the mix file or the URL's path.
    pub workload: String,
    /// Name of the trial; null outside experiments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<String>,
    /// Explicitly chosen server settings and their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub setting: BTreeMap<String, String>,
    /// Number of the server process, starting at 1.
    pub process: u32,
    /// Number of the attempt on this server process, starting at 1.
    pub attempt: u32,
}

/// First event of a worker, sent when the worker is ready to send load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerReady {
    /// Process id.
    pub pid: u32,
    /// Notices, one line each, such as a fallback to epoll.
    pub notices: Vec<String>,
    /// Raised open-file limit of the worker; null if unknown.
    pub fd_limit: Option<u64>,
    /// Original open-file limit of the worker; null if unknown.
    pub fd_limit_before: Option<u64>,
    /// Time on the host's monotonic clock (`CLOCK_MONOTONIC`) at which the worker's clock started,
    /// in ns. The times of kept responses are relative to this time. Null in events from older
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_origin_ns: Option<u64>,
}

/// Progress in opening connections before the load starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connecting {
    /// Connections established so far.
    pub standing: u64,
    /// Connections that failed so far.
    pub failed: u64,
    /// Total number of connections to open.
    pub of: u64,
}

/// Held connections (`--hold`), opened before the load starts and kept open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldConnections {
    /// Connections that were open when the load started.
    pub standing: u64,
    /// Connections that failed to open before the load started.
    pub failed: u64,
    /// Number of failures for each reason. These failures are also counted in `errors`.
    /// Empty in records from older versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<String, u64>,
    /// Connections that the server closed during the run, or that were closed after a timeout or a
    /// malformed response.
    pub lost: u64,
    /// Connections opened during the run to replace lost or failed ones.
    pub reopened: u64,
    /// Time spent opening connections before the load started, in ns.
    pub opening_ns: u64,
}

crate::names::named! {
    // In chronological order.
    /// Phases of a run.
    Phase {
        /// Load sent before the measurement and excluded from its figures.
        Warmup = "warmup",
        /// The measurement.
        Measure = "measure",
    }
}

/// Counts for a part of a second (at most 100 ms), summed across all threads. The parts of a second
/// precede its [`SecondRow`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartRow {
    /// Warm-up or measurement.
    pub phase: Phase,
    /// Start of the part, in ns since the start of the phase.
    pub from_ns: u64,
    /// End of the part, in ns since the start of the phase.
    pub to_ns: u64,
    /// Sums over the requests of the part.
    pub sums: GroupRow,
    /// Sums for each group, in the order of the plan's mix. Empty without a mix, or if no thread
    /// reported this part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupRow>,
}

/// Figures for one second, summed across all threads. Times are measured from the start of the
/// phase.
///
/// An outcome belongs to the second in which the request ended. The other counts (`intended`,
/// `sent`, `unsent` and `connect_failed`) belong to the second in which the counted event occurred.
/// Every event is counted in exactly one row, so the rows add up to the totals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SecondRow {
    /// Warm-up or measurement.
    pub phase: Phase,
    /// Index of the second, from 0.
    pub index: u64,
    /// Start of the second, in ns since the start of the phase.
    pub from_ns: u64,
    /// End of the second, in ns since the start of the phase. The last row may cover less than a
    /// second.
    pub to_ns: u64,
    /// Counts of requests.
    pub counts: Counts,
    /// Ok responses that met their deadline.
    pub good: u64,
    /// Ok responses received by the end of the sending window.
    pub ok_in_window: u64,
    /// Ok responses that met their deadline and arrived by the end of the sending window.
    pub good_in_window: u64,
    /// Request bytes sent, before TLS encryption.
    pub bytes_sent: u64,
    /// Response bytes received, after TLS decryption.
    pub bytes_received: u64,
    /// Connections opened.
    pub connects: u64,
    /// Connections open at the end of the second.
    pub open_connections: u64,
    /// CPU seconds that the worker spent in user mode.
    pub user_s: f64,
    /// CPU seconds that the worker spent in kernel mode.
    pub system_s: f64,
    /// Histograms of times in nanoseconds (HdrHistogram V2, deflated, base64).
    /// A kind of time is omitted if it has no samples. The times of a request belong to the second
    /// in which it ended.
    pub histograms: BTreeMap<TimeKind, String>,
    /// Figures for each group in this second, in the order of the plan's mix; empty without a mix.
    /// [`WorkerEnd`] contains the histograms of the groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupRow>,
}

/// Resources used by a thread during the sending window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadUsage {
    /// Name of the thread.
    pub name: String,
    /// Whether the thread sends load. Other threads collect and write results.
    pub drives_load: bool,
    /// User-mode CPU time in seconds (`getrusage(RUSAGE_THREAD)`).
    pub user_s: f64,
    /// Kernel-mode CPU time in seconds.
    pub system_s: f64,
    /// Time in seconds during which the thread was runnable but waited for a CPU
    /// (`/proc/self/task/TID/schedstat`).
    /// Null if unknown, for example on kernels without schedstat.
    pub run_delay_s: Option<f64>,
    /// Length of the sending window in seconds.
    pub wall_s: f64,
    /// Time in seconds during which the thread coalesced responses, that is, handled several
    /// responses per system call. Null for threads that send no load. Busy threads coalesce
    /// responses in the closed model. Coalescing delays a response by at most 1 ms and at most one
    /// eighth of the mean response time.
    pub coalesced_s: Option<f64>,
    /// Number of receive calls that returned a kernel timestamp (`SO_TIMESTAMPNS`). floodmark
    /// requests these timestamps in the open model. For other receive calls, floodmark uses the
    /// time when it reads the data. Null for threads that send no load.
    pub kernel_stamped: Option<u64>,
}

/// Reason why a worker ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The worker completed the plan.
    #[default]
    Completed,
    /// The run was interrupted.
    Interrupted,
    /// The run met an `--abort-if` condition.
    Aborted,
    /// A feed with unique rows has fewer rows than the load needed. If some load threads are faster
    /// than others, rows can remain unused.
    RowsUsedUp,
    /// No connection could be opened for several seconds.
    ServerGone,
    /// The server does not speak the version of HTTP in the plan.
    NotHttp,
    /// An external client failed, or its output could not be read.
    ClientFailed,
}

/// The `--abort-if` condition that ended a load early.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Abort {
    /// Condition, including the time for which it must hold.
    pub condition: String,
    /// Figure of the last second in which the condition held.
    pub figure: String,
    /// End of that second, in ns since the start of the measurement.
    pub at_ns: u64,
}

impl Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "abort-if '{}' met: {}", self.condition, self.figure)
    }
}

/// Last event of a worker: totals of the measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerEnd {
    /// Reason why the worker ended.
    pub reason: EndReason,
    /// Time of the last response, in ns since the start of the phase; 0 if this response arrived
    /// before the phase, null if no response arrived.
    /// Older versions recorded this time only if the server became unreachable.
    #[serde(alias = "server_gone_since_ns")]
    pub last_response_ns: Option<u64>,
    /// End of the sending window, in ns since the start of the measurement.
    pub window_ns: u64,
    /// Time of the last outcome, in ns since the start of the measurement.
    pub ended_ns: u64,
    /// Counts of the measurement.
    pub counts: Counts,
    /// Counts of the warm-up; null without a warm-up.
    pub warmup_counts: Option<Counts>,
    /// Length of the warm-up in ns.
    pub warmup_ns: u64,
    /// Request bytes sent during the measurement, before TLS encryption.
    pub bytes_sent: u64,
    /// Response bytes received during the measurement, after TLS decryption.
    pub bytes_received: u64,
    /// Number of connections opened before and during the measurement.
    pub connects: u64,
    /// Maximum number of open connections.
    pub peak_connections: u64,
    /// Number of connections whose first request timed out or was in flight at the end.
    #[serde(default, skip_serializing_if = "crate::times::is_zero")]
    pub silent_connections: u64,
    /// Held connections; null without `--hold`.
    pub held: Option<HeldConnections>,
    /// Longest stall of a load thread in ns.
    /// A stall is a delay in returning from a wait or in completing a loop iteration.
    pub longest_stall_ns: u64,
    /// Number of malformed responses, connect failures and unsent requests, by reason.
    pub errors: BTreeMap<String, u64>,
    /// The first response with each status that is not ok.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_ok_responses: Vec<NotOkResponse>,
    /// Number of connect failures, by reason, that occurred while no request was waiting for the
    /// connection, or while the only waiting request had already been sent.
    /// They are also counted in `errors`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unawaited: BTreeMap<String, u64>,
    /// User-mode CPU time of the worker during the measurement, in seconds.
    pub user_s: f64,
    /// Kernel-mode CPU time of the worker during the measurement, in seconds.
    pub system_s: f64,
    /// Peak resident memory of the worker in bytes (`getrusage`); null if unknown.
    pub peak_rss_bytes: Option<u64>,
    /// Resources used by each thread during the sending window.
    pub threads: Vec<ThreadUsage>,
    /// Use of each address of the target.
    #[serde(default)]
    pub addresses: Vec<AddressUse>,
    /// File with the responses kept for a check; null if there is none.
    pub answers: Option<AnswersFile>,
    /// Log of single requests; null without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_log: Option<RequestLogEnd>,
    /// Number of responses that arrived out of order on their connection (`--check`).
    pub out_of_order: u64,
    /// Descriptions of the first violations of the check.
    pub offenders: Vec<String>,
    /// Number of responses with status 2xx or 3xx that the check could not parse. They are not ok.
    pub not_numbers: u64,
    /// Summary of the totals and averages in the responses (`--check scoring`); null without that
    /// check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scored: Option<ScoringSummary>,
    /// Use of TLS; null for plain HTTP.
    pub tls: Option<TlsUse>,
    /// Use of HTTP/2; null for HTTP/1.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http2: Option<Http2Use>,
    /// Histograms of the measurement by group, in the order of the plan's mix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<BTreeMap<TimeKind, String>>,
    /// Next free request number (`{seq}`). All numbers used so far, including those in the warm-up,
    /// are smaller.
    #[serde(default)]
    pub next_number: u64,
}

/// Use of one address of the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AddressUse {
    /// `IP:PORT` or `unix:PATH`.
    #[schemars(with = "String")]
    pub address: Address,
    /// Number of connections established before and during the measurement.
    pub opened: u64,
    /// Number of connect failures at this address that led to a retry at another address.
    /// floodmark retries only if this address never accepted a connection.
    /// These connect failures are not counted anywhere else.
    pub moved: u64,
    /// Reason why the address was excluded, as in `errors`; null if the address was not excluded.
    pub left_out: Option<String>,
}

/// File with the responses kept for a check. Each response is a triple of little-endian 64-bit
/// integers.
///
/// For `sequence`, a triple contains the number, the send time in ns and the completion time in ns.
///
/// For `scoring`, a triple contains these integers:
///
/// 1. The number.
/// 2. The send time in ns (low 48 bits) and the low half of the distance (high 16 bits).
/// 3. `done − sent` in ns (low 48 bits) and the high half of the distance (high 16 bits).
///
/// The distance is the difference between the total and its expected value, as a signed 32-bit
/// number of scores.
/// The value -2^31 marks a distance that is not an integer number of scores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswersFile {
    /// Name of the file in the result directory.
    pub file: String,
    /// Number of triples.
    pub count: u64,
}

/// Log of single requests that a worker wrote (`--request-log`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestLogEnd {
    /// Path of the file as given.
    pub file: String,
    /// Number of requests in the file.
    pub logged: u64,
    /// Number of sampled requests that were not written, because of an error or because writing was
    /// too slow.
    pub dropped: u64,
    /// Reason why writing failed; null if it succeeded.
    pub error: Option<String>,
}

impl PartRow {
    /// Merges another worker's row for the same part. The merged row spans the times of both.
    pub fn merge(&mut self, other: &PartRow) {
        self.from_ns = self.from_ns.min(other.from_ns);
        self.to_ns = self.to_ns.max(other.to_ns);
        self.sums.merge(&other.sums);
        GroupRow::merge_each(&mut self.groups, &other.groups);
    }
}

impl SecondRow {
    /// Returns a row with the sums of the parts of one second, or `None` if `parts` is empty. Parts
    /// contain no connections, CPU times or histograms, so these fields are 0 or empty.
    #[must_use]
    pub fn of_parts(parts: &[PartRow], index: u64) -> Option<Self> {
        let mut sum = parts.first()?.clone();
        parts[1..].iter().for_each(|part| sum.merge(part));
        Some(SecondRow {
            phase: sum.phase,
            index,
            from_ns: sum.from_ns,
            to_ns: sum.to_ns,
            counts: sum.sums.counts,
            good: sum.sums.good,
            ok_in_window: sum.sums.ok_in_window,
            good_in_window: sum.sums.good_in_window,
            bytes_sent: sum.sums.bytes_sent,
            bytes_received: sum.sums.bytes_received,
            connects: 0,
            open_connections: 0,
            user_s: 0.0,
            system_s: 0.0,
            histograms: BTreeMap::new(),
            groups: sum.groups,
        })
    }

    /// Merges another worker's row for the same second, except its histograms. The merged row spans
    /// the times of both.
    pub fn merge(&mut self, other: &SecondRow) {
        self.from_ns = self.from_ns.min(other.from_ns);
        self.to_ns = self.to_ns.max(other.to_ns);
        self.counts.merge(&other.counts);
        self.good += other.good;
        self.ok_in_window += other.ok_in_window;
        self.good_in_window += other.good_in_window;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.connects += other.connects;
        self.open_connections += other.open_connections;
        self.user_s += other.user_s;
        self.system_s += other.system_s;
        GroupRow::merge_each(&mut self.groups, &other.groups);
    }
}

impl HeldConnections {
    /// Adds the held connections of another worker. The workers opened their connections at the
    /// same time, so the longer opening time applies.
    pub fn merge(&mut self, other: &HeldConnections) {
        self.standing += other.standing;
        self.failed += other.failed;
        add_counts(&mut self.reasons, &other.reasons);
        self.lost += other.lost;
        self.reopened += other.reopened;
        self.opening_ns = self.opening_ns.max(other.opening_ns);
    }
}

impl WorkerEnd {
    /// Merges the last event of another thread or worker, except the histograms of its groups.
    pub fn merge(&mut self, other: &WorkerEnd) {
        let reasons = [self.reason, other.reason];
        self.reason = [
            EndReason::Interrupted,
            EndReason::ServerGone,
            EndReason::NotHttp,
            EndReason::RowsUsedUp,
        ]
        .into_iter()
        .find(|reason| reasons.contains(reason))
        .unwrap_or_default();
        self.last_response_ns = self.last_response_ns.max(other.last_response_ns);
        self.window_ns = self.window_ns.max(other.window_ns);
        self.ended_ns = self.ended_ns.max(other.ended_ns);
        self.counts.merge(&other.counts);
        merge_options(&mut self.warmup_counts, &other.warmup_counts, Counts::merge);
        self.warmup_ns = self.warmup_ns.max(other.warmup_ns);
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.connects += other.connects;
        self.peak_connections += other.peak_connections;
        self.silent_connections += other.silent_connections;
        merge_options(&mut self.held, &other.held, HeldConnections::merge);
        self.longest_stall_ns = self.longest_stall_ns.max(other.longest_stall_ns);
        add_counts(&mut self.errors, &other.errors);
        for response in &other.not_ok_responses {
            let same = |first: &NotOkResponse| first.status == response.status;
            if !self.not_ok_responses.iter().any(same) {
                self.not_ok_responses.push(response.clone());
            }
        }
        self.not_ok_responses
            .sort_by_key(|response| response.status);
        self.not_ok_responses.truncate(MAX_STATUSES);
        add_counts(&mut self.unawaited, &other.unawaited);
        self.user_s += other.user_s;
        self.system_s += other.system_s;
        merge_options(&mut self.peak_rss_bytes, &other.peak_rss_bytes, |a, b| {
            *a += b;
        });
        self.threads.extend_from_slice(&other.threads);
        for one in &other.addresses {
            let mut all = self.addresses.iter_mut();
            match all.find(|sum| sum.address == one.address) {
                Some(sum) => sum.merge(one),
                None => self.addresses.push(one.clone()),
            }
        }
        merge_options(&mut self.answers, &other.answers, |a, b| a.count += b.count);
        self.out_of_order += other.out_of_order;
        self.offenders.extend_from_slice(&other.offenders);
        self.offenders.truncate(SHOWN);
        self.not_numbers += other.not_numbers;
        // Keep the first `TotalLine`, because the distances in the joined file are relative to it.
        merge_options(&mut self.scored, &other.scored, |a, b| {
            a.line = a.line.or(b.line);
            a.join(b);
        });
        merge_options(&mut self.tls, &other.tls, TlsUse::merge);
        merge_options(&mut self.http2, &other.http2, Http2Use::merge);
        self.next_number = self.next_number.max(other.next_number);
    }
}

/// Merges an optional value into an optional sum.
fn merge_options<T: Clone>(sum: &mut Option<T>, other: &Option<T>, merge: impl FnOnce(&mut T, &T)) {
    match (sum, other) {
        (Some(sum), Some(other)) => merge(sum, other),
        (sum @ None, other) => *sum = other.clone(),
        (Some(_), None) => {}
    }
}

impl AddressUse {
    /// Adds another worker's use of the same address. An address that any worker reached does not
    /// count as excluded.
    pub fn merge(&mut self, other: &AddressUse) {
        self.opened += other.opened;
        self.moved += other.moved;
        let reason = self.left_out.take().or_else(|| other.left_out.clone());
        self.left_out = reason.filter(|_| self.opened == 0);
    }
}

/// Adds counts by name to a sum.
fn add_counts(sum: &mut BTreeMap<String, u64>, counts: &BTreeMap<String, u64>) {
    for (name, n) in counts {
        *sum.entry(name.clone()).or_default() += n;
    }
}

/// Figures for a group in one second.
/// [`SecondRow`](crate::SecondRow) defines in which second a request is counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupRow {
    /// Counts of requests.
    pub counts: Counts,
    /// Ok responses that met their deadline.
    pub good: u64,
    /// Ok responses received by the end of the sending window.
    pub ok_in_window: u64,
    /// Ok responses that met their deadline and arrived by the end of the sending window.
    pub good_in_window: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received while the latest request on the connection belonged to the group.
    pub bytes_received: u64,
}

impl GroupRow {
    /// Adds the figures of another thread, group or second.
    pub fn merge(&mut self, other: &GroupRow) {
        self.counts.merge(&other.counts);
        self.good += other.good;
        self.ok_in_window += other.ok_in_window;
        self.good_in_window += other.good_in_window;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
    }

    /// Adds the figures of each group to the sum with the same index. Creates missing sums.
    pub fn merge_each(sums: &mut Vec<GroupRow>, groups: &[GroupRow]) {
        let count = sums.len().max(groups.len());
        sums.resize_with(count, GroupRow::default);
        for (sum, group) in sums.iter_mut().zip(groups) {
            sum.merge(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(from_ns: u64, to_ns: u64, ok: u64, groups: &[u64]) -> PartRow {
        let row = |ok: u64| {
            let mut row = GroupRow::default();
            row.counts.ok = ok;
            row
        };
        PartRow {
            phase: Phase::Measure,
            from_ns,
            to_ns,
            sums: row(ok),
            groups: groups.iter().copied().map(row).collect(),
        }
    }

    #[test]
    fn a_row_of_parts_covers_all_parts() {
        assert_eq!(SecondRow::of_parts(&[], 3), None);
        let parts = [part(0, 100, 1, &[]), part(100, 150, 6, &[4, 2])];
        let row = SecondRow::of_parts(&parts, 3).unwrap();
        assert_eq!((row.index, row.from_ns, row.to_ns), (3, 0, 150));
        let groups: Vec<u64> = row.groups.iter().map(|group| group.counts.ok).collect();
        assert_eq!((row.counts.ok, groups), (7, vec![4, 2]));
    }

    #[test]
    fn a_merged_row_ends_with_the_longer_row() {
        let mut sum = SecondRow::of_parts(&[part(0, 100, 1, &[1])], 0).unwrap();
        let other = SecondRow::of_parts(&[part(0, 90, 2, &[0, 2])], 0).unwrap();
        sum.merge(&other);
        assert_eq!((sum.to_ns, sum.counts.ok, sum.groups.len()), (100, 3, 2));
    }

    #[test]
    fn an_address_that_a_worker_reached_is_not_left_out() {
        let of = |opened, left_out: Option<&str>| AddressUse {
            address: "127.0.0.1:80".to_owned().try_into().unwrap(),
            opened,
            moved: 1,
            left_out: left_out.map(str::to_owned),
        };
        let mut unreached = of(0, None);
        unreached.merge(&of(0, Some("connect_refused")));
        assert_eq!(unreached.left_out.as_deref(), Some("connect_refused"));
        unreached.merge(&of(2, None));
        unreached.merge(&of(0, Some("connect_refused")));
        assert_eq!(
            unreached,
            AddressUse {
                moved: 4,
                ..of(2, None)
            }
        );
    }
}
