//! The tables of trends: the figures of results, and the changes between levels.

use floodmark_record::trend::{Trend, TrendReport, TrendSeries};
use floodmark_record::units::show_ratio;

use super::{DataCell, DataTable, DataValue};
use crate::model::names::iso_timestamp;
use crate::model::ratios::figure;

/// Returns a row per result and metric.
pub(crate) fn figures(report: &TrendReport) -> Option<DataTable> {
    let rows = trends(report).flat_map(|(series, trend)| {
        let results = series.results.iter().zip(&trend.figures);
        results.map(move |(result, of)| {
            let interval = of.as_ref().and_then(|of| of.interval.as_ref());
            let value = of.as_ref().map(|of| of.value);
            let shown = interval.map_or_else(String::new, |of| {
                let show = |value| figure(trend.metric, Some(value));
                format!("{} – {}", show(of.low), show(of.high))
            });
            let started = iso_timestamp(result.started_unix_ms).unwrap_or_default();
            vec![
                DataCell::text("result", "result", &result.name),
                DataCell::text("series", "series", &series.name),
                DataCell::text("started", "started", started),
                DataCell::text("metric", "metric", trend.metric.name()),
                DataCell::hidden_text("unit", trend.metric.figure().unit().name()),
                DataCell::hidden_number("figure", value)
                    .shown("figure", figure(trend.metric, value)),
                DataCell::hidden_number("figure_low", interval.map(|of| of.low))
                    .shown("95 % interval", shown),
                DataCell::hidden_number("figure_high", interval.map(|of| of.high)),
                DataCell::hidden("processes", DataValue::Count(result.processes.into())),
            ]
        })
    });
    DataTable::of("trend_figures", rows)
}

/// Returns a row per lasting change.
pub(crate) fn changes(report: &TrendReport) -> Option<DataTable> {
    let rows = trends(report).flat_map(|(series, trend)| {
        let levels = trend.levels.iter().zip(trend.levels.iter().skip(1));
        levels.filter_map(move |(before, after)| {
            let change = after.change?;
            let first = series.results.get(after.first as usize)?;
            let of = |value| figure(trend.metric, Some(value));
            let interval = format!("{} – {}", show_ratio(change.low), show_ratio(change.high));
            Some(vec![
                DataCell::text("result", "first result", &first.name),
                DataCell::text("series", "series", &series.name),
                DataCell::text("metric", "metric", trend.metric.name()),
                DataCell::hidden_text("unit", trend.metric.figure().unit().name()),
                DataCell::hidden_number("figure_before", Some(before.figure))
                    .shown("before", of(before.figure)),
                DataCell::hidden_number("figure_after", Some(after.figure))
                    .shown("after", of(after.figure)),
                DataCell::number("ratio", "ratio", Some(change.ratio), show_ratio),
                DataCell::hidden_number("ratio_low", Some(change.low))
                    .shown("95 % interval", interval),
                DataCell::hidden_number("ratio_high", Some(change.high)),
            ])
        })
    });
    DataTable::of("trend_changes", rows)
}

fn trends(report: &TrendReport) -> impl Iterator<Item = (&TrendSeries, &Trend)> {
    let all = report.series.iter();
    all.flat_map(|series| series.trends.iter().map(move |trend| (series, trend)))
}
