//! What was varied on purpose: the steps of a ladder, and the curves of sweeps.

use floodmark_record::Record;
use floodmark_record::sweep::Swept;
use maud::{Markup, html};

use super::axis::{Axis, drawable};
use super::chart::{Chart, Curve, DrawError, Ink, MOST_CURVES, Piece};
use super::text::Shown;
use crate::figures::per_second;
use crate::ladder::{COSTS, cost, steps};
use crate::sweep::{lines, sentence, throughput};

/// The sentences of sweeps.
pub(crate) fn sentences(record: &Record) -> impl Iterator<Item = String> {
    record.sweeps.iter().filter_map(sentence)
}

/// A table of the steps, each with how many times the one before it is.
pub(crate) fn ladder(record: &Record) -> Option<Markup> {
    let steps = steps(record);
    (!steps.is_empty()).then(|| {
        html! {
            h2 { "What each step costs" }
            div.wide { table {
                tr { th {} @for (_, head) in COSTS { th scope="col" { (head) } } }
                @for step in &steps {
                    tr {
                        th scope="row" {
                            (Shown(step.name))
                            @if let Some(below) = step.below { div.small { "× " (Shown(below)) } }
                        }
                        @for (own, of) in &step.costs {
                            td.figure { (own) @if step.below.is_some() { div.small { (cost(*of, true)) } } }
                        }
                    }
                }
            } }
            p.note {
                "Geometric means over server processes. Below each figure how many times that of the step before it is, with the 95 % \
                 interval of the ratio. Server CPU is that of server and store for each request."
            }
        }
    })
}

/// A curve for each sweep whose first knob is a number, and a table for each.
///
/// # Errors
/// See [`DrawError`].
pub(crate) fn sweeps(record: &Record) -> Result<Option<Markup>, DrawError> {
    if record.sweeps.is_empty() {
        return Ok(None);
    }
    let mut drawn = Vec::new();
    for swept in &record.sweeps {
        let figure = chart(swept).map(|chart| chart.figure()).transpose()?;
        drawn.push((swept, figure));
    }
    Ok(Some(html! {
        h2 { "Sweeps" }
        @for (swept, figure) in &drawn {
            @if let Some(figure) = figure { div.charts { (figure) } }
            (table(swept))
        }
        p.note { "Geometric means over server processes, with their 95 % interval where there are several." }
    }))
}

fn table(swept: &Swept) -> Markup {
    let lines = lines(swept);
    let first = swept.sweep.knobs.first().map_or("", String::as_str);
    let mut xs: Vec<&str> = Vec::new();
    for (x, _) in lines.iter().flat_map(|line| &line.points) {
        if !xs.contains(x) {
            xs.push(x);
        }
    }
    html! {
        h3 { (Shown(&swept.sweep.name)) }
        div.wide { table {
            tr {
                th scope="col" { (Shown(first)) }
                @for line in &lines {
                    th scope="col" { @if line.others.is_empty() { "throughput" } @else { (Shown(&line.others)) } }
                }
            }
            @for x in &xs {
                tr {
                    th scope="row" { (Shown(x)) }
                    @for line in &lines {
                        td.figure { @if let Some((_, of)) = line.points.iter().find(|(at, _)| at == x) { (throughput(of)) } }
                    }
                }
            }
        } }
    }
}

fn chart(swept: &Swept) -> Option<Chart> {
    let lines = lines(swept);
    let mut curves = Vec::new();
    for (i, line) in lines.iter().take(MOST_CURVES).enumerate() {
        let mut points = Vec::new();
        for (x, of) in &line.points {
            let x: f64 = x.parse().ok().filter(|x| drawable(*x))?;
            points.extend(of.throughput_per_s.filter(|y| drawable(*y)).map(|y| (x, y)));
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        curves.push(Curve {
            name: match line.others.as_str() {
                "" => swept.sweep.name.clone(),
                others => others.to_owned(),
            },
            ink: Ink::Measured(i),
            pieces: match points.len() {
                0 | 1 => Vec::new(),
                _ => vec![Piece {
                    points,
                    faint: false,
                }],
            },
        });
    }
    let points = || {
        curves
            .iter()
            .flat_map(|curve| &curve.pieces)
            .flat_map(|piece| &piece.points)
    };
    let furthest = points().map(|(x, _)| *x).fold(0.0, f64::max);
    let highest = points().map(|(_, y)| *y).fold(0.0, f64::max);
    points().next()?;
    let first = swept.sweep.knobs.first()?;
    let left = lines.len().saturating_sub(MOST_CURVES);
    let notes = match left {
        0 => Vec::new(),
        n => vec![format!("{n} more are in the table.")],
    };
    Some(Chart {
        title: format!("{} by {first}", swept.sweep.name),
        unit: format!("ok answers per second over {first}"),
        x: Axis::from_zero(furthest, |x| format!("{x}")),
        y: Axis::from_zero(highest, per_second),
        curves,
        shades: Vec::new(),
        marks: Vec::new(),
        notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::{ladder, sweep};

    #[test]
    fn a_curve_for_each_line_and_a_table_with_every_point() {
        let mut record = fixture::record(Vec::new());
        assert!(sweeps(&record).unwrap().is_none());
        record.sweeps.push(sweep::tests::swept());
        let drawn = sweeps(&record).unwrap().unwrap().into_string();
        assert!(
            drawn.contains("<svg") && drawn.contains("connections = 20"),
            "{drawn}"
        );
        assert!(drawn.contains("2,000/s (1,800 – 2,200)"), "{drawn}");
        // A knob of words has no axis, and its table all the same.
        let mut words = sweep::tests::swept();
        for point in &mut words.sweep.points {
            point
                .values
                .insert("threads".to_owned(), format!("<{}>", point.trial));
        }
        assert!(chart(&words).is_none());
        record.sweeps = vec![words];
        let drawn = sweeps(&record).unwrap().unwrap().into_string();
        assert!(
            drawn.contains("&lt;bars-threads-1") && !drawn.contains("<bars"),
            "{drawn}"
        );
    }

    #[test]
    fn steps_with_what_they_cost() {
        let mut record = fixture::record(Vec::new());
        assert!(super::ladder(&record).is_none());
        ladder::tests::climbed(&mut record);
        let drawn = super::ladder(&record).unwrap().into_string();
        assert!(
            drawn.contains("× none") && drawn.contains("server CPU"),
            "{drawn}"
        );
        assert!(!drawn.contains("cassandra"), "it was not measured: {drawn}");
    }
}
