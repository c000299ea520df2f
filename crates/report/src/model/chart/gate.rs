//! The ratio of each pair of a gate, with the interval after it.

use floodmark_record::gate::{GateDecision, GatePair, GateResult};

use super::axis::drawable;
use super::{Axis, Chart, ChartMark, Curve, DotColor, Quantity};
use crate::model::gate;

/// Minimum distance of the ends of the y axis from the ratios.
const PADDING: f64 = 0.05;

/// Returns the ratio of each pair, and the bounds of the interval after each pair. Returns `None`
/// for fewer than two pairs.
pub(crate) fn chart(gate: &GateResult) -> Option<Chart> {
    let points = |of: fn(&GatePair) -> Option<f64>| {
        let pairs = gate.pairs.iter();
        pairs.filter_map(move |pair| Some((f64::from(pair.process), of(pair)?)))
    };
    if gate.pairs.len() < 2 {
        return None;
    }
    let bound = |color, name, of| Curve::line(color, name, points(of));
    let color = match gate.decision {
        GateDecision::Failed => DotColor::Bad,
        GateDecision::Passed | GateDecision::Inconclusive => DotColor::Good,
    };
    let curves = vec![
        bound(0, "lower bound", |pair| Some(pair.interval.as_ref()?.low)),
        bound(1, "upper bound", |pair| Some(pair.interval.as_ref()?.high)),
        Curve::dots(color, "pair", points(|pair| Some(pair.ratio()))),
    ];
    // Early intervals are much wider than the spread of the ratios.
    let ratios = gate
        .pairs
        .iter()
        .map(GatePair::ratio)
        .filter(|y| drawable(*y));
    let worse = gate.rules.ratio_at(gate.rules.margin);
    let within = ratios.chain([1.0, worse]);
    let lowest = within.clone().fold(f64::INFINITY, f64::min) - PADDING;
    let highest = within.fold(0.0, f64::max) + PADDING;
    let range = (lowest.max(0.0), highest);
    let curves = curves.into_iter().map(|curve| clipped(curve, range));
    let last = gate
        .pairs
        .last()
        .map_or(1.0, |pair| f64::from(pair.process));
    let axes = (
        Axis::from_zero(last, Quantity::Number),
        Axis::of_range(range, Quantity::Number),
    );
    let rules = &gate.rules;
    let unit = format!("{} ÷ {} by pair", rules.candidate, rules.baseline);
    let mut chart = Chart::new(
        "Ratio of each pair, with the interval after it",
        &unit,
        axes,
        curves.collect(),
    );
    chart
        .levels
        .push(ChartMark::new(worse, "worse by the margin"));
    chart.levels.push(ChartMark::new(1.0, "no difference"));
    chart.notes.push(format!("{}.", gate::ratio(gate)));
    Some(chart)
}

/// Limits the points of a curve to the range of the y axis.
fn clipped(mut curve: Curve, (low, high): (f64, f64)) -> Curve {
    for piece in &mut curve.pieces {
        for (_, y) in &mut piece.points {
            *y = y.clamp(low, high);
        }
    }
    curve
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gate::tests::passed;

    #[test]
    fn keeps_early_intervals_within_the_axis() {
        let mut gate = passed();
        if let Some(interval) = &mut gate.pairs[3].interval {
            interval.low = 0.2;
        }
        let drawn = chart(&gate).unwrap();
        let values = drawn.curves.iter().flat_map(Curve::values);
        assert!(
            values
                .into_iter()
                .all(|y| (drawn.y.from..=drawn.y.to).contains(&y))
        );
        assert_eq!(drawn.levels.len(), 2);
        gate.pairs.truncate(1);
        assert!(chart(&gate).is_none());
    }
}
