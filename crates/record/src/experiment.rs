//! What an experiment asks, as it is kept beside its runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::comparison::{Agreement, Metric};
use crate::events::RunId;
use crate::run::ToolInfo;
use crate::sweep::Sweep;

/// An experiment as its file asks it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Asked {
    /// Its name: that of its file.
    pub name: String,
    /// The question it is to answer.
    pub question: String,
    /// Names of its trials, in order; `runs[].trial` refers to them.
    pub trials: Vec<String>,
    /// Fresh starts of each trial's server.
    pub processes: u32,
    /// Published figures to hold it against.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<PublishedClaim>,
    /// Trials of which each is the one before with something added: what the added part costs is read from their ratios.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ladder: Vec<String>,
    /// Trials that differ by the values of knobs alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweeps: Vec<Sweep>,
    /// Causes of the limit that the author expects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected_causes: Vec<String>,
    /// Whether a check that does not hold is what the author expects; null where nothing was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_check: Option<ExpectedCheck>,
}

/// That a result which was cut short was gone on with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resumed {
    /// How floodmark was called then.
    pub tool: ToolInfo,
    /// Wall clock, milliseconds since 1970.
    pub unix_ms: u64,
    /// Runs before this that do not count: their server's process was not measured to its end, and is measured anew.
    pub anew: Vec<RunId>,
}

/// What somebody published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedClaim {
    /// In words.
    pub text: String,
    /// Where it was published.
    pub source: Option<String>,
    /// Of which figure.
    pub metric: Option<Metric>,
    /// The two trials or systems whose figures were divided, the first by the second; empty where it is one figure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ratio: Vec<String>,
    /// Of which trial, where it is one figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<String>,
    /// The published figure; null where only words were published.
    pub published: Option<f64>,
    /// When a measured figure agrees with it; null where the experiment does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<Agreement>,
}

/// What the author expects of the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedCheck {
    /// It holds.
    Held,
    /// It does not.
    Violated,
}
