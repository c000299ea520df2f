//! A sweep: throughput by the values of knobs.

use floodmark_record::Record;
use floodmark_record::sweep::{Measured, Swept};

use crate::figures::{NOT_MEASURED, per_second, rate};
use crate::page::{Page, faint, plain};
use crate::style::Paint;

/// Width of a column.
const COLUMN: usize = 24;

/// The points of a sweep that differ by its first knob alone.
pub(crate) struct Line<'a> {
    /// Values of the other knobs, in words; empty where there is no other.
    pub others: String,
    /// Value of the first knob with what was measured.
    pub points: Vec<(&'a str, &'a Measured)>,
}

/// The lines of a sweep, in the order of its points.
pub(crate) fn lines(swept: &Swept) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    let Some((first, others)) = swept.sweep.knobs.split_first() else {
        return lines;
    };
    for (point, measured) in swept.sweep.points.iter().zip(&swept.measured) {
        let value = |knob: &String| point.values.get(knob).map_or("", String::as_str);
        let said: Vec<String> = others
            .iter()
            .map(|knob| format!("{knob} = {}", value(knob)))
            .collect();
        let said = said.join(", ");
        let x = value(first);
        match lines.iter_mut().find(|line| line.others == said) {
            Some(line) => line.points.push((x, measured)),
            None => lines.push(Line {
                others: said,
                points: vec![(x, measured)],
            }),
        }
    }
    lines
}

/// Throughput with its interval.
pub(crate) fn throughput(of: &Measured) -> String {
    let Some(per_s) = of.throughput_per_s else {
        return NOT_MEASURED.to_owned();
    };
    match (of.low, of.high) {
        (Some(low), Some(high)) => format!(
            "{} ({} – {})",
            rate(per_s),
            per_second(low),
            per_second(high)
        ),
        _ => rate(per_s),
    }
}

/// Where throughput is highest, and which values are enough for it; none where nothing was measured.
pub(crate) fn sentence(swept: &Swept) -> Option<String> {
    let of = |trial: &String| {
        let points = swept.sweep.points.iter().zip(&swept.measured);
        let (point, measured) = points
            .into_iter()
            .find(|(point, _)| point.trial == *trial)?;
        let values: Vec<String> = swept
            .sweep
            .knobs
            .iter()
            .map(|knob| {
                format!(
                    "{knob} = {}",
                    point.values.get(knob).map_or("", String::as_str)
                )
            })
            .collect();
        Some((values.join(", "), rate(measured.throughput_per_s?)))
    };
    let (best, highest) = of(swept.best.as_ref()?)?;
    let enough = swept
        .enough
        .as_ref()
        .filter(|enough| swept.best.as_ref() != Some(enough));
    let enough = match enough.and_then(of) {
        Some((values, per_s)) => format!("; {values} gets to within 5 % of that ({per_s})"),
        None => "; no earlier values get to within 5 % of that".to_owned(),
    };
    Some(format!(
        "{}: throughput is highest with {best}: {highest}{enough}",
        swept.sweep.name
    ))
}

/// Draws a record's sweeps; nothing where it has none.
pub(crate) fn draw(page: &mut Page, record: &Record) {
    for swept in &record.sweeps {
        let lines = lines(swept);
        page.blank();
        page.headline(&[
            (Paint::Strong, format!("sweep {}", swept.sweep.name)),
            faint("(ok answers per second: geometric mean over server processes, with its 95 % interval where there are several)"),
        ]);
        let first = swept.sweep.knobs.first().map_or("", String::as_str);
        let widest = |line: &Line<'_>| line.others.chars().count() + 2;
        let width = lines.iter().map(widest).max().unwrap_or(0).max(COLUMN);
        let heads: Vec<_> = lines
            .iter()
            .map(|line| (width, Paint::Faint, line.others.clone()))
            .collect();
        let mut xs: Vec<&str> = Vec::new();
        for (x, _) in lines.iter().flat_map(|line| &line.points) {
            if !xs.contains(x) {
                xs.push(x);
            }
        }
        let name = |x: &str| format!("{first} = {x}");
        let names = xs
            .iter()
            .map(|x| name(x).chars().count())
            .max()
            .unwrap_or(0)
            + 1;
        if swept.sweep.knobs.len() > 1 {
            page.row_beside(names, "", &heads);
        }
        for x in xs {
            let cells: Vec<_> = lines
                .iter()
                .map(|line| {
                    let of = line.points.iter().find(|(at, _)| *at == x);
                    let text = of.map_or_else(String::new, |(_, of)| throughput(of));
                    (width, Paint::Plain, text)
                })
                .collect();
            page.row_beside(names, &name(x), &cells);
        }
        if let Some(said) = sentence(swept) {
            page.entry("so", &[plain(said)]);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use floodmark_record::sweep::{Point, Sweep};

    use super::*;
    use crate::fixture;
    use crate::style::Style;

    /// Threads 1, 2 and 4 by 10 and 20 connections; one point was not measured.
    pub(crate) fn swept() -> Swept {
        let per_s = |threads: f64, connections: f64| match (threads, connections) {
            (4.0, 20.0) => None,
            _ => Some(threads.min(connections / 5.0) * 1_000.0),
        };
        let (mut points, mut measured) = (Vec::new(), Vec::new());
        for connections in [10.0, 20.0] {
            for threads in [1.0, 2.0, 4.0] {
                let values = [("threads", threads), ("connections", connections)];
                points.push(Point {
                    trial: format!("bars-threads-{threads}-connections-{connections}"),
                    values: values
                        .map(|(knob, value)| (knob.to_owned(), value.to_string()))
                        .into(),
                });
                let throughput_per_s = per_s(threads, connections);
                measured.push(Measured {
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
    fn a_table_of_values_and_where_it_is_highest() {
        let mut record = fixture::record(Vec::new());
        let mut one = swept();
        record.sweeps.push(one.clone());
        // Of one knob there is one line.
        one.sweep.name = "few".to_owned();
        one.sweep.knobs.truncate(1);
        one.sweep.points.truncate(3);
        one.measured.truncate(3);
        one.best = Some(one.sweep.points[2].trial.clone());
        record.sweeps.push(one);
        let mut page = Page::new(Style {
            colour: false,
            width: 100,
        });
        draw(&mut page, &record);
        insta::assert_snapshot!(page.finish());
    }
}
