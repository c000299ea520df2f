//! Decides from pairs of server processes whether a candidate is worse than a baseline, or whether
//! the two differ.
//!
//! Each pair has one ratio. The two processes of a pair are loaded alternately, or one after the
//! other, so changes in host speed affect both. The gate looks at the interval after each pair
//! ([`LookPlan`]).

use std::time::Duration;

use floodmark_record::Record;
use floodmark_record::comparison::ComparedMetric;
use floodmark_record::events::EndReason;
use floodmark_record::gate::{
    GateDecision, GateEnd, GatePair, GateResult, GateRules, GateTurns, SideFigures,
};
use floodmark_record::reason::Worded;
use floodmark_record::run::{Run, Status};
use floodmark_record::units::show_duration;
use floodmark_stats::sequential::{FIRST_LOOK, LookPlan, trimmed_ratio};

use crate::comparing::{RunGroup, process_figure};
use crate::text::plural;

/// Maximum number of pairs. More pairs hardly narrow the interval.
pub const MAX_PAIRS: u32 = 200;

/// State of a gate that only the events contain.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GateState {
    /// Maximum number of pairs within the budget; `None` until it is estimated.
    pub max_pairs: Option<u32>,
    /// Whether the time limit was reached.
    pub is_out_of_time: bool,
    /// Figures of the pairs with an alternating load.
    pub turns: Vec<GateTurns>,
}

/// Judges the pairs of a record.
#[must_use]
pub fn judge(record: &Record, rules: &GateRules, state: &GateState) -> GateResult {
    let mut pairs = Vec::new();
    let mut excluded = Vec::new();
    for pair in pair_figures(record, rules, &state.turns) {
        let process = pair.process;
        let (trial, reason) = match pair.figures {
            [Ok(baseline), Ok(candidate)] => {
                pairs.push(GatePair {
                    process,
                    baseline,
                    candidate,
                    turn_s: pair.turn_s,
                    interval: None,
                });
                continue;
            }
            [Err(reason), _] => (&rules.baseline, reason),
            [_, Err(reason)] => (&rules.candidate, reason),
        };
        excluded.push(format!("pair {process}: {trial}: {reason}"));
    }
    let max_pairs = state.max_pairs.unwrap_or(MAX_PAIRS);
    let plan = LookPlan::new(max_pairs as usize);
    let ratios: Vec<f64> = pairs.iter().map(GatePair::ratio).collect();
    for (n, pair) in (1..).zip(&mut pairs) {
        pair.interval = plan.interval(&ratios[..n]);
    }
    let interval = pairs.last().and_then(|pair| pair.interval.clone());
    let ratio = trimmed_ratio(&ratios);
    let by_interval = match (ratio, &interval) {
        (Some(ratio), Some(interval)) => rules.decide(ratio, interval),
        _ => GateDecision::Inconclusive,
    };
    let (decision, caveat) = match by_interval {
        GateDecision::Passed | GateDecision::Equivalent => match hidden_difference(record, rules) {
            None => (by_interval, None),
            caveat => (GateDecision::Inconclusive, caveat),
        },
        _ => (by_interval, too_few_pairs(rules, state)),
    };
    let used = (pairs.len() + excluded.len()) as u32;
    let is_hopeless = (max_pairs as usize) < FIRST_LOOK;
    let ended = match decision {
        decision if decision != GateDecision::Inconclusive => GateEnd::Decided,
        // More pairs add no ordinary runs that would lift the caveat.
        _ if rules.is_alternating && by_interval != GateDecision::Inconclusive => GateEnd::Decided,
        _ if state.is_out_of_time || used >= max_pairs || is_hopeless => GateEnd::OutOfTime,
        _ => GateEnd::Interrupted,
    };
    GateResult {
        rules: rules.clone(),
        decision,
        ratio,
        interval,
        pairs,
        max_pairs: state.max_pairs,
        excluded,
        caveat,
        ended,
    }
}

/// The figures of a complete pair, or the reasons why they are missing.
struct PairFigures {
    process: u32,
    turn_s: Option<f64>,
    /// Figures of the baseline and of the candidate.
    figures: [Result<f64, String>; 2],
}

/// Returns the complete pairs of a record.
fn pair_figures(record: &Record, rules: &GateRules, turns: &[GateTurns]) -> Vec<PairFigures> {
    let metric = rules.metric;
    if rules.is_alternating {
        let figure = |side: &SideFigures| {
            let figure = side.figure(metric);
            figure.ok_or_else(|| why_turns_missing(side, metric))
        };
        let pair = |turns: &GateTurns| PairFigures {
            process: turns.process,
            turn_s: Some(turns.turn_s),
            figures: [&turns.baseline, &turns.candidate].map(figure),
        };
        return turns.iter().map(pair).collect();
    }
    let figure = |runs: Vec<&Run>| {
        let side = RunGroup {
            name: String::new(),
            processes: vec![runs],
            capacities: Vec::new(),
        };
        process_figure(&side, metric).ok_or_else(|| why_missing(&side))
    };
    let pair = |process: u32| {
        let [baseline, candidate] = [&rules.baseline, &rules.candidate].map(|trial| {
            let runs = record.runs_of(trial);
            let runs = Vec::from_iter(runs.filter(|run| run.process == process));
            let is_complete = |run: &&Run| run.ended.reason != EndReason::Interrupted;
            (!runs.is_empty() && runs.iter().all(is_complete)).then_some(runs)
        });
        Some(PairFigures {
            process,
            turn_s: None,
            figures: [baseline?, candidate?].map(figure),
        })
    };
    let last = record.runs.iter().map(|run| run.process).max();
    (1..=last.unwrap_or(0)).filter_map(pair).collect()
}

/// Returns why a server's turns have no figure.
fn why_turns_missing(side: &SideFigures, metric: ComparedMetric) -> String {
    match side.requests.ok {
        0 => "no response was ok".to_owned(),
        _ if metric == ComparedMetric::Goodput => "no response met its deadline".to_owned(),
        _ => "figure not measured".to_owned(),
    }
}

/// Returns why a process has no figure.
fn why_missing(group: &RunGroup<'_>) -> String {
    let invalid = group
        .runs()
        .find(|run| run.validity.status == Status::Invalid);
    let reason = invalid.and_then(|run| run.validity.reasons.first());
    reason.map_or_else(|| "figure not measured".to_owned(), Worded::to_string)
}

/// Returns a caveat if the runs of a trial can hide a difference: the client limited most
/// valid ones, or none is valid. In a gate that looks only for degradations, a limited candidate hides
/// nothing, because it is at least as fast as measured.
fn hidden_difference(record: &Record, rules: &GateRules) -> Option<String> {
    let trials = [&rules.baseline, &rules.candidate];
    trials.into_iter().find_map(|trial| {
        let runs = || record.runs_of(trial);
        let all = runs().count();
        let with = |of: fn(&Run) -> bool| runs().filter(|run| of(run)).count();
        let bound = with(|run| run.validity.is_lower_bound());
        let invalid = with(|run| run.validity.status == Status::Invalid);
        let can_hide = rules.is_two_sided || *trial == rules.baseline;
        if can_hide && 2 * bound > all - invalid {
            return Some(format!(
                "floodmark limited {bound} of {} of {trial}, so a difference may be hidden; use more load threads \
                 (-t), or run the client on other CPUs",
                plural((all - invalid) as u64, "valid run")
            ));
        }
        // The pairs of other loads exclude invalid runs.
        let is_invalid = rules.is_alternating && all > 0 && invalid == all;
        let mut reasons = runs().flat_map(|run| &run.validity.reasons);
        let reason = reasons.next().map_or_else(String::new, |reason| format!(" ({reason})"));
        is_invalid.then(|| {
            format!(
                "{trial} has no valid run without alternation{reason}; fix the cause, then repeat"
            )
        })
    })
}

/// Returns a caveat if the budget allows too few pairs for an interval.
fn too_few_pairs(rules: &GateRules, state: &GateState) -> Option<String> {
    let max_pairs = state.max_pairs?;
    ((max_pairs as usize) < FIRST_LOOK).then(|| {
        format!(
            "the budget of {} allows only {}, but a decision needs at least {FIRST_LOOK}; use a larger budget or a \
             shorter load",
            show_duration(Duration::from_secs_f64(rules.budget_s)),
            plural(max_pairs.into(), "pair")
        )
    })
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
