//! Why a run's figure is what it is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::proof::Tested;

/// What limited a run, as it was judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The one thing whose removal alone would raise the throughput of right answers most.
    pub cause: Cause,
    /// What limits it nearly as much, or what the cause takes; the likelier first.
    pub also: Vec<Cause>,
    /// How sure that is.
    pub confidence: Confidence,
    /// The cause in plain words, with the figures of this run: one line.
    pub summary: String,
    /// Most requests per second that the cause allows; null where it cannot be worked out.
    pub limit_per_s: Option<f64>,
    /// Figures that speak for it, each with the name of its counter.
    pub evidence: Vec<String>,
    /// What it might have been, each with the figure by which it is not.
    pub ruled_out: Vec<String>,
    /// What to do next, in this setup.
    pub next: String,
    /// What was changed to prove it, and what came of that; empty where nothing was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tested: Vec<Tested>,
    /// What could not be seen, and what it would have told.
    pub unseen: Vec<String>,
    /// Where requests were.
    pub ledger: Option<Ledger>,
    /// What each resource would allow; the lowest first.
    pub ceilings: Vec<Ceiling>,
}

/// See [`Verdict::confidence`].
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// The evidence does not suffice.
    Unknown,
    /// What was seen agrees, and nothing was changed to see whether it is so.
    Likely,
    /// It was changed, and throughput moved as predicted.
    Proven,
}

/// Where requests were: mean numbers of them at each place, which add up to those under way (Little's law, N = X·R).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ledger {
    /// Requests under way: answers per second times mean service time.
    pub under_way: f64,
    /// Those at each place that was seen.
    pub places: Vec<LedgerEntry>,
    /// Those of whom nothing tells where they were.
    pub unexplained: f64,
}

/// A place of a [`Ledger`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerEntry {
    /// Where, in words.
    pub place: String,
    /// Mean number of requests there.
    pub mean: f64,
    /// The counters it was worked out from.
    pub source: String,
}

/// What a resource would allow if nothing else were in the way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ceiling {
    /// Which, in words.
    pub resource: String,
    /// What a request takes of it, in `unit`.
    pub demand: f64,
    /// Such as µs of CPU.
    pub unit: String,
    /// Most requests per second.
    pub limit_per_s: f64,
    /// The share of it that was used.
    pub used: f64,
}
