//! Trends over successive results.

use std::slice::from_ref;

use floodmark_record::Record;
use floodmark_record::comparison::{
    ComparedMetric, HostChange, LevelRatio, Trend, TrendFigure, TrendLevel, TrendResult,
    TrendSeries,
};
use floodmark_record::interval::Interval;
use floodmark_stats::change::levels;

use super::differences::{differences, hosts, load, validity_notes};
use super::process_figures::ProcessFigures;
use super::run_group::{RunGroup, grouped, run_groups};

/// A result of `floodmark trend` with its name.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedRecord {
    /// Name of the result's directory or file.
    pub name: String,
    /// The record.
    pub record: Record,
}

/// One group of a result.
struct TrendPoint<'a> {
    of: &'a NamedRecord,
    /// Name of the trial or system.
    name: String,
    /// The runs, named after the result, and after the trial or system if there are several.
    group: RunGroup<'a>,
    started_unix_ms: u64,
}

/// Returns the series of each trial or system, and notes. Groups whose loads differ belong to
/// different series. Metrics that were not measured in any result of a series are omitted.
#[must_use]
pub fn trend_series(
    results: &[NamedRecord],
    metrics: &[ComparedMetric],
) -> (Vec<TrendSeries>, Vec<String>) {
    let mut points: Vec<TrendPoint<'_>> = results.iter().flat_map(points).collect();
    points.sort_by_key(|point| point.started_unix_ms);
    let is_same = |a: &TrendPoint<'_>, b: &TrendPoint<'_>| {
        a.name == b.name && load(&a.group) == load(&b.group)
    };
    let all = grouped(points, is_same);
    let (mut series, mut notes) = (Vec::new(), Vec::new());
    for (i, points) in all.iter().enumerate() {
        let first = &points[0];
        let mut name = first.name.clone();
        let earlier = all[..i].iter().rfind(|of| of[0].name == name);
        if let Some(earlier) = earlier {
            let other = &earlier[0];
            let names = [other.of.name.as_str(), first.of.name.as_str()];
            let differences = differences(names, &load(&other.group), &load(&first.group));
            name = format!("{name} since {}", first.of.name);
            notes.push(format!(
                "{name}: the load differs: {}",
                differences.join("; ")
            ));
        }
        let validity = points
            .iter()
            .map(|point| (point, validity_notes(&point.group)));
        notes.extend(gathered(validity));
        let trends = metrics.iter().map(|metric| {
            let (trend, reasons) = trend(points, *metric);
            // If a metric, such as the server's CPU time, was not measured in any result, omit the
            // reasons why its figures are missing.
            if trend.measured() > 0 {
                notes.extend(reasons);
            }
            trend
        });
        let trends = trends.filter(|trend| trend.measured() > 0).collect();
        series.push(TrendSeries {
            name,
            results: points
                .iter()
                .map(|point| TrendResult {
                    name: point.of.name.clone(),
                    started_unix_ms: point.started_unix_ms,
                    processes: point.group.processes.len() as u32,
                })
                .collect(),
            trends,
            host_changes: host_changes(points),
        });
    }
    (series, notes)
}

fn points(of: &NamedRecord) -> Vec<TrendPoint<'_>> {
    let groups = run_groups(&of.record);
    let is_single = groups.len() == 1;
    let points = groups.into_iter().map(|group| TrendPoint {
        of,
        name: group.name.clone(),
        started_unix_ms: group
            .runs()
            .map(|run| run.started_unix_ms)
            .min()
            .unwrap_or(0),
        group: RunGroup {
            name: if is_single {
                of.name.clone()
            } else {
                format!("{}:{}", of.name, group.name)
            },
            ..group
        },
    });
    points.collect()
}

/// Returns the trend of a metric, and the reasons why figures are missing. Each reason names the
/// results that it applies to.
fn trend(points: &[TrendPoint<'_>], metric: ComparedMetric) -> (Trend, Vec<String>) {
    let mut reasons = Vec::new();
    let figures = points.iter().map(|point| {
        let of = ProcessFigures::of(&point.group, metric);
        let Some(value) = of.mean() else {
            reasons.push((point, of.notes));
            return None;
        };
        let interval = of.interval();
        let interval = interval.or_else(|| interval_within(&point.group, metric));
        Some(TrendFigure { value, interval })
    });
    let figures: Vec<Option<TrendFigure>> = figures.collect();
    let known = figures.iter().enumerate();
    let known = known.filter_map(|(i, figure)| Some((i, figure.as_ref()?.value)));
    let (places, values): (Vec<usize>, Vec<f64>) = known.unzip();
    let levels = levels(&values).into_iter().map(|level| TrendLevel {
        first: places[level.first] as u32,
        figure: level.figure,
        change: level.change.and_then(|ratio| {
            let interval = ratio.interval()?;
            Some(LevelRatio {
                ratio: ratio.value(),
                low: interval.low,
                high: interval.high,
            })
        }),
    });
    let levels = levels.collect();
    let trend = Trend {
        metric,
        figures,
        levels,
    };
    (trend, gathered(reasons))
}

/// Returns each distinct note, prefixed with the names of the results that it applies to.
fn gathered<'a>(notes: impl IntoIterator<Item = (&'a TrendPoint<'a>, Vec<String>)>) -> Vec<String> {
    let mut found: Vec<(String, Vec<&str>)> = Vec::new();
    for (point, notes) in notes {
        let label = point.group.name.as_str();
        for note in notes {
            match found.iter_mut().find(|(known, _)| *known == note) {
                Some((_, labels)) => labels.push(label),
                None => found.push((note, vec![label])),
            }
        }
    }
    found
        .into_iter()
        .map(|(note, labels)| format!("{}: {note}", labels.join(", ")))
        .collect()
}

/// Returns the interval of a figure within the only server process of a group.
fn interval_within(group: &RunGroup<'_>, metric: ComparedMetric) -> Option<Interval> {
    match metric {
        ComparedMetric::Throughput => {
            let mut runs = group.runs();
            let only = runs.next().filter(|_| runs.next().is_none())?;
            only.throughput_interval.clone()
        }
        ComparedMetric::Capacity => group.only_capacity()?.1,
        _ => None,
    }
}

fn host_changes(points: &[TrendPoint<'_>]) -> Vec<HostChange> {
    let pairs = (1..).zip(points.windows(2)).filter_map(|(first, pair)| {
        let names = [pair[0].of.name.as_str(), pair[1].of.name.as_str()];
        let [a, b] = [&pair[0], &pair[1]].map(|point| hosts(from_ref(&point.of.record)));
        let differences = differences(names, &a, &b);
        (!differences.is_empty()).then_some(HostChange { first, differences })
    });
    pairs.collect()
}

#[cfg(test)]
#[path = "trends_tests.rs"]
mod tests;
