//! Measures pairs of server processes, one after the other or alternately, until the gate reaches a
//! decision or its budget is used up.

use std::time::{Duration, Instant};

use floodmark_diagnose::gate::MAX_PAIRS;
use floodmark_plan::spec::Warmup;
use floodmark_plan::{FileError, Planned};
use floodmark_record::events::EndReason;
use floodmark_record::gate::{GateEnd, GateResult, GateRules, GateTurns};
use floodmark_record::plan::Plan;
use floodmark_record::run::Status;
use floodmark_record::worker_input::{OtherSide, WorkerInput};
use floodmark_record::{Event, Record};
use floodmark_workers::WorkerFailure;

use super::measurement::TrialProcess;
use super::{RunningExperiment, plan_trial};
use crate::fold::fold_with;
use crate::manifest::Trial;

/// Minimum mean length of a turn, unless the load is too short for [`MIN_TURNS`] such turns.
const MIN_TURN: Duration = Duration::from_millis(5);

/// Mean length of a turn as a multiple of the 99th percentile of response time.
const TURN_RESPONSES: f64 = 10.0;

/// Minimum number of turns per side, on average.
const MIN_TURNS: f64 = 5.0;

/// Default warm-up, as a share of the load's duration.
pub(crate) const AUTO_WARMUP: f64 = 0.2;

/// Number of the first request of an alternating load. Ordinary loads never reach this number.
const FIRST_NUMBER: u64 = 1 << 32;

impl RunningExperiment<'_> {
    /// Measures pairs of fresh server processes. Returns the failure of a worker, if any.
    ///
    /// # Errors
    /// The events cannot be read.
    pub(super) fn measure_pairs(
        &mut self,
        rules: &GateRules,
    ) -> Result<Option<WorkerFailure>, FileError> {
        let trials = &self.runner.experiment.trials;
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
            let record = fold_with(self.directory.path(), self.directory.unsaved())?;
            let Some(gate) = &record.gate else {
                return Ok(None);
            };
            if gate.pairs.len() > reported {
                reported = gate.pairs.len();
                self.listener.on_gate(gate);
            }
            if gate.ended != GateEnd::Interrupted || self.gate_must_stop() {
                return Ok(None);
            }
            if !latest.is_zero() && begin.elapsed() + latest > budget {
                if gate.max_pairs.is_none() {
                    let max_pairs = gate.complete_pairs().max(1);
                    self.directory.append(&Event::GatePlanned { max_pairs });
                }
                let budget_s = rules.budget_s;
                self.directory.append(&Event::OutOfTime { budget_s });
                continue;
            }
            let pair_begin = Instant::now();
            let pair = next_pair(&record, gate);
            // Reverse the order after each pair, so that drift favors neither trial.
            let order = match pair % 2 {
                1 => [baseline, candidate],
                _ => [candidate, baseline],
            };
            let failure = if rules.is_alternating {
                self.measure_alternately(rules, order, pair, &record)?
            } else {
                self.measure_in_sequence(order, pair)
            };
            if failure.is_some() {
                return Ok(failure);
            }
            latest = pair_begin.elapsed();
            // The first pair of an alternating gate takes longer than the others, because it
            // includes ordinary runs.
            let is_typical = !rules.is_alternating || !record.runs.is_empty();
            if gate.max_pairs.is_none() && is_typical && !self.runner.stop.is_set() {
                let left = budget.saturating_sub(begin.elapsed());
                let fitting = left.as_secs_f64() / latest.as_secs_f64();
                let max_pairs = gate.complete_pairs() + 1 + fitting as u32;
                let max_pairs = max_pairs.min(MAX_PAIRS);
                self.directory.append(&Event::GatePlanned { max_pairs });
            }
        }
    }

    /// Returns whether the gate cannot continue: it was interrupted, its result cannot be written,
    /// or one of its trials was skipped.
    fn gate_must_stop(&self) -> bool {
        self.must_stop() || !self.left_out.is_empty()
    }

    /// Measures a process of each trial, one after the other.
    fn measure_in_sequence(&mut self, order: [&Trial; 2], pair: u32) -> Option<WorkerFailure> {
        order.into_iter().find_map(|trial| {
            if self.runner.stop.is_set() || !self.left_out.is_empty() {
                return None;
            }
            self.measure_process(trial, pair)
        })
    }

    /// Starts a process of each trial, and loads both processes alternately. Before the alternating
    /// load, each trial without a complete and valid run gets an ordinary run. This run shows whether
    /// the trial's figures are valid and how long turns must be.
    ///
    /// # Errors
    /// The events cannot be read.
    fn measure_alternately(
        &mut self,
        rules: &GateRules,
        order: [&Trial; 2],
        pair: u32,
        record: &Record,
    ) -> Result<Option<WorkerFailure>, FileError> {
        let mut hosts = Vec::new();
        for trial in order {
            let Some(trial_hosts) = self.hosts(trial) else {
                return Ok(None);
            };
            hosts.push(trial_hosts);
        }
        let mut processes = Vec::new();
        for (trial, hosts) in order.into_iter().zip(&hosts) {
            processes.extend(self.begin_process(trial, pair, hosts));
        }
        let mut failure = None;
        if let [first, second] = processes.as_mut_slice() {
            for process in [&mut *first, &mut *second] {
                let mut runs = record.runs_of(&process.trial.name);
                let is_measured = runs.any(|run| {
                    run.ended.reason != EndReason::Interrupted
                        && run.validity.status != Status::Invalid
                });
                if failure.is_none() && !is_measured && !self.gate_must_stop() {
                    failure = self.measure(process);
                }
            }
            let has_ended = |process: &mut TrialProcess<'_>| process.server.exit_status().is_some();
            if failure.is_none()
                && !self.gate_must_stop()
                && !has_ended(first)
                && !has_ended(second)
            {
                failure = self.take_turns(rules, [first, second])?;
            }
        }
        for process in processes {
            self.end_process(process);
        }
        Ok(failure)
    }

    /// Loads both processes of a pair alternately, and records the figures.
    ///
    /// # Errors
    /// The events cannot be read.
    fn take_turns(
        &mut self,
        rules: &GateRules,
        processes: [&mut TrialProcess<'_>; 2],
    ) -> Result<Option<WorkerFailure>, FileError> {
        let [first, second] = processes;
        let record = fold_with(self.directory.path(), self.directory.unsaved())?;
        let (first_plan, second_plan) = match (plan_turns(first), plan_turns(second)) {
            (Ok(first_plan), Ok(second_plan)) => (first_plan, second_plan),
            (Err((trial, what)), _) | (_, Err((trial, what))) => {
                self.fail_trial(trial, format!("{}: {what}", trial.place));
                return Ok(None);
            }
        };
        let input = WorkerInput {
            other: Some(OtherSide {
                plan: second_plan.plan,
                mean_turn: turn_length(&record, &first_plan.plan),
            }),
            ..WorkerInput::new(first_plan.plan, FIRST_NUMBER, first_plan.credentials)
        };
        let mut end = None;
        let (side, stop) = (&first.hosts.client, self.runner.stop);
        let ran = floodmark_workers::run(side, &input, stop, |event| {
            if let Event::Alternated(alternated) = event {
                end = Some(alternated);
            }
        });
        if let Err(failure) = ran {
            return Ok(Some(failure));
        }
        let (Some(end), false) = (end, stop.is_set()) else {
            return Ok(None);
        };
        let (process, trials) = (first.process, [first.trial, second.trial]);
        let survived = [first, second].map(|process| self.check_survivors(process));
        for (trial, survived) in trials.into_iter().zip(survived) {
            if !survived {
                self.leave_out(trial);
            }
        }
        if survived.contains(&false) || end.reason == EndReason::Interrupted {
            return Ok(None);
        }
        if end.reason != EndReason::Completed {
            let [first, second] = trials.map(|trial| trial.name.as_str());
            let what = format!(
                "{first} or {second}: the server was unreachable or did not respond during the alternating load; check the servers' logs"
            );
            self.fail_trial(trials[0], what);
            return Ok(None);
        }
        let (baseline, candidate) = if rules.baseline == trials[0].name {
            (end.first, end.second)
        } else {
            (end.second, end.first)
        };
        self.directory.append(&Event::GateTurns(GateTurns {
            process,
            turn_s: end.turn_s,
            baseline,
            candidate,
        }));
        Ok(None)
    }
}

/// Returns the number of the next pair. An interrupted pair is not completed later, because both of
/// its processes must see the same changes in the host's speed.
fn next_pair(record: &Record, gate: &GateResult) -> u32 {
    let processes = record.runs.iter().map(|run| run.process);
    processes.max().unwrap_or(0).max(gate.complete_pairs()) + 1
}

/// Plans the load of one side. An error contains the trial and a message.
fn plan_turns<'a>(process: &TrialProcess<'a>) -> Result<Planned, (&'a Trial, String)> {
    let trial = process.trial;
    let mut planned =
        plan_trial(trial, process.hosts, process.server.address).map_err(|what| (trial, what))?;
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
