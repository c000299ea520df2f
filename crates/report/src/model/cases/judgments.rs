//! The test case of each measurement, check, search, threshold and claim.

use floodmark_record::Record;
use floodmark_record::capacity::{CapacityKind, CapacityResult};
use floodmark_record::comparison::{ClaimResult, Holds, Threshold};
use floodmark_record::crash::CrashResult;
use floodmark_record::events::EndReason;
use floodmark_record::gate::{GateDecision, GateResult};
use floodmark_record::run::{CheckResult, Run};
use floodmark_record::tuning::Tuning;

use super::{CaseOutcome, ConditionCase, RunFault};
use crate::model::{capacity, crash, gate, ratios, run};

/// Returns the results of `--fail-if`.
pub(crate) fn thresholds(thresholds: &[Threshold]) -> Vec<ConditionCase> {
    let case = |of: &Threshold| {
        let outcome = match of.met {
            Some(true) => CaseOutcome::Failed,
            Some(false) => CaseOutcome::Passed,
            None => CaseOutcome::NotEvaluated,
        };
        ConditionCase::new(format!("fail-if {}", of.condition), outcome, &of.figure)
    };
    thresholds.iter().map(case).collect()
}

/// Returns why the outcome of a trial's crash rounds is unexpected, or `None` if it is expected.
#[must_use]
pub fn unexpected_crash_outcome(trial: &CrashResult, expects_loss: bool) -> Option<String> {
    match trial.losses.first() {
        Some(loss) if !expects_loss => Some(format!(
            "{}: {} of {} crash rounds lost data, first round {}: {}",
            trial.trial,
            trial.lost,
            trial.conclusive(),
            loss.round,
            loss.violations.join("; ")
        )),
        None if expects_loss && trial.rounds > 0 => Some(format!(
            "{}: none of {} crash rounds lost data, but the experiment expects a loss",
            trial.trial,
            trial.conclusive()
        )),
        _ => None,
    }
}

/// Names the attempt of a run.
fn attempt(run: &Run) -> String {
    format!("process {}, attempt {}", run.process, run.attempt)
}

/// Returns the case of a run: its throughput or its fault.
pub(super) fn measurement(run: &Run, fault: &RunFault<'_>) -> ConditionCase {
    let (outcome, detail) = match (fault(run), run.ended.reason) {
        (_, EndReason::Interrupted) => (CaseOutcome::NotEvaluated, "interrupted".to_owned()),
        (Some(fault), _) => fault,
        (None, _) => {
            let throughput = run::throughput(run).into_iter().next();
            let spans = throughput.into_iter().flat_map(|line| line.spans);
            let texts = spans.map(|span| span.text);
            let detail = texts.collect::<Vec<_>>().join(" ");
            (CaseOutcome::Passed, detail)
        }
    };
    ConditionCase {
        time_s: run.sending_s,
        ..ConditionCase::new(format!("measurement, {}", attempt(run)), outcome, detail)
    }
}

/// Returns the case of a check. A violated check is no failure if the experiment expects violations.
pub(super) fn check(run: &Run, check: &CheckResult, expects_violation: bool) -> ConditionCase {
    let outcome = match check.held {
        Some(true) => CaseOutcome::Passed,
        Some(false) if expects_violation => CaseOutcome::Passed,
        Some(false) => CaseOutcome::Failed,
        None => CaseOutcome::NotEvaluated,
    };
    let detail = match check.held {
        Some(false) => format!("violated: {}", check.detail),
        _ => check.detail.clone(),
    };
    ConditionCase {
        history: check.history.clone(),
        ..ConditionCase::new(
            format!("check {}, {}", check.name, attempt(run)),
            outcome,
            detail,
        )
    }
}

/// Returns whether any check is violated, as the experiment expects. Returns `None` without checks,
/// or if `--only` may have excluded the trial whose check is violated.
pub(super) fn expected_violation(record: &Record) -> Option<ConditionCase> {
    let arguments = &record.tool.command;
    let is_partial = arguments.iter().any(|word| word.starts_with("--only"));
    let mut checks = record.runs.iter().flat_map(|run| &run.checks).peekable();
    if is_partial || checks.peek().is_none() {
        return None;
    }
    let (outcome, detail) = match checks.all(|check| check.held == Some(true)) {
        true => (CaseOutcome::Failed, "every check held"),
        false => (CaseOutcome::Passed, ""),
    };
    let name = "a check is violated, as the experiment expects";
    Some(ConditionCase::new(name, outcome, detail))
}

/// Returns the case of a trial's crash rounds.
pub(super) fn crash_rounds(of: &CrashResult, expects_loss: bool) -> ConditionCase {
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

/// Returns whether the server meets the objectives at any rate.
pub(super) fn objectives(found: &CapacityResult) -> ConditionCase {
    let process = match &found.trial {
        Some(_) => format!(", process {}", found.process),
        None => String::new(),
    };
    let name = format!(
        "capacity for {}{process}",
        found.settings.objectives.join(", ")
    );
    let outcome = match (found.finding, found.rate_per_s) {
        (CapacityKind::Never, _) => CaseOutcome::Failed,
        (_, None) => CaseOutcome::NotEvaluated,
        (_, Some(_)) => CaseOutcome::Passed,
    };
    let answer = capacity::answer(found).into_iter().next();
    let spans = answer.into_iter().flat_map(|line| line.spans);
    let texts = spans.map(|span| span.text);
    let texts = texts.filter(|text| !text.is_empty());
    ConditionCase::new(name, outcome, texts.collect::<Vec<_>>().join(" "))
}

/// Returns whether a tuning has a result.
pub(super) fn tuned(tuning: &Tuning) -> ConditionCase {
    let outcome = match tuning.chosen {
        Some(_) => CaseOutcome::Passed,
        None => CaseOutcome::Error,
    };
    ConditionCase::new("tuning", outcome, &tuning.why_ended)
}

/// Returns the decision of a gate.
pub(super) fn gated(gate: &GateResult) -> ConditionCase {
    let outcome = match gate.decision {
        GateDecision::Passed => CaseOutcome::Passed,
        GateDecision::Failed => CaseOutcome::Failed,
        GateDecision::Inconclusive => CaseOutcome::NotEvaluated,
    };
    ConditionCase::new("gate", outcome, gate::detail(gate))
}

/// Returns the case of a published claim.
pub(super) fn claim(claim: &ClaimResult) -> ConditionCase {
    let outcome = match claim.holds {
        Holds::Yes => CaseOutcome::Passed,
        Holds::No => CaseOutcome::Failed,
        Holds::Undecided => CaseOutcome::NotEvaluated,
    };
    let (published, measured) = (ratios::published(claim), ratios::measured(claim));
    let mut detail = format!("published {published}; measured {measured}");
    for note in &claim.notes {
        detail.push_str(&format!("; {note}"));
    }
    ConditionCase::new(format!("claim {}", claim.text), outcome, detail)
}
