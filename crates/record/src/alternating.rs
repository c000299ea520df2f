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
        let figure = metric.figure().of(self);
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
