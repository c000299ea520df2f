//! The charts of a search for a capacity.

use floodmark_record::Record;
use floodmark_record::capacity::{CapacityResult, CapacityTrial, TrialOutcome, TrialStart};
use floodmark_record::run::Run;
use floodmark_stats::capacity::pass_probability;

use super::{
    Axis, AxisFit, Chart, ChartMark, Curve, DotColor, MAX_CURVES, Quantity, more_in_table,
};
use crate::model::trial_capacities;

/// Minimum range of rates in the charts, as shares of the capacity.
const SHOWN: (f64, f64) = (0.7, 1.3);

/// Number of points of the pass curve.
const POINTS: u32 = 120;

/// Returns the pass curve with all trials, and response times by rate. Returns nothing without an
/// estimate.
pub(crate) fn charts(record: &Record, result: &CapacityResult) -> Vec<Chart> {
    let (Some(per_s), Some(scatter)) = (result.rate_per_s, result.scatter) else {
        return Vec::new();
    };
    let least = result
        .low
        .map_or(per_s, |low| 0.95 * low)
        .min(SHOWN.0 * per_s);
    let most = result
        .high
        .map_or(per_s, |high| 1.05 * high)
        .max(SHOWN.1 * per_s);
    let range = (least, most);
    let idle: Vec<&CapacityTrial> = result
        .trials
        .iter()
        .filter(|trial| trial.start == TrialStart::Idle)
        .collect();
    let shown = || {
        let trials = idle.iter().copied();
        trials.filter(|trial| (range.0..=range.1).contains(&trial.rate_per_s))
    };
    let hidden = idle.len() - shown().count();
    let note = (hidden > 0).then(|| format!("Trials outside this range: {hidden}."));
    let axis = || Axis::of_range(range, Quantity::Rate);
    let with = |mut chart: Chart| {
        chart.shades.extend(result.low.zip(result.high));
        chart.marks.push(ChartMark::new(per_s, "capacity"));
        chart.notes.extend(note.clone());
        chart
    };
    let dots = |outcome, of: &dyn Fn(&CapacityTrial) -> Option<f64>| {
        let trials = shown().filter(|trial| trial.outcome == outcome);
        let points = trials.filter_map(|trial| Some((trial.rate_per_s, of(trial)?)));
        points.collect::<Vec<_>>()
    };
    let share = |percent: f64| move |_: &CapacityTrial| Some(percent);
    let curve = (0..=POINTS).map(|i| {
        let at = range.0 + (range.1 - range.0) * f64::from(i) / f64::from(POINTS);
        (at, 100.0 * pass_probability((per_s / at).ln(), scatter))
    });
    let passes = with(Chart::new(
        "Trials that meet the objectives",
        "% by offered requests per second",
        (axis(), AxisFit::FromZero(Quantity::Percent)),
        vec![
            Curve::line(0, "expected share", curve),
            Curve::dots(
                DotColor::Good,
                "met",
                dots(TrialOutcome::Pass, &share(100.0)),
            ),
            Curve::dots(
                DotColor::Bad,
                "missed",
                dots(TrialOutcome::Miss, &share(0.0)),
            ),
        ],
    ));
    let p99 = |trial: &CapacityTrial| trial.p99_us;
    let levels = |of: fn(&Run) -> Option<f64>| {
        let open = record.runs.iter().filter(|run| run.plan.is_open());
        let points = open.filter_map(|run| Some((run.plan.rate_per_s()?, of(run)?)));
        let points = points.filter(|(rate, _)| (range.0..=range.1).contains(rate));
        points.collect::<Vec<_>>()
    };
    let curves = vec![
        Curve::line(0, "p50", levels(|run| run.response_time_us.p50)),
        Curve::line(3, "p99", levels(|run| run.response_time_us.p99)),
        Curve::dots(
            DotColor::Good,
            "p99 of trials that met the objectives",
            dots(TrialOutcome::Pass, &p99),
        ),
        Curve::dots(
            DotColor::Bad,
            "p99 of trials that missed",
            dots(TrialOutcome::Miss, &p99),
        ),
    ];
    let times = with(Chart::new(
        "Response time",
        "by offered requests per second",
        (axis(), AxisFit::Times),
        curves,
    ));
    vec![passes, times]
}

/// Returns the response times of an experiment's trials by offered rate, for the first server
/// process of each trial. Returns `None` without open-model loads.
pub(crate) fn trials(record: &Record) -> Option<Chart> {
    let trials = record.trial_capacities.iter().take(MAX_CURVES);
    let curves = trials.enumerate().map(|(i, trial)| {
        let loads = trial_capacities::loads(record, &trial.trial);
        let first = loads.filter(|(run, _)| run.process == 1);
        let points =
            first.filter_map(|(run, _)| Some((run.plan.rate_per_s()?, run.response_time_us.p99?)));
        Curve::line(i, &trial.trial, points)
    });
    let curves: Vec<Curve> = curves.collect();
    curves.iter().flat_map(Curve::points).next()?;
    let axes = (AxisFit::FromZero(Quantity::Rate), AxisFit::Times);
    let unit = "p99 by offered requests per second, 50 to 105 % of the capacity";
    let mut chart = Chart::new("Response time", unit, axes, curves);
    chart
        .notes
        .extend(more_in_table(record.trial_capacities.len()));
    Some(chart)
}
