//! Loads the two server processes of a pair alternately.

use std::time::Duration;

use floodmark_plan::spec::Warmup;
use floodmark_plan::{FileError, Planned};
use floodmark_record::events::EndReason;
use floodmark_record::gate::GateTurns;
use floodmark_record::plan::Plan;
use floodmark_record::worker_input::{OtherSide, WorkerInput};
use floodmark_record::{Event, Record};
use floodmark_workers::WorkerFailure;

use super::measurement::{TrialProcess, check_survivors};
use super::{ExperimentRunner, ExperimentState, plan_trial};
use crate::fold::fold_with;
use crate::manifest::Trial;

/// Default mean length of a turn.
const MIN_TURN: Duration = Duration::from_millis(5);
/// Mean length of a turn as a multiple of the 99th percentile of response time.
const TURN_RESPONSES: f64 = 10.0;
/// Minimum number of turns per side, on average.
const MIN_TURNS: f64 = 5.0;
/// Default warm-up, as a share of the load's duration.
const AUTO_WARMUP: f64 = 0.2;
/// Number of the first request of an alternating load. No ordinary load reaches it.
const FIRST_NUMBER: u64 = 1 << 32;

/// Loads both processes of a pair alternately, and records the figures.
///
/// # Errors
/// The events cannot be read.
pub(super) fn take_turns<'a>(
    runner: &ExperimentRunner<'a>,
    processes: [&mut TrialProcess<'a, '_>; 2],
    state: &mut ExperimentState<'a, '_>,
) -> Result<Option<WorkerFailure>, FileError> {
    let [first, second] = processes;
    let record = fold_with(state.folder.path(), state.folder.unsaved())?;
    let planned = plan_turns(first).and_then(|first_plan| Ok((first_plan, plan_turns(second)?)));
    let (first_plan, second_plan) = match planned {
        Ok(planned) => planned,
        Err((trial, what)) => {
            state.fail_trial(trial, format!("{}: {what}", trial.place));
            return Ok(None);
        }
    };
    let input = WorkerInput {
        plan: first_plan.plan.clone(),
        first_number: FIRST_NUMBER,
        answers_file: None,
        anchors: first_plan.anchors,
        outlasts_server: false,
        share: None,
        anyway: false,
        other: Some(OtherSide {
            plan: second_plan.plan,
            mean_turn: turn_length(&record, &first_plan.plan),
        }),
    };
    let mut end = None;
    let ran = floodmark_workers::run(&first.hosts.client, &input, runner.stop, |event| {
        if let Event::Alternated(alternated) = event {
            end = Some(alternated);
        }
    });
    if let Err(failure) = ran {
        return Ok(Some(failure));
    }
    let (Some(end), false) = (end, runner.stop.is_set()) else {
        return Ok(None);
    };
    let (process, trials) = (first.process, [first.trial, second.trial]);
    let survived = [first, second].map(|process| check_survivors(process, state));
    for (trial, survived) in trials.into_iter().zip(survived) {
        if !survived {
            state.leave_out(trial);
        }
    }
    if survived.contains(&false) || end.reason == EndReason::Interrupted {
        return Ok(None);
    }
    if end.reason != EndReason::Completed {
        let [first, second] = trials.map(|trial| trial.name.as_str());
        let what = format!(
            "{first} or {second}: unreachable or not HTTP/1.1 in the alternating load; check the servers' logs"
        );
        state.fail_trial(trials[0], what);
        return Ok(None);
    }
    let rules = runner.experiment.description.gate.as_ref();
    let is_baseline_first = rules.is_some_and(|rules| rules.baseline == trials[0].name);
    let (baseline, candidate) = match is_baseline_first {
        true => (end.first, end.second),
        false => (end.second, end.first),
    };
    state.folder.append(&Event::GateTurns(GateTurns {
        process,
        turn_s: end.turn_s,
        baseline,
        candidate,
    }));
    Ok(None)
}

/// Plans the load of one side. An error contains the trial.
fn plan_turns<'a>(process: &TrialProcess<'a, '_>) -> Result<Planned, (&'a Trial, String)> {
    let trial = process.trial;
    let url = format!("http://{}{}", process.server.address, trial.sent_to());
    let mut planned = plan_trial(trial, process.hosts, &url).map_err(|what| (trial, what))?;
    let plan = &mut planned.plan;
    plan.seed = plan.seed.wrapping_add(u64::from(process.process - 1));
    plan.warmup = warmup(trial, plan);
    Ok(planned)
}

/// Returns the length of each side's warm-up. `auto` selects the steady part of an ordinary run,
/// but turns need a warm-up of known length.
fn warmup(trial: &Trial, plan: &Plan) -> Duration {
    match trial.load.warmup {
        Some(Warmup::Before(length)) => length,
        _ => Duration::from_secs_f64(plan.duration_s().unwrap_or_default() * AUTO_WARMUP),
    }
}

/// Returns the mean length of a turn: long compared with the response times of the ordinary runs,
/// because a turn ends only after its last response.
fn turn_length(record: &Record, plan: &Plan) -> Duration {
    let p99s_us = record
        .runs
        .iter()
        .filter_map(|run| run.response_time_us.p99);
    let slowest_us = p99s_us.fold(0.0, f64::max);
    let longest = Duration::from_secs_f64(plan.duration_s().unwrap_or_default() / MIN_TURNS);
    let turn = Duration::from_secs_f64(slowest_us / 1e6 * TURN_RESPONSES);
    turn.max(MIN_TURN).min(longest)
}
