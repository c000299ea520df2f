//! Crash rounds: the server or its store fails under load and starts again, and the recovered state
//! is compared with the acknowledged requests (docs/decisions/0029-crash-rounds.md).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kept::TotalLine;
use crate::outcome::Counts;
use crate::plan::Plan;
use crate::run::Placement;

crate::names::named! {
    /// Process to crash in a round.
    #[derive(Default)]
    CrashTarget {
        /// The server.
        #[default]
        Server = "server",
        /// The store that floodmark started for the trial.
        Store = "store",
    }
}

/// Signal that a crash round sends to the process group of its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum CrashSignal {
    /// SIGKILL: the processes end at once.
    #[default]
    Kill,
    /// SIGTERM: the processes can shut down cleanly.
    Term,
    /// SIGSTOP for longer than the request timeout, and then SIGCONT.
    Stop,
}

impl CrashSignal {
    /// Returns the name of the signal.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            CrashSignal::Kill => "SIGKILL",
            CrashSignal::Term => "SIGTERM",
            CrashSignal::Stop => "SIGSTOP",
        }
    }
}

/// Crash rounds that an experiment requests for each trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CrashSettings {
    /// Number of rounds per trial.
    pub rounds: u32,
    /// Process to crash.
    pub kill: CrashTarget,
    /// Signal that is sent.
    pub signal: CrashSignal,
    /// Earliest time of the signal, in seconds after the start of the load.
    pub from_s: f64,
    /// Latest time of the signal, in seconds after the start of the load. Each round draws its time
    /// uniformly from this range. The plan's seed and the round's number determine the time.
    pub to_s: f64,
}

/// Start of a trial's crash rounds on one durable state. A resumed experiment has several such
/// events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CrashBegan {
    /// Name of the trial.
    pub trial: String,
    /// Name of the system.
    pub system: String,
    /// Name of the workload, or the path of the requests.
    pub workload: String,
    /// Plan of the first round. Each later round increases the seed by one.
    pub plan: Plan,
    /// Placement of the client and the server, if requested.
    pub place: Option<Placement>,
    /// Number (`{seq}`) of the first request. All numbers of earlier rounds are smaller. 0 in
    /// events from older versions.
    #[serde(default)]
    pub first_number: u64,
    /// Wall-clock time in milliseconds since 1970.
    pub unix_ms: u64,
}

/// One crash round. All times are in ns since the start of the round's load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CrashRound {
    /// Name of the trial.
    pub trial: String,
    /// Number of the round, from 1.
    pub round: u32,
    /// Time at which the signal was sent.
    pub signaled_ns: u64,
    /// Time at which the process was started again. For SIGSTOP, the time of SIGCONT.
    pub restarted_ns: u64,
    /// Outcomes of the round's requests.
    pub counts: Counts,
    /// Time between the restart and the first ok response to a request that was sent after the
    /// restart. Null if there was no such response, which is possible only in a round that lost
    /// data.
    pub first_ok_ns: Option<u64>,
    /// Time between the restart and the start of the first 100 ms with at least 90 % of the earlier
    /// rate. Null if the load ended before that time, or if the earlier rate is unknown.
    pub full_speed_ns: Option<u64>,
    /// Ok responses per second before the signal; null if the load had run for less than 100 ms.
    pub rate_before_per_s: Option<f64>,
    /// What the check found.
    pub found: RoundFindings,
    /// Path of the file with the responses, relative to the result directory. The file is kept only
    /// if data was lost.
    pub responses: Option<String>,
    /// The state at the end of the round, with which the next round is compared.
    pub state: DurableState,
}

/// What a check found in one crash round. A round without violations lost nothing:
/// acknowledged ⊆ recovered ⊆ acknowledged ∪ unknown, in order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundFindings {
    /// Number of acknowledged requests whose loss the round could have detected: those executed
    /// before the restart or SIGCONT. For `register`, only writes whose key was read after the
    /// restart or SIGCONT and before the next write to the key.
    pub acknowledged: u64,
    /// Number of requests with an unknown outcome. The server may have executed them or not.
    pub unknown: u64,
    /// Last number that the state contained after the restart, for `sequence` and `scoring`. If the
    /// server kept running, the last number of the round.
    pub recovered: Option<u64>,
    /// Violations, one string each.
    pub violations: Vec<String>,
    /// Operations around the first violation, one line each. Empty for `sequence` and `scoring`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<String>,
}

impl RoundFindings {
    /// Returns whether the round is inconclusive: it found no violation, but could not have
    /// detected a loss.
    #[must_use]
    pub fn is_inconclusive(&self) -> bool {
        self.violations.is_empty() && self.acknowledged == 0
    }
}

/// The known content of a durable state between two rounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct DurableState {
    /// Largest number that the last server process acknowledged; null without a response.
    pub number: Option<u64>,
    /// Number of requests in the last round with an unknown outcome.
    pub unknown: u64,
    /// Expected totals (`scoring`); null for other checks.
    pub line: Option<TotalLine>,
    /// Distance of the totals from `line`, as a number of scores; null if unknown or not an
    /// integer.
    pub distance: Option<i32>,
    /// Next free request number (`{seq}`). All numbers in the rounds so far are smaller.
    #[serde(default)]
    pub next_number: u64,
}

/// Result of a trial's crash rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CrashResult {
    /// Name of the trial.
    pub trial: String,
    /// Name of the system.
    pub system: String,
    /// Name of the workload, or the path of the requests.
    pub workload: String,
    /// Name of the check.
    pub check: String,
    /// Process that the rounds crashed.
    pub kill: CrashTarget,
    /// Signal that was sent.
    pub signal: CrashSignal,
    /// Number of rounds that the experiment requests.
    pub rounds_requested: u32,
    /// Number of complete rounds.
    pub rounds: u32,
    /// Number of complete rounds that were inconclusive: no request was acknowledged before the
    /// restart, or, for `register`, no key with an acknowledged write was read after the restart.
    #[serde(default)]
    pub inconclusive: u32,
    /// Number of rounds in which the recovered state contradicts the acknowledged requests.
    pub lost: u32,
    /// One-sided upper bound on the probability that a round loses data; null if all rounds
    /// were inconclusive.
    pub upper_bound: Option<f64>,
    /// Confidence of the upper bound, such as 0.95.
    pub confidence: f64,
    /// Time between the restart and the first ok response.
    pub first_ok: RecoveryTimes,
    /// Time between the restart and the return to at least 90 % of the earlier rate.
    pub full_speed: RecoveryTimes,
    /// Outcomes of all requests.
    pub requests: Counts,
    /// Number of acknowledged requests whose loss the rounds could have detected.
    pub acknowledged: u64,
    /// Number of requests with an unknown outcome.
    pub unknown: u64,
    /// Plan of the first round.
    pub plan: Plan,
    /// Placement of the client and the server, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Placement>,
    /// Rounds that lost data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<CrashLoss>,
}

impl CrashResult {
    /// Returns the number of rounds that could have detected a loss.
    #[must_use]
    pub fn conclusive(&self) -> u32 {
        self.rounds.saturating_sub(self.inconclusive)
    }
}

/// Recovery times in the rounds of a trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecoveryTimes {
    /// Number of rounds with a time.
    pub count: u32,
    /// Shortest time in ms.
    pub min_ms: Option<f64>,
    /// Median time in ms.
    pub median_ms: Option<f64>,
    /// Longest time in ms.
    pub max_ms: Option<f64>,
}

/// A round that lost data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CrashLoss {
    /// Number of the round, from 1.
    pub round: u32,
    /// Time of the signal, in seconds after the start of the load.
    pub signaled_s: f64,
    /// Number of acknowledged requests whose loss the round could have detected.
    pub acknowledged: u64,
    /// Number of requests with an unknown outcome.
    pub unknown: u64,
    /// Last number that the state contained after the restart; null for `set` and `register`.
    pub recovered: Option<u64>,
    /// Violations, one string each.
    pub violations: Vec<String>,
    /// Operations around the first violation, one line each. Empty for `sequence` and `scoring`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<String>,
    /// Path of the file with the round's responses, relative to the result directory.
    pub responses: Option<String>,
}
