//! Measures pairs of server processes until a gate decides or its budget is used up.

use std::time::{Duration, Instant};

use floodmark_diagnose::gate::MAX_PAIRS;
use floodmark_plan::FileError;
use floodmark_record::events::EndReason;
use floodmark_record::gate::{GateEnd, GateResult, GateRules};
use floodmark_record::{Event, Record};
use floodmark_workers::WorkerFailure;

use super::gate_turns::take_turns;
use super::measurement::{self, TrialProcess};
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
    let mut latest = Duration::ZERO;
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
        if !latest.is_zero() && begin.elapsed() + latest > budget {
            if gate.max_pairs.is_none() {
                let max_pairs = gate.complete_pairs().max(1);
                state.folder.append(&Event::GatePlanned { max_pairs });
            }
            let budget_s = rules.budget_s;
            state.folder.append(&Event::OutOfTime { budget_s });
            continue;
        }
        let pair_begin = Instant::now();
        let pair = next_pair(&record, gate);
        // Reverse the order after each pair, so that drift favors neither trial.
        let order = match pair % 2 {
            1 => [baseline, candidate],
            _ => [candidate, baseline],
        };
        let failure = match rules.is_alternating {
            true => measure_alternately(runner, order, pair, &record, state)?,
            false => measure_in_sequence(runner, order, pair, state),
        };
        if failure.is_some() {
            return Ok(failure);
        }
        latest = pair_begin.elapsed();
        // The first pair of an alternating gate takes longer than the others.
        let is_typical = !rules.is_alternating || !record.runs.is_empty();
        if gate.max_pairs.is_none() && is_typical && !runner.stop.is_set() {
            let left = budget.saturating_sub(begin.elapsed());
            let fitting = left.as_secs_f64() / latest.as_secs_f64();
            let max_pairs = gate.complete_pairs() + 1 + fitting as u32;
            let max_pairs = max_pairs.min(MAX_PAIRS);
            state.folder.append(&Event::GatePlanned { max_pairs });
        }
    }
}

/// Returns the number of the next pair. An interrupted pair is not completed later, because both of
/// its processes must see the same changes in the host's speed.
fn next_pair(record: &Record, gate: &GateResult) -> u32 {
    let processes = record.runs.iter().map(|run| run.process);
    processes.max().unwrap_or(0).max(gate.complete_pairs()) + 1
}

/// Measures a process of each trial, one after the other.
fn measure_in_sequence<'a>(
    runner: &ExperimentRunner<'a>,
    order: [&'a Trial; 2],
    pair: u32,
    state: &mut ExperimentState<'a, '_>,
) -> Option<WorkerFailure> {
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

/// Starts a process of each trial, and loads both alternately. First, a trial without a complete
/// run gets an ordinary run, which shows whether its figures are valid and how long turns must be.
///
/// # Errors
/// The events cannot be read.
fn measure_alternately<'a>(
    runner: &ExperimentRunner<'a>,
    order: [&'a Trial; 2],
    pair: u32,
    record: &Record,
    state: &mut ExperimentState<'a, '_>,
) -> Result<Option<WorkerFailure>, FileError> {
    let mut hosts = Vec::new();
    for trial in order {
        let Some(trial_hosts) = super::hosts(trial, state) else {
            return Ok(None);
        };
        hosts.push(trial_hosts);
    }
    let mut processes = Vec::new();
    for (trial, hosts) in order.into_iter().zip(&hosts) {
        processes.extend(runner.begin_process(trial, pair, hosts, state));
    }
    let mut failure = None;
    if let [first, second] = processes.as_mut_slice() {
        for process in [&mut *first, &mut *second] {
            let mut runs = record.runs_of(&process.trial.name);
            let is_measured = runs.any(|run| run.ended.reason != EndReason::Interrupted);
            if failure.is_none() && !is_measured && !must_stop(runner, state) {
                failure = measurement::measure(runner, process, state);
            }
        }
        let has_ended = |process: &mut TrialProcess<'_, '_>| process.server.exit_status().is_some();
        if failure.is_none() && !must_stop(runner, state) && !has_ended(first) && !has_ended(second)
        {
            failure = take_turns(runner, [first, second], state)?;
        }
    }
    for process in processes {
        runner.end_process(process, state);
    }
    Ok(failure)
}

/// Returns whether the gate has failed or was interrupted.
fn must_stop(runner: &ExperimentRunner<'_>, state: &ExperimentState<'_, '_>) -> bool {
    runner.stop.is_set() || !state.left_out.is_empty() || state.folder.failure().is_some()
}
