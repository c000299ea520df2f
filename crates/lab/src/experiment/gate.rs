//! Measures pairs of server processes until a gate decides or its budget is used up.

use std::time::{Duration, Instant};

use floodmark_diagnose::gate::MAX_PAIRS;
use floodmark_plan::FileError;
use floodmark_record::gate::{GateEnd, GateRules};
use floodmark_record::{Event, Record};
use floodmark_workers::WorkerFailure;

use super::{ExperimentRunner, ExperimentState};
use crate::fold::fold_with;
use crate::manifest::Trial;

/// Measures pairs of fresh server processes. Returns the failure of a worker, if any.
///
/// # Errors
/// The events cannot be read.
pub(super) fn measure_pairs<'a>(
    runner: &ExperimentRunner<'a>,
    rules: &GateRules,
    state: &mut ExperimentState<'a, '_>,
) -> Result<Option<WorkerFailure>, FileError> {
    let trials = &runner.experiment.trials;
    let named = |name: &str| trials.iter().find(|trial| trial.name == *name);
    let (Some(baseline), Some(candidate)) = (named(&rules.baseline), named(&rules.candidate))
    else {
        return Ok(None);
    };
    let budget = Duration::from_secs_f64(rules.budget_s);
    let begin = Instant::now();
    let mut longest = Duration::ZERO;
    let mut reported = 0;
    loop {
        let record = fold_with(state.folder.path(), state.folder.unsaved())?;
        let Some(gate) = &record.gate else {
            return Ok(None);
        };
        if gate.pairs.len() > reported {
            reported = gate.pairs.len();
            state.listener.on_gate(gate);
        }
        let has_failed = state.folder.failure().is_some() || !state.left_out.is_empty();
        if gate.ended != GateEnd::Interrupted || runner.stop.is_set() || has_failed {
            return Ok(None);
        }
        if !longest.is_zero() && begin.elapsed() + longest > budget {
            let budget_s = rules.budget_s;
            state.folder.append(&Event::OutOfTime { budget_s });
            continue;
        }
        let pair_begin = Instant::now();
        let failure = measure_pair(runner, (baseline, candidate), next_pair(&record), state);
        if failure.is_some() {
            return Ok(failure);
        }
        let length = pair_begin.elapsed();
        longest = longest.max(length);
        if gate.max_pairs.is_none() && !runner.stop.is_set() {
            let fitting = budget.as_secs_f64() / length.as_secs_f64();
            let max_pairs = (fitting as u32).clamp(1, MAX_PAIRS);
            state.folder.append(&Event::GatePlanned { max_pairs });
        }
    }
}

/// Returns the number of the next pair. An interrupted pair is not completed later, because its
/// processes have to be measured one after the other.
fn next_pair(record: &Record) -> u32 {
    let processes = record.runs.iter().map(|run| run.process);
    processes.max().unwrap_or(0) + 1
}

/// Measures a process of each trial. The order alternates, so that a steady change on the host
/// favors neither trial.
fn measure_pair<'a>(
    runner: &ExperimentRunner<'a>,
    (baseline, candidate): (&'a Trial, &'a Trial),
    pair: u32,
    state: &mut ExperimentState<'a, '_>,
) -> Option<WorkerFailure> {
    let order = match pair % 2 {
        1 => [baseline, candidate],
        _ => [candidate, baseline],
    };
    for trial in order {
        if runner.stop.is_set() || !state.left_out.is_empty() {
            return None;
        }
        let failure = runner.measure_process(trial, pair, state);
        if failure.is_some() {
            return failure;
        }
    }
    None
}
