//! Comparisons of two systems, checks of published claims, and trends. A trend shows lasting
//! changes in successive results.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::ToolInfo;
use crate::interval::Interval;
use crate::run::{Run, Status, SteadyClass};

crate::names::named! {
    // In display order.
    /// A metric for comparing systems.
    ComparedMetric {
        /// Ok responses per second.
        Throughput = "throughput",
        /// Ok responses per second that met their deadline.
        Goodput = "goodput",
        /// Median response time, in microseconds.
        P50 = "p50",
        /// 99th percentile of response time, in microseconds.
        P99 = "p99",
        /// Median service time, in microseconds.
        ServiceP50 = "service.p50",
        /// 99th percentile of service time, in microseconds.
        ServiceP99 = "service.p99",
        /// 99th percentile of time to first byte, in microseconds.
        FirstByteP99 = "first_byte.p99",
        /// CPU time of the client per request sent, in microseconds.
        CpuPerRequest = "cpu_us_per_request",
        /// CPU time of the server and its store per request sent, in microseconds.
        ServerCpuPerRequest = "server_cpu_us_per_request",
        /// Highest offered rate at which the server meets its objectives, in requests per second.
        Capacity = "capacity",
    }
}

/// Selects the attempts on one server process that count in comparisons: the valid attempts that
/// are not classified as warming up. If there are none, selects all valid attempts.
#[must_use]
pub fn counted_attempts<'a>(attempts: &[&'a Run]) -> Vec<&'a Run> {
    let is_valid = |run: &&Run| run.validity.status != Status::Invalid;
    let is_warm = |run: &&Run| run.steady.class != SteadyClass::Warming;
    let valid: Vec<&Run> = attempts.iter().copied().filter(is_valid).collect();
    let warm: Vec<&Run> = valid.iter().copied().filter(is_warm).collect();
    if warm.is_empty() { valid } else { warm }
}

impl FromStr for ComparedMetric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::name).join(", ");
        Self::from_name(text)
            .ok_or_else(|| format!("unknown metric \"{text}\"; the metrics are {}", known()))
    }
}

/// Conclusion of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// The systems differ: the interval excludes 1 and is not entirely between 0.98 and 1.02.
    Different,
    /// The systems are equivalent: the interval is entirely between 0.98 and 1.02.
    Equivalent,
    /// The comparison is inconclusive because the interval is too wide or missing.
    Undecided,
}

/// Figures of one system in a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// Geometric mean over server processes, in the metric's unit; null if not measured.
    pub figure: Option<f64>,
    /// Number of server processes.
    pub processes: u32,
    /// Number of attempts.
    pub attempts: u32,
}

/// Comparison of two systems by one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Name of the baseline (denominator of the ratio). Called `b` in records of versions 1 and 2.
    #[serde(alias = "b")]
    pub baseline: String,
    /// Name of the candidate (numerator of the ratio). Called `a` in records of versions 1 and 2.
    #[serde(alias = "a")]
    pub candidate: String,
    /// The metric.
    pub metric: ComparedMetric,
    /// Figure of the candidate divided by the figure of the baseline; null if either figure is
    /// unknown.
    pub ratio: Option<f64>,
    /// Lower bound of the ratio's interval; null if a system has fewer than two processes.
    pub low: Option<f64>,
    /// Upper bound of the ratio's interval; null if a system has fewer than two processes.
    pub high: Option<f64>,
    /// Confidence level of the interval, such as 0.95.
    pub confidence: f64,
    /// The conclusion.
    pub conclusion: Conclusion,
    /// Estimated number of server processes per system that a conclusive comparison needs.
    /// Null if the comparison is conclusive or the number is unknown. The value 10,000 means 10,000
    /// or more.
    /// The estimate uses the 80 % upper confidence bound of the observed variance.
    pub repetitions_needed: Option<u32>,
    /// Total duration of the load on `repetitions_needed` processes of each system, in seconds.
    /// Absent if `repetitions_needed` is null, and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repetitions_load_s: Option<f64>,
    /// Method used to compute the ratio and its interval.
    pub method: String,
    /// Figures of the baseline. Called `figures_b` in records of versions 1 and 2.
    #[serde(alias = "figures_b")]
    pub figures_baseline: Compared,
    /// Figures of the candidate. Called `figures_a` in records of versions 1 and 2.
    #[serde(alias = "figures_a")]
    pub figures_candidate: Compared,
    /// Notes on missing ratios or intervals, excluded attempts, outliers and slow first attempts.
    pub notes: Vec<String>,
}

/// Criterion for agreement between a measured and a published figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// Relative tolerance: 0.1 allows measured figures from the published figure ÷ 1.1 to the
    /// published figure × 1.1.
    Within(f64),
    /// The measured figure must be at least the published figure.
    AtLeast,
    /// The measured figure must be at most the published figure.
    AtMost,
}

/// Whether a claim holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// The whole measured interval meets the criterion.
    Yes,
    /// No part of the measured interval meets the criterion.
    No,
    /// Only part of the interval meets the criterion, or the interval or the criterion is missing.
    Undecided,
}

/// A published claim and the measured figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimResult {
    /// Text of the claim.
    pub text: String,
    /// Publication that contains the claim; null if not stated.
    pub source: Option<String>,
    /// Metric of the claim.
    pub metric: Option<ComparedMetric>,
    /// Trials that the claim refers to: two for a ratio (first ÷ second), one for a single figure.
    pub of: Vec<String>,
    /// The published ratio or figure; null if none was published.
    pub published: Option<f64>,
    /// Criterion for agreement. Null if the claim is a single figure and the experiment gives no
    /// criterion.
    pub agreement: Option<Agreement>,
    /// Measured ratio, or measured figure in the metric's unit; null if not measured.
    pub measured: Option<f64>,
    /// Lower bound of the measured interval over server processes.
    pub low: Option<f64>,
    /// Upper bound of the measured interval.
    pub high: Option<f64>,
    /// Whether the claim holds.
    pub holds: Holds,
    /// Reasons why the claim is undecided.
    pub notes: Vec<String>,
}

/// One of the two results that `floodmark compare` compares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedResult {
    /// Name of the result.
    pub name: String,
    /// Systems and workloads of the runs. Pooled results can have several of each.
    pub of: Vec<String>,
    /// Number of server processes.
    pub processes: u32,
    /// Number of attempts.
    pub attempts: u32,
}

/// Output of `floodmark compare --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparisonReport {
    /// Version of the format, [`crate::SCHEMA_VERSION`].
    pub schema: u32,
    /// Version and command line of the floodmark process that made the comparison.
    pub tool: ToolInfo,
    /// The first argument of the command.
    pub baseline: ComparedResult,
    /// The second argument of the command.
    pub candidate: ComparedResult,
    /// Differences between the results in load, host or version. These differences also affect the
    /// ratios.
    pub unlike: Vec<String>,
    /// Other limitations of the comparison.
    pub notes: Vec<String>,
    /// One comparison per metric; each ratio is candidate ÷ baseline.
    pub comparisons: Vec<Comparison>,
    /// Outcome of each `--fail-if` condition.
    pub thresholds: Vec<Threshold>,
}

/// A `--fail-if` threshold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Threshold {
    /// Condition as given.
    pub condition: String,
    /// Whether the condition was met; null if the figure was not measured.
    /// The command fails if any condition was met.
    pub met: Option<bool>,
    /// Measured figure.
    pub figure: String,
}

/// Output of `floodmark trend --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrendReport {
    /// Version of the format, [`crate::SCHEMA_VERSION`].
    pub schema: u32,
    /// Version and command line of the floodmark process that read the results.
    pub tool: ToolInfo,
    /// One series for each combination of a load and a trial or system.
    pub series: Vec<TrendSeries>,
    /// Notes on results that could not be read, and on limitations of the other results.
    pub notes: Vec<String>,
}

/// The results of one trial or system under the same load, in chronological order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrendSeries {
    /// Name of the trial or system. If the load changed, the name of each later series also
    /// contains the name of its first result, as in `hello since 2026-11-14`.
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
    /// Name of the result's directory or file.
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
    /// Geometric mean of the figures at this level, in the metric's unit.
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
    /// The properties that differ from those of the previous result.
    pub differences: Vec<String>,
}
