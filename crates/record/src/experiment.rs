//! An experiment and its sweeps, as the record describes them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::capacity::CapacityGoal;
use crate::comparison::{Agreement, ComparedMetric};
use crate::crash::CrashSettings;
use crate::events::RunId;
use crate::gate::GateRules;
use crate::host::ToolInfo;
use crate::tuning::TuningDescription;

/// An experiment as described in its file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentDescription {
    /// Name of the experiment's file.
    pub name: String,
    /// Question that the experiment answers.
    pub question: String,
    /// Names of the trials in order, as in `runs[].trial`.
    pub trials: Vec<String>,
    /// Number of fresh server starts per trial.
    pub processes: u32,
    /// Published figures to compare with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<PublishedClaim>,
    /// Trials of the ladder, in order. Each trial adds one feature to the previous trial.
    /// The ratio between two adjacent trials shows the cost of the added feature.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ladder: Vec<String>,
    /// Groups of trials that differ only in settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweeps: Vec<Sweep>,
    /// Causes that the author expects to limit the throughput.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected_causes: Vec<String>,
    /// Further causes that the author expects to contribute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected_also: Vec<String>,
    /// Steps that the author expects on the path, excluding the first step. Each has the form
    /// `KIND PROCESS`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected_path: Vec<String>,
    /// Expected outcome of the check; null if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_check: Option<ExpectedCheck>,
    /// Conditions that end a measurement early, such as `errors > 20% for 5s`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub abort_if: Vec<String>,
    /// Crash rounds of each trial. An experiment with crash rounds has no other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash: Option<CrashSettings>,
    /// Search for the capacity of each server process. An experiment with such a search compares
    /// only capacities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityGoal>,
    /// Gate that decides whether a candidate is worse than its baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateRules>,
    /// Tuning of a trial's knobs. Its trials are in `tuning`, not in `trials`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<TuningDescription>,
}

/// Resumption of an interrupted experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resumed {
    /// Version and command line of the floodmark process that resumed the experiment.
    pub tool: ToolInfo,
    /// Wall-clock time of the resumption in milliseconds since 1970.
    pub unix_ms: u64,
    /// Superseded runs: the runs of server processes that were not measured completely.
    pub anew: Vec<RunId>,
}

/// A published result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedClaim {
    /// Text of the claim.
    pub text: String,
    /// Publication that contains the claim; null if not stated.
    pub source: Option<String>,
    /// Metric of the claim.
    pub metric: Option<ComparedMetric>,
    /// Numerator and denominator of a published ratio, as names of trials or systems.
    /// Empty for a single figure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ratio: Vec<String>,
    /// Trial that a published single figure refers to; null for a ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<String>,
    /// Published figure; null if the claim has no figure.
    pub published: Option<f64>,
    /// Criterion for agreement; null if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<Agreement>,
}

/// Expected outcome of the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedCheck {
    /// The check holds.
    Held,
    /// The check is violated.
    Violated,
}

/// A sweep of an experiment: one trial per combination of values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sweep {
    /// Prefix of the sweep's trial names.
    pub name: String,
    /// Names of the varied settings, in the order given in the experiment.
    /// The first setting is plotted on the curve's x-axis.
    pub knobs: Vec<String>,
    /// Trials of the sweep.
    pub points: Vec<SweepPoint>,
}

/// A trial of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SweepPoint {
    /// Name of the trial, as in `runs[].trial`.
    pub trial: String,
    /// Value of each setting.
    pub values: BTreeMap<String, String>,
}

/// Result of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Swept {
    /// The sweep.
    pub sweep: Sweep,
    /// Throughput of each point, in the order of the sweep.
    pub measured: Vec<PointThroughput>,
    /// Name of the trial with the highest throughput; null if no throughput was measured.
    pub best: Option<String>,
    /// Name of the first trial with at least 95 % of the highest throughput.
    /// Null if no throughput was measured.
    pub enough: Option<String>,
}

/// Throughput of one point of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PointThroughput {
    /// Geometric mean of ok responses per second over server processes; null if not measured.
    pub throughput_per_s: Option<f64>,
    /// Lower bound of the 95 % interval over processes; null with fewer than two processes.
    pub low: Option<f64>,
    /// Upper bound of the interval; null with fewer than two processes.
    pub high: Option<f64>,
    /// Number of server processes.
    pub processes: u32,
}
