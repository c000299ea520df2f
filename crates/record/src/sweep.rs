//! Trials that differ by the values of some knobs alone, and what became of their throughput.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A sweep as an experiment asks it: a trial for each combination of values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sweep {
    /// What its trials have in common.
    pub name: String,
    /// The knobs that vary, in the order they were written; the first is the axis of its curve.
    pub knobs: Vec<String>,
    /// Its trials.
    pub points: Vec<Point>,
}

/// A trial of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// Its name; `runs[].trial` refers to it.
    pub trial: String,
    /// Value of each knob.
    pub values: BTreeMap<String, String>,
}

/// What a sweep came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Swept {
    /// Which one.
    pub sweep: Sweep,
    /// Of each of its points, in the same order.
    pub measured: Vec<Measured>,
    /// Trial with the highest throughput; null where nothing was measured.
    pub best: Option<String>,
    /// The first trial, in the order of the points, that reaches 95 % of that.
    pub enough: Option<String>,
}

/// Throughput of a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// Geometric mean of its server processes, ok answers per second; null where there is none.
    pub throughput_per_s: Option<f64>,
    /// Lower end of its 95 % interval over processes; null with fewer than two.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Server processes.
    pub processes: u32,
}
