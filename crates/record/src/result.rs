//! The record, `record.json`, and its JSON Schema.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SCHEMA_VERSION;
use crate::capacity::{CapacityResult, TrialCapacity};
use crate::comparison::{ClaimResult, Comparison, Threshold};
use crate::crash::CrashResult;
use crate::experiment::{ExperimentDescription, Resumed, Swept};
use crate::gate::GateResult;
use crate::host::{Environment, ToolInfo};
use crate::interval::Interval;
use crate::run::Run;
use crate::tuning::Tuning;

/// The record of one command, derived from `events.jsonl`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// Version of the format, [`SCHEMA_VERSION`].
    pub schema: u32,
    /// Version and command line of the floodmark process that wrote the record.
    pub tool: ToolInfo,
    /// Host that floodmark ran on.
    pub environment: Environment,
    /// Experiment; null for a single load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<ExperimentDescription>,
    /// Resumptions of the result. Superseded runs are not in the record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed: Vec<Resumed>,
    /// Skipped parts, and the reasons.
    pub skipped: Vec<String>,
    /// Entries of `skipped` whose part failed, such as a server that did not start. Empty in records
    /// from older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// Attempts in order.
    pub runs: Vec<Run>,
    /// Figures across all attempts; null for a single attempt.
    pub overall: Option<Overall>,
    /// Results of `--fail-if`.
    pub thresholds: Vec<Threshold>,
    /// Comparisons, by metric, of trials with the same load. Each trial is compared with the first
    /// trial or, in a ladder, with the previous trial. Trials of a sweep are not compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<Comparison>,
    /// Results of sweeps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweeps: Vec<Swept>,
    /// Results of published claims.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ClaimResult>,
    /// Results of crash rounds, by trial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub crash: Vec<CrashResult>,
    /// Result of `floodmark capacity`; null for other commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityResult>,
    /// Capacities of the server processes of an experiment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacities: Vec<CapacityResult>,
    /// Capacity of each trial of an experiment, computed from its server processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trial_capacities: Vec<TrialCapacity>,
    /// Result of a tuning run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<Tuning>,
    /// Result of a gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateResult>,
    /// Version of each judge.
    pub judges: std::collections::BTreeMap<String, String>,
}

/// Figures across all attempts in a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overall {
    /// Mean throughput of the attempts, in ok responses per second.
    pub throughput_per_s: f64,
    /// Confidence interval over attempts.
    pub throughput_interval: Option<Interval>,
    /// Number of attempts.
    pub attempts: u32,
    /// Notes, such as a slow first attempt.
    pub notes: Vec<String>,
}

impl Record {
    /// Creates an empty record.
    #[must_use]
    pub fn new(tool: ToolInfo, environment: Environment) -> Self {
        Record {
            schema: SCHEMA_VERSION,
            tool,
            environment,
            ..Record::default()
        }
    }

    /// Returns whether the record has neither runs nor crash rounds.
    #[must_use]
    pub fn has_no_measurement(&self) -> bool {
        self.runs.is_empty() && self.crash.is_empty()
    }

    /// Returns the runs of a trial, in order.
    pub fn runs_of<'a>(&'a self, trial: &'a str) -> impl Iterator<Item = &'a Run> {
        let runs = self.runs.iter();
        runs.filter(move |run| run.trial.as_deref() == Some(trial))
    }
}

/// Returns the JSON Schema of [`Record`], as in `docs/record.schema.json`.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Record).to_value()
}
