use floodmark_record::SCHEMA_VERSION;
use floodmark_record::comparison::{ComparedMetric, HostChange, TrendFigure, TrendLevel};
use floodmark_record::host::ToolInfo;

use super::*;
use crate::Style;
use crate::fixture::interval;
use crate::{html, terminal};

const RATES: [f64; 14] = [
    100e3, 101e3, 99e3, 100.5e3, 99.5e3, 100.2e3, 99.8e3, 100.1e3, 90e3, 91e3, 89.5e3, 90.2e3,
    89.8e3, 90.4e3,
];

/// Returns 14 daily results of `hello`. The last six are slower, on another host.
pub(crate) fn report() -> TrendReport {
    let result = |day: u64| TrendResult {
        name: format!("nightly-{:02}", day + 1),
        started_unix_ms: 1_794_000_000_000 + day * 86_400_000,
        processes: 5,
    };
    let figure = |value: &f64| {
        Some(TrendFigure {
            value: *value,
            interval: Some(interval(*value, 0.01)),
        })
    };
    let mut p99: Vec<Option<TrendFigure>> = RATES
        .iter()
        .map(|rate| figure(&(5e7 / rate.sqrt())))
        .collect();
    p99[3] = None;
    let changed = LevelRatio {
        ratio: 0.901,
        low: 0.895,
        high: 0.907,
    };
    let level = |first, figure, change| TrendLevel {
        first,
        figure,
        change,
    };
    TrendReport {
        schema: SCHEMA_VERSION,
        tool: ToolInfo::floodmark("0", Vec::new()),
        series: vec![TrendSeries {
            name: "hello".to_owned(),
            results: (0..14).map(result).collect(),
            trends: vec![
                Trend {
                    metric: ComparedMetric::Throughput,
                    figures: RATES.iter().map(figure).collect(),
                    levels: vec![level(0, 100_010.0, None), level(8, 90_150.0, Some(changed))],
                },
                Trend {
                    metric: ComparedMetric::P99,
                    figures: p99,
                    levels: vec![level(0, 161e3, None)],
                },
            ],
            host_changes: vec![HostChange {
                first: 8,
                differences: vec!["kernel: 6.1 in nightly-08, 6.12 in nightly-09".to_owned()],
            }],
        }],
        notes: vec!["nightly-04: 1 attempt excluded: invalid".to_owned()],
    }
}

#[test]
fn states_each_change_before_its_reasons() {
    for (name, width) in [("wide", 120), ("narrow", 60)] {
        let style = Style {
            color: false,
            width,
        };
        insta::assert_snapshot!(name, terminal::trends(&report(), style));
    }
}

#[test]
fn a_short_series_says_how_many_results_are_needed() {
    let mut report = report();
    let series = &mut report.series[0];
    series.trends[1].figures.truncate(4);
    let spans = levels(series, &series.trends[1]);
    let text = &spans[1].text;
    assert!(
        text.ends_with("too few measured results to find a change (3); at least 6 are needed"),
        "{text}"
    );
}

#[test]
fn the_page_shows_changes_charts_and_results() {
    let page = html::of_trends(&report());
    for part in [
        "<title>Trend of hello – floodmark</title>",
        "worse since nightly-09",
        "× 0.901",
        "nightly-01",
        "kernel: 6.1 in nightly-08",
        "class=\"range\"",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

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
