//! Sweeps: a table and a chart of the throughput by setting.

use std::collections::BTreeMap;

use floodmark_record::Record;
use floodmark_record::cause::Cause;
use floodmark_record::experiment::{PointThroughput, SweepPoint, Swept};
use floodmark_record::run::Run;

use super::chart::{AxisFit, Chart, Curve, MAX_CURVES, Quantity, drawable, more_in_table};
use super::document::{Cell, Row, Table, count_cell, data, listed, number_cell, text_cell};
use super::figures::{optional, per_second, rate, setting_pairs, settings};
use super::verdict;

/// Explanation below the table.
pub(crate) const NOTE: &str = "ok responses per second: geometric mean over server processes, with a 95 % interval if there are several";

/// Points of a sweep that differ only in the first setting.
pub(crate) struct SweepCurve<'a> {
    /// Values of the other settings as text; empty if there is only one setting.
    pub(crate) others: String,
    pub(crate) points: Vec<CurvePoint<'a>>,
}

/// One combination of settings.
pub(crate) struct CurvePoint<'a> {
    /// Value of the first setting.
    pub(crate) x: &'a str,
    trial: &'a str,
    pub(crate) measured: &'a PointThroughput,
}

/// Returns the curves of a sweep in the order of its points.
pub(crate) fn curves(swept: &Swept) -> Vec<SweepCurve<'_>> {
    let mut curves: Vec<SweepCurve<'_>> = Vec::new();
    let Some((first, others)) = swept.sweep.knobs.split_first() else {
        return curves;
    };
    for (point, measured) in swept.sweep.points.iter().zip(&swept.measured) {
        let others = others.iter();
        let others = settings(others.filter_map(|name| point.values.get_key_value(name)));
        let of = CurvePoint {
            x: point.values.get(first).map_or("", String::as_str),
            trial: &point.trial,
            measured,
        };
        match curves.iter_mut().find(|curve| curve.others == others) {
            Some(curve) => curve.points.push(of),
            None => curves.push(SweepCurve {
                others,
                points: vec![of],
            }),
        }
    }
    curves
}

/// Returns a table of throughput. Each row is a value of the first knob; each column is a
/// combination of values of the other knobs.
pub(crate) fn table(swept: &Swept) -> Table {
    grid(swept, "throughput", |point| throughput(point.measured))
}

/// Returns a table with a row per point of each sweep.
pub(crate) fn points(record: &Record) -> Table {
    Table::of_data(record.sweeps.iter().flat_map(|swept| {
        let points = swept.sweep.points.iter().zip(&swept.measured);
        points.map(|(point, measured)| {
            let is_best = swept.best.as_ref() == Some(&point.trial);
            let role = if is_best { "best" } else { "" };
            let per_s = |name, head, of| number_cell(name, head, of, per_second);
            vec![
                text_cell("trial", "trial", &point.trial),
                data("sweep", &swept.sweep.name),
                data("setting", setting_pairs(&point.values)),
                per_s("throughput_per_s", "ok/s", measured.throughput_per_s),
                per_s("throughput_low_per_s", "low", measured.low),
                per_s("throughput_high_per_s", "high", measured.high),
                count_cell("processes", "processes", measured.processes),
                listed("is_best", "role", is_best, role),
            ]
        })
    }))
}

/// Returns a table of the most frequent causes, with the rows and columns of [`table`]. Returns
/// `None` if no cause is known.
pub(crate) fn cause_table(swept: &Swept, runs: &[Run]) -> Option<Table> {
    let causes = causes(swept, runs);
    let cell = |point: &CurvePoint<'_>| {
        let cause = causes.get(point.trial);
        cause.map_or("", |cause| cause.name()).into()
    };
    let has_others = swept.sweep.knobs.len() > 1;
    let caption = if has_others { "limit" } else { "" };
    (!causes.is_empty()).then(|| grid(swept, "limit", cell).captioned(caption))
}

/// Returns a table with a cell for each point. `content` is the heading if there is only one knob.
fn grid(swept: &Swept, content: &str, cell: impl Fn(&CurvePoint<'_>) -> Cell) -> Table {
    let curves = curves(swept);
    let head = |curve: &SweepCurve<'_>| match curve.others.as_str() {
        "" => content.to_owned(),
        others => others.to_owned(),
    };
    let first = swept.sweep.knobs.first().map_or("", String::as_str);
    let mut xs: Vec<&str> = Vec::new();
    for point in curves.iter().flat_map(|curve| &curve.points) {
        if !xs.contains(&point.x) {
            xs.push(point.x);
        }
    }
    let row = |x: &str| {
        let cells = curves.iter().map(|curve| {
            let point = curve.points.iter().find(|point| point.x == x);
            point.map_or_else(|| "".into(), &cell)
        });
        Row::new(format!("{first} = {x}"), cells.collect())
    };
    Table::new(curves.iter().map(head), xs.into_iter().map(row))
}

/// Returns a cell with throughput and interval.
fn throughput(measured: &PointThroughput) -> Cell {
    let ends = measured.low.zip(measured.high);
    let interval = ends.map(|(low, high)| format!("({} – {})", per_second(low), per_second(high)));
    Cell::new(optional(measured.throughput_per_s, rate), interval)
}

/// Returns the most frequent cause of each trial of a sweep.
fn causes<'a>(swept: &'a Swept, runs: &[Run]) -> BTreeMap<&'a str, Cause> {
    let points = swept.sweep.points.iter();
    let cause = |point: &'a SweepPoint| {
        let of_point = runs
            .iter()
            .filter(|run| run.trial.as_ref() == Some(&point.trial));
        let (verdict, _) = verdict::most_frequent(of_point)?;
        Some((point.trial.as_str(), verdict.cause))
    };
    points.filter_map(cause).collect()
}

/// Returns a note if the best point of a numeric sweep is the last one.
pub(crate) fn open_end(swept: &Swept) -> Option<&'static str> {
    let last = swept.sweep.points.last()?;
    let mut values = last.values.values();
    let are_numbers = values.all(|value| value.parse::<f64>().is_ok());
    (are_numbers && swept.best.as_ref() == Some(&last.trial))
        .then_some("larger settings were not measured; they may be faster")
}

/// Returns the values of a point: `threads = 24, connections = 8`.
fn values(swept: &Swept, point: &SweepPoint) -> String {
    let knobs = swept.sweep.knobs.iter();
    settings(knobs.filter_map(|name| point.values.get_key_value(name)))
}

/// Describes the settings with the highest throughput, and the first settings that reach 95 % of
/// this throughput. Returns `None` if nothing was measured.
pub(crate) fn result(swept: &Swept) -> Option<String> {
    let of = |trial: &String| {
        let mut points = swept.sweep.points.iter().zip(&swept.measured);
        let (point, measured) = points.find(|(point, _)| point.trial == *trial)?;
        let ends = measured.low.zip(measured.high);
        let interval = ends.map(|(low, high)| [low, high].map(per_second).join(" – "));
        let interval = interval.map(|ends| format!(", 95 % interval: {ends}"));
        let per_s = rate(measured.throughput_per_s?);
        let figure = format!("{per_s}{}", interval.unwrap_or_default());
        Some((values(swept, point), figure))
    };
    let (best, highest) = of(swept.best.as_ref()?)?;
    let enough = swept.enough.as_ref().filter(|_| swept.enough != swept.best);
    let enough = match enough.and_then(of) {
        Some((values, per_s)) => format!("{values} reaches 95 % of the maximum ({per_s})"),
        None => "no smaller setting reaches 95 % of the maximum".to_owned(),
    };
    let name = &swept.sweep.name;
    Some(format!(
        "{name}: throughput is highest with {best} ({highest}); {enough}"
    ))
}

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
    let chart = Chart::new(&title, &unit, axes, shown);
    Some(chart.with_notes(more_in_table(all.len())))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::fixture;
    use crate::terminal::tests::drawn_tables;
    use floodmark_record::experiment::{Sweep, SweepPoint};

    /// A sweep with 1, 2 and 4 threads and with 10 and 20 connections. One point was not measured.
    pub(crate) fn swept() -> Swept {
        let per_s = |threads: f64, connections: f64| match (threads, connections) {
            (4.0, 20.0) => None,
            _ => Some(threads.min(connections / 5.0) * 1_000.0),
        };
        let (mut points, mut measured) = (Vec::new(), Vec::new());
        for connections in [10.0, 20.0] {
            for threads in [1.0, 2.0, 4.0] {
                let values = [("threads", threads), ("connections", connections)];
                points.push(SweepPoint {
                    trial: format!("bars-threads-{threads}-connections-{connections}"),
                    values: values
                        .map(|(knob, value)| (knob.to_owned(), value.to_string()))
                        .into(),
                });
                let throughput_per_s = per_s(threads, connections);
                measured.push(PointThroughput {
                    throughput_per_s,
                    low: throughput_per_s.map(|x| x * 0.9),
                    high: throughput_per_s.map(|x| x * 1.1),
                    processes: throughput_per_s.map_or(0, |_| 3),
                });
            }
        }
        Swept {
            best: Some(points[1].trial.clone()),
            enough: Some(points[1].trial.clone()),
            sweep: Sweep {
                name: "bars".to_owned(),
                knobs: vec!["threads".to_owned(), "connections".to_owned()],
                points,
            },
            measured,
        }
    }

    #[test]
    fn shows_values_and_the_best_setting() {
        let mut record = fixture::record(Vec::new());
        let mut one = swept();
        record.sweeps.push(one.clone());
        // A sweep of one setting has a single column.
        one.sweep.name = "few".to_owned();
        one.sweep.knobs.truncate(1);
        one.sweep.points.truncate(3);
        one.measured.truncate(3);
        one.best = Some(one.sweep.points[2].trial.clone());
        record.sweeps.push(one);
        let shown = record.sweeps.iter().map(|swept| {
            let result = result(swept).unwrap();
            format!("{}{result}\n", drawn_tables([table(swept)], 100))
        });
        insta::assert_snapshot!(shown.collect::<String>());
    }

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
