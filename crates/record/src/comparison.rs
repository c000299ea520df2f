//! Comparisons: ratios of two systems over server processes, and published claims.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::result::Threshold;
use crate::run::ToolInfo;

crate::names::named! {
    // In display order.
    /// A metric for comparing systems.
    ComparedMetric {
        /// Ok responses per second.
        Throughput = "throughput",
        /// Ok responses within the deadline, per second.
        Goodput = "goodput",
        /// Median response time, microseconds.
        P50 = "p50",
        /// 99th percentile of response time, microseconds.
        P99 = "p99",
        /// Median service time, microseconds.
        ServiceP50 = "service.p50",
        /// 99th percentile of service time, microseconds.
        ServiceP99 = "service.p99",
        /// CPU time of the client per request sent, microseconds.
        CpuPerRequest = "cpu_us_per_request",
        /// CPU time of the server and its store per request sent, microseconds.
        ServerCpuPerRequest = "server_cpu_us_per_request",
    }
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
    /// The interval excludes 1 and is not entirely within 0.98 to 1.02: the systems differ.
    Different,
    /// The interval is entirely within 0.98 to 1.02: the systems are equivalent.
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
    /// The first system.
    pub a: String,
    /// The second system.
    pub b: String,
    /// The metric.
    pub metric: ComparedMetric,
    /// Figure of `a` divided by the figure of `b`; null if either figure is unknown.
    pub ratio: Option<f64>,
    /// Lower bound of the ratio's interval; null if a system has fewer than two processes.
    pub low: Option<f64>,
    /// Upper bound of the ratio's interval; null if a system has fewer than two processes.
    pub high: Option<f64>,
    /// Confidence level of the interval, such as 0.95.
    pub confidence: f64,
    /// The conclusion.
    pub conclusion: Conclusion,
    /// Estimated number of server processes per system for a conclusive new measurement.
    /// Set only if the comparison is undecided; null if unknown. 10,000 means at least 10,000.
    /// The estimate uses the 80 % upper confidence bound of the observed variance.
    pub repetitions_needed: Option<u32>,
    /// Method of computing the ratio and its interval.
    pub method: String,
    /// Figures of `a`.
    pub figures_a: Compared,
    /// Figures of `b`.
    pub figures_b: Compared,
    /// Notes on missing ratios or intervals, excluded attempts, outliers and slow first attempts.
    pub notes: Vec<String>,
}

/// Criterion for agreement between a measured and a published figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// Relative tolerance: 0.1 allows figures from published ÷ 1.1 to published × 1.1.
    Within(f64),
    /// The measured figure is at least the published one.
    AtLeast,
    /// The measured figure is at most the published one.
    AtMost,
}

/// Whether a claim holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// The whole measured interval agrees.
    Yes,
    /// No part of the measured interval agrees.
    No,
    /// Only part of the interval agrees, or the interval or the criterion is missing.
    Undecided,
}

/// A published claim and the measured figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimResult {
    /// Text of the claim.
    pub text: String,
    /// Where the claim was published; null if not stated.
    pub source: Option<String>,
    /// Metric of the claim.
    pub metric: Option<ComparedMetric>,
    /// Trials of the claim: two for a ratio (first ÷ second), one for a single figure.
    pub of: Vec<String>,
    /// The published ratio or figure; null if none was published.
    pub published: Option<f64>,
    /// Criterion for agreement; null if the experiment gives none for a single figure.
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedResult {
    /// Name of the result.
    pub name: String,
    /// Systems and workloads of the runs; more than one if several results were pooled.
    pub of: Vec<String>,
    /// Number of server processes.
    pub processes: u32,
    /// Number of attempts.
    pub attempts: u32,
}

/// Output of `floodmark compare --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparisonReport {
    /// Version of the format, [`crate::SCHEMA_VERSION`].
    pub schema: u32,
    /// Version and command line of the floodmark process that made the comparison.
    pub tool: ToolInfo,
    /// The first result.
    pub a: ComparedResult,
    /// The second result.
    pub b: ComparedResult,
    /// Differences in load, host or version that also affect the ratios.
    pub unlike: Vec<String>,
    /// Other limitations of the comparison.
    pub notes: Vec<String>,
    /// One comparison per metric; each ratio is a ÷ b.
    pub comparisons: Vec<Comparison>,
    /// Outcome of each `--fail-if` condition.
    pub thresholds: Vec<Threshold>,
}
