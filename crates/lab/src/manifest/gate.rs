//! `[gate]`: decides whether one trial is worse than another.

use std::time::Duration;

use floodmark_plan::toml_file::{Located, TomlFile};
use floodmark_plan::values::{Name, Percentage, PositiveDuration};
use floodmark_plan::{FileError, did_you_mean};
use floodmark_record::comparison::ComparedMetric;
use floodmark_record::gate::GateRules;
use schemars::JsonSchema;
use serde::Deserialize;

use super::trial::Trial;

/// Default time limit.
const DEFAULT_BUDGET: Duration = Duration::from_secs(90);

/// Default margin, as a share.
const DEFAULT_MARGIN: f64 = 0.05;

/// `[gate]` of an experiment.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GateSection {
    /// Name of the trial with the baseline. Default: the first trial.
    baseline: Option<Located<Name>>,
    /// Metric to compare. Default: throughput.
    metric: Option<Located<ComparedMetric>>,
    /// Smallest degradation that the gate must find, such as "5%". Default: 5%.
    margin: Option<Percentage>,
    /// Time limit, excluding builds. Default: 90s.
    budget: Option<PositiveDuration>,
    /// Whether both servers run at the same time and are loaded alternately. Default: true if the
    /// load, the metric and the servers allow it.
    alternating: Option<Located<bool>>,
}

/// Checks the gate of an experiment.
pub(super) fn rules(
    file: &TomlFile,
    section: &Located<GateSection>,
    trials: &[Trial],
) -> Result<GateRules, FileError> {
    let invalid = |what: String| file.error(&section.span(), format!("[gate]: {what}"));
    let [first, second] = trials else {
        return Err(invalid(format!(
            "compares 2 trials, but the experiment has {}; keep a baseline and a candidate",
            trials.len()
        )));
    };
    let (baseline, candidate) = match &section.baseline {
        None => (first, second),
        Some(name) if name.0 == first.name => (first, second),
        Some(name) if name.0 == second.name => (second, first),
        Some(name) => {
            let fix = did_you_mean(&name.0, trials.iter().map(|trial| trial.name.as_str()));
            let what = format!("baseline: unknown trial \"{}\"; {fix}", name.0);
            return Err(file.error(&name.span(), what));
        }
    };
    if (&first.load, &first.path) != (&second.load, &second.path) {
        return Err(invalid(format!(
            "{} and {} have different loads or paths; a gate needs the same load and path for both",
            first.name, second.name
        )));
    }
    let metric = section.metric.as_ref();
    let metric = metric.map_or(ComparedMetric::Throughput, |metric| **metric);
    if let Some(what) = refusal(metric, first) {
        let span = section.metric.as_ref().map(Located::span);
        return Err(file.error(&span.unwrap_or(section.span()), format!("metric: {what}")));
    }
    let requested = section.alternating.as_ref();
    let is_alternating = match (
        requested.map(|requested| **requested),
        obstacle(metric, trials),
    ) {
        (Some(false), _) | (None, Some(_)) => false,
        (_, None) => true,
        (Some(true), Some(what)) => {
            let span = requested.map_or(section.span(), Located::span);
            let what = format!("alternating: {what}; remove \"alternating\"");
            return Err(file.error(&span, what));
        }
    };
    let margin = section.margin.as_ref();
    let budget = section.budget.as_ref();
    Ok(GateRules {
        baseline: baseline.name.clone(),
        candidate: candidate.name.clone(),
        metric,
        margin: margin.map_or(DEFAULT_MARGIN, |margin| margin.0),
        budget_s: budget
            .map_or(DEFAULT_BUDGET, |budget| budget.0)
            .as_secs_f64(),
        is_alternating,
    })
}

/// Returns why a gate cannot alternate, if so.
fn obstacle(metric: ComparedMetric, trials: &[Trial]) -> Option<&'static str> {
    if metric == ComparedMetric::ServerCpuPerRequest {
        return Some("CPU times are not accurate enough for turns of a few milliseconds");
    }
    trials.iter().find_map(|trial| {
        let (load, at) = (&trial.load, &trial.at);
        let obstacles = [
            (
                load.rate.is_some() || load.burst.is_some(),
                "open-model loads cannot alternate",
            ),
            (
                load.requests.is_some(),
                "a load with a fixed number of requests cannot alternate",
            ),
            (load.check.is_some(), "a load with a check cannot alternate"),
            (
                trial.client.is_some(),
                "an external client cannot alternate",
            ),
            (at.agents.is_some(), "agents cannot alternate"),
            (
                trial.port.is_some(),
                "a server with a fixed port cannot alternate",
            ),
            (at.store.is_some(), "a server with a store cannot alternate"),
            (at.separate, "hosts = \"separate\" supports only one server"),
            (at.delay.is_some(), "turns are too short for network delay"),
            (
                at.client != trials[0].at.client,
                "the trials' client CPUs differ",
            ),
        ];
        let found = obstacles.into_iter().find(|(is_found, _)| *is_found);
        found.map(|(_, what)| what)
    })
}

/// Returns why a gate cannot use a metric, and how to fix it.
fn refusal(metric: ComparedMetric, trial: &Trial) -> Option<String> {
    let load = &trial.load;
    let is_scheduled = load.rate.is_some() || load.burst.is_some();
    match metric {
        ComparedMetric::Capacity => Some(
            "a gate does not search for the capacity; use another metric, such as \"throughput\"".to_owned(),
        ),
        ComparedMetric::CpuPerRequest => Some(
            "this is the client's CPU time; use \"server_cpu_us_per_request\"".to_owned(),
        ),
        ComparedMetric::Throughput if is_scheduled => Some(
            "at a fixed rate, throughput does not show a difference; remove the rate, or use another metric, such as \"p99\""
                .to_owned(),
        ),
        _ => None,
    }
}
