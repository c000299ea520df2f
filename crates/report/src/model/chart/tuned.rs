//! The path of a tuning: the figure by step, and the figure by the value of each knob.

use floodmark_record::tuning::{TunedSetting, Tuning};

use super::axis::drawable;
use super::{Axis, Chart, Curve, CurvePiece, largest};
use crate::model::figures::per_second;

/// Returns the charts of a tuning.
pub(crate) fn charts(tuning: &Tuning) -> Vec<Chart> {
    let path = path(tuning).into_iter();
    let knobs = tuning.settings.first().into_iter();
    let knobs = knobs.flat_map(|setting| setting.values.keys().rev());
    path.chain(knobs.filter_map(|knob| by_knob(tuning, knob)))
        .collect()
}

/// Returns the figure by step.
fn path(tuning: &Tuning) -> Option<Chart> {
    let steps = (1..).zip(&tuning.steps);
    let points = steps.filter_map(|(number, step)| {
        let figure = step.figure_per_s.filter(|y| drawable(*y))?;
        Some((f64::from(number), figure))
    });
    let points: Vec<(f64, f64)> = points.collect();
    let title = "Path of the tuning";
    chart(title, "ok responses per second by step", points, Vec::new())
}

/// Returns the figure by the value of a knob, with the other knobs as in the chosen setting. The
/// mark is the chosen value.
fn by_knob(tuning: &Tuning, knob: &str) -> Option<Chart> {
    let chosen = tuning.setting(tuning.chosen.as_ref()?)?;
    let others = |setting: &TunedSetting| {
        let mut values = setting.values.clone();
        values.remove(knob);
        values
    };
    let on_line = tuning.settings.iter();
    let on_line = on_line.filter(|setting| others(setting) == others(chosen));
    let points = on_line.filter_map(|setting| {
        let figure = setting.figure_per_s.filter(|y| drawable(*y))?;
        Some((*setting.values.get(knob)? as f64, figure))
    });
    let mut points: Vec<(f64, f64)> = points.filter(|(x, _)| drawable(*x)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let marks = chosen.values.get(knob).map(|value| *value as f64);
    let title = format!("Figure by {knob}");
    let unit = format!("ok responses per second by {knob}; the line marks the chosen value");
    chart(&title, &unit, points, marks.into_iter().collect())
}

/// Returns a chart of at least two points.
fn chart(title: &str, unit: &str, points: Vec<(f64, f64)>, marks: Vec<f64>) -> Option<Chart> {
    if points.len() < 2 {
        return None;
    }
    let furthest = points.iter().map(|(x, _)| *x).fold(0.0, f64::max);
    let curve = Curve::measured(0, title, vec![CurvePiece::of(points)]);
    let curves = vec![curve];
    let axes = (
        Axis::from_zero(furthest, |x| format!("{x}")),
        Axis::from_zero(largest(&curves), per_second),
    );
    let mut chart = Chart::new(title, unit, axes, curves);
    chart.marks = marks;
    Some(chart)
}
