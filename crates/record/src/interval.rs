//! Confidence intervals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A confidence interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
    /// Confidence level, such as 0.95.
    pub confidence: f64,
    /// Method used to compute the interval.
    pub method: String,
}
