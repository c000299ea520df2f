//! A metric over successive results, with intervals and levels.

use floodmark_record::figure::FigureUnit;
use floodmark_record::trend::{Trend, TrendSeries};
use floodmark_record::units::show_ratio;

use super::axis::drawable;
use super::{Axis, Chart, ChartMark, Curve, CurvePiece, DotColor, Quantity};
use crate::model::names::day;

/// Maximum number of dates below the x axis.
const MOST_DATES: usize = 5;

/// Distance between the values and the ends of the y axis, as a share of the values' range.
const PADDING: f64 = 0.1;

/// Minimum range of the y axis as a share of the largest value. A smaller range would make noise
/// look like a change.
const LEAST_RANGE: f64 = 0.1;

/// Maximum ratio of the largest to the smallest value for a linear axis.
const WIDE: f64 = 20.0;

/// Returns the chart, or `None` for fewer than two figures.
pub(crate) fn chart(series: &TrendSeries, trend: &Trend) -> Option<Chart> {
    let known = (1..).zip(&trend.figures).filter_map(|(i, of)| {
        let of = of.as_ref()?;
        drawable(of.value).then_some((f64::from(i), of))
    });
    let known: Vec<(f64, &_)> = known.collect();
    if known.len() < 2 {
        return None;
    }
    let ranges = known.iter().filter_map(|(at, of)| {
        let interval = of.interval.as_ref()?;
        let ends = (interval.low.max(0.0), interval.high);
        drawable(ends.1).then_some((*at, ends))
    });
    let ranges: Vec<(f64, (f64, f64))> = ranges.collect();
    let points: Vec<(f64, f64)> = known.iter().map(|(at, of)| (*at, of.value)).collect();
    let dates = dates(series);
    let end = trend.figures.len() as u32;
    let ends = trend.levels.iter().skip(1).map(|level| level.first);
    let ends = ends.chain([end]);
    let pieces = trend.levels.iter().zip(ends).map(|(level, end)| {
        let (first, last) = (f64::from(level.first + 1), f64::from(end));
        CurvePiece::of(vec![(first, level.figure), (last, level.figure)])
    });
    let curves = vec![
        Curve::measured(0, "level", pieces.collect()),
        Curve::dots(DotColor::Neutral, "result", points.clone()),
    ];
    let bounds = ranges.iter().flat_map(|(_, (low, high))| [*low, *high]);
    let values: Vec<f64> = points
        .iter()
        .map(|(_, value)| *value)
        .chain(bounds)
        .collect();
    let x = Axis::of_ordinals(trend.figures.len(), dates);
    let y = y_axis(trend, &values);
    let title = trend.metric.figure().title();
    let unit = match trend.metric.figure().unit() {
        FigureUnit::Rate => "per second, by result",
        _ => "by result",
    };
    let mut chart = Chart::new(&title, unit, (x, y), curves);
    chart.ranges = ranges;
    let marks = trend.levels.iter().filter_map(|level| {
        let label = format!("× {}", show_ratio(level.change?.ratio));
        Some(ChartMark::new(f64::from(level.first) + 0.5, label))
    });
    chart.marks = marks.collect();
    let note = match chart.ranges.is_empty() {
        true => "Horizontal lines show lasting levels.",
        false => "Vertical bars show 95 % intervals. Horizontal lines show lasting levels.",
    };
    chart.notes.push(note.to_owned());
    Some(chart)
}

/// Returns the position (from 1) and start date of up to [`MOST_DATES`] results.
fn dates(series: &TrendSeries) -> Vec<(f64, String)> {
    let every = series.results.len().div_ceil(MOST_DATES).max(1);
    let all = (1..).zip(&series.results).step_by(every);
    all.map(|(i, result)| (f64::from(i), day(result.started_unix_ms)))
        .collect()
}

fn y_axis(trend: &Trend, values: &[f64]) -> Axis {
    let quantity = match trend.metric.figure().unit() {
        FigureUnit::Rate => Quantity::Rate,
        _ => Quantity::Microseconds,
    };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = values.iter().copied().fold(0.0, f64::max);
    if largest > least * WIDE {
        return match quantity {
            Quantity::Microseconds => Axis::of_times(values.iter().copied()),
            _ => Axis::from_zero(largest, quantity),
        };
    }
    let middle = f64::midpoint(least, largest);
    let half = (largest - least).max(largest * LEAST_RANGE) * (0.5 + PADDING);
    Axis::of_range(((middle - half).max(0.0), middle + half), quantity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::trend::tests::report;

    #[test]
    fn draws_each_level_and_marks_the_change() {
        let report = report();
        let series = &report.series[0];
        let chart = chart(series, &series.trends[0]).unwrap();
        let levels: Vec<_> = chart.curves[0]
            .pieces
            .iter()
            .map(|piece| &piece.points)
            .collect();
        assert_eq!(levels.len(), 2);
        assert_eq!([levels[0][0].0, levels[0][1].0], [1.0, 8.0]);
        assert_eq!([levels[1][0].0, levels[1][1].0], [9.0, 14.0]);
        assert_eq!(chart.marks, [ChartMark::new(8.5, "× 0.901")]);
        assert!(chart.y.from > 80_000.0, "{:?}", chart.y);
        let ends = chart
            .ranges
            .iter()
            .flat_map(|(_, (low, high))| [*low, *high]);
        assert!(
            ends.chain(chart.curves.iter().flat_map(Curve::values))
                .all(|y| (chart.y.from..=chart.y.to).contains(&y))
        );
        assert!(chart.x.ticks.len() <= MOST_DATES);
    }

    #[test]
    fn omits_results_without_a_figure() {
        let mut report = report();
        let series = &mut report.series[0];
        for figure in &mut series.trends[0].figures[1..] {
            *figure = None;
        }
        assert!(chart(series, &series.trends[0]).is_none());
    }
}
