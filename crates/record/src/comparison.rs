//! Two systems side by side: the ratio of their figures over server processes, and claims about it.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::result::Threshold;
use crate::run::ToolInfo;

/// A figure of a run that two systems are compared by.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Metric {
    /// Ok answers per second.
    #[serde(rename = "throughput")]
    Throughput,
    /// Ok answers within the deadline per second.
    #[serde(rename = "goodput")]
    Goodput,
    /// Median response time, microseconds.
    #[serde(rename = "p50")]
    P50,
    /// 99th percentile of response time, microseconds.
    #[serde(rename = "p99")]
    P99,
    /// Median service time, microseconds.
    #[serde(rename = "service.p50")]
    ServiceP50,
    /// 99th percentile of service time, microseconds.
    #[serde(rename = "service.p99")]
    ServiceP99,
    /// CPU of the load process per request sent, microseconds.
    #[serde(rename = "cpu_us_per_request")]
    CpuPerRequest,
    /// CPU of the server, and of its store, per request sent, microseconds.
    #[serde(rename = "server_cpu_us_per_request")]
    ServerCpuPerRequest,
}

impl Metric {
    /// All of them, in the order they are shown.
    pub const ALL: [Metric; 8] = [
        Metric::Throughput,
        Metric::Goodput,
        Metric::P50,
        Metric::P99,
        Metric::ServiceP50,
        Metric::ServiceP99,
        Metric::CpuPerRequest,
        Metric::ServerCpuPerRequest,
    ];

    /// Their names, in the same order.
    pub const NAMES: [&str; 8] = {
        let mut names = [""; 8];
        let mut i = 0;
        while i < names.len() {
            names[i] = Metric::ALL[i].name();
            i += 1;
        }
        names
    };

    /// Its name, as `--fail-if` and experiments have it too.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Metric::Throughput => "throughput",
            Metric::Goodput => "goodput",
            Metric::P50 => "p50",
            Metric::P99 => "p99",
            Metric::ServiceP50 => "service.p50",
            Metric::ServiceP99 => "service.p99",
            Metric::CpuPerRequest => "cpu_us_per_request",
            Metric::ServerCpuPerRequest => "server_cpu_us_per_request",
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no metric's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown metric \"{0}\"; the metrics are {known}", known = Metric::NAMES.join(", "))]
pub struct UnknownMetric(pub String);

impl FromStr for Metric {
    type Err = UnknownMetric;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Metric::ALL
            .into_iter()
            .find(|metric| metric.name() == text)
            .ok_or_else(|| UnknownMetric(text.to_owned()))
    }
}

/// What a comparison came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// The interval excludes 1, and is not all within 0.98 to 1.02.
    Different,
    /// The interval is all within 0.98 to 1.02.
    Equivalent,
    /// Neither: the interval is too wide, or there is none.
    Undecided,
}

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// Geometric mean of the processes' figures, in the metric's unit; null where there is none.
    pub figure: Option<f64>,
    /// Server processes it is over.
    pub processes: u32,
    /// Attempts that their figures were taken from.
    pub attempts: u32,
}

/// One metric of two systems.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The first system.
    pub a: String,
    /// The second system.
    pub b: String,
    /// What they are compared by.
    pub metric: Metric,
    /// a's figure divided by b's; null where one of them is not known.
    pub ratio: Option<f64>,
    /// Lower end of the ratio's interval; null with fewer than two processes on a side.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Level of the interval, such as 0.95.
    pub confidence: f64,
    /// What follows.
    pub conclusion: Conclusion,
    /// Where undecided: how many processes of each would probably settle it in a new measurement, from the upper limit (80 %)
    /// of the variance seen; null where none was seen. 10,000 stands for as many or more.
    pub repetitions_needed: Option<u32>,
    /// How ratio and interval were got.
    pub method: String,
    /// What stands behind the first figure.
    pub figures_a: Compared,
    /// What stands behind the second figure.
    pub figures_b: Compared,
    /// Why there is no ratio or interval, what was left out, outliers, slow first attempts.
    pub notes: Vec<String>,
}

/// When a measured figure agrees with a published one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// Within this share of it either way: 0.1 means from published ÷ 1.1 to published × 1.1.
    Within(f64),
    /// At least as large.
    AtLeast,
    /// At most as large.
    AtMost,
}

/// Whether a claim holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// All of the measured interval agrees with it.
    Yes,
    /// None of the measured interval does.
    No,
    /// Part of the interval does, there is none, or nothing says what would agree.
    Undecided,
}

/// A published figure beside the measured one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Claim {
    /// In words.
    pub text: String,
    /// Where it was published.
    pub source: Option<String>,
    /// Which figure it is about.
    pub metric: Option<Metric>,
    /// Of which trials: of two the first one's figure divided by the second one's, of one its figure.
    pub of: Vec<String>,
    /// The published ratio or figure; null where only words were published.
    pub published: Option<f64>,
    /// What counts as agreeing; null where the experiment does not say and it is no ratio.
    pub agreement: Option<Agreement>,
    /// The measured ratio, or figure in the metric's unit; null where it was not measured.
    pub measured: Option<f64>,
    /// Lower end of its interval over server processes.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// What follows.
    pub holds: Holds,
    /// Why not more can be said, where it is undecided for want of figures.
    pub notes: Vec<String>,
}

/// One side of `floodmark compare`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SideFacts {
    /// As it was named.
    pub name: String,
    /// The systems and workloads its runs are of; one, unless several results were put together.
    pub of: Vec<String>,
    /// Server processes.
    pub processes: u32,
    /// Attempts.
    pub attempts: u32,
}

/// What `floodmark compare` came to: `--json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SideBySide {
    /// The format's version, [`crate::SCHEMA_VERSION`].
    pub schema: u32,
    /// Which floodmark compared.
    pub tool: ToolInfo,
    /// The first side.
    pub a: SideFacts,
    /// The second side.
    pub b: SideFacts,
    /// In what the two differ beside the systems, so that the ratios are of that too.
    pub unlike: Vec<String>,
    /// What else weakens the comparison.
    pub notes: Vec<String>,
    /// Metric by metric; a ratio is a's figure divided by b's.
    pub comparisons: Vec<Comparison>,
    /// `--fail-if` conditions and what became of them.
    pub thresholds: Vec<Threshold>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_has_one_name_everywhere() {
        for metric in Metric::ALL {
            assert_eq!(metric.name().parse(), Ok(metric));
            assert_eq!(
                serde_json::to_value(metric).unwrap(),
                serde_json::Value::from(metric.name())
            );
        }
        let error = "p999".parse::<Metric>().unwrap_err().to_string();
        assert!(error.contains("\"p999\"") && error.contains("service.p99"));
    }
}
