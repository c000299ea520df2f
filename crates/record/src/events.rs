//! The stream of events that a run emits. The live view, the folded record and every later judgement are
//! listeners of this one stream; on disk it is `events.jsonl`, one event a line, append-only.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::client::ClientRan;
use crate::experiment::{Asked, Resumed};
use crate::groups::GroupRow;
use crate::kept::Scored;
use crate::logged::Logged;
use crate::outcome::Counts;
use crate::place::Place;
use crate::plan::Plan;
use crate::proof::Windows;
use crate::run::{Environment, ToolInfo};
use crate::target::Address;
use crate::times::TimeKind;
use crate::tls::TlsUse;
use crate::watch::{Observed, ServerUsed};

/// One line of `events.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A result folder was opened.
    Opened {
        /// The format's version.
        schema: u32,
        /// Which floodmark, and how it was called.
        tool: ToolInfo,
        /// The machine.
        environment: Environment,
    },
    /// What follows are the runs of an experiment.
    Experiment(Asked),
    /// The result was cut short, and is gone on with.
    Resumed(Resumed),
    /// Something of the experiment was left out.
    Skipped {
        /// What, and why, in one line.
        what: String,
    },
    /// An attempt begins.
    RunBegan {
        /// Which one.
        run: RunId,
        /// What is asked of it.
        plan: Plan,
        /// Wall clock at its start, milliseconds since 1970.
        unix_ms: u64,
    },
    /// Where its client and server are, where that was asked for.
    Placed(Place),
    /// Another load generator drives it in place of a worker.
    Driven {
        /// Its name: that of its folder.
        by: String,
    },
    /// The worker is ready to send.
    Ready(WorkerReady),
    /// How far the worker is with opening connections before it sends.
    Connecting(Connecting),
    /// The worker begins to send.
    Began {
        /// Warm-up or measurement.
        phase: Phase,
    },
    /// What the server used since the last of these; comes with each second.
    ServerUsed(ServerUsed),
    /// The same of the store behind it, where there is one.
    StoreUsed(ServerUsed),
    /// What happened in one second of the worker's clock.
    Second(SecondRow),
    /// The worker is done.
    End(WorkerEnd),
    /// Another load generator has ended; it stands where the events of a worker would.
    ClientRan(ClientRan),
    /// What was read beside the load.
    Observed(Observed),
    /// What the server is, and what it said in the attempt.
    Logged(Logged),
    /// What could not be read, and why.
    Missing {
        /// One line each.
        missing: Vec<String>,
    },
    /// The attempt is over; what precedes it has been synced to disk.
    RunEnded {
        /// Which one.
        run: RunId,
        /// Why it did not run its course, when it did not.
        cut_short: Option<String>,
    },
    /// Parts of a measured run's setup were changed in turn.
    Proved {
        /// Which run.
        run: RunId,
        /// What came of each change.
        windows: Vec<Windows>,
        /// What could not be changed or measured, one line each.
        missing: Vec<String>,
    },
}

/// Names one attempt within a result.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct RunId {
    /// The server under test: its name in an experiment, else the URL's authority.
    pub system: String,
    /// The workload's name in an experiment, else the mix file's name or the URL's path.
    pub workload: String,
    /// The trial's name in its experiment; null where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<String>,
    /// Knobs of the server that were set, each with its value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub setting: BTreeMap<String, String>,
    /// Which fresh start of the server, from 1.
    pub process: u32,
    /// Which repetition on that process, from 1.
    pub attempt: u32,
}

/// The worker's first word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerReady {
    /// Its process id.
    pub pid: u32,
    /// What it had to settle for, one line each.
    pub notices: Vec<String>,
    /// Open-file limit, raised to what the plan needs where the hard limit allows it; null where the kernel does not tell.
    pub fd_limit: Option<u64>,
    /// Open-file limit before it was raised; null where it could not be read.
    #[serde(default)]
    pub fd_limit_before: Option<u64>,
}

/// Connections that are opened before the clock starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Connecting {
    /// Stand by now.
    pub standing: u64,
    /// Could not be opened.
    pub failed: u64,
    /// How many are opened before the clock starts.
    pub of: u64,
}

/// What became of connections that were all opened before the clock started and kept open (`--hold`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Held {
    /// Stood when the clock started.
    pub standing: u64,
    /// Could not be opened before that.
    pub failed: u64,
    /// Why, with how many each reason kept from being opened; the names are those of the errors, which count them too. Empty in
    /// records that do not tell.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<String, u64>,
    /// Ended in the run: closed by the server, or given up after a timeout or a malformed answer.
    pub lost: u64,
    /// Opened in the run in place of those that were lost or could not be opened.
    pub reopened: u64,
    /// How long opening them took before the clock started, ns.
    pub opening_ns: u64,
}

/// Whether a second belongs to the warm-up or to the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Real load before the measurement.
    Warmup,
    /// The measurement.
    Measure,
}

/// What happened in one second, over all threads. Times count from the start of the phase.
///
/// A request belongs to the second in which it ended; `intended`, `sent`, `unsent` and `connect_failed` to the second in which
/// each happened. Every request is in exactly one row, so rows add up to the totals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecondRow {
    /// Warm-up or measurement.
    pub phase: Phase,
    /// Number of the second, from 0.
    pub index: u64,
    /// Begin, ns from the phase's start.
    pub from_ns: u64,
    /// End, ns from the phase's start; the last row of a run may be shorter than a second.
    pub to_ns: u64,
    /// What happened.
    pub counts: Counts,
    /// Ok answers that met their deadline.
    pub good: u64,
    /// Ok answers up to the end of the sending window (all of them in every row but the last ones).
    pub ok_in_window: u64,
    /// Good answers up to the end of the sending window.
    pub good_in_window: u64,
    /// Bytes of requests, before TLS.
    pub bytes_sent: u64,
    /// Bytes of answers, after TLS.
    pub bytes_received: u64,
    /// Connections opened.
    pub connects: u64,
    /// Connections open at the end of the second.
    pub open_connections: u64,
    /// CPU of the worker process in this second, user part, in seconds.
    pub user_s: f64,
    /// CPU of the worker process in this second, kernel part, in seconds.
    pub system_s: f64,
    /// HdrHistogram V2 of nanoseconds, deflated, base64; kinds without a sample are left out.
    pub histograms: BTreeMap<TimeKind, String>,
    /// The same by group, in the order of the plan's mix; empty without one. Groups' histograms come with the worker's last word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupRow>,
}

/// What a thread used between the start and the end of the sending window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadUse {
    /// Its name.
    pub name: String,
    /// Whether it drives load (the others gather and write).
    pub drives_load: bool,
    /// CPU in user mode, seconds (`getrusage(RUSAGE_THREAD)`).
    pub user_s: f64,
    /// CPU in the kernel, seconds.
    pub system_s: f64,
    /// Time it was ready to run and waited for a CPU, seconds (`/proc/self/task/TID/schedstat`); null where it could not be
    /// read, as on kernels without schedstat.
    pub run_delay_s: Option<f64>,
    /// The window it is of, seconds.
    pub wall_s: f64,
    /// For how long it took answers several at a time, seconds: a busy thread of a closed run does. An answer waited for others at
    /// most an eighth of the mean response time, and 1 ms. Null for threads that drive no load.
    #[serde(default)]
    pub coalesced_s: Option<f64>,
    /// How many pieces of answers it timed by the kernel's receive stamps (SO_TIMESTAMPNS), as it does in the open model; all others
    /// by when it saw them. Null for threads that drive no load.
    #[serde(default)]
    pub kernel_stamped: Option<u64>,
}

/// Why a worker stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// It sent what it was asked to send.
    Completed,
    /// It was told to stop.
    Interrupted,
    /// No connection could be opened any more for several seconds: the server is gone.
    ServerGone,
    /// What answered does not speak HTTP/1.1.
    NotHttp,
    /// Another load generator failed, or what it said could not be read.
    ClientFailed,
}

/// The worker's last word: totals of the measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerEnd {
    /// Why it stopped.
    pub reason: EndReason,
    /// When no answer has come since, ns from the phase's start, where the server went away.
    pub server_gone_since_ns: Option<u64>,
    /// End of the sending window, ns from the start of the measurement.
    pub window_ns: u64,
    /// When the last request had its outcome, ns from the start of the measurement.
    pub ended_ns: u64,
    /// Counts of the measurement.
    pub counts: Counts,
    /// Counts of the warm-up, where there was one.
    pub warmup_counts: Option<Counts>,
    /// Length of the warm-up, ns.
    pub warmup_ns: u64,
    /// Bytes of requests sent in the measurement, before TLS.
    pub bytes_sent: u64,
    /// Bytes of answers received in the measurement, after TLS.
    pub bytes_received: u64,
    /// Connections opened in the measurement and before it.
    pub connects: u64,
    /// Most connections open at once.
    pub peak_connections: u64,
    /// What became of held connections; null where none were held.
    #[serde(default)]
    pub held: Option<Held>,
    /// Longest time by which a load thread came back late from a wait or a turn of its loop, ns: a stall of our own.
    pub longest_stall_ns: u64,
    /// Named reasons of malformed answers, failed connects and unsent requests, with how often each occurred.
    pub errors: BTreeMap<String, u64>,
    /// Of these the failed connects that no request waited for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unawaited: BTreeMap<String, u64>,
    /// CPU of the whole worker process over the measurement, user part, seconds.
    pub user_s: f64,
    /// The same, kernel part, seconds.
    pub system_s: f64,
    /// Peak resident memory of the worker, bytes (`getrusage`); null where the kernel does not tell.
    pub peak_rss_bytes: Option<u64>,
    /// Each thread over the sending window.
    pub threads: Vec<ThreadUse>,
    /// What became of each address of the target.
    #[serde(default)]
    pub addresses: Vec<AddressUse>,
    /// File with the answers kept for a check, where one was asked for, and how many it holds.
    pub answers: Option<AnswersFile>,
    /// Number of answers that broke their connection's order, with the first offenders (`--check`).
    pub out_of_order: u64,
    /// First offenders in words.
    pub offenders: Vec<String>,
    /// Ok answers that were not what the check reads: no number, or none to a score.
    pub not_numbers: u64,
    /// Of the totals and averages that were answered (`--check scoring`); null where none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scored: Option<Scored>,
    /// What TLS took and gave; null for plain HTTP.
    #[serde(default)]
    pub tls: Option<TlsUse>,
    /// Histograms of the measurement by group, as those of a second, in the order of the plan's mix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<BTreeMap<TimeKind, String>>,
    /// A number (`{seq}`) above all that were used, warm-up included.
    #[serde(default)]
    pub next_number: u64,
}

/// What became of one address of the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AddressUse {
    /// Which, as `IP:PORT` or `unix:PATH`.
    #[schemars(with = "String")]
    pub address: Address,
    /// Connections to it that stood, before the measurement and in it.
    pub opened: u64,
    /// Connections that were tried here in vain and then at another address, because none had ever stood here; they are in no
    /// other count.
    pub moved: u64,
    /// Why it was left out, by the name that a failed connect has in `errors`; null where it was used, or was the last one.
    pub left_out: Option<String>,
}

/// Answers kept for a check: little-endian triples of 64 bits. For `sequence`: number, sent ns, done ns. For `scoring`: number; sent ns,
/// below the low 16 bits of how many scores the total is ahead; done − sent ns, below its high 16 bits (-2^31: no whole number of them).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnswersFile {
    /// File name within the result folder.
    pub file: String,
    /// How many triples it holds.
    pub count: u64,
}
