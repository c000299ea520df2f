//! Trends: figures of successive results, and their lasting changes.

use serde::{Deserialize, Serialize};

use crate::comparison::ComparedMetric;
use crate::host::ToolInfo;
use crate::interval::Interval;

/// Output of `floodmark trend --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrendReport {
    /// Version of the format, [`crate::SCHEMA_VERSION`].
    pub schema: u32,
    /// Version and command line of the floodmark process that read the results.
    pub tool: ToolInfo,
    /// One series for each load of each trial or system.
    pub series: Vec<TrendSeries>,
    /// Notes on results that could not be read, and limitations of the other results.
    pub notes: Vec<String>,
}

/// The results of one trial or system with the same load, in chronological order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrendSeries {
    /// Name of the trial or system. If the load changed, the names of later series include their
    /// first result: `hello since 2026-11-14`.
    pub name: String,
    /// The results.
    pub results: Vec<TrendResult>,
    /// One trend per metric.
    pub trends: Vec<Trend>,
    /// Changes to the host or to floodmark's version between consecutive results.
    pub host_changes: Vec<HostChange>,
}

/// One result of a series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrendResult {
    /// Name of the result's folder or file.
    pub name: String,
    /// Start time of the first run, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Number of server processes.
    pub processes: u32,
}

/// Figures of one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trend {
    /// The metric.
    pub metric: ComparedMetric,
    /// The figure of each result; null if it was not measured, is 0, or is above the timeout.
    pub figures: Vec<Option<TrendFigure>>,
    /// The levels, in chronological order.
    pub levels: Vec<TrendLevel>,
}

impl Trend {
    /// Returns the number of results that have a figure.
    #[must_use]
    pub fn measured(&self) -> usize {
        self.figures.iter().flatten().count()
    }
}

/// The figure of one result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrendFigure {
    /// Geometric mean over server processes, in the metric's unit.
    pub value: f64,
    /// Interval of the value; null if unknown.
    pub interval: Option<Interval>,
}

/// A lasting level of a metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrendLevel {
    /// Index of the first result at this level, from 0.
    pub first: u32,
    /// Geometric mean of the results' figures, in the metric's unit.
    pub figure: f64,
    /// Ratio to the previous level; null for the first level.
    pub change: Option<LevelRatio>,
}

/// A level divided by the previous one, with a 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LevelRatio {
    /// The ratio.
    pub ratio: f64,
    /// Lower bound of the interval.
    pub low: f64,
    /// Upper bound of the interval.
    pub high: f64,
}

/// A change to the host or to floodmark's version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostChange {
    /// Index of the first result after the change, from 0.
    pub first: u32,
    /// The properties that differ from the previous result.
    pub differences: Vec<String>,
}
