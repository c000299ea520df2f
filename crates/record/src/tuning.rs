//! Tuning: the search for the smallest setting of a server's knobs that performs nearly as well as
//! the best setting.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::interval::Interval;

crate::names::named! {
    /// What a knob sizes.
    KnobKind {
        /// A thread pool, or a number of worker processes.
        Threads = "threads",
        /// A pool of connections from the server to its store or upstream.
        Connections = "connections",
        /// Anything else.
        Other = "other",
    }

    /// Figure that a tuning run maximizes.
    TuningGoal {
        /// Ok responses per second.
        Throughput = "throughput",
        /// Highest rate at which the server meets the objectives of the experiment.
        Capacity = "capacity",
    }

    // In the order in which a tuning run takes these actions.
    /// Why a tuning run measured a setting.
    TuningAction {
        /// The setting is the default.
        Start = "start",
        /// A full pool limits the previous setting, and this knob sizes the pool.
        Raise = "raise",
        /// No cause indicates which knob to change.
        Sweep = "sweep",
        /// A smaller value may be enough, or a value between two others may be better.
        Narrow = "narrow",
        /// Another server process must be measured to decide whether the setting is good enough.
        Repeat = "repeat",
        /// Fresh processes confirm the chosen setting.
        Confirm = "confirm",
    }

    /// How a tuning run ended.
    TuningEnd {
        /// The search is complete.
        Complete = "complete",
        /// The time limit was reached.
        OutOfTime = "out-of-time",
        /// No valid result was measured for the default setting, so the search cannot start.
        NoStart = "no-start",
        /// The tuning run was interrupted, or a worker failed.
        Interrupted = "interrupted",
    }
}

/// Values of the tuned knobs, by the knobs' names.
pub type KnobValues = BTreeMap<String, u64>;

/// A knob that a tuning run changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TunedKnob {
    /// Name of the knob.
    pub name: String,
    /// What the knob sizes.
    pub sizes: KnobKind,
    /// Value with which the tuning run starts.
    pub default: u64,
    /// Smallest value to try.
    pub low: u64,
    /// Largest value to try.
    pub high: u64,
    /// Allowed values in ascending order; empty if all values from `low` to `high` are allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<u64>,
}

/// A tuning run as requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TuningDescription {
    /// Prefix of the names of the tuning run's trials.
    pub trial: String,
    /// Figure to maximize.
    pub goal: TuningGoal,
    /// The tuned knobs, in the order in which the tuning run looks for smaller values.
    pub knobs: Vec<TunedKnob>,
}

impl TuningDescription {
    /// Returns the name of the trial that measures a setting.
    #[must_use]
    pub fn trial_name(&self, values: &KnobValues) -> String {
        let knobs = self.knobs.iter().map(|knob| &knob.name);
        let suffix = knobs.map(|name| format!("-{name}-{}", values[name]));
        self.trial.clone() + &suffix.collect::<String>()
    }
}

/// A setting at which the server failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailedSetting {
    /// Name of the trial.
    pub trial: String,
    /// The failure, in one line.
    pub what: String,
}

/// One measured server process of a tuning run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TuningStep {
    /// Why the process was measured.
    pub action: TuningAction,
    /// Knob whose value differs from the previous setting; null for the start and for repetitions.
    pub knob: Option<String>,
    /// Why this setting was chosen, in one line.
    pub reason: String,
    /// Values of the tuned knobs.
    pub values: KnobValues,
    /// Name of the trial, as in `runs[].trial`.
    pub trial: String,
    /// Number of the setting's server process, starting at 1.
    pub process: u32,
    /// Figure of this process per second; null if the server failed, the run is invalid or the search
    /// found no capacity.
    pub figure_per_s: Option<f64>,
    /// Whether the capacity may be higher than `figure_per_s`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_lower_bound: bool,
    /// Interval of the figure within the server process; null if unknown.
    pub interval: Option<Interval>,
    /// Why the capacity is unknown or only a lower bound; null otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Cause that limits this process; null if unknown.
    pub cause: Option<Cause>,
    /// Explanation of the cause; null if the cause is unknown.
    pub limit: Option<String>,
}

/// A measured setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TunedSetting {
    /// Name of the trial, as in `runs[].trial`.
    pub trial: String,
    /// Values of the tuned knobs.
    pub values: KnobValues,
    /// Geometric mean of the figure over server processes, per second; null if the server failed.
    pub figure_per_s: Option<f64>,
    /// Whether the capacity of a process may be higher than its figure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_lower_bound: bool,
    /// Interval over server processes, or within the process if there is only one.
    pub interval: Option<Interval>,
    /// Number of server processes with a figure.
    pub processes: u32,
    /// Geometric mean of the 99th percentile of response time, in µs; null if it was not measured,
    /// or if the figure is the capacity, because the objectives then limit this time.
    pub p99_us: Option<f64>,
    /// Whether no other setting has both a higher figure and a lower 99th percentile.
    /// Differences below 2 % do not count.
    pub on_frontier: bool,
}

/// Comparison of the chosen setting with the best setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TuningRatio {
    /// Figure of the chosen setting divided by that of the best setting.
    pub ratio: f64,
    /// Interval of the ratio; null with fewer than two processes of each setting.
    pub interval: Option<Interval>,
    /// Number of fresh processes of each setting that were measured only to confirm the choice.
    pub confirmed_by: u32,
}

/// Result of a tuning run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tuning {
    /// The measured server processes, in order.
    pub steps: Vec<TuningStep>,
    /// The measured settings, in the order in which they were first measured.
    pub settings: Vec<TunedSetting>,
    /// Name of the trial with the highest figure; null if nothing was measured.
    pub best: Option<String>,
    /// Name of the trial with the smallest setting whose figure is within 2 % of the best.
    /// Null if nothing was measured.
    pub chosen: Option<String>,
    /// Comparison of `chosen` with `best`; null if they are the same.
    pub ratio: Option<TuningRatio>,
    /// Cause that limits the chosen setting; null if unknown.
    pub cause: Option<Cause>,
    /// Knobs that do not matter: at all their measured values, the figure is within 2 % of the
    /// best.
    pub irrelevant: Vec<String>,
    /// How the tuning run ended.
    pub ended: TuningEnd,
    /// Why the tuning run ended, in one line.
    pub why_ended: String,
    /// Settings at which the server failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedSetting>,
}

impl Tuning {
    /// Returns the setting that a trial measured.
    #[must_use]
    pub fn setting(&self, trial: &str) -> Option<&TunedSetting> {
        self.settings.iter().find(|setting| setting.trial == trial)
    }
}
