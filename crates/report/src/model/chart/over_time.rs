//! Charts over time: throughput, response times, CPU, failures, connections and monitored metrics.
//! Each selected run has a curve. Each measurement is a step of the curve; missing measurements are
//! gaps. Charts of one run also mark what its verdict cites.

use floodmark_record::cause::Cause;
use floodmark_record::host::Environment;
use floodmark_record::metric::{
    CgroupFigure, DiskFigure, HostFigure, JvmFigure, ListenerFigure, MetricKind, NetworkFigure,
    PoolFigure, PostgresqlFigure, ProcessFigure, Role, SocketFigure, ThreadGroupFigure,
    UpstreamFigure,
};
use floodmark_record::path::{Actor, ActorResource, StepKind};
use floodmark_record::plan::Schedule;
use floodmark_record::run::{FineThroughput, Run, Saturation, SeriesRow, TimeBuckets};
use floodmark_record::units::show_rate;
use floodmark_record::{Metric, Observation};

use super::{
    AreaColor, Axis, AxisFit, Chart, ChartBand, ChartMark, Curve, CurvePiece, CurveRole, HeatCell,
    Quantity, drawable,
};
use crate::model::figures::{extremes, seconds};
use crate::model::names::NamedRun;

/// Maximum length of the warm-up on the time axis, as a share of the measurement's length. The
/// warm-up needs little room, because its per-second data is not recorded.
const MAX_WARMUP: f64 = 0.2;

/// Returns the charts of the given runs, or no charts if the runs have no per-second data.
pub(crate) fn charts(drawn: &[NamedRun<'_>], environment: &Environment) -> Vec<Chart> {
    let has_series = drawn.iter().any(|one| !one.run.series.is_empty());
    let Some(time) = TimeAxis::of(drawn).filter(|_| has_series) else {
        return Vec::new();
    };
    let mut charts = vec![throughput(&time, drawn)];
    charts.extend(response_times(&time, drawn));
    if let [one] = drawn {
        charts.extend(heat_map(&time, one.run));
    }
    let add = |title, unit, by, specs: &[CurveSpec<'_>]| {
        let curves = combined(drawn, title, by, specs).into_iter();
        let chart = |(title, curves): (String, _)| {
            time.chart(&title, unit, AxisFit::FromZero(Quantity::Count), curves)
        };
        curves.map(chart).collect::<Vec<_>>()
    };
    match drawn {
        [one] => charts.extend(cpu_charts(&time, one.run, environment)),
        _ => {
            let runs: Vec<&Run> = drawn.iter().map(|one| one.run).collect();
            let cpus = [vec![CLIENT], server_side(&runs)].concat();
            charts.extend(add("CPU", "CPUs", Aggregation::Mean, &cpus));
        }
    }
    let has_failures = |run: &Run| run.series.iter().any(|row| row.failed > 0);
    if drawn.iter().any(|one| has_failures(one.run)) {
        let failed: CurveSpec<'_> = ("not ok", |row| {
            Some(row.failed as f64 / (row.to_s - row.from_s))
        });
        let unit = "failed requests per second";
        charts.extend(add("Not ok", unit, Aggregation::Mean, &[failed]));
    }
    if drawn.iter().any(|one| connections_changed(one.run)) {
        let open: CurveSpec<'_> = ("open", |row| Some(row.open_connections as f64));
        let unit = "open at the end of the second";
        charts.extend(add("Connections", unit, Aggregation::Largest, &[open]));
    }
    charts
}

fn connections_changed(run: &Run) -> bool {
    let mut all = run.series.iter().map(|row| row.open_connections);
    let first = all.next();
    // Skip the last second, because all connections are closed before it ends.
    all.rev().skip(1).any(|n| Some(n) != first)
}

/// The axis and notes that all charts over time share.
#[derive(Default)]
struct TimeAxis {
    axis: Axis,
    shades: Vec<(f64, f64)>,
    marks: Vec<ChartMark>,
    bands: Vec<ChartBand>,
    /// Explanations of shades, marks and merged seconds.
    notes: Vec<String>,
}

impl TimeAxis {
    /// Returns the time axis of the runs, or `None` if there is nothing to draw.
    fn of(drawn: &[NamedRun<'_>]) -> Option<Self> {
        let runs: Vec<&Run> = drawn.iter().map(|one| one.run).collect();
        // Runs without per-second data may still contain sampled metrics.
        let ends = runs
            .iter()
            .map(|run| run.series.last().map_or(run.sending_s, |row| row.to_s));
        let end = ends.filter(|to| drawable(*to)).fold(0.0, f64::max);
        if end <= 0.0 {
            return None;
        }
        let mut time = TimeAxis {
            axis: Axis::of_seconds(0.0, end),
            ..TimeAxis::default()
        };
        time.shade_warmup(&runs, end);
        time.shade_outside_window(&runs, end);
        time.mark_events(&runs, end);
        let longest = runs.iter().map(|run| run.series.len()).max().unwrap_or(0);
        time.notes.extend(rows_per_step(longest).map(|n| {
            format!(
                "Each point covers up to {n} s: the mean for rates and CPU use, the worst second for percentiles."
            )
        }));
        Some(time)
    }

    fn shade_warmup(&mut self, runs: &[&Run], end: f64) {
        let lengths = runs.iter().filter_map(|run| run.warmup.as_ref());
        let longest = lengths.map(|warmup| warmup.duration_s).fold(0.0, f64::max);
        if longest > 0.0 {
            let from = -longest.min(end * MAX_WARMUP);
            self.axis = Axis::of_seconds(from, end);
            self.shades.push((from, 0.0));
            let note = format!(
                "The shaded area before 0 s is the warm-up of {}, which is not recorded.",
                seconds(longest)
            );
            self.notes.push(note);
        }
    }

    /// Shades the parts outside the window, unless the runs have different windows.
    fn shade_outside_window(&mut self, runs: &[&Run], end: f64) {
        // Ignore the drain at the end, which is too narrow to see.
        let outside = |run: &Run| run.window.from_s > 0.0 || run.window.to_s < end * 0.995;
        if !runs.iter().any(|run| outside(run)) {
            return;
        }
        let window = &runs[0].window;
        let same = runs.iter().all(|run| run.window == *window);
        let sound = window.from_s < window.to_s && drawable(window.from_s) && drawable(window.to_s);
        self.notes.push(if same && sound {
            let (from, to) = (window.from_s.min(end), window.to_s.min(end));
            let parts = [(0.0, from), (to, end)].into_iter();
            self.shades.extend(parts.filter(|(a, b)| b - a > 1e-3));
            let (from, to) = (seconds(from), seconds(to));
            format!("Shaded areas with faint lines are outside the window from {from} to {to}.")
        } else {
            "Faint lines are outside the run's window.".to_owned()
        });
    }

    fn mark_events(&mut self, runs: &[&Run], end: f64) {
        let [run] = runs else { return };
        self.bands = bands(run);
        let fell_behind = match &run.saturation {
            Some(Saturation::FellBehind(found)) => {
                let offered = show_rate(found.offered_per_s);
                let what = format!("the server fell behind at an offered rate of {offered}/s");
                Some((found.at_s, "fell behind", what))
            }
            _ => None,
        };
        let last_response = run.server_gone_since_s;
        let last_response =
            last_response.map(|since| (since, "last response", "last response".to_owned()));
        let first_failure = first_failure_s(run);
        let first_failure =
            first_failure.map(|at| (at, "first failures", "first failed requests".to_owned()));
        let all = [fell_behind, last_response, first_failure].into_iter();
        for (at, label, what) in all.flatten() {
            if drawable(at) && at <= end {
                self.marks.push(ChartMark::new(at, label));
                self.notes
                    .push(format!("Vertical line at {}: {what}.", seconds(at)));
            }
        }
    }

    fn chart(&self, title: &str, unit: &str, y: impl Into<AxisFit>, curves: Vec<Curve>) -> Chart {
        let axes = (self.axis.clone(), y);
        Chart {
            shades: self.shades.clone(),
            marks: self.marks.clone(),
            bands: self.bands.clone(),
            ..Chart::new(title, unit, axes, curves)
        }
    }
}

/// Returns the notes that apply to all charts over time.
pub(crate) fn notes(drawn: &[NamedRun<'_>]) -> Vec<String> {
    let mut notes = TimeAxis::of(drawn).map_or_else(Vec::new, |time| time.notes);
    let without = drawn.iter().filter(|one| one.run.series.is_empty());
    let names: Vec<&str> = without.map(|one| one.name.as_str()).collect();
    if !names.is_empty() {
        let names = names.join("; ");
        notes.push(format!(
            "No curves over time, because per-second data is missing: {names}."
        ));
    }
    notes
}

/// The name of a curve, and a function that returns the value for one second.
type CurveSpec<'a> = (&'a str, fn(&SeriesRow) -> Option<f64>);

fn throughput(time: &TimeAxis, drawn: &[NamedRun<'_>]) -> Chart {
    let late = |row: &SeriesRow| row.goodput_per_s < row.throughput_per_s;
    let mut specs: Vec<CurveSpec<'_>> = vec![("ok", |row| Some(row.throughput_per_s))];
    if let [one] = drawn
        && one.run.series.iter().any(late)
    {
        specs.push(("ok within the deadline", |row| Some(row.goodput_per_s)));
    }
    let combined = combined(drawn, "Throughput", Aggregation::Mean, &specs);
    let mut curves: Vec<Curve> = combined
        .into_iter()
        .flat_map(|(_, curves)| curves)
        .collect();
    if let [one] = drawn
        && let Some(fine) = &one.run.fine_throughput
    {
        curves[0].pieces = pieces(one.run, &fine_steps(one.run, fine));
    }
    curves.extend(offered(drawn, time.axis.to));
    let unit = "ok responses per second";
    let y = AxisFit::FromZero(Quantity::Count);
    let chart = time.chart("Throughput", unit, y, curves);
    match drawn {
        [one] => with_limit(chart, one.run),
        _ => chart,
    }
}

/// Returns the throughput in steps of 100 ms during the sending window.
fn fine_steps(run: &Run, fine: &FineThroughput) -> Vec<CurveStep> {
    let steps = (0..).zip(&fine.ok).map(|(i, ok)| CurveStep {
        from_s: f64::from(i) * fine.step_s,
        to_s: f64::from(i + 1) * fine.step_s,
        value: Some(*ok as f64 / fine.step_s),
    });
    // Omit the step in which sending ends, because it would look like a drop.
    steps
        .filter(|step| step.to_s <= run.sending_s + 1e-6)
        .collect()
}

/// Returns the curve of the offered rate if the rate is the same in all runs.
fn offered(drawn: &[NamedRun<'_>], end_s: f64) -> Option<Curve> {
    let run = drawn.first()?.run;
    let offer = |run: &Run| {
        let plan = &run.plan;
        (plan.schedule().cloned(), plan.duration_s())
    };
    let schedule = run.plan.schedule()?;
    if drawn.iter().any(|one| offer(one.run) != offer(run)) {
        return None;
    }
    let sending_s = run.sending_s.min(end_s);
    let points: Vec<(f64, f64)> = match schedule {
        Schedule::Replay { .. } => return None,
        Schedule::Ramp { .. } | Schedule::Steps { .. } => {
            let segments = schedule.segments();
            // The time axis of an interrupted run ends before the schedule does.
            let begun = segments.iter().filter(|s| s.from_s < sending_s);
            let ends = begun.flat_map(|s| {
                let length_s = s.length_s.min(sending_s - s.from_s);
                let end = s.rate_per_s + s.slope * length_s;
                [(s.from_s, s.rate_per_s), (s.from_s + length_s, end)]
            });
            ends.collect()
        }
        Schedule::Constant { rate, .. } | Schedule::Burst { rate, .. } => {
            vec![(0.0, rate.per_s()), (sending_s, rate.per_s())]
        }
    };
    let sound = |(x, y): &(f64, f64)| drawable(*x) && drawable(*y);
    points.iter().all(sound).then(|| Curve {
        name: "offered by the plan".to_owned(),
        role: CurveRole::Offered,
        pieces: vec![CurvePiece::of(points)],
    })
}

/// For a single run, returns one chart with all curves. For several runs, returns a chart per
/// curve.
fn combined(
    drawn: &[NamedRun<'_>],
    title: &str,
    by: Aggregation,
    specs: &[CurveSpec<'_>],
) -> Vec<(String, Vec<Curve>)> {
    if let [one] = drawn {
        let curves = specs.iter().enumerate();
        let curves = curves
            .map(|(i, (name, value))| Curve::measured(i, name, of_series(one.run, by, value)));
        return vec![(title.to_owned(), curves.collect())];
    }
    let of_all = |(name, value): &CurveSpec<'_>| {
        let runs = drawn.iter().enumerate();
        let curves =
            runs.map(|(i, one)| Curve::measured(i, &one.name, of_series(one.run, by, value)));
        let title = match specs {
            [_] => title.to_owned(),
            _ => format!("{title}: {name}"),
        };
        (title, curves.collect())
    };
    specs.iter().map(of_all).collect()
}

fn response_times(time: &TimeAxis, drawn: &[NamedRun<'_>]) -> Vec<Chart> {
    let all: [CurveSpec<'_>; 5] = [
        ("p50", |row| row.p50_us),
        ("p90", |row| row.p90_us),
        ("p99", |row| row.p99_us),
        ("p99.9", |row| row.p99_9_us),
        ("max", |row| row.max_us),
    ];
    // If there are several runs, each percentile needs its own chart, so show only p50 and p99.
    let specs = match drawn {
        [_] => &all[..],
        _ => &[all[0], all[2]][..],
    };
    let mut censored = drawn.iter().map(|one| one.run.response_time_us.censored);
    let gap = censored.any(|n| n > 0).then(|| {
        "A gap is a second without a response, or a second whose percentile falls among requests without a response."
            .to_owned()
    });
    let curves = combined(drawn, "Response time", Aggregation::Largest, specs).into_iter();
    let timed = curves.filter(|(_, curves)| curves.iter().flat_map(Curve::values).next().is_some());
    let charts = timed.map(|(title, curves)| {
        let chart = time.chart(&title, "by end of the request", AxisFit::Times, curves);
        chart.with_notes(gap.clone())
    });
    charts.collect()
}

/// CPU use of the client, in CPUs.
const CLIENT: CurveSpec<'_> = ("client", |row| {
    Some(row.client_user_cpus + row.client_system_cpus)
});

const SERVER: CurveSpec<'_> = ("server", |row| {
    Some(row.server_user_cpus? + row.server_system_cpus?)
});

const STORE: CurveSpec<'_> = ("store", |row| {
    Some(row.store_user_cpus? + row.store_system_cpus?)
});

/// Returns the CPU use of the server and the store, if they were monitored in any of the runs.
fn server_side(runs: &[&Run]) -> Vec<CurveSpec<'static>> {
    let has_server = runs.iter().any(|run| run.server.is_some());
    let has_store = runs.iter().any(|run| run.store.is_some());
    let all = [has_server.then_some(SERVER), has_store.then_some(STORE)];
    all.into_iter().flatten().collect()
}

/// A host whose CPU use is drawn.
struct Host {
    title: &'static str,
    /// Scope of the host's metrics.
    role: Option<Role>,
    cpus: u32,
}

/// Returns a chart for each host of a run.
fn cpu_charts(time: &TimeAxis, run: &Run, environment: &Environment) -> Vec<Chart> {
    let here = Host {
        title: "CPU",
        role: None,
        cpus: run.host_cpus(environment),
    };
    let servers = server_side(&[run]);
    let charts = match &run.remote {
        None => vec![cpu_chart(
            time,
            run,
            &here,
            &[vec![CLIENT], servers].concat(),
        )],
        Some(remote) => {
            let remote = Host {
                title: "CPU of the server's host",
                role: Some(Role::Server),
                cpus: remote.environment.cpus,
            };
            let client = cpu_chart(time, run, &here, &[CLIENT]);
            vec![client, cpu_chart(time, run, &remote, &servers)]
        }
    };
    charts.into_iter().flatten().collect()
}

/// Returns a chart of the CPU use on one host. Includes other programs and idle CPUs if the host
/// was monitored.
fn cpu_chart(
    time: &TimeAxis,
    run: &Run,
    host: &Host,
    participants: &[CurveSpec<'static>],
) -> Option<Chart> {
    let parts = participants.iter();
    let parts = parts.map(|(name, cpus)| (*name, joined(rows(run, cpus), Aggregation::Mean)));
    let mut parts: Vec<(&str, Vec<CurveStep>)> = parts.collect();
    let first = parts.first()?.1.clone();
    let used = |parts: &[(&str, Vec<CurveStep>)], i: usize| -> f64 {
        parts.iter().filter_map(|(_, steps)| steps[i].value).sum()
    };
    let busy = Metric::Host(host.role, HostFigure::Busy);
    let mut seen = run.observations.iter();
    if let Some(busy) = seen.find(|of| of.metric == busy && !of.is_peak) {
        let busy: Vec<Option<f64>> = first.iter().map(|row| mean(run, busy, row)).collect();
        let rest = |parts: &[(&str, Vec<CurveStep>)], limit: &dyn Fn(usize) -> Option<f64>| {
            let rows = first.iter().enumerate().map(|(i, row)| CurveStep {
                value: limit(i).map(|limit| (limit - used(parts, i)).max(0.0)),
                ..*row
            });
            rows.collect::<Vec<_>>()
        };
        let others = rest(&parts, &|i| busy[i]);
        parts.push(("other programs", others));
        let idle = rest(&parts, &|_| Some(f64::from(host.cpus)));
        parts.push(("idle", idle));
    }
    // A stack needs all of its parts, so rows that lack a part are gaps.
    let is_known = |i: usize| parts.iter().all(|(_, steps)| steps[i].value.is_some());
    let curves: Vec<Curve> = parts
        .iter()
        .enumerate()
        .map(|(i, (name, steps))| {
            let color = match *name {
                "idle" => AreaColor::Idle,
                _ => AreaColor::Curve(i),
            };
            let pieces = (0..first.len()).collect::<Vec<_>>();
            let pieces = pieces.chunk_by(|a, b| is_known(*a) == is_known(*b));
            let pieces = pieces.filter(|rows| is_known(rows[0]));
            let pieces = pieces.map(|rows| {
                let ends = rows.iter().filter_map(|i| {
                    let step = steps[*i];
                    Some([(step.from_s, step.value?), (step.to_s, step.value?)])
                });
                CurvePiece::of(ends.flatten().collect())
            });
            Curve {
                name: (*name).to_owned(),
                role: CurveRole::Area(color),
                pieces: pieces.collect(),
            }
        })
        .collect();
    let highest = (0..first.len())
        .map(|i| used(&parts, i))
        .fold(0.0, f64::max);
    if highest == 0.0 {
        return None;
    }
    let y = Axis::from_zero(highest, Quantity::Count);
    Some(time.chart(host.title, "CPUs, stacked", y, curves))
}

/// Returns the mean of a metric over the time that a row covers, or `None` if the metric was not
/// sampled in that time.
fn mean(run: &Run, seen: &Observation, row: &CurveStep) -> Option<f64> {
    let (mut sum, mut length_s) = (0.0, 0.0);
    for step in steps(run, seen) {
        let overlap_s = step.to_s.min(row.to_s) - step.from_s.max(row.from_s);
        if overlap_s > 0.0
            && let Some(value) = step.value
        {
            sum += overlap_s * value;
            length_s += overlap_s;
        }
    }
    (length_s > 0.0).then(|| sum / length_s)
}

/// Maximum number of columns in a heat map; more would make the page too large.
const MAX_COLUMNS: usize = 120;

/// Number of intensities.
const INTENSITIES: f64 = 8.0;

/// Returns the heat map of a run, or `None` if the record does not contain the distributions.
fn heat_map(time: &TimeAxis, run: &Run) -> Option<Chart> {
    let each = run.series.len().div_ceil(MAX_COLUMNS).max(1);
    let columns: Vec<(f64, f64, TimeBuckets)> =
        run.series.chunks(each).filter_map(column).collect();
    let of_columns = || columns.iter().map(|(_, _, buckets)| buckets);
    let first = of_columns().map(|buckets| buckets.first).min()?;
    let end = of_columns()
        .map(|buckets| buckets.first + buckets.counts.len() as u32)
        .max()?;
    let us = |index: u32| TimeBuckets::lower_ns(index) / 1e3;
    let mut cells = Vec::new();
    for (from_s, to_s, buckets) in &columns {
        let total: u64 = buckets.counts.iter().sum();
        for (index, count) in (buckets.first..).zip(&buckets.counts) {
            if *count > 0 {
                let share = *count as f64 / total as f64;
                cells.push(HeatCell {
                    x: (*from_s, *to_s),
                    y: (us(index), us(index + 1)),
                    intensity: intensity(share),
                });
            }
        }
    }
    let y = Axis::of_decades(us(first), us(end));
    let chart = time.chart("Distribution of response times", "by second", y, Vec::new());
    let marks = Vec::new();
    let note = "The stronger the color of a cell, the larger its share of the second's responses; the faintest cells \
                have less than 0.1 %.";
    Some(
        Chart {
            cells,
            marks,
            ..chart
        }
        .with_notes([note.to_owned()]),
    )
}

/// Merges consecutive rows into one column. The drain after the last second gets no column.
fn column(rows: &[SeriesRow]) -> Option<(f64, f64, TimeBuckets)> {
    const SHORTEST_S: f64 = 0.1;
    let (first, last) = (rows.first()?, rows.last()?);
    let mut buckets = rows.iter().filter_map(|row| row.response_times.as_ref());
    let mut merged = buckets.next()?.clone();
    buckets.for_each(|other| merged.merge(other));
    let is_sound = first.from_s.is_finite() && last.to_s - first.from_s >= SHORTEST_S;
    is_sound.then_some((first.from_s, last.to_s, merged))
}

/// Returns the intensity of a share of requests. Each step is a factor of about three, so that a
/// few slow requests remain visible.
fn intensity(share: f64) -> u8 {
    let steps = (share.max(1e-9).log10() + 3.5) / 3.5 * INTENSITIES;
    steps.ceil().clamp(1.0, INTENSITIES) as u8
}

/// Maximum number of steps in a curve; more would be narrower than a pixel.
const MAX_STEPS: usize = 300;

/// Maximum time, in seconds, between two steps that count as adjacent.
const ADJACENT_S: f64 = 1e-3;

/// Minimum length, in seconds, of a step whose rate is meaningful. Regular samples may be about as
/// short, so a step counts as too short only if it is also less than half as long as the preceding
/// step.
const SLIVER_S: f64 = 0.05;

/// Method for merging several measurements into one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aggregation {
    /// Mean weighted by length; used for rates and CPU.
    Mean,
    /// Maximum; used for percentiles. Unknown if any value is unknown.
    Largest,
}

/// A value over a time range; `None` if not measured.
#[derive(Debug, Clone, Copy, PartialEq)]
struct CurveStep {
    from_s: f64,
    to_s: f64,
    value: Option<f64>,
}

/// Returns the curve of `value` over the seconds of a run.
fn of_series(
    run: &Run,
    by: Aggregation,
    value: impl Fn(&SeriesRow) -> Option<f64>,
) -> Vec<CurvePiece> {
    pieces(run, &joined(rows(run, value), by))
}

/// Returns a step for each second of a run.
fn rows(run: &Run, value: impl Fn(&SeriesRow) -> Option<f64>) -> impl Iterator<Item = CurveStep> {
    run.series.iter().map(move |row| CurveStep {
        from_s: row.from_s,
        to_s: row.to_s,
        value: value(row),
    })
}

/// Returns the number of rows merged into one step, or `None` if no rows are merged.
fn rows_per_step(rows: usize) -> Option<usize> {
    Some(rows.div_ceil(MAX_STEPS)).filter(|n| *n > 1)
}

/// Merges steps until at most [`MAX_STEPS`] remain.
fn joined(steps: impl Iterator<Item = CurveStep>, by: Aggregation) -> Vec<CurveStep> {
    let sound =
        |step: &CurveStep| drawable(step.from_s) && drawable(step.to_s) && step.to_s > step.from_s;
    let steps = without_slivers(steps.filter(sound), by);
    let each = rows_per_step(steps.len()).unwrap_or(1);
    steps
        .chunks(each)
        .filter_map(|part| one(part, by))
        .collect()
}

/// Merges steps that are too short for a rate into the preceding step. Otherwise a tick of CPU time
/// in the last microseconds of a run would look like many CPUs. Percentiles of a short step cover
/// few requests and are dropped.
fn without_slivers(steps: impl Iterator<Item = CurveStep>, by: Aggregation) -> Vec<CurveStep> {
    let mut kept: Vec<CurveStep> = Vec::new();
    for step in steps {
        match kept.last_mut() {
            Some(last) if length_s(&step) < SLIVER_S.min(length_s(last) / 2.0) => {
                if by == Aggregation::Mean && step.value.is_some() {
                    last.value = one(&[*last, step], by).and_then(|both| both.value);
                }
                last.to_s = step.to_s;
            }
            _ => kept.push(step),
        }
    }
    kept
}

fn length_s(step: &CurveStep) -> f64 {
    step.to_s - step.from_s
}

fn one(part: &[CurveStep], by: Aggregation) -> Option<CurveStep> {
    let (first, last) = (part.first()?, part.last()?);
    let value = match by {
        Aggregation::Largest => {
            let all: Option<Vec<f64>> = part.iter().map(|step| step.value).collect();
            all.map(|all| all.into_iter().fold(0.0, f64::max))
        }
        Aggregation::Mean => {
            let (mut sum, mut length) = (0.0, 0.0);
            for step in part {
                let Some(value) = step.value else { continue };
                sum += value * length_s(step);
                length += length_s(step);
            }
            (length > 0.0).then(|| sum / length)
        }
    };
    Some(CurveStep {
        from_s: first.from_s,
        to_s: last.to_s,
        value,
    })
}

/// Converts steps to lines. Parts outside the run's window become separate pieces.
fn pieces(run: &Run, steps: &[CurveStep]) -> Vec<CurvePiece> {
    let mut pieces: Vec<CurvePiece> = Vec::new();
    let mut end_s = f64::NEG_INFINITY;
    for step in steps {
        let Some(value) = step.value.filter(|value| drawable(*value)) else {
            end_s = f64::NEG_INFINITY;
            continue;
        };
        let middle = f64::midpoint(step.from_s, step.to_s);
        let faint = middle < run.window.from_s || middle > run.window.to_s;
        let follows = (step.from_s - end_s).abs() < ADJACENT_S;
        let ends = [(step.from_s, value), (step.to_s, value)];
        match pieces.last_mut() {
            Some(piece) if follows && piece.faint == faint => piece.points.extend(ends),
            Some(piece) if follows => {
                // Both pieces include this point, so that the curve has no gap.
                let joint = piece.points.last().copied();
                let points = joint.into_iter().chain(ends).collect();
                pieces.push(CurvePiece { points, faint });
            }
            _ => pieces.push(CurvePiece {
                points: ends.to_vec(),
                faint,
            }),
        }
        end_s = step.to_s;
    }
    pieces
}

/// Returns the values of a metric as steps. Times are in seconds since the start of the
/// measurement.
fn steps(run: &Run, seen: &Observation) -> impl Iterator<Item = CurveStep> {
    let warmup_s = run.warmup.as_ref().map_or(0.0, |warmup| warmup.duration_s);
    let held = run.connections.held.as_ref();
    let opening_s = held.map_or(0.0, |held| held.opening_ns as f64 / 1e9);
    let before_s = run
        .measured_from_ms
        .map_or(warmup_s + opening_s, |ms| ms as f64 / 1e3);
    let (start_s, step_s) = (seen.start_ms as f64 / 1e3, seen.step_ms as f64 / 1e3);
    let end_s = run.series.last().map_or(run.sending_s, |row| row.to_s);
    let step = move |(i, value): (usize, &f64)| {
        let begun_s = start_s + i as f64 * step_s - before_s;
        CurveStep {
            from_s: match begun_s {
                // A warm-up ends slightly after its last full second.
                s if s > -step_s * OF_WARMUP => s.max(0.0),
                s => s,
            },
            to_s: (begun_s + step_s).min(end_s),
            value: Some(*value),
        }
    };
    seen.values.iter().enumerate().map(step)
}

/// Maximum share of warm-up time in a sample that is drawn as part of the measurement.
const OF_WARMUP: f64 = 0.05;

/// Maximum number of charts. The record contains all metrics.
const MAX_CHARTS: usize = 8;

/// Returns the rank of a metric's chart. Metrics that explain why requests waited or failed come
/// first.
fn priority(metric: &Metric) -> usize {
    let pending = |pool: &str| Metric::CassandraPool(pool.to_owned(), PoolFigure::Pending);
    let first = [
        Metric::Sockets(Role::Server, SocketFigure::TimeWait),
        Metric::Sockets(Role::Client, SocketFigure::TimeWait),
        Metric::Network(None, NetworkFigure::TimeWait),
        Metric::Network(None, NetworkFigure::FailedAttempts),
        Metric::Network(None, NetworkFigure::ListenOverflows),
        Metric::Listener(ListenerFigure::AcceptQueue),
        Metric::Cgroup(Some(Role::Server), CgroupFigure::ThrottledTime),
        Metric::Jvm(Role::Server, JvmFigure::CollectionTime),
        Metric::Process(Role::Server, ProcessFigure::RunDelay),
        Metric::Process(Role::Store, ProcessFigure::RunDelay),
        Metric::Jvm(Role::Store, JvmFigure::CollectionTime),
        Metric::Postgresql(PostgresqlFigure::WaitingForLocks),
        Metric::Postgresql(PostgresqlFigure::Active),
        pending("Native-Transport-Requests"),
        pending("MutationStage"),
        Metric::Host(None, HostFigure::Steal),
        Metric::Process(Role::Server, ProcessFigure::Rss),
        Metric::Process(Role::Store, ProcessFigure::Rss),
        Metric::Disk(None, DiskFigure::BusyTime),
    ];
    let position = first.iter().position(|of| of == metric);
    position.unwrap_or(first.len())
}

/// Returns the factor that converts recorded values to displayed values, and the unit and quantity
/// of the displayed values. A counter becomes a rate.
fn display(key: &Observation) -> (f64, String, Quantity) {
    let unit = key.metric.unit();
    let per_s = 1e3 / key.step_ms.max(1) as f64;
    match (key.metric.kind(), unit) {
        (MetricKind::Counter, "bytes") => (per_s, "per second".to_owned(), Quantity::Bytes),
        (MetricKind::Counter, "count") => (per_s, "per second".to_owned(), Quantity::Count),
        (MetricKind::Counter, "CPU-seconds") => (per_s, "CPUs".to_owned(), Quantity::Count),
        (MetricKind::Counter, "s") => (per_s, "s per second".to_owned(), Quantity::Count),
        (MetricKind::Counter, unit) => (per_s, format!("{unit} per second"), Quantity::Count),
        (_, "bytes") => (1.0, String::new(), Quantity::Bytes),
        (_, "µs") => (1.0, String::new(), Quantity::Microseconds),
        (_, "ms") => (1e3, String::new(), Quantity::Microseconds),
        (_, unit) => (1.0, unit.to_owned(), Quantity::Count),
    }
}

/// Returns whether another chart already shows this metric.
fn is_left_out(metric: &Metric) -> bool {
    use ProcessFigure::{OnCpu, System, User};
    matches!(
        metric,
        Metric::Process(_, User | System | OnCpu)
            | Metric::Listener(ListenerFigure::AcceptQueueLimit)
    )
}

/// Returns charts of up to [`MAX_CHARTS`] changing metrics, those cited by verdicts first. Also
/// returns the names of the other changing metrics.
pub(crate) fn observed_charts(drawn: &[NamedRun<'_>]) -> (Vec<Chart>, Vec<String>) {
    let Some(time) = TimeAxis::of(drawn) else {
        return (Vec::new(), Vec::new());
    };
    let mut keys: Vec<&Observation> = Vec::new();
    for one in drawn {
        for seen in &one.run.observations {
            let known = keys.iter().any(|key| same(key, seen));
            if !known && !seen.is_peak && !is_left_out(&seen.metric) {
                keys.push(seen);
            }
        }
    }
    let is_cited = |metric| drawn.iter().any(|one| is_cited(one.run, metric));
    keys.sort_by_cached_key(|key| (!is_cited(&key.metric), priority(&key.metric)));
    let charts = keys
        .iter()
        .map(|key| (key, observed_chart(&time, drawn, key)));
    let mut charts = charts.filter(|(_, chart)| chart.curves.iter().any(is_changing));
    let first = charts.by_ref().take(MAX_CHARTS);
    let first = first.map(|(_, chart)| chart).collect();
    (first, charts.map(|(key, _)| metric_name(key)).collect())
}

/// Returns whether the drawn values differ by more than 2 % of the largest value. A chart of flat
/// curves adds no information.
fn is_changing(curve: &Curve) -> bool {
    const FLAT: f64 = 0.02;
    let values: Vec<f64> = curve.values().collect();
    extremes(&values).is_some_and(|(least, largest)| largest - least > FLAT * largest)
}

fn same(a: &Observation, b: &Observation) -> bool {
    (&a.metric, a.is_peak, &a.source) == (&b.metric, b.is_peak, &b.source)
}

fn metric_name(seen: &Observation) -> String {
    format!("{} {}", seen.metric.subject(), seen.metric.name())
}

fn observed_chart(time: &TimeAxis, drawn: &[NamedRun<'_>], key: &Observation) -> Chart {
    let (factor, unit, quantity) = display(key);
    let scaled = |run: &Run, seen: &Observation| {
        let steps = joined(steps(run, seen), Aggregation::Mean).into_iter();
        let steps = steps.map(|step| CurveStep {
            value: step.value.map(|value| factor * value),
            ..step
        });
        steps.collect::<Vec<_>>()
    };
    let title = key.metric.title();
    let curve = |(i, one): (usize, &NamedRun<'_>)| {
        let seen = one.run.observations.iter().find(|seen| same(seen, key))?;
        let name = match drawn.len() {
            1 => &title,
            _ => &one.name,
        };
        let pieces = pieces(one.run, &scaled(one.run, seen));
        Some(Curve::measured(i, name, pieces))
    };
    let curves: Vec<Curve> = drawn.iter().enumerate().filter_map(curve).collect();
    let step = seconds(key.step_ms as f64 / 1e3);
    let source = format!("one value per {step}, from {}", key.source);
    let unit = match unit.as_str() {
        "" => source,
        unit => format!("{unit}, {source}"),
    };
    let chart = time.chart(&title, &unit, AxisFit::FromZero(quantity), curves);
    match drawn {
        [one] => with_metric_limit(chart, one.run, &key.metric),
        _ => chart,
    }
}

/// Adds the metric's limit to the chart if the metric comes close to the limit.
fn with_metric_limit(chart: Chart, run: &Run, metric: &Metric) -> Chart {
    const NEAR: f64 = 0.4;
    let limit = limit_of(metric).and_then(|(limit, label)| {
        let mut seen = run.observations.iter();
        let values = &seen.find(|of| of.metric == limit)?.values;
        let (_, largest) = extremes(values)?;
        Some((largest, label))
    });
    match limit {
        Some((limit, label)) if chart.y.to >= NEAR * limit => {
            chart.with_level(limit, format!("{label}: {}", Quantity::Count.show(limit)))
        }
        _ => chart,
    }
}

/// Maximum ratio of a limit to the upper end of the y axis for which the limit is drawn. A higher
/// limit would flatten the curve.
const FARTHEST_LIMIT: f64 = 2.0;

/// Minimum share of a step that garbage collection must take for the step to be marked.
const LONG_COLLECTION: f64 = 0.2;

/// Maximum number of marked ranges. More would be narrower than a pixel.
const MAX_BANDS: usize = 40;

/// Adds the verdict's throughput limit to the chart if the axis can show it.
fn with_limit(chart: Chart, run: &Run) -> Chart {
    let limit = run.verdict.as_ref();
    let limit = limit.and_then(|verdict| Some((verdict.limit_per_s?, verdict.cause)));
    match limit {
        Some((limit_per_s, cause)) if limit_per_s <= FARTHEST_LIMIT * chart.y.to => {
            let label = format!("{cause}: at most {}/s", show_rate(limit_per_s));
            chart.with_level(limit_per_s, label)
        }
        _ => chart,
    }
}

/// Returns the start of the first second with failed requests, or `None` if this is the run's first
/// second or if no request failed.
fn first_failure_s(run: &Run) -> Option<f64> {
    let first = run.series.iter().position(|row| row.failed > 0)?;
    (first > 0).then(|| run.series[first].from_s)
}

/// Returns the time ranges that the verdict cites: garbage collections, and seconds in which no
/// request succeeded.
fn bands(run: &Run) -> Vec<ChartBand> {
    let verdict = run.verdict.as_ref();
    let is_cited = |cause| {
        verdict.is_some_and(|verdict| verdict.cause == cause || verdict.also.contains(&cause))
    };
    let mut bands: Vec<ChartBand> = Vec::new();
    let mut add = |from: f64, to: f64, label: &str| match bands.last_mut() {
        Some(last) if last.label == label && from <= last.to + 1e-3 => last.to = to,
        _ => bands.push(ChartBand {
            from,
            to,
            label: label.to_owned(),
        }),
    };
    if is_cited(Cause::ServerStall) {
        let stalled = run.series.iter().filter(|row| row.throughput_per_s == 0.0);
        stalled.for_each(|row| add(row.from_s, row.to_s, "no response"));
    }
    let collections = Metric::Jvm(Role::Server, JvmFigure::CollectionTime);
    let mut seen = run.observations.iter();
    if let Some(seen) = seen.find(|of| of.metric == collections && !of.is_peak)
        && is_cited(Cause::Gc)
    {
        let is_long = |step: &CurveStep| {
            step.from_s >= 0.0
                && step
                    .value
                    .is_some_and(|s| s >= LONG_COLLECTION * (step.to_s - step.from_s))
        };
        let long = steps(run, seen).filter(is_long);
        long.for_each(|step| add(step.from_s, step.to_s, "GC"));
    }
    bands.truncate(MAX_BANDS);
    bands
}

/// Returns whether a step of the verdict's path refers to a metric.
fn is_cited(run: &Run, metric: &Metric) -> bool {
    let Some(verdict) = &run.verdict else {
        return false;
    };
    verdict.path.iter().any(|step| match step.kind {
        StepKind::AcceptQueue | StepKind::Backlog => {
            *metric == Metric::Listener(ListenerFigure::AcceptQueue)
        }
        StepKind::Threads => match metric {
            Metric::ThreadGroup(_, group, ThreadGroupFigure::Working) => {
                step.who.resource == Some(ActorResource::ThreadGroup(group.clone()))
            }
            _ => false,
        },
        StepKind::Connections => match metric {
            Metric::Upstream(address, UpstreamFigure::Waiting | UpstreamFigure::Established) => {
                step.who.resource == Some(ActorResource::Address(address.to_string()))
            }
            Metric::CassandraPool(_, PoolFigure::Pending) => step.who.actor == Actor::Store,
            _ => false,
        },
        StepKind::Lock => match metric {
            Metric::ThreadsBlocked { group, .. } => {
                step.who.resource == Some(ActorResource::ThreadGroup(group.clone()))
            }
            _ => false,
        },
        StepKind::RowLock => *metric == Metric::Postgresql(PostgresqlFigure::WaitingForLocks),
        StepKind::Gc => matches!(metric, Metric::Jvm(_, JvmFigure::CollectionTime)),
        StepKind::Jit => matches!(metric, Metric::Jvm(_, JvmFigure::CompilerTime)),
        StepKind::Files => matches!(metric, Metric::Process(_, ProcessFigure::OpenFiles)),
        StepKind::Ports => matches!(metric, Metric::Sockets(_, SocketFigure::TimeWait)),
        StepKind::Quota => matches!(metric, Metric::Cgroup(_, CgroupFigure::ThrottledTime)),
        StepKind::Steal => matches!(metric, Metric::Host(_, HostFigure::Steal)),
        StepKind::Disk | StepKind::Commit => {
            matches!(metric, Metric::Disk(_, DiskFigure::BusyTime))
        }
        _ => false,
    })
}

/// Returns the metric that is the upper limit of another, with the label of the limit.
fn limit_of(metric: &Metric) -> Option<(Metric, &'static str)> {
    Some(match metric {
        Metric::Listener(ListenerFigure::AcceptQueue) => (
            Metric::Listener(ListenerFigure::AcceptQueueLimit),
            "maximum length",
        ),
        Metric::Process(role, ProcessFigure::OpenFiles) => (
            Metric::Process(*role, ProcessFigure::OpenFilesLimit),
            "open-file limit",
        ),
        Metric::ThreadGroup(role, group, ThreadGroupFigure::Working) => (
            Metric::ThreadGroup(*role, group.clone(), ThreadGroupFigure::Threads),
            "threads of the group",
        ),
        _ => return None,
    })
}

#[cfg(test)]
#[path = "over_time_tests.rs"]
mod tests;
