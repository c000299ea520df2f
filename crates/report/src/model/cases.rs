//! The conditions of a result as test cases, in one suite per trial or system.

use floodmark_record::Record;
use floodmark_record::capacity::{CapacityKind, CapacityResult};
use floodmark_record::comparison::{ClaimResult, ComparisonReport, Holds, Threshold};
use floodmark_record::crash::CrashResult;
use floodmark_record::events::EndReason;
use floodmark_record::experiment::ExpectedCheck;
use floodmark_record::gate::{GateDecision, GateResult};
use floodmark_record::run::{CheckResult, Run};
use floodmark_record::tuning::Tuning;

use crate::model::document::TextLine;
use crate::model::{capacity, comparison, crash, gate, run};

/// Name of the suite for claims, which can refer to several trials.
const CLAIMS: &str = "claims";

/// Outcome of a test case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseOutcome {
    /// The condition is met.
    Passed,
    /// The condition is violated.
    Failed,
    /// The condition could not be evaluated, or the result is inconclusive.
    NotEvaluated,
    /// Nothing was measured, or the figures are invalid.
    Error,
}

impl CaseOutcome {
    /// Returns the outcome of a condition. `None` stands for a condition that could not be
    /// evaluated.
    fn of(is_met: Option<bool>) -> Self {
        match is_met {
            Some(true) => CaseOutcome::Passed,
            Some(false) => CaseOutcome::Failed,
            None => CaseOutcome::NotEvaluated,
        }
    }

    /// Returns the name used in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            CaseOutcome::Passed => "passed",
            CaseOutcome::Failed => "failed",
            CaseOutcome::NotEvaluated => "not_evaluated",
            CaseOutcome::Error => "error",
        }
    }
}

/// A test case.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConditionCase {
    pub(crate) name: String,
    pub(crate) outcome: CaseOutcome,
    /// The measured figure or the reason, in one line.
    pub(crate) detail: String,
    /// Operations that explain the outcome, one per line.
    pub(crate) history: Vec<String>,
    /// Length of the measurement in seconds. Only the case of a run has a length, so that the
    /// lengths in a suite add up.
    pub(crate) time_s: f64,
}

impl ConditionCase {
    fn new(name: impl Into<String>, outcome: CaseOutcome, detail: impl Into<String>) -> Self {
        ConditionCase {
            name: name.into(),
            outcome,
            detail: detail.into(),
            history: Vec::new(),
            time_s: 0.0,
        }
    }

    /// Turns an error into a case that was not evaluated.
    fn tolerate(&mut self) {
        if self.outcome == CaseOutcome::Error {
            self.outcome = CaseOutcome::NotEvaluated;
        }
    }
}

/// The test cases of one trial or system.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CaseSuite {
    /// Name of the trial, or system and workload.
    pub(crate) name: String,
    /// Start of the first run in milliseconds since 1970; `None` without runs.
    pub(crate) started_unix_ms: Option<u64>,
    pub(crate) cases: Vec<ConditionCase>,
}

/// A function that returns the fault of a run, if any: [`CaseOutcome::Error`] or
/// [`CaseOutcome::Failed`], and a one-line reason.
pub type RunFault<'a> = dyn Fn(&Run) -> Option<(CaseOutcome, String)> + 'a;

/// Returns the measurements of a record and the conditions that they must meet.
pub(crate) fn of_record(record: &Record, fault: &RunFault<'_>) -> Vec<CaseSuite> {
    let mut suites = Suites::of(record);
    for run in &record.runs {
        suites.of_run(run).cases.push(measurement(run, fault));
    }
    let gate = record.gate.as_ref();
    if gate.is_some_and(GateResult::tolerates_invalid_runs) {
        suites.tolerate();
    }
    suites.add_unmeasured(record);
    // A tuning run continues after a setting has failed, so its result is valid despite the errors.
    if record.tuning.as_ref().is_some_and(|of| of.chosen.is_some()) {
        suites.tolerate();
    }
    suites.add_conditions(record);
    suites.0
}

/// Returns the conditions of a record, without its measurements.
pub(crate) fn conditions(record: &Record) -> Vec<CaseSuite> {
    let mut suites = Suites::of(record);
    suites.add_conditions(record);
    suites.0
}

/// Returns the conditions of a comparison. `fault` states why the comparison is invalid, if it is.
pub(crate) fn of_comparison(compared: &ComparisonReport, fault: Option<&str>) -> CaseSuite {
    let (outcome, detail) = match fault {
        Some(fault) => (CaseOutcome::Error, fault),
        None => (CaseOutcome::Passed, ""),
    };
    let mut cases = vec![ConditionCase::new("comparison", outcome, detail)];
    cases.extend(thresholds(&compared.thresholds));
    CaseSuite {
        name: comparison_name(compared),
        started_unix_ms: None,
        cases,
    }
}

/// Returns the name of the suite of a comparison.
pub(crate) fn comparison_name(compared: &ComparisonReport) -> String {
    format!("{} ÷ {}", compared.candidate.name, compared.baseline.name)
}

/// Suites in the order of the record.
struct Suites(Vec<CaseSuite>);

impl Suites {
    /// Turns the errors so far into cases that were not evaluated.
    fn tolerate(&mut self) {
        let cases = self.0.iter_mut().flat_map(|suite| &mut suite.cases);
        cases.for_each(ConditionCase::tolerate);
    }

    /// Creates empty suites for the trials of an experiment, or for the systems of a load.
    fn of(record: &Record) -> Self {
        let mut suites = Suites(Vec::new());
        for trial in record.experiment.iter().flat_map(|about| &about.trials) {
            suites.named(trial);
        }
        for run in &record.runs {
            let suite = suites.of_run(run);
            suite.started_unix_ms.get_or_insert(run.started_unix_ms);
        }
        suites
    }

    fn of_run(&mut self, run: &Run) -> &mut CaseSuite {
        match &run.trial {
            Some(trial) => self.named(trial),
            None => self.named(&format!("{} {}", run.system, run.workload)),
        }
    }

    fn named(&mut self, name: &str) -> &mut CaseSuite {
        let known = self.0.iter().position(|suite| suite.name == name);
        let at = known.unwrap_or_else(|| {
            self.0.push(CaseSuite {
                name: name.to_owned(),
                started_unix_ms: None,
                cases: Vec::new(),
            });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// Returns the suite for the conditions of the whole record.
    fn overall(&mut self, record: &Record) -> &mut CaseSuite {
        let name = match (&record.experiment, self.0.first()) {
            (Some(experiment), _) => experiment.name.clone(),
            (None, Some(first)) => first.name.clone(),
            (None, None) => "load".to_owned(),
        };
        self.named(&name)
    }

    /// Adds the failures, and the trials without a measurement.
    fn add_unmeasured(&mut self, record: &Record) {
        let mut skipped: Vec<&str> = record.skipped.iter().map(String::as_str).collect();
        for what in &record.failures {
            let names = self.0.iter().map(|suite| &suite.name);
            let suite = names.filter(|name| is_about(what, name));
            let suite = suite.max_by_key(|name| name.len()).cloned();
            let case = ConditionCase::new("measurement", CaseOutcome::Error, what);
            match suite {
                Some(name) => {
                    skipped.retain(|other| other != what);
                    self.named(&name).cases.push(case);
                }
                None => self.overall(record).cases.push(case),
            }
        }
        let has_rounds = |name: &str| record.crash.iter().any(|of| of.trial == name);
        let reasons = [&["not measured"][..], &skipped].concat().join("; ");
        for suite in &mut self.0 {
            if suite.cases.is_empty() && !has_rounds(&suite.name) {
                let outcome = CaseOutcome::NotEvaluated;
                let case = ConditionCase::new("measurement", outcome, &reasons);
                suite.cases.push(case);
            }
        }
    }

    fn add_conditions(&mut self, record: &Record) {
        let expected = record
            .experiment
            .as_ref()
            .and_then(|about| about.expected_check);
        let expects_violation = expected == Some(ExpectedCheck::Violated);
        for run in &record.runs {
            let checks = run.checks.iter();
            let cases = checks.map(|of| check(run, of, expects_violation));
            self.of_run(run).cases.extend(cases);
        }
        if expects_violation {
            let case = expected_violation(record);
            self.overall(record).cases.extend(case);
        }
        for of in &record.crash {
            let case = crash_rounds(of, expects_violation);
            self.named(&of.trial).cases.push(case);
        }
        for found in record.capacity.iter().chain(&record.capacities) {
            let suite = match &found.trial {
                Some(trial) => self.named(trial),
                None => self.overall(record),
            };
            suite.cases.push(objectives(found));
        }
        if let Some(gate) = &record.gate {
            self.overall(record).cases.push(gated(gate));
        }
        if let Some(tuning) = &record.tuning {
            self.overall(record).cases.push(tuned(tuning));
        }
        if !record.thresholds.is_empty() {
            let cases = thresholds(&record.thresholds);
            self.overall(record).cases.extend(cases);
        }
        if !record.claims.is_empty() {
            let cases = record.claims.iter().map(claim);
            self.named(CLAIMS).cases.extend(cases);
        }
    }
}

/// Returns whether a failure starts with the name of a trial, or of one of its processes:
/// `nginx-1 does not start`.
fn is_about(what: &str, trial: &str) -> bool {
    let Some(rest) = what.strip_prefix(trial) else {
        return false;
    };
    let rest = rest.strip_prefix('-').map_or(rest, |process| {
        process.trim_start_matches(|c: char| c.is_ascii_digit())
    });
    rest.starts_with([':', ' '])
}

/// Returns the results of `--fail-if`.
pub(crate) fn thresholds(thresholds: &[Threshold]) -> Vec<ConditionCase> {
    let case = |of: &Threshold| {
        let outcome = CaseOutcome::of(of.met.map(|met| !met));
        ConditionCase::new(format!("fail-if {}", of.condition), outcome, &of.figure)
    };
    thresholds.iter().map(case).collect()
}

/// Returns why the outcome of a trial's crash rounds is unexpected, or `None` if it is expected.
#[must_use]
pub fn unexpected_crash_outcome(trial: &CrashResult, expects_loss: bool) -> Option<String> {
    let (name, lost, conclusive) = (&trial.trial, trial.lost, trial.conclusive());
    match trial.losses.first() {
        Some(loss) if !expects_loss => {
            let (round, violations) = (loss.round, loss.violations.join("; "));
            let first = format!("first in round {round}: {violations}");
            Some(format!(
                "{name}: {lost} of {conclusive} crash rounds lost data, {first}"
            ))
        }
        None if expects_loss && trial.rounds > 0 => Some(format!(
            "{name}: none of {conclusive} crash rounds lost data, but the experiment expects a loss"
        )),
        _ => None,
    }
}

/// Returns the test case for a run, with its throughput or its fault as the detail.
fn measurement(run: &Run, fault: &RunFault<'_>) -> ConditionCase {
    let (outcome, detail) = match (fault(run), run.ended.reason) {
        (_, EndReason::Interrupted) => (CaseOutcome::NotEvaluated, "interrupted".to_owned()),
        (Some(fault), _) => fault,
        (None, _) => {
            let throughput = run::throughput(run).first().map(TextLine::text);
            (CaseOutcome::Passed, throughput.unwrap_or_default())
        }
    };
    ConditionCase {
        time_s: run.sending_s,
        ..ConditionCase::new(
            format!("measurement, {}", run::attempt(run)),
            outcome,
            detail,
        )
    }
}

/// Returns the case for a check. A violated check is not a failure if the experiment expects
/// violations.
fn check(run: &Run, check: &CheckResult, expects_violation: bool) -> ConditionCase {
    let outcome = CaseOutcome::of(check.held.map(|held| held || expects_violation));
    let detail = match check.held {
        Some(false) => format!("violated: {}", check.detail),
        _ => check.detail.clone(),
    };
    ConditionCase {
        history: check.history.clone(),
        ..ConditionCase::new(
            format!("check {}, {}", check.name, run::attempt(run)),
            outcome,
            detail,
        )
    }
}

/// Returns the case for the expectation that a check is violated. Returns `None` if there are no
/// checks, or if `--only` may have excluded the trial whose check is violated.
fn expected_violation(record: &Record) -> Option<ConditionCase> {
    let arguments = &record.tool.command;
    let is_partial = arguments.iter().any(|word| word.starts_with("--only"));
    let mut checks = record.runs.iter().flat_map(|run| &run.checks).peekable();
    if is_partial || checks.peek().is_none() {
        return None;
    }
    let (outcome, detail) = if checks.all(|check| check.held == Some(true)) {
        (CaseOutcome::Failed, "every check held")
    } else {
        (CaseOutcome::Passed, "")
    };
    let name = "a check is violated, as the experiment expects";
    Some(ConditionCase::new(name, outcome, detail))
}

/// Returns the case for a trial's crash rounds.
fn crash_rounds(of: &CrashResult, expects_loss: bool) -> ConditionCase {
    let name = format!("crash rounds, check {}", of.check);
    let sentence = crash::sentence(of);
    match unexpected_crash_outcome(of, expects_loss) {
        Some(what) => {
            let history = of.losses.first().map(|loss| loss.history.clone());
            ConditionCase {
                history: history.unwrap_or_default(),
                ..ConditionCase::new(name, CaseOutcome::Failed, what)
            }
        }
        None if of.conclusive() == 0 => {
            ConditionCase::new(name, CaseOutcome::NotEvaluated, sentence)
        }
        None => ConditionCase::new(name, CaseOutcome::Passed, sentence),
    }
}

/// Returns the case for a capacity search. It fails if the server missed an objective even at the
/// lowest rate.
fn objectives(found: &CapacityResult) -> ConditionCase {
    let process = found.trial.as_ref();
    let process = process.map_or_else(String::new, |_| format!(", process {}", found.process));
    let objectives = found.settings.objectives.join(", ");
    let name = format!("capacity for {objectives}{process}");
    let is_met = match found.finding {
        CapacityKind::Never => Some(false),
        _ => found.rate_per_s.map(|_| true),
    };
    let answer = capacity::answer(found).first().map(TextLine::text);
    ConditionCase::new(name, CaseOutcome::of(is_met), answer.unwrap_or_default())
}

/// Returns the case for a tuning run, which passes if the tuning run has a result.
fn tuned(tuning: &Tuning) -> ConditionCase {
    let outcome = match tuning.chosen {
        Some(_) => CaseOutcome::Passed,
        None => CaseOutcome::Error,
    };
    ConditionCase::new("tuning", outcome, &tuning.why_ended)
}

/// Returns the case for a gate or a comparison of two versions. A comparison passes if
/// it reaches a decision.
fn gated(gate: &GateResult) -> ConditionCase {
    let outcome = match gate.decision {
        GateDecision::Passed | GateDecision::Equivalent | GateDecision::Different => {
            CaseOutcome::Passed
        }
        GateDecision::Failed => CaseOutcome::Failed,
        GateDecision::Inconclusive => CaseOutcome::NotEvaluated,
    };
    ConditionCase::new(gate::noun(&gate.rules), outcome, gate::detail(gate))
}

/// Returns the case for a published claim.
fn claim(claim: &ClaimResult) -> ConditionCase {
    let outcome = match claim.holds {
        Holds::Yes => CaseOutcome::Passed,
        Holds::No => CaseOutcome::Failed,
        Holds::Undecided => CaseOutcome::NotEvaluated,
    };
    let (published, measured) = (comparison::published(claim), comparison::measured(claim));
    let figures = [
        format!("published {published}"),
        format!("measured {measured}"),
    ];
    let detail = [&figures[..], &claim.notes].concat().join("; ");
    ConditionCase::new(format!("claim {}", claim.text), outcome, detail)
}

#[cfg(test)]
#[path = "cases_tests.rs"]
mod tests;
