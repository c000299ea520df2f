//! The path of a tuning: the figure by step, the settings tried, and the figure by each knob.

use floodmark_record::tuning::{TunedSetting, Tuning};

use super::axis::drawable;
use super::{Axis, Chart, ChartMark, Curve, CurvePiece, Quantity, largest};

/// Returns the charts of a tuning. `figure` is the label of the tuned figure.
pub(crate) fn charts(tuning: &Tuning, figure: &str) -> Vec<Chart> {
    let path = path(tuning, figure).into_iter();
    let knobs = tuning.settings.first().into_iter();
    let knobs = knobs.flat_map(|setting| setting.values.keys().rev());
    path.chain(settings(tuning))
        .chain(knobs.filter_map(|knob| by_knob(tuning, knob, figure)))
        .collect()
}

/// Returns the figure by step.
fn path(tuning: &Tuning, figure: &str) -> Option<Chart> {
    let steps = (1..).zip(&tuning.steps);
    let points = steps.filter_map(|(number, step)| {
        let per_s = step.figure_per_s.filter(|y| drawable(*y))?;
        Some((f64::from(number), per_s))
    });
    let points: Vec<(f64, f64)> = points.collect();
    let title = "Path of the tuning";
    let quantities = (Quantity::Number, Quantity::Rate);
    chart(title, &format!("{figure} by step"), points, quantities)
}

/// Returns the settings of two knobs in the order in which they were tried.
fn settings(tuning: &Tuning) -> Option<Chart> {
    let names: Vec<&String> = tuning.settings.first()?.values.keys().collect();
    let [x, y] = names[..] else { return None };
    let at = |setting: &TunedSetting, name| setting.values.get(name).map(|value| *value as f64);
    let points = tuning.settings.iter();
    let points = points.filter_map(|setting| at(setting, x).zip(at(setting, y)));
    let points = points.filter(|(x, y)| drawable(*x) && drawable(*y));
    let title = format!("Path over {y} and {x}");
    let unit = format!("{y} by {x}; the line marks the chosen value");
    let quantities = (Quantity::Number, Quantity::Number);
    let mut chart = chart(&title, &unit, points.collect(), quantities)?;
    let chosen = tuning.chosen.as_ref().and_then(|name| tuning.setting(name));
    let chosen = chosen.and_then(|chosen| at(chosen, x));
    chart
        .marks
        .extend(chosen.map(|at| ChartMark::new(at, "chosen")));
    Some(chart)
}

/// Returns the figure by the value of a knob, with the other knobs as in the chosen setting. The
/// mark is the chosen value.
fn by_knob(tuning: &Tuning, knob: &str, figure: &str) -> Option<Chart> {
    let chosen = tuning.setting(tuning.chosen.as_ref()?)?;
    let others = |setting: &TunedSetting| {
        let mut values = setting.values.clone();
        values.remove(knob);
        values
    };
    let on_line = tuning.settings.iter();
    let on_line = on_line.filter(|setting| others(setting) == others(chosen));
    let points = on_line.filter_map(|setting| {
        let per_s = setting.figure_per_s.filter(|y| drawable(*y))?;
        Some((*setting.values.get(knob)? as f64, per_s))
    });
    let mut points: Vec<(f64, f64)> = points.filter(|(x, _)| drawable(*x)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let title = format!("Figure by {knob}");
    let unit = format!("{figure} by {knob}; the line marks the chosen value");
    let mut chart = chart(&title, &unit, points, (Quantity::Number, Quantity::Rate))?;
    let chosen = chosen.values.get(knob);
    chart
        .marks
        .extend(chosen.map(|value| ChartMark::new(*value as f64, "chosen")));
    Some(chart)
}

/// Returns a chart of at least two points. `x` and `y` are the quantities of the axes.
fn chart(
    title: &str,
    unit: &str,
    points: Vec<(f64, f64)>,
    (x, y): (Quantity, Quantity),
) -> Option<Chart> {
    if points.len() < 2 {
        return None;
    }
    let furthest = points.iter().map(|(x, _)| *x).fold(0.0, f64::max);
    let curves = vec![Curve::measured(0, title, vec![CurvePiece::of(points)])];
    let axes = (
        Axis::from_zero(furthest, x),
        Axis::from_zero(largest(&curves), y),
    );
    Some(Chart::new(title, unit, axes, curves))
}
