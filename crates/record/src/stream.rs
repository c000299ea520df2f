//! The event stream of a result.
//!
//! The live view and the record are both derived from this event stream.
//! The append-only file `events.jsonl` stores one event per line.

use serde::{Deserialize, Serialize};

use crate::api_check::ItemsFile;
use crate::capacity::{CapacityBegan, CapacityEnded, CapacityLevel, CapacityTrial};
use crate::client::ClientRan;
use crate::crash::{CrashBegan, CrashRound};
use crate::events::{Abort, Connecting, PartRow, Phase, RunId, SecondRow, WorkerEnd, WorkerReady};
use crate::experiment::{ExperimentDescription, Resumed};
use crate::gate::{AlternatingEnd, GateTurns};
use crate::host::{Environment, ToolInfo};
use crate::plan::{Plan, RateChange};
use crate::run::AgentRun;
use crate::run::Placement;
use crate::tuning::FailedSetting;
use crate::verdict::Windows;
use crate::watch::{HostUsed, Logged, Observed, ServerUsed};

/// An event, stored as one line of `events.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A result directory was created.
    Opened {
        /// Version of the format.
        schema: u32,
        /// Version and command line of floodmark.
        tool: ToolInfo,
        /// The host.
        environment: Environment,
    },
    /// The following runs belong to an experiment.
    Experiment(ExperimentDescription),
    /// An interrupted result was resumed.
    Resumed(Resumed),
    /// A part of the experiment was skipped.
    Skipped {
        /// The skipped part and the reason, in one line.
        what: String,
        /// Whether the part failed. False in events from older versions.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        failed: bool,
    },
    /// An attempt started.
    RunBegan {
        /// Id of the run.
        run: RunId,
        /// Plan of the run.
        plan: Plan,
        /// Wall-clock time of the start in milliseconds since 1970.
        unix_ms: u64,
    },
    /// Placement of the client and the server, if requested.
    Placed(Placement),
    /// An external client sends the load of the run.
    Driven {
        /// Name of the client, which is also the name of its directory.
        by: String,
    },
    /// The worker is ready to send.
    Ready(WorkerReady),
    /// Progress in opening connections before the load starts.
    Connecting(Connecting),
    /// The worker started sending.
    Began {
        /// Warm-up or measurement.
        phase: Phase,
        /// Time just before the start, on the worker's clock, in ns. 0 in events from older
        /// versions.
        #[serde(default)]
        at_ns: u64,
    },
    /// The user changed the rate while the load runs. A later change from the same time replaces
    /// this one.
    RateChanged(RateChange),
    /// CPU time used by the server since the previous event of this kind. Recorded about once a
    /// second.
    ServerUsed(ServerUsed),
    /// CPU time used by the store since the previous event of this kind. Recorded about once a
    /// second.
    StoreUsed(ServerUsed),
    /// CPU time used on the host since the previous event of this kind. Recorded about once a
    /// second.
    HostUsed(HostUsed),
    /// Counts for a part of a second. If the worker dies, the figures for its last second are the
    /// sums of these parts.
    Part(PartRow),
    /// Throughput of each agent in the second that the next merged [`Event::Second`] describes.
    /// Absent if one worker sends the load.
    AgentRates {
        /// Ok responses per second, in the order of the agents; null for an agent that sent no
        /// figures for this second.
        ok_per_s: Vec<Option<f64>>,
    },
    /// Figures for one second of the worker's clock.
    Second(SecondRow),
    /// The load met an `--abort-if` condition, so its worker was told to stop.
    Aborted(Abort),
    /// The worker ended.
    End(WorkerEnd),
    /// The agents' parts of the load, recorded once per attempt, after the load. Absent if one
    /// worker sent the load.
    Agents {
        /// The agents, in order.
        agents: Vec<AgentRun>,
    },
    /// The items of a set were read back after the load (`--check`).
    ReadBack(ItemsFile),
    /// An external client ended. Its run has no worker events.
    ClientRan(ClientRan),
    /// Samples taken during the load.
    Observed(Observed),
    /// The server's runtime, and the errors in the server's log.
    Logged(Logged),
    /// Facts that could not be read, and the reasons.
    Missing {
        /// Facts and reasons, one line each.
        missing: Vec<String>,
    },
    /// The attempt ended; all earlier events are synced to disk.
    RunEnded {
        /// Id of the run.
        run: RunId,
        /// Reason for the interruption; null if the attempt completed.
        cut_short: Option<String>,
    },
    /// Throughput was measured with and without perturbations.
    Proved {
        /// Id of the run.
        run: RunId,
        /// Windows measured for each perturbation.
        windows: Vec<Windows>,
        /// Perturbations that could not be applied, one line each.
        missing: Vec<String>,
    },
    /// The crash rounds of a trial started.
    CrashBegan(CrashBegan),
    /// A crash round ended; all earlier events are synced to disk.
    CrashRound(CrashRound),
    /// A search for the capacity started.
    CapacityBegan(CapacityBegan),
    /// The previous run was a trial of the search. The record contains only this summary of the
    /// trial.
    CapacityTrial(CapacityTrial),
    /// The previous run was a load after the search.
    CapacityLevel(CapacityLevel),
    /// The search ended.
    CapacityEnded(CapacityEnded),
    /// The server failed with a setting that a tuning run tried.
    SettingFailed(FailedSetting),
    /// Last event of a worker that loads two servers alternately.
    Alternated(AlternatingEnd),
    /// The two servers of a pair were loaded alternately for a gate.
    GateTurns(GateTurns),
    /// The number of pairs that fit within a gate's budget was estimated.
    GatePlanned {
        /// Maximum number of pairs within the budget.
        max_pairs: u32,
    },
    /// The time limit of a tuning run or gate was reached.
    OutOfTime {
        /// The time limit in seconds.
        budget_s: f64,
    },
}
