//! Perturbations: changes made after a run to prove a cause (docs/decisions/0022-proof.md).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::run::Interval;

/// A temporary change made to prove a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Perturbation {
    /// Twice the connections.
    TwiceConnections,
    /// A second server process with one setting doubled.
    TwiceKnob,
    /// The client is paused for 1 ms out of every 5 ms.
    SlowedClient,
    /// The server's processes are paused for 1 ms out of every 5 ms.
    SlowedServer,
    /// The store's processes are paused for 1 ms out of every 5 ms.
    SlowedStore,
}

impl Perturbation {
    /// Returns a short description.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Perturbation::TwiceConnections => "connections × 2",
            Perturbation::TwiceKnob => "server setting × 2",
            Perturbation::SlowedClient => "client paused for a fifth of the time",
            Perturbation::SlowedServer => "server paused for a fifth of the time",
            Perturbation::SlowedStore => "store paused for a fifth of the time",
        }
    }
}

/// Throughput in windows with and without one perturbation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Windows {
    /// The perturbation.
    pub change: Perturbation,
    /// Name, old value and new value of the changed setting; null if no setting was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knob: Option<String>,
    /// Number of connections in the windows without the perturbation.
    /// The number is higher than in the run if the run's requests in flight are too few to keep the
    /// other processes busy during a pause.
    pub connections: u32,
    /// Ok responses per second in each window without the perturbation, in chronological order.
    pub base_per_s: Vec<f64>,
    /// Ok responses per second in each window with the perturbation.
    /// Each window is at most a few seconds before or after the window with the same index in
    /// `base_per_s`.
    pub changed_per_s: Vec<f64>,
}

/// Measured and predicted effect of one perturbation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tested {
    /// The perturbation.
    pub change: Perturbation,
    /// Name, old value and new value of the changed setting; null if no setting was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knob: Option<String>,
    /// Lower and upper bound of the predicted throughput ratio (with ÷ without).
    /// Null if there is no prediction.
    pub predicted: Option<(f64, f64)>,
    /// Measured throughput ratio (with ÷ without); null if a window has no throughput.
    pub ratio: Option<f64>,
    /// Confidence interval of the ratio.
    pub interval: Option<Interval>,
    /// Whether measurement and prediction agree.
    /// Null if there is no prediction or the interval is inconclusive.
    pub agrees: Option<bool>,
}
