//! Tuning: which setting to measure next, and the smallest setting within 2 % of the best
//! (docs/decisions/0036-tune.md).
//!
//! The search is a function of the measured processes. It runs from the start each time, and stops
//! at the first process that has not been measured. Therefore, an interrupted tuning run can be
//! resumed, and a record can be judged again.

mod measured;
mod search;

use std::collections::BTreeSet;

use floodmark_record::Record;
use floodmark_record::tuning::{
    FailedSetting, KnobValues, TunedSetting, Tuning, TuningDescription, TuningEnd, TuningStep,
};
use floodmark_stats::comparison::{Ratio, geometric_mean, over_processes};

use measured::measured;
use search::{Choice, Search, SearchStep, tuning_ratio};
pub(crate) use search::{FullPool, full_pool};

use crate::text::show_s;

/// Settings whose figure is at least this share of the best figure are good enough.
const ENOUGH: f64 = 0.98;

/// The parts of a tuning run's state that are known only from its events.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TuningState {
    /// Settings at which the server failed.
    pub failed: Vec<FailedSetting>,
    /// The time limit in seconds, if it was reached.
    pub out_of_time_s: Option<f64>,
}

/// Judges the tuning run of a record. If the search is not complete, also returns the step for the
/// process that must be measured next.
#[must_use]
pub fn judge(
    record: &Record,
    tuning: &TuningDescription,
    state: TuningState,
) -> (Tuning, Option<TuningStep>) {
    let failed: BTreeSet<&str> = state.failed.iter().map(|one| one.trial.as_str()).collect();
    let has_failed = |trial: &str| failed.contains(trial);
    let measured = measured(record, tuning, has_failed);
    let mut search = Search::new(tuning, &measured, &has_failed);
    let (choice, ended, next) = match search.run() {
        Ok(Some(choice)) => (Some(choice), TuningEnd::Complete, None),
        Ok(None) => (None, TuningEnd::NoStart, None),
        Err(next) => {
            let ended = match state.out_of_time_s {
                Some(_) => TuningEnd::OutOfTime,
                None => TuningEnd::Interrupted,
            };
            let has_figure = |of: &SearchStep| of.measured.figure.is_some();
            let choice = search.steps.iter().any(has_figure);
            let choice = choice.then(|| so_far(&search, state.out_of_time_s));
            (choice, ended, Some(*next))
        }
    };
    let why_ended = match &choice {
        Some(choice) => choice.why.clone(),
        None if ended == TuningEnd::NoStart => {
            let mut steps = search.steps.iter();
            let note = steps.find_map(|step| step.measured.note.as_ref());
            let note = note.map_or_else(String::new, |note| format!(": {note}"));
            format!(
                "no valid result was measured for the default setting, so the search cannot start{note}"
            )
        }
        None => "the tuning ended before the first measurement".to_owned(),
    };
    let chosen = choice.as_ref().map(|choice| &choice.chosen);
    let cause = chosen.and_then(|chosen| search.of(chosen).filter_map(|of| of.step.cause).last());
    let tuned = Tuning {
        cause,
        best: choice
            .as_ref()
            .map(|choice| tuning.trial_name(&choice.best)),
        chosen: chosen.map(|chosen| tuning.trial_name(chosen)),
        settings: settings(&search),
        steps: search.steps.iter().map(|of| of.step.clone()).collect(),
        ratio: choice.as_ref().and_then(|choice| choice.ratio.clone()),
        irrelevant: choice.map(|choice| choice.irrelevant).unwrap_or_default(),
        ended,
        why_ended,
        failed: state.failed,
    };
    (tuned, next)
}

/// Returns the preliminary choice of an incomplete search.
fn so_far(search: &Search<'_>, out_of_time_s: Option<f64>) -> Choice {
    let best = search.best();
    let chosen = search.good_settings().into_iter().next();
    let chosen = chosen.unwrap_or_else(|| best.clone());
    let figures = |values| Vec::from_iter(search.of(values).filter_map(|of| of.measured.figure));
    let ratio = Ratio::of(&figures(&chosen), &figures(&best)).filter(|_| chosen != best);
    Choice {
        ratio: ratio.map(|ratio| tuning_ratio(&ratio, 0)),
        chosen,
        best,
        irrelevant: Vec::new(),
        why: match out_of_time_s {
            Some(limit_s) => format!(
                "the time limit of {} was reached; smaller or better settings were not tried",
                show_s(limit_s)
            ),
            None => "the tuning was interrupted; continue with --resume".to_owned(),
        },
    }
}

fn settings(search: &Search<'_>) -> Vec<TunedSetting> {
    let settings = search.settings().into_iter();
    let mut settings: Vec<TunedSetting> = settings.map(|values| setting(search, values)).collect();
    let all: Vec<Option<(f64, f64)>> = settings
        .iter()
        .map(|setting| setting.figure_per_s.zip(setting.p99_us))
        .collect();
    for (i, setting) in settings.iter_mut().enumerate() {
        setting.on_frontier = all[i].is_some_and(|own| {
            let mut others = all.iter().flatten();
            !others.any(|other| dominates(*other, own))
        });
    }
    settings
}

/// Returns whether a setting has a clearly better figure or 99th percentile than another setting,
/// and neither is clearly worse. Each setting is given as its figure and its 99th percentile.
fn dominates((figure, p99): (f64, f64), (other, other_p99): (f64, f64)) -> bool {
    let (higher, lower) = (figure * ENOUGH > other, p99 < other_p99 * ENOUGH);
    let (not_lower, not_higher) = (figure >= other * ENOUGH, p99 * ENOUGH <= other_p99);
    (higher && not_higher) || (lower && not_lower)
}

fn setting(search: &Search<'_>, values: KnobValues) -> TunedSetting {
    let of = || search.of(&values).map(|step| &step.measured);
    let figures: Vec<f64> = of().filter_map(|process| process.figure).collect();
    let p99 = of().filter_map(|process| process.p99_us);
    let within_process = || of().find_map(|process| process.interval.clone());
    TunedSetting {
        trial: search.tuning.trial_name(&values),
        figure_per_s: geometric_mean(&figures),
        is_lower_bound: search.is_lower_bound(&values),
        interval: over_processes(&figures).or_else(within_process),
        processes: figures.len() as u32,
        p99_us: geometric_mean(&p99.collect::<Vec<_>>()),
        on_frontier: false,
        values,
    }
}

#[cfg(test)]
mod capacity_tests;
#[cfg(test)]
mod search_tests;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_on_the_frontier_is_not_clearly_worse_in_both_respects() {
        // Throughput in 1/s, p99 in µs.
        let own = (1_000.0, 50_000.0);
        for (other, expected) in [
            ((1_100.0, 50_000.0), true),
            ((1_000.0, 40_000.0), true),
            ((1_100.0, 40_000.0), true),
            ((1_100.0, 60_000.0), false),
            ((900.0, 40_000.0), false),
            ((1_010.0, 50_500.0), false),
            ((990.0, 40_000.0), true),
        ] {
            assert_eq!(dominates(other, own), expected, "{other:?}");
        }
    }
}
