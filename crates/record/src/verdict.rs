//! Verdicts on what limited a run, and the perturbations that prove a cause
//! (docs/decisions/0022-proof.md).

use std::fmt::{self, Display};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::interval::Interval;
use crate::path::PathStep;

/// Verdict on what limited a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The cause whose removal would increase throughput the most.
    pub cause: Cause,
    /// Other causes, most likely first.
    /// Each one limits the run nearly as much, or describes a resource that the main cause
    /// exhausts.
    pub also: Vec<Cause>,
    /// Causes in `also` that use part of the CPU time that limits the run, with their shares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<CostShare>,
    /// Confidence in the cause.
    pub confidence: Confidence,
    /// Estimated probability that the cause is right, from 0 to 1; null if the cause is `unknown`,
    /// and in records from older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// The second most likely cause if the verdict is `possible`; null if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner_up: Option<RunnerUp>,
    /// One-line explanation of the cause, including figures from this run.
    pub summary: String,
    /// What the requests in flight were waiting for, step by step; the last step is the limit.
    /// Empty in records from versions that did not record paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<PathStep>,
    /// Upper bound that this cause sets for the throughput, in requests per second; null if
    /// unknown.
    pub limit_per_s: Option<f64>,
    /// Predicted throughput without this cause; absent if there is no prediction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<Gain>,
    /// Figures that support the cause, each with its source.
    pub evidence: Vec<String>,
    /// Causes that were ruled out.
    pub ruled_out: Vec<RuledOut>,
    /// Recommended next step for this setup.
    pub next: String,
    /// Perturbations applied to prove the cause; empty if none were applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tested: Vec<Tested>,
    /// Evidence that was not available.
    pub unseen: Vec<String>,
    /// Mean number of requests at each place in the system; null if unknown.
    pub ledger: Option<Ledger>,
    /// Upper bound of throughput for each resource, lowest first.
    pub ceilings: Vec<Ceiling>,
}

/// A cause that a figure rules out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "StoredRuledOut")]
pub struct RuledOut {
    /// The cause.
    pub cause: Cause,
    /// The figure that rules out the cause.
    pub figure: String,
}

impl Display for RuledOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cause, self.figure)
    }
}

/// The JSON forms of [`RuledOut`].
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum StoredRuledOut {
    Typed {
        cause: Cause,
        figure: String,
    },
    /// `CAUSE: figure`, as in schema version 1.
    Text(String),
}

impl TryFrom<StoredRuledOut> for RuledOut {
    type Error = String;

    fn try_from(stored: StoredRuledOut) -> Result<Self, Self::Error> {
        let text = match stored {
            StoredRuledOut::Typed { cause, figure } => return Ok(Self { cause, figure }),
            StoredRuledOut::Text(text) => text,
        };
        let (cause, figure) = text.split_once(": ").unwrap_or((&text, ""));
        Ok(Self {
            cause: Cause::from_name(cause).ok_or_else(|| format!("unknown cause \"{cause}\""))?,
            figure: figure.to_owned(),
        })
    }
}

/// A part of the CPU time that limits the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostShare {
    /// What takes the CPU time.
    pub cause: Cause,
    /// Share of the CPU time per request, from 0 to 1.
    pub share: f64,
    /// One-line description that contains the share.
    pub summary: String,
}

/// Predicted throughput after the cause has been fixed, up to the next limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gain {
    /// Number of requests that the server then works on concurrently.
    pub requests: u32,
    /// Lower end of the predicted range, in ok responses per second.
    pub low_per_s: f64,
    /// Upper end of the predicted range, in ok responses per second.
    pub high_per_s: f64,
    /// Figures that the prediction is based on.
    pub basis: String,
}

/// The second most likely cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunnerUp {
    /// The cause.
    pub cause: Cause,
    /// The measurement that decides between this cause and the verdict's cause.
    pub measurement: String,
}

/// Confidence in a cause.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Not enough evidence.
    Unknown,
    /// The probability is at least 60 %.
    Possible,
    /// The probability is at least 90 %.
    Likely,
    /// Perturbations changed throughput as the cause predicts, or the cause is `errors` and every
    /// request failed.
    Proven,
}

impl Confidence {
    /// Minimum probability of a likely cause.
    pub const LIKELY: f64 = 0.9;

    /// Minimum probability of a possible cause.
    pub const POSSIBLE: f64 = 0.6;

    /// Returns the confidence in a cause with the given probability.
    #[must_use]
    pub fn of(probability: f64) -> Self {
        if probability >= Self::LIKELY {
            Self::Likely
        } else if probability >= Self::POSSIBLE {
            Self::Possible
        } else {
            Self::Unknown
        }
    }
}

/// Mean number of requests at each place in the system.
/// The requests at all places and the unexplained requests add up to the requests in flight
/// (Little's law, N = X·R).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ledger {
    /// Mean number of requests in flight, including requests that fail or get no response.
    pub under_way: f64,
    /// Requests at each observed place.
    pub places: Vec<LedgerEntry>,
    /// Requests in flight that no counter accounts for.
    pub unexplained: f64,
}

/// Mean number of requests at one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerEntry {
    /// Description of the place, such as a queue.
    pub place: String,
    /// Mean number of requests at the place.
    pub mean: f64,
    /// Counters from which the mean was computed.
    pub source: String,
}

/// Upper bound of the throughput if one resource were the only limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ceiling {
    /// Description of the resource.
    pub resource: String,
    /// Demand per request, in `unit`.
    pub demand: f64,
    /// Unit of `demand`, such as µs of CPU.
    pub unit: String,
    /// Upper bound of throughput, in requests per second.
    pub limit_per_s: f64,
    /// Share of the resource that was used.
    pub used: f64,
}

/// A temporary change made to prove a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Perturbation {
    /// Twice the connections.
    TwiceConnections,
    /// One stream on each connection, and as many connections as requests were in flight (HTTP/2).
    OneStream,
    /// Eight times the flow-control window for responses (HTTP/2).
    LargerWindow,
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
            Perturbation::OneStream => "1 stream per connection, same number of requests in flight",
            Perturbation::LargerWindow => "window for responses × 8",
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
    /// Lower and upper bound of the predicted throughput ratio (with the perturbation ÷ without
    /// it).
    /// Null if there is no prediction.
    pub predicted: Option<(f64, f64)>,
    /// Measured throughput ratio (with the perturbation ÷ without it); null if a window has no
    /// throughput.
    pub ratio: Option<f64>,
    /// Confidence interval of the ratio.
    pub interval: Option<Interval>,
    /// Whether the measurement agrees with the prediction.
    /// Null if there is no prediction or the interval is inconclusive.
    pub agrees: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ruled_out_causes_of_both_schema_versions() {
        let ruled_out = RuledOut {
            cause: Cause::ServerCpu,
            figure: "server: 1.00 of 2.00 CPUs".to_owned(),
        };
        let text = serde_json::json!("server-cpu: server: 1.00 of 2.00 CPUs");
        for json in [text, serde_json::to_value(&ruled_out).unwrap()] {
            assert_eq!(serde_json::from_value::<RuledOut>(json).unwrap(), ruled_out);
        }
        assert!(serde_json::from_value::<RuledOut>("no cause".into()).is_err());
    }
}
