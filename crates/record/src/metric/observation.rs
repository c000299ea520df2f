//! A series of samples of one metric, and its form in a record.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Metric, MetricKind};

/// A series that was sampled during the load.
///
/// A series that takes too much CPU or space is downsampled: its step doubles, and each pair of
/// values is merged. Counters are added, and other values are averaged.
/// A second observation then keeps the peaks at the original resolution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "StoredObservation", into = "StoredObservation")]
pub struct Observation {
    /// Sampled metric.
    pub metric: Metric,
    /// Whether each value is the largest sample within its step.
    /// Peaks of counters are rates per second.
    pub is_peak: bool,
    /// Source of the samples.
    pub source: String,
    /// Start of the first step, in milliseconds since the start of the attempt.
    pub start_ms: u64,
    /// Length of a step in milliseconds.
    pub step_ms: u64,
    /// One value per step.
    pub values: Vec<f64>,
}

/// Suffix of the metric's name in an observation that contains peaks.
const PEAK: &str = ".max";

/// A series of samples taken during the load.
///
/// A series that takes too much CPU or memory is sampled less often or downsampled: its step
/// doubles, and each pair of values is merged (sum for counters, otherwise mean).
/// A second series with the suffix `.max` then keeps the maxima at the original resolution.
/// The maxima of counters are rates (`count/s`).
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Observation")]
struct StoredObservation {
    /// Subject of the metric.
    ///
    /// - `host`, `network`, `cgroup`, `disk`: the client's host.
    /// - `server host`, `server network`, `server cgroup`, `server disk`: the server's host, if
    ///   different.
    /// - `server`, `client`, `store`: process trees.
    /// - `server sockets`, `client sockets`: the two ends of connections to the target on this
    ///   host.
    /// - `listener`: the target's listening sockets.
    /// - `jvm`, `store jvm`: the JVM of the server or the store.
    /// - `server threads`, `store threads`: threads, grouped by name without a trailing number. The
    ///   metric `GROUP on OBJECT` is the mean number of threads that wait for an object.
    /// - `server upstreams`: connections that the server opened, grouped by address.
    /// - `postgresql`, `cassandra`: the store's own statistics.
    subject: String,
    /// Name of the metric, as in its source.
    metric: String,
    /// Unit of the values.
    unit: String,
    /// Source of the values.
    source: String,
    /// Time of the first value, in milliseconds since the start of the attempt.
    start_ms: u64,
    /// Interval between values in milliseconds.
    step_ms: u64,
    /// Values in chronological order. The value of a counter is the increase within the step.
    values: Vec<f64>,
}

impl From<StoredObservation> for Observation {
    fn from(mut stored: StoredObservation) -> Self {
        let is_peak = stored.metric.ends_with(PEAK);
        if is_peak {
            stored.metric.truncate(stored.metric.len() - PEAK.len());
        }
        Self {
            metric: Metric::parse(stored.subject, stored.metric, stored.unit),
            is_peak,
            source: stored.source,
            start_ms: stored.start_ms,
            step_ms: stored.step_ms,
            values: stored.values,
        }
    }
}

impl From<Observation> for StoredObservation {
    fn from(observation: Observation) -> Self {
        let suffix = if observation.is_peak { PEAK } else { "" };
        Self {
            subject: observation.metric.subject().into_owned(),
            metric: format!("{}{suffix}", observation.metric.name()),
            unit: observation.unit(),
            source: observation.source,
            start_ms: observation.start_ms,
            step_ms: observation.step_ms,
            values: observation.values,
        }
    }
}

impl Observation {
    /// Returns the unit of the values.
    #[must_use]
    pub fn unit(&self) -> String {
        let unit = self.metric.unit();
        match self.metric.kind() {
            MetricKind::Counter if self.is_peak => format!("{unit}/s"),
            _ => unit.to_owned(),
        }
    }
}
