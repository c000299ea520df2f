//! The folded record, `record.json`, and its JSON Schema.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SCHEMA_VERSION;
use crate::comparison::{Claim, Comparison};
use crate::experiment::{Asked, Resumed};
use crate::run::{Environment, Interval, Run, ToolInfo};
use crate::sweep::Swept;

/// Everything known of one command: `record.json`, folded from `events.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// The format's version, [`SCHEMA_VERSION`].
    pub schema: u32,
    /// Which floodmark took it.
    pub tool: ToolInfo,
    /// Where.
    pub environment: Environment,
    /// What the experiment asks; null where the record is of one load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<Asked>,
    /// When the result, having been cut short, was gone on with; runs that were measured anew are here once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed: Vec<Resumed>,
    /// What was left out, with the reason.
    pub skipped: Vec<String>,
    /// The attempts, in the order they were made.
    pub runs: Vec<Run>,
    /// Over all attempts, where there are several.
    pub overall: Option<Overall>,
    /// `--fail-if` thresholds and what became of them.
    pub thresholds: Vec<Threshold>,
    /// Trials of an experiment that were sent the same load, beside the first of them, metric by metric; of a ladder each beside the
    /// one before, of a sweep none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<Comparison>,
    /// What became of throughput where knobs were varied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweeps: Vec<Swept>,
    /// Published figures beside the measured ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claim>,
    /// Which version of each judge judged.
    pub judges: std::collections::BTreeMap<String, String>,
}

/// Figures over the attempts of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overall {
    /// Mean of the attempts' throughput, ok answers per second.
    pub throughput_per_s: f64,
    /// Its interval over attempts.
    pub throughput_interval: Option<Interval>,
    /// Number of attempts.
    pub attempts: u32,
    /// Remarks such as a slow first attempt.
    pub notes: Vec<String>,
}

/// A `--fail-if` threshold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Threshold {
    /// As it was given.
    pub condition: String,
    /// Whether the condition was met, which fails the command; null where the figure was not measured.
    pub met: Option<bool>,
    /// The figure it was compared with.
    pub figure: String,
}

impl Record {
    /// An empty record.
    #[must_use]
    pub fn new(tool: ToolInfo, environment: Environment) -> Self {
        Record {
            schema: SCHEMA_VERSION,
            tool,
            environment,
            experiment: None,
            resumed: Vec::new(),
            skipped: Vec::new(),
            runs: Vec::new(),
            overall: None,
            thresholds: Vec::new(),
            comparisons: Vec::new(),
            sweeps: Vec::new(),
            claims: Vec::new(),
            judges: std::collections::BTreeMap::new(),
        }
    }
}

/// The JSON Schema of [`Record`], as it is kept in `docs/record.schema.json`.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Record).to_value()
}
