//! Figures of alternating loads.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::comparison::ComparedMetric;
use crate::events::EndReason;
use crate::outcome::Counts;
use crate::times::Times;

/// Figures of one server over its own turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SideFigures {
    /// Total length of the server's turns in seconds. A turn ends when all of its requests have an
    /// outcome.
    pub loaded_s: f64,
    /// Counts of requests.
    pub requests: Counts,
    /// Ok responses that met their deadline.
    pub good: u64,
    /// Response times.
    pub response_us: Times,
    /// Service times.
    pub service_us: Times,
}

impl SideFigures {
    /// Returns a figure in the metric's unit. Returns `None` if it was not measured or is not
    /// positive.
    #[must_use]
    pub fn figure(&self, metric: ComparedMetric) -> Option<f64> {
        let per_s = |count: u64| Some(count as f64 / self.loaded_s);
        let figure = match metric {
            ComparedMetric::Throughput => per_s(self.requests.ok),
            ComparedMetric::Goodput => per_s(self.good),
            ComparedMetric::P50 => self.response_us.p50,
            ComparedMetric::P99 => self.response_us.p99,
            ComparedMetric::ServiceP50 => self.service_us.p50,
            ComparedMetric::ServiceP99 => self.service_us.p99,
            ComparedMetric::CpuPerRequest
            | ComparedMetric::ServerCpuPerRequest
            | ComparedMetric::Capacity => None,
        };
        figure.filter(|figure| figure.is_finite() && *figure > 0.0)
    }
}

/// Result of loading two servers alternately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlternatingEnd {
    /// Reason why the load ended.
    pub reason: EndReason,
    /// Mean planned length of a turn in seconds.
    pub turn_s: f64,
    /// Figures of the first server.
    pub first: SideFigures,
    /// Figures of the second server.
    pub second: SideFigures,
}
