//! The result of a tuning, and the process to measure next.

use std::collections::BTreeSet;

use floodmark_record::Record;
use floodmark_record::tuning::{
    FailedSetting, KnobValues, TunedSetting, Tuning, TuningDescription, TuningEnd, TuningRatio,
    TuningStep,
};
use floodmark_stats::comparison::{Ratio, geometric_mean, over_processes};

use super::ENOUGH;
use super::figure::MeasuredFigure;
use super::measured::measured;
use super::search::{Choice, NextProcess, Search, SearchEnd, SearchStep};
use crate::text::show_s;

/// What a result's events say about its tuning, apart from the measured processes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TuningState {
    /// Settings at which the server failed.
    pub failed: Vec<FailedSetting>,
    /// The time limit in seconds, if it was reached.
    pub out_of_time_s: Option<f64>,
}

/// Judges the tuning of a record. Also returns the process that the search needs next, if it is not
/// complete.
#[must_use]
pub fn judge(
    record: &Record,
    tuning: &TuningDescription,
    state: TuningState,
) -> (Tuning, Option<NextProcess>) {
    let failed: BTreeSet<&str> = state.failed.iter().map(|one| one.trial.as_str()).collect();
    let has_failed = |trial: &str| failed.contains(trial);
    let measured = measured(record, tuning, has_failed);
    let mut search = Search::new(tuning, &measured, &has_failed);
    let (conclusion, next) = match search.run() {
        Ok(conclusion) => (Some(conclusion), None),
        Err(next) => (None, Some(*next)),
    };
    let has_figure = search
        .steps
        .iter()
        .any(|step| step.measured.figure.per_s().is_some());
    let (choice, ended) = match conclusion {
        Some(SearchEnd::Choice(choice)) => (Some(choice), TuningEnd::Complete),
        Some(SearchEnd::NoStart) => (None, TuningEnd::NoStart),
        None => {
            let ended = match state.out_of_time_s {
                Some(_) => TuningEnd::OutOfTime,
                None => TuningEnd::Interrupted,
            };
            let choice = has_figure.then(|| so_far(&search, state.out_of_time_s));
            (choice, ended)
        }
    };
    let why_ended = match &choice {
        Some(choice) => choice.why.clone(),
        None if ended == TuningEnd::NoStart => {
            let note = search
                .steps
                .iter()
                .find_map(|step| step.measured.figure.note());
            let note = note.map_or_else(String::new, |note| format!(": {note}"));
            format!("the default setting has no valid figure, so the search cannot start{note}")
        }
        None => "the tuning ended before the first measurement".to_owned(),
    };
    let chosen = choice.as_ref().map(|choice| &choice.chosen);
    let verdict = chosen.and_then(|chosen| {
        let verdicts = search
            .of(chosen)
            .filter_map(|step| step.measured.verdict.as_ref());
        verdicts.last()
    });
    let tuned = Tuning {
        cause: verdict.map(|verdict| verdict.cause),
        best: choice
            .as_ref()
            .map(|choice| tuning.trial_name(&choice.best)),
        chosen: chosen.map(|chosen| tuning.trial_name(chosen)),
        settings: settings(&search),
        steps: search.steps.iter().map(step).collect(),
        ratio: choice.as_ref().and_then(|choice| choice.ratio.clone()),
        irrelevant: choice.map(|choice| choice.irrelevant).unwrap_or_default(),
        ended,
        why_ended,
        failed: state.failed,
    };
    (tuned, next)
}

/// Returns the choice of a search that is not complete.
fn so_far(search: &Search<'_>, out_of_time_s: Option<f64>) -> Choice {
    let best = search.best();
    let chosen = search.good_settings().into_iter().next();
    let chosen = chosen.unwrap_or_else(|| best.clone());
    let figures = |values| -> Vec<f64> {
        search
            .of(values)
            .filter_map(|step| step.measured.figure.per_s())
            .collect()
    };
    let ratio = Ratio::of(&figures(&chosen), &figures(&best)).filter(|_| chosen != best);
    Choice {
        ratio: ratio.map(|ratio| TuningRatio {
            ratio: ratio.value(),
            interval: ratio.interval(),
            confirmed_by: 0,
        }),
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

fn step(step: &SearchStep) -> TuningStep {
    let (trial, measured) = (&step.trial, &step.measured);
    TuningStep {
        action: trial.action,
        knob: trial.knob.clone(),
        reason: trial.reason.clone(),
        values: trial.values.clone(),
        trial: trial.trial.clone(),
        process: trial.process,
        figure_per_s: measured.figure.per_s(),
        is_lower_bound: measured.figure.bound_limit().is_some(),
        interval: measured.figure.interval().cloned(),
        note: measured.figure.note().cloned(),
        cause: measured.verdict.as_ref().map(|verdict| verdict.cause),
        limit: measured
            .verdict
            .as_ref()
            .map(|verdict| verdict.summary.clone()),
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

/// Returns whether a setting is clearly better than another one in one respect, and not clearly
/// worse in the other. A setting consists of its figure and its 99th percentile.
fn dominates((figure, p99): (f64, f64), (other, other_p99): (f64, f64)) -> bool {
    let (higher, lower) = (figure * ENOUGH > other, p99 < other_p99 * ENOUGH);
    let (not_lower, not_higher) = (figure >= other * ENOUGH, p99 * ENOUGH <= other_p99);
    (higher && not_higher) || (lower && not_lower)
}

fn setting(search: &Search<'_>, values: KnobValues) -> TunedSetting {
    let steps: Vec<&SearchStep> = search.of(&values).collect();
    let all = || steps.iter().map(|step| &step.measured.figure);
    let figures: Vec<f64> = all().filter_map(MeasuredFigure::per_s).collect();
    let p99 = steps.iter().filter_map(|step| step.measured.p99_us);
    let within_process = || all().find_map(MeasuredFigure::interval).cloned();
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
