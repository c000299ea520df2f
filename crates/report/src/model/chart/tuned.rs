//! The path of a tuning: the figure by step, the settings tried, and the figure by each knob.

use floodmark_record::tuning::{TunedSetting, Tuning};

use super::{AxisFit, Chart, ChartMark, Curve, Quantity};

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
    let points = steps.filter_map(|(number, step)| Some((f64::from(number), step.figure_per_s?)));
    let title = "Path of the tuning";
    let quantities = (Quantity::Number, Quantity::Rate);
    let unit = format!("{figure} by step");
    chart(title, &unit, points, quantities, None)
}

/// Returns the settings of two knobs in the order in which they were tried.
fn settings(tuning: &Tuning) -> Option<Chart> {
    let names: Vec<&String> = tuning.settings.first()?.values.keys().collect();
    let [x, y] = names[..] else { return None };
    let at = |setting: &TunedSetting, name| setting.values.get(name).map(|value| *value as f64);
    let points = tuning.settings.iter();
    let points = points.filter_map(|setting| at(setting, x).zip(at(setting, y)));
    let title = format!("Path over {y} and {x}");
    let unit = format!("{y} by {x}; the line marks the chosen value");
    let quantities = (Quantity::Number, Quantity::Number);
    let chosen = tuning.chosen.as_ref().and_then(|name| tuning.setting(name));
    let chosen = chosen.and_then(|chosen| at(chosen, x));
    chart(&title, &unit, points, quantities, chosen)
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
    let points = on_line
        .filter_map(|setting| Some((*setting.values.get(knob)? as f64, setting.figure_per_s?)));
    let mut points: Vec<(f64, f64)> = points.collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let title = format!("Figure by {knob}");
    let unit = format!("{figure} by {knob}; the line marks the chosen value");
    let quantities = (Quantity::Number, Quantity::Rate);
    let chosen = chosen.values.get(knob).map(|value| *value as f64);
    chart(&title, &unit, points, quantities, chosen)
}

/// Returns a chart of at least two points. `x` and `y` are the quantities of the axes.
fn chart(
    title: &str,
    unit: &str,
    points: impl IntoIterator<Item = (f64, f64)>,
    (x, y): (Quantity, Quantity),
    chosen: Option<f64>,
) -> Option<Chart> {
    let curve = Curve::line(0, title, points);
    let axes = (AxisFit::FromZero(x), AxisFit::FromZero(y));
    (curve.points().count() > 1).then(|| {
        let mut chart = Chart::new(title, unit, axes, vec![curve]);
        let marks = chosen.map(|at| ChartMark::new(at, "chosen"));
        chart.marks.extend(marks);
        chart
    })
}
