//! The curves of a sweep.

use floodmark_record::experiment::Swept;

use super::axis::drawable;
use super::{AxisFit, Chart, Curve, MAX_CURVES, Quantity, more_in_table};
use crate::model::sweep::curves;

/// Returns a chart of throughput by the first setting, with one curve per combination of the other
/// settings. Returns `None` if the first setting is not a number.
pub(crate) fn chart(swept: &Swept) -> Option<Chart> {
    let all = curves(swept);
    let first = swept.sweep.knobs.first()?;
    let mut shown = Vec::new();
    for (i, curve) in all.iter().take(MAX_CURVES).enumerate() {
        let mut points = Vec::new();
        for point in &curve.points {
            let x: f64 = point.x.parse().ok().filter(|x| drawable(*x))?;
            let y = point.measured.throughput_per_s.filter(|y| drawable(*y));
            points.extend(y.map(|y| (x, y)));
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        if points.len() < 2 {
            points.clear();
        }
        let name = match curve.others.as_str() {
            "" => &swept.sweep.name,
            others => others,
        };
        shown.push(Curve::line(i, name, points));
    }
    shown.iter().flat_map(Curve::points).next()?;
    let axes = (
        AxisFit::FromZero(Quantity::Number),
        AxisFit::FromZero(Quantity::Rate),
    );
    let title = format!("{} by {first}", swept.sweep.name);
    let unit = format!("ok responses per second by {first}");
    let mut chart = Chart::new(&title, &unit, axes, shown);
    chart.notes.extend(more_in_table(all.len()));
    Some(chart)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sweep::tests::swept;

    #[test]
    fn has_a_curve_for_each_value_of_the_other_settings() {
        let mut sweep = swept();
        let names: Vec<String> = chart(&sweep)
            .unwrap()
            .curves
            .into_iter()
            .map(|c| c.name)
            .collect();
        assert_eq!(names, ["connections = 10", "connections = 20"]);
        for point in &mut sweep.sweep.points {
            point.values.insert("threads".to_owned(), "many".to_owned());
        }
        assert!(
            chart(&sweep).is_none(),
            "a setting with text values cannot be an axis"
        );
    }
}
