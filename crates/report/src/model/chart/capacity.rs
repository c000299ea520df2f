//! The charts of a search for a capacity.

use floodmark_record::Record;
use floodmark_record::capacity::{CapacityResult, CapacityTrial, TrialOutcome, TrialStart};
use floodmark_record::run::Run;
use floodmark_stats::capacity::pass_probability;

use super::axis::drawable;
use super::{Axis, Chart, Curve, CurvePiece};
use crate::model::figures::per_second;

/// Range of rates that the charts show, as shares of the capacity.
const SHOWN: (f64, f64) = (0.7, 1.3);

/// Number of points of the pass curve.
const POINTS: u32 = 120;

/// Returns the pass curve with all trials, and response times by rate. Returns nothing without an
/// estimate.
pub(crate) fn charts(record: &Record, result: &CapacityResult) -> Vec<Chart> {
    let (Some(per_s), Some(scatter)) = (result.rate_per_s, result.scatter) else {
        return Vec::new();
    };
    let range = (SHOWN.0 * per_s, SHOWN.1 * per_s);
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
    let axis = || Axis::of_range(range, per_second);
    let with = |mut chart: Chart| {
        chart.shades.extend(result.low.zip(result.high));
        chart.marks.push(per_s);
        chart.notes.extend(note.clone());
        chart
    };
    let dots = |outcome, of: &dyn Fn(&CapacityTrial) -> Option<f64>| {
        let trials = shown().filter(|trial| trial.outcome == outcome);
        let points = trials.filter_map(|trial| Some((trial.rate_per_s, of(trial)?)));
        points.filter(|(_, y)| drawable(*y)).collect::<Vec<_>>()
    };
    let share = |percent: f64| move |_: &CapacityTrial| Some(percent);
    let curve = (0..=POINTS).map(|i| {
        let at = range.0 + (range.1 - range.0) * f64::from(i) / f64::from(POINTS);
        (at, 100.0 * pass_probability((per_s / at).ln(), scatter))
    });
    let passes = with(Chart::new(
        "Trials that meet the objectives",
        "% by offered requests per second",
        (
            axis(),
            Axis::from_zero(100.0, |percent| format!("{percent:.0}")),
        ),
        vec![
            Curve::measured(0, "expected share", vec![CurvePiece::of(curve.collect())]),
            Curve::dots(1, "met", dots(TrialOutcome::Pass, &share(100.0))),
            Curve::dots(2, "missed", dots(TrialOutcome::Miss, &share(0.0))),
        ],
    ));
    let p99 = |trial: &CapacityTrial| trial.p99_us;
    let levels = |of: fn(&Run) -> Option<f64>| {
        let open = record.runs.iter().filter(|run| run.plan.is_open());
        let points = open.filter_map(|run| Some((run.plan.rate_per_s()?, of(run)?)));
        let points =
            points.filter(|(rate, us)| (range.0..=range.1).contains(rate) && drawable(*us));
        vec![CurvePiece::of(points.collect())]
    };
    let curves = vec![
        Curve::measured(0, "p50", levels(|run| run.response_time_us.p50)),
        Curve::measured(3, "p99", levels(|run| run.response_time_us.p99)),
        Curve::dots(
            1,
            "p99 of trials that met the objectives",
            dots(TrialOutcome::Pass, &p99),
        ),
        Curve::dots(
            2,
            "p99 of trials that missed",
            dots(TrialOutcome::Miss, &p99),
        ),
    ];
    let values: Vec<f64> = curves.iter().flat_map(Curve::values).collect();
    let times = with(Chart::new(
        "Response time",
        "by offered requests per second",
        (axis(), Axis::of_times(values.iter().copied())),
        curves,
    ));
    vec![passes, times]
}
