//! What happened second by second: throughput, response times, CPU and failures, one curve for each run that is drawn.

use floodmark_record::plan::Model;
use floodmark_record::profile::Profile;
use floodmark_record::run::{Run, Saturation, SeriesRow};
use floodmark_record::units::show_rate;

use super::axis::{Axis, drawable, label_count};
use super::chart::{Chart, Curve, Ink, Piece};
use super::curves::{Join, of_series, rows_per_step};
use super::names::Named;
use crate::figures::seconds;

/// Share of the level axis that a warm-up takes at most: nothing is drawn in it, for its seconds are not in the record.
const MOST_WARMUP: f64 = 0.2;

/// Charts of the runs that are drawn; empty where no second was measured.
pub(crate) fn charts(drawn: &[Named]) -> Vec<Chart> {
    let driven = |one: &Named| one.run.series.is_empty();
    let Some(time) = Time::of(drawn).filter(|_| !drawn.iter().all(driven)) else {
        return Vec::new();
    };
    let mut charts = vec![throughput(&time, drawn)];
    charts.extend(responses(&time, drawn));
    charts.extend(cpu(&time, drawn));
    charts.extend(failures(&time, drawn));
    charts.extend(connections(&time, drawn));
    charts
}

/// What all charts over time have in common.
pub(crate) struct Time {
    pub(crate) axis: Axis,
    pub(crate) shades: Vec<(f64, f64)>,
    marks: Vec<f64>,
    /// Which part is shaded, what is marked and how seconds were joined, in words.
    notes: Vec<String>,
}

impl Time {
    /// None where no run has a second to draw.
    pub(crate) fn of(drawn: &[Named]) -> Option<Self> {
        let runs: Vec<&Run> = drawn.iter().map(|one| one.run).collect();
        // Of a run without seconds there may be counters.
        let end = |run: &&Run| run.series.last().map_or(run.sending_s, |row| row.to_s);
        let end = runs
            .iter()
            .map(end)
            .filter(|to| drawable(*to))
            .fold(0.0, f64::max);
        if end <= 0.0 {
            return None;
        }
        let mut time = Time {
            axis: Axis::of_seconds(0.0, end),
            shades: Vec::new(),
            marks: Vec::new(),
            notes: Vec::new(),
        };
        time.mark_warmup(&runs, end);
        time.mark_windows(&runs, end);
        time.mark_moments(&runs, end);
        let longest = runs.iter().map(|run| run.series.len()).max().unwrap_or(0);
        if let Some(n) = rows_per_step(longest) {
            time.notes.push(format!(
                "Each step is of up to {n} s: rates and CPU are their mean, percentiles that of their worst second."
            ));
        }
        Some(time)
    }

    fn mark_warmup(&mut self, runs: &[&Run], end: f64) {
        let lengths = runs.iter().filter_map(|run| run.warmup.as_ref());
        let longest = lengths.map(|warmup| warmup.duration_s).fold(0.0, f64::max);
        if longest <= 0.0 {
            return;
        }
        let from = -longest.min(end * MOST_WARMUP);
        self.axis = Axis::of_seconds(from, end);
        self.shades.push((from, 0.0));
        self.notes.push(format!(
            "Shaded before 0 s: the warm-up of {}, whose seconds are not kept.",
            seconds(longest)
        ));
    }

    /// Shades what is outside of the window; where runs have different windows only their strokes tell.
    fn mark_windows(&mut self, runs: &[&Run], end: f64) {
        // What is narrower than a stroke, such as the wait for the last answers, is not seen.
        let outside = |run: &Run| run.window.from_s > 0.0 || run.window.to_s < end * 0.995;
        if !runs.iter().any(|run| outside(run)) {
            return;
        }
        let window = &runs[0].window;
        let same = runs.iter().all(|run| run.window == *window);
        let sound = window.from_s < window.to_s && drawable(window.from_s) && drawable(window.to_s);
        if same && sound {
            let (from, to) = (window.from_s.min(end), window.to_s.min(end));
            let parts = [(0.0, from), (to, end)];
            self.shades
                .extend(parts.into_iter().filter(|(a, b)| b - a > 1e-3));
            self.notes.push(format!(
                "Shaded, with faint strokes: outside of the window from {} to {}, which the figures are of.",
                words(from),
                words(to)
            ));
        } else {
            self.notes.push(
                "Faint strokes: outside of the run's window, which its figures are of.".to_owned(),
            );
        }
    }

    fn mark_moments(&mut self, runs: &[&Run], end: f64) {
        let [run] = runs else { return };
        let mut mark = |at: f64, what: String| {
            if drawable(at) && at <= end {
                self.marks.push(at);
                self.notes.push(what);
            }
        };
        if let Some(Saturation::FellBehind(found)) = &run.saturation {
            let offered = show_rate(found.offered_per_s);
            mark(
                found.at_s,
                format!(
                    "Line at {}: from {offered}/s offered on, the server fell behind.",
                    words(found.at_s)
                ),
            );
        }
        if let Some(since) = run.server_gone_since_s {
            mark(
                since,
                format!("Line at {}: no answer came after it.", words(since)),
            );
        }
    }

    pub(crate) fn chart(&self, title: &str, unit: &str, y: Axis, curves: Vec<Curve>) -> Chart {
        Chart {
            title: title.to_owned(),
            unit: unit.to_owned(),
            x: self.axis.clone(),
            y,
            curves,
            shades: self.shades.clone(),
            marks: self.marks.clone(),
            notes: Vec::new(),
        }
    }
}

/// What holds of all charts over time, said once above them.
pub(crate) fn notes(drawn: &[Named]) -> Vec<String> {
    let mut notes = Time::of(drawn).map_or_else(Vec::new, |time| time.notes);
    let without = drawn.iter().filter(|one| one.run.series.is_empty());
    let names: Vec<&str> = without.map(|one| one.name.as_str()).collect();
    if !names.is_empty() {
        notes.push(format!(
            "Without curves over time, since nothing is recorded of single seconds: {}.",
            names.join("; ")
        ));
    }
    notes
}

fn words(at_s: f64) -> String {
    if at_s == 0.0 {
        "0 s".to_owned()
    } else {
        seconds(at_s)
    }
}

pub(crate) fn largest(curves: &[Curve]) -> f64 {
    curves.iter().flat_map(Curve::values).fold(0.0, f64::max)
}

/// A curve for each run.
fn each(drawn: &[Named], join: Join, of: impl Fn(&SeriesRow) -> Option<f64>) -> Vec<Curve> {
    let curve = |(i, one): (usize, &Named)| Curve {
        name: one.name.clone(),
        ink: Ink::Measured(i),
        pieces: of_series(one.run, join, &of),
    };
    drawn.iter().enumerate().map(curve).collect()
}

/// What a curve is called and shows of each second.
type Part<'a> = (&'a str, fn(&SeriesRow) -> Option<f64>);

/// The parts of one run, or a chart of each part with a curve for each run.
type Parts<'a> = [Part<'a>];

fn curves_of_one(run: &Run, join: Join, parts: &Parts) -> Vec<Curve> {
    let curve = |(i, (name, of)): (usize, &Part)| Curve {
        name: (*name).to_owned(),
        ink: Ink::Measured(i),
        pieces: of_series(run, join, of),
    };
    parts.iter().enumerate().map(curve).collect()
}

fn throughput(time: &Time, drawn: &[Named]) -> Chart {
    let mut curves = match drawn {
        [one] => {
            let late = |row: &SeriesRow| row.goodput_per_s < row.throughput_per_s;
            let parts: &Parts = &[
                ("ok", |row| Some(row.throughput_per_s)),
                ("ok within the deadline", |row| Some(row.goodput_per_s)),
            ];
            let shown = if one.run.series.iter().any(late) {
                parts
            } else {
                &parts[..1]
            };
            curves_of_one(one.run, Join::Mean, shown)
        }
        several => each(several, Join::Mean, |row| Some(row.throughput_per_s)),
    };
    curves.extend(offered(drawn, time.axis.to));
    let y = Axis::from_zero(largest(&curves), label_count);
    time.chart("Throughput", "ok answers per second", y, curves)
}

/// What the plan asks for, where all runs ask for the same and it is a rate.
fn offered(drawn: &[Named], end_s: f64) -> Option<Curve> {
    let run = drawn.first()?.run;
    let asks = |run: &Run| {
        (
            run.plan.rate_per_s,
            run.plan.profile.clone(),
            run.plan.duration_s,
        )
    };
    if run.plan.model != Model::Open || drawn.iter().any(|one| asks(one.run) != asks(run)) {
        return None;
    }
    let sending_s = run.sending_s.min(end_s);
    let points: Vec<(f64, f64)> = match &run.plan.profile {
        Some(Profile::Replay(_)) => return None,
        Some(profile) => {
            let stretches = profile.stretches();
            // A run that was cut short has no axis for the rest.
            let begun = stretches.iter().filter(|s| s.from_s < sending_s);
            let ends = begun.flat_map(|s| {
                let length_s = s.length_s.min(sending_s - s.from_s);
                let end = s.rate_per_s + s.slope * length_s;
                [(s.from_s, s.rate_per_s), (s.from_s + length_s, end)]
            });
            ends.collect()
        }
        None => {
            let rate = run.plan.rate_per_s?;
            vec![(0.0, rate), (sending_s, rate)]
        }
    };
    let sound = |(x, y): &(f64, f64)| drawable(*x) && drawable(*y);
    points.iter().all(sound).then(|| Curve {
        name: "offered by the plan".to_owned(),
        ink: Ink::Asked,
        pieces: vec![Piece {
            points,
            faint: false,
        }],
    })
}

fn responses(time: &Time, drawn: &[Named]) -> Vec<Chart> {
    let parts: &Parts = &[("p50", |row| row.p50_us), ("p99", |row| row.p99_us)];
    let chart = |title: &str, curves: Vec<Curve>| {
        // Where nothing was answered there is nothing to draw.
        curves.iter().flat_map(Curve::values).next()?;
        let y = Axis::of_times(curves.iter().flat_map(Curve::values));
        let mut chart = time.chart(title, "by when requests ended", y, curves);
        if drawn
            .iter()
            .any(|one| one.run.response_time_us.censored > 0)
        {
            chart.notes.push(
                "A gap is a second without an answer, or whose percentile lies among requests that timed out.".to_owned(),
            );
        }
        Some(chart)
    };
    match drawn {
        [one] => {
            let curves = curves_of_one(one.run, Join::Largest, parts);
            chart("Response time", curves).into_iter().collect()
        }
        several => parts
            .iter()
            .filter_map(|(name, of)| {
                chart(
                    &format!("Response time, {name}"),
                    each(several, Join::Largest, of),
                )
            })
            .collect(),
    }
}

fn cpu(time: &Time, drawn: &[Named]) -> Vec<Chart> {
    // Of a side that was not watched there is nothing to draw.
    let watched = |of: fn(&Run) -> bool| drawn.iter().any(|one| of(one.run));
    let mut parts: Vec<Part> = vec![
        ("client, user", |row| Some(row.client_user_cpus)),
        ("client, system", |row| Some(row.client_system_cpus)),
    ];
    if watched(|run| run.server.is_some()) {
        parts.push(("server, user", |row| row.server_user_cpus));
        parts.push(("server, system", |row| row.server_system_cpus));
    }
    if watched(|run| run.store.is_some()) {
        parts.push(("store, user", |row| row.store_user_cpus));
        parts.push(("store, system", |row| row.store_system_cpus));
    }
    let chart = |title: &str, curves: Vec<Curve>| {
        let y = Axis::from_zero(largest(&curves), label_count);
        time.chart(title, "CPUs", y, curves)
    };
    match drawn {
        [one] => vec![chart("CPU", curves_of_one(one.run, Join::Mean, &parts))],
        several => parts
            .iter()
            .map(|(name, of)| chart(&format!("CPU of the {name}"), each(several, Join::Mean, of)))
            .collect(),
    }
}

/// Requests that ended otherwise than ok, where there were any.
fn failures(time: &Time, drawn: &[Named]) -> Option<Chart> {
    let per_s = |row: &SeriesRow| Some(row.failed as f64 / (row.to_s - row.from_s));
    let curves = each(drawn, Join::Mean, per_s);
    let most = largest(&curves);
    (most > 0.0).then(|| {
        let y = Axis::from_zero(most, label_count);
        time.chart(
            "Not ok",
            "requests per second that ended otherwise",
            y,
            only(curves, "not ok"),
        )
    })
}

/// Open connections, where their number changed.
fn connections(time: &Time, drawn: &[Named]) -> Option<Chart> {
    let changed = |run: &Run| {
        let mut all = run.series.iter().map(|row| row.open_connections);
        let first = all.next();
        // The last second ends after the connections were closed.
        all.rev().skip(1).any(|n| Some(n) != first)
    };
    if !drawn.iter().any(|one| changed(one.run)) {
        return None;
    }
    let curves = each(drawn, Join::Largest, |row| {
        Some(row.open_connections as f64)
    });
    let y = Axis::from_zero(largest(&curves), label_count);
    Some(time.chart(
        "Connections",
        "open at the end of the second",
        y,
        only(curves, "open"),
    ))
}

/// Of one run the curve is called for what it shows.
fn only(mut curves: Vec<Curve>, name: &str) -> Vec<Curve> {
    if let [one] = curves.as_mut_slice() {
        name.clone_into(&mut one.name);
    }
    curves
}
