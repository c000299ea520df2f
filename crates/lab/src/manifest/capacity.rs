//! `[capacity]`: a search for the capacity of each server process instead of measurements.

use std::time::Duration;

use floodmark_diagnose::conditions::{Objective, check_objectives};
use floodmark_plan::FileError;
use floodmark_plan::toml_file::{Located, TomlFile};
use floodmark_plan::values::PositiveDuration;
use floodmark_record::plan::DEFAULT_TIMEOUT;
use schemars::JsonSchema;
use serde::Deserialize;

use super::trial::Trial;
use crate::capacity::check_budget;

/// Default length of a search.
const DEFAULT_BUDGET: Duration = Duration::from_secs(60);

/// `[capacity]` of an experiment.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CapacitySection {
    /// Objectives that each server must meet, such as ["p99 < 20ms", "errors < 0.1%"].
    slo: Vec<Located<String>>,
    /// Maximum duration of the search on each server process, excluding the warm-up; at least 15s.
    /// Default: 60s.
    budget: Option<PositiveDuration>,
}

/// Search for the capacity of each server process.
#[derive(Debug, Clone)]
pub struct CapacitySearchPlan {
    /// Objectives that each server must meet.
    pub objectives: Vec<Objective>,
    /// Maximum length of each search.
    pub budget: Duration,
}

/// Checks the search of an experiment.
pub(super) fn search(
    file: &TomlFile,
    section: &Located<CapacitySection>,
    trials: &[Trial],
) -> Result<CapacitySearchPlan, FileError> {
    let invalid = |what: String| file.error(&section.span(), format!("[capacity]: {what}"));
    let mut objectives: Vec<Objective> = Vec::new();
    for text in &section.slo {
        let objective: Objective = text
            .parse()
            .map_err(|error| file.error(&text.span(), format!("slo: {error}")))?;
        if objective.group.is_some() {
            let what = format!(
                "slo: '{}': trials have no mix; remove the part before the colon",
                **text
            );
            return Err(file.error(&text.span(), what));
        }
        objectives.push(objective);
    }
    if objectives.is_empty() {
        return Err(invalid(
            "slo has no objectives; add one, such as slo = [\"p99 < 20ms\"]".to_owned(),
        ));
    }
    for trial in trials {
        let timeout = trial.load.timeout.unwrap_or(DEFAULT_TIMEOUT);
        check_objectives(&objectives, timeout).map_err(|what| invalid(format!("slo: {what}")))?;
        if let Some(what) = refusal(trial) {
            return Err(invalid(format!("{}: {what}", trial.name)));
        }
    }
    let budget = section
        .budget
        .as_ref()
        .map_or(DEFAULT_BUDGET, |budget| budget.0);
    check_budget(budget).map_err(|what| invalid(format!("budget: {what}")))?;
    Ok(CapacitySearchPlan { objectives, budget })
}

/// Returns why the capacity of a trial cannot be searched, and how to fix it.
fn refusal(trial: &Trial) -> Option<String> {
    if trial.client.is_some() {
        return Some("only floodmark can send the loads of a search; remove `client`".to_owned());
    }
    let keys = [
        "duration", "requests", "rate", "burst", "within", "arrivals", "attempts", "check",
    ];
    let given = trial.load.given().find(|key| keys.contains(key));
    given.map(|key| format!("the search chooses its loads; remove `{key}` from the load"))
}
