//! Trends over successive results: the changes in each metric, and a row per result.

use floodmark_record::comparison::{LevelRatio, Trend, TrendReport, TrendResult, TrendSeries};
use floodmark_record::figure::FigureUnit;
use floodmark_record::units::show_ratio;
use floodmark_stats::change::FEWEST_FIGURES;

use super::chart::{Axis, Chart, ChartMark, Curve, CurvePiece, DotColor, Quantity, drawable};
use super::comparison::{figure, range};
use super::document::{
    Block, Blocks, Cell, Emphasis, Row, Span, Table, TextLine, data, line, listed, number_cell,
    plain, text_cell,
};
use super::figures::{NOT_MEASURED, count_of, ends, glue, interval_with, joined};
use super::names::{day, iso_timestamp, minute};
use super::page::PageContent;

/// Maximum number of results in a table on a terminal; the latest are shown.
const ON_TERMINAL: usize = 20;

/// Maximum number of results in a table on a page.
const ON_PAGE: usize = 200;

const METHOD: &str = "a change is significant (p < 0.001), at least 3 %, and has at least three results before and \
                      after it";

/// Describes each series: its latest results, then its changes.
pub(crate) fn document(report: &TrendReport) -> Blocks {
    let mut blocks = Blocks::default();
    for series in &report.series {
        blocks.section(&series.name, &period(&series.results));
        blocks.tables([results(series, ON_TERMINAL)]);
        blocks.gap();
        let found = |trend| TextLine::new("result", levels(series, trend));
        blocks.lines(series.trends.iter().map(found));
        blocks.lines(host_changes(series));
    }
    blocks.gap();
    blocks.lines(notes(report));
    blocks
}

impl PageContent {
    /// Builds the page of trends.
    pub(crate) fn of_trends(report: &TrendReport) -> PageContent {
        let (mut answer, mut charts, mut tables) = <(Blocks, Blocks, Blocks)>::default();
        for series in &report.series {
            if report.series.len() > 1 {
                for blocks in [&mut answer, &mut charts, &mut tables] {
                    blocks.subheading(&series.name);
                }
            }
            for trend in &series.trends {
                let mut spans = levels(series, trend);
                spans[0].text = capitalized(&spans[0].text);
                answer.paragraph(spans);
            }
            let drawn = series.trends.iter();
            let drawn = drawn.filter_map(|trend| chart(series, trend));
            charts.0.push(Block::Charts(drawn.collect()));
            charts.lines(host_changes(series));
            tables.tables([results(series, ON_PAGE)]);
        }
        let names = report.series.iter().map(|series| series.name.clone());
        // A result with several trials occurs in several series, but counts once.
        let mut all: Vec<TrendResult> = Vec::new();
        for result in report.series.iter().flat_map(|series| &series.results) {
            if all.iter().all(|known| known.name != result.name) {
                all.push(result.clone());
            }
        }
        let mut plans = Blocks::default();
        plans.paragraph([plain(format!("{}.", period(&all)))]);
        let rest = Blocks::of_lines(notes(report));
        PageContent {
            title: format!("Trend of {}", joined(names, ", ")),
            plans,
            answer,
            sections: vec![("Trends", charts), ("Results", tables), ("Notes", rest)],
        }
    }
}

/// Returns the number of results and the period they cover: `14 results from … to …`.
fn period(results: &[TrendResult]) -> String {
    let times = || results.iter().map(|result| result.started_unix_ms);
    let count = count_of(results.len() as u64, "result");
    match times().min().zip(times().max()) {
        Some((first, last)) if minute(first) != minute(last) => {
            format!("{count} from {} to {} UTC", minute(first), minute(last))
        }
        Some((first, _)) => format!("{count}, {} UTC", minute(first)),
        None => count,
    }
}

/// Returns a row for each of the latest results. The first results of new levels are highlighted.
fn results(series: &TrendSeries, most: usize) -> Table {
    let hidden = series.results.len().saturating_sub(most);
    let rows = series.results.iter().enumerate().skip(hidden);
    let rows = rows.map(|(i, result)| {
        let started = Cell::from(minute(result.started_unix_ms));
        let figures = series.trends.iter().map(|trend| cell(trend, i));
        Row::new(
            &result.name,
            std::iter::once(started).chain(figures).collect(),
        )
    });
    let metrics = series.trends.iter();
    let metrics = metrics.map(|trend| trend.metric.figure().title());
    let heads = std::iter::once("started (UTC)".to_owned()).chain(metrics);
    let mut table = Table::new(heads, rows).captioned("result");
    let mut figures = series.trends.iter().flat_map(|trend| &trend.figures);
    if figures.any(|of| of.as_ref().is_some_and(|of| of.interval.is_some())) {
        table.supplement_note = match hidden {
            0 => "after a figure: its 95 % interval, if known",
            _ => "; after a figure: its 95 % interval, if known",
        };
    }
    if hidden > 0 {
        let hidden = count_of(hidden as u64, "earlier result");
        table.note = format!("{hidden} not shown");
    }
    table
}

fn cell(trend: &Trend, i: usize) -> Cell {
    let Some(of) = &trend.figures[i] else {
        return NOT_MEASURED.to_owned().into();
    };
    let show = |value| figure(trend.metric, Some(value));
    let mut levels = trend.levels.iter();
    let begins = levels.find(|level| level.first as usize == i);
    let change = begins.and_then(|level| level.change);
    let emphasis = change.map_or(Emphasis::Plain, |change| quality(trend, change).0);
    let both = |low, high| format!("[{} to {}]", show(low), show(high));
    let interval = of.interval.as_ref();
    let interval = interval.map(|interval| interval_with(of.value, interval, both));
    Cell {
        supplement: interval.unwrap_or_default(),
        ..emphasis.span(show(of.value)).into()
    }
}

/// Returns whether a change is an improvement.
fn quality(trend: &Trend, change: LevelRatio) -> (Emphasis, &'static str) {
    if (change.ratio > 1.0) == trend.metric.figure().more_is_better() {
        (Emphasis::Good, "better")
    } else {
        (Emphasis::Bad, "worse")
    }
}

/// Returns a sentence that describes a metric's changes. The first span names the metric.
pub(crate) fn levels(series: &TrendSeries, trend: &Trend) -> Vec<Span> {
    let title = trend.metric.figure().title();
    let subject = plain(format!("{title} of {}:", series.name));
    let show = |value| glue(&figure(trend.metric, Some(value)));
    let changes = trend.levels.iter().zip(trend.levels.iter().skip(1));
    let changes = changes.filter_map(|(before, after)| {
        let change = after.change?;
        let (emphasis, word) = quality(trend, change);
        let since = &series.results.get(after.first as usize)?.name;
        Some(emphasis.span(format!(
            "{word} since {since}: {} instead of {}, ratio {} (95\u{a0}% interval: {});",
            show(after.figure),
            show(before.figure),
            show_ratio(change.ratio),
            glue(&range(change.low, change.high))
        )))
    });
    let mut spans: Vec<Span> = std::iter::once(subject).chain(changes).collect();
    if spans.len() > 1 {
        // Remove the separator after the last change.
        if let Some(last) = spans.last_mut() {
            last.text.pop();
        }
        return spans;
    }
    let measured = trend.measured();
    spans.push(plain(if measured < FEWEST_FIGURES {
        format!(
            "too few measured results to find a change ({measured}); at least {FEWEST_FIGURES} are needed"
        )
    } else {
        format!("no lasting change in {}", count_of(measured as u64, "result"))
    }));
    spans
}

fn host_changes(series: &TrendSeries) -> impl Iterator<Item = TextLine> {
    series.host_changes.iter().map(|change| {
        let first = series.results.get(change.first as usize);
        let first = first.map_or("", |result| &result.name);
        let text = format!("since {first}: {}", change.differences.join("; "));
        TextLine::new("host changed", [Emphasis::Warn.span(text)])
    })
}

fn notes(report: &TrendReport) -> impl Iterator<Item = TextLine> {
    let notes = report.notes.iter().map(|note| line("note", note));
    notes.chain([line("method", METHOD)])
}

/// Returns a row per result and metric.
pub(crate) fn figures_table(report: &TrendReport) -> Table {
    Table::of_data(trends(report).flat_map(|(series, trend)| {
        let results = series.results.iter().zip(&trend.figures);
        results.map(move |(result, of)| {
            let value = of.as_ref().map(|of| of.value);
            let (low, high) = ends(of.as_ref().and_then(|of| of.interval.as_ref()));
            let show = |value| figure(trend.metric, Some(value));
            let shown = low.zip(high);
            let shown = shown.map(|(low, high)| format!("{} – {}", show(low), show(high)));
            let started = iso_timestamp(result.started_unix_ms);
            vec![
                text_cell("result", "result", &result.name),
                text_cell("series", "series", &series.name),
                text_cell("started", "started", started),
                text_cell("metric", "metric", trend.metric.name()),
                data("unit", trend.metric.figure().unit().name()),
                listed("figure", "figure", value, figure(trend.metric, value)),
                listed(
                    "figure_low",
                    "95 % interval",
                    low,
                    shown.unwrap_or_default(),
                ),
                data("figure_high", high),
                data("processes", result.processes),
            ]
        })
    }))
}

/// Returns a row per lasting change.
pub(crate) fn changes_table(report: &TrendReport) -> Table {
    Table::of_data(trends(report).flat_map(|(series, trend)| {
        let levels = trend.levels.iter().zip(trend.levels.iter().skip(1));
        levels.filter_map(move |(before, after)| {
            let change = after.change?;
            let first = series.results.get(after.first as usize)?;
            let figure =
                |name, head, value| listed(name, head, value, figure(trend.metric, Some(value)));
            let interval = range(change.low, change.high);
            Some(vec![
                text_cell("result", "first result", &first.name),
                text_cell("series", "series", &series.name),
                text_cell("metric", "metric", trend.metric.name()),
                data("unit", trend.metric.figure().unit().name()),
                figure("figure_before", "before", before.figure),
                figure("figure_after", "after", after.figure),
                number_cell("ratio", "ratio", Some(change.ratio), show_ratio),
                listed("ratio_low", "95 % interval", change.low, interval),
                data("ratio_high", change.high),
            ])
        })
    }))
}

fn trends(report: &TrendReport) -> impl Iterator<Item = (&TrendSeries, &Trend)> {
    let all = report.series.iter();
    all.flat_map(|series| series.trends.iter().map(move |trend| (series, trend)))
}

/// Capitalizes the first letter of a sentence.
fn capitalized(sentence: &str) -> String {
    let mut letters = sentence.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// Maximum number of dates below the x axis.
const MOST_DATES: usize = 5;

/// Distance between the values and the ends of the y axis, as a share of the values' range.
const PADDING: f64 = 0.1;

/// Minimum range of the y axis as a share of the largest value. A smaller range would make noise
/// look like a change.
const LEAST_RANGE: f64 = 0.1;

/// Maximum ratio of the largest to the smallest value for which the y axis is linear.
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
    let pieces = trend.levels.iter().zip(ends.chain([end]));
    let pieces = pieces.map(|(level, end)| {
        let (first, last) = (f64::from(level.first + 1), f64::from(end));
        CurvePiece::of(vec![(first, level.figure), (last, level.figure)])
    });
    let curves = vec![
        Curve::measured(0, "level", pieces.collect()),
        Curve::dots(DotColor::Neutral, "result", points.clone()),
    ];
    let bounds = ranges.iter().flat_map(|(_, (low, high))| [*low, *high]);
    let values = points.iter().map(|(_, value)| *value);
    let values: Vec<f64> = values.chain(bounds).collect();
    let x = Axis::of_ordinals(trend.figures.len(), dates);
    let y = y_axis(trend, &values);
    let title = trend.metric.figure().title();
    let unit = match trend.metric.figure().unit() {
        FigureUnit::Rate => "per second, by result",
        _ => "by result",
    };
    let note = if ranges.is_empty() {
        "Horizontal lines show lasting levels."
    } else {
        "Vertical bars show 95 % intervals. Horizontal lines show lasting levels."
    };
    let marks = trend.levels.iter().filter_map(|level| {
        let label = format!("× {}", show_ratio(level.change?.ratio));
        Some(ChartMark::new(f64::from(level.first) + 0.5, label))
    });
    let chart = Chart::new(&title, unit, (x, y), curves).with_marks(marks);
    Some(Chart {
        ranges,
        ..chart.with_notes([note.to_owned()])
    })
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
#[path = "trend_tests.rs"]
pub(crate) mod tests;
