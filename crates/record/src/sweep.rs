//! Sweeps: trials that differ only in server settings, and the throughput of these trials.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A sweep of an experiment: one trial per combination of values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sweep {
    /// Common part of the sweep's trial names.
    pub name: String,
    /// Names of the varied settings, in the order given in the experiment.
    /// The first setting is the axis of the curve.
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
