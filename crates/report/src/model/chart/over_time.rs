//! Charts over time: throughput, response times, CPU, failures and connections. Each selected run
//! has a curve.

use floodmark_record::fine_series::{FineThroughput, TimeBuckets};
use floodmark_record::host::Environment;
use floodmark_record::metric::{HostFigure, Role};
use floodmark_record::plan::Schedule;
use floodmark_record::run::{Run, Saturation, SeriesRow};
use floodmark_record::units::show_rate;
use floodmark_record::{Metric, Observation};

use super::curves::{Aggregation, CurveStep, joined, of_series, pieces, rows_per_step, steps};
use super::{
    AreaColor, Axis, AxisFit, Chart, ChartBand, ChartMark, Curve, CurvePiece, CurveRole, HeatCell,
    Quantity, drawable, evidence,
};
use crate::model::figures::seconds;
use crate::model::names::NamedRun;

/// Maximum share of the time axis for the warm-up. Per-second data of the warm-up is not recorded.
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
            let mut cpus: Vec<CurveSpec<'_>> = vec![("client", |row| {
                Some(row.client_user_cpus + row.client_system_cpus)
            })];
            if drawn.iter().any(|one| one.run.server.is_some()) {
                cpus.push(("server", |row| {
                    Some(row.server_user_cpus? + row.server_system_cpus?)
                }));
            }
            if drawn.iter().any(|one| one.run.store.is_some()) {
                cpus.push(("store", |row| {
                    Some(row.store_user_cpus? + row.store_system_cpus?)
                }));
            }
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
    // The last second ends after all connections were closed.
    all.rev().skip(1).any(|n| Some(n) != first)
}

/// The axis and notes that all charts over time share.
pub(crate) struct TimeAxis {
    pub(crate) axis: Axis,
    pub(crate) shades: Vec<(f64, f64)>,
    marks: Vec<ChartMark>,
    bands: Vec<ChartBand>,
    /// Explanations of shades, marks and merged seconds.
    notes: Vec<String>,
}

impl TimeAxis {
    /// Returns the time axis of the runs, or `None` if there is nothing to draw.
    pub(crate) fn of(drawn: &[NamedRun<'_>]) -> Option<Self> {
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
            shades: Vec::new(),
            marks: Vec::new(),
            bands: Vec::new(),
            notes: Vec::new(),
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
        // The drain at the end is too narrow to see.
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
        self.bands = evidence::bands(run);
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
        let first_failure = evidence::first_failure_s(run);
        let first_failure =
            first_failure.map(|at| (at, "first failures", "first failed requests".to_owned()));
        let all = fell_behind.into_iter().chain(last_response);
        for (at, label, what) in all.chain(first_failure) {
            if drawable(at) && at <= end {
                self.marks.push(ChartMark::new(at, label));
                self.notes
                    .push(format!("Vertical line at {}: {what}.", seconds(at)));
            }
        }
    }

    pub(crate) fn chart(
        &self,
        title: &str,
        unit: &str,
        y: impl Into<AxisFit>,
        curves: Vec<Curve>,
    ) -> Chart {
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
        [one] => evidence::with_limit(chart, one.run),
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
    // A step that the end of sending cuts off would look like a drop.
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

/// Returns one chart with all curves of a single run. For several runs, returns a chart per curve.
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
    // Several runs have a chart for each percentile.
    let specs = match drawn {
        [_] => &all[..],
        _ => &[all[0], all[2]][..],
    };
    let mut censored = drawn.iter().map(|one| one.run.response_time_us.censored);
    let gap = censored.any(|n| n > 0).then(|| {
        "A gap is a second without a response, or a second whose percentile falls among timed-out requests."
            .to_owned()
    });
    let curves = combined(drawn, "Response time", Aggregation::Largest, specs).into_iter();
    let timed = curves.filter(|(_, curves)| curves.iter().flat_map(Curve::values).next().is_some());
    let charts = timed.map(|(title, curves)| {
        let mut chart = time.chart(&title, "by end of the request", AxisFit::Times, curves);
        chart.notes.extend(gap.clone());
        chart
    });
    charts.collect()
}

/// CPU use of one participant in a second, in CPUs.
type OfRow = fn(&SeriesRow) -> Option<f64>;

const CLIENT: (&str, OfRow) = ("client", |row| {
    Some(row.client_user_cpus + row.client_system_cpus)
});

const SERVER: (&str, OfRow) = ("server", |row| {
    Some(row.server_user_cpus? + row.server_system_cpus?)
});

const STORE: (&str, OfRow) = ("store", |row| {
    Some(row.store_user_cpus? + row.store_system_cpus?)
});

/// A host and the participants that run on it.
struct Host {
    title: &'static str,
    /// Scope of the host's metrics.
    role: Option<Role>,
    cpus: u32,
    participants: Vec<(&'static str, OfRow)>,
}

/// Returns a chart for each host of a run.
pub(super) fn cpu_charts(time: &TimeAxis, run: &Run, environment: &Environment) -> Vec<Chart> {
    let participants = |is_server_side: bool| {
        let server = run.server.is_some().then_some(SERVER);
        let store = run.store.is_some().then_some(STORE);
        let all = [(!is_server_side).then_some(CLIENT), server, store];
        all.into_iter().flatten().collect::<Vec<_>>()
    };
    let client_host = match &run.remote {
        None => participants(false),
        Some(_) => vec![CLIENT],
    };
    let here = Host {
        title: "CPU",
        role: None,
        cpus: run.host_cpus(environment),
        participants: client_host,
    };
    let remote = run.remote.as_ref().map(|remote| Host {
        title: "CPU of the server's host",
        role: Some(Role::Server),
        cpus: remote.environment.cpus,
        participants: participants(true),
    });
    let hosts = [Some(here), remote].into_iter().flatten();
    hosts
        .filter_map(|host| cpu_chart(time, run, &host))
        .collect()
}

/// Returns the CPU use of participants on one host. Other programs and idle CPUs are included if
/// the host was monitored.
fn cpu_chart(time: &TimeAxis, run: &Run, host: &Host) -> Option<Chart> {
    let parts = host.participants.iter().map(|(name, of)| {
        let rows = run.series.iter().map(|row| CurveStep {
            from_s: row.from_s,
            to_s: row.to_s,
            value: of(row),
        });
        ((*name).to_owned(), joined(rows, Aggregation::Mean))
    });
    let mut parts: Vec<(String, Vec<CurveStep>)> = parts.collect();
    let first = parts.first()?.1.clone();
    let used = |parts: &[(String, Vec<CurveStep>)], i: usize| -> f64 {
        parts.iter().filter_map(|(_, steps)| steps[i].value).sum()
    };
    let busy = Metric::Host(host.role, HostFigure::Busy);
    let mut seen = run.observations.iter();
    if let Some(busy) = seen.find(|of| of.metric == busy && !of.is_peak) {
        let busy: Vec<Option<f64>> = first.iter().map(|row| mean(run, busy, row)).collect();
        let rest = |parts: &[(String, Vec<CurveStep>)], limit: &dyn Fn(usize) -> Option<f64>| {
            let rows = first.iter().enumerate().map(|(i, row)| CurveStep {
                value: limit(i).map(|limit| (limit - used(parts, i)).max(0.0)),
                ..*row
            });
            rows.collect::<Vec<_>>()
        };
        let others = rest(&parts, &|i| busy[i]);
        parts.push(("other programs".to_owned(), others));
        let idle = rest(&parts, &|_| Some(f64::from(host.cpus)));
        parts.push(("idle".to_owned(), idle));
    }
    // A stack needs all of its parts. Rows without one of them are gaps.
    let is_known = |i: usize| parts.iter().all(|(_, steps)| steps[i].value.is_some());
    let curves: Vec<Curve> = parts
        .iter()
        .enumerate()
        .map(|(i, (name, steps))| {
            let color = match name.as_str() {
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
                name: name.clone(),
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

/// Returns the mean of a metric during a row, or `None` if it was not sampled.
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

/// Maximum number of columns; more would make the page large.
const MAX_COLUMNS: usize = 120;

/// Number of intensities.
const INTENSITIES: f64 = 8.0;

/// Returns the heat map of a run, or `None` if the record does not contain the distributions.
pub(super) fn heat_map(time: &TimeAxis, run: &Run) -> Option<Chart> {
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
    let mut chart = time.chart("Distribution of response times", "by second", y, Vec::new());
    chart.cells = cells;
    chart.marks.clear();
    let note = "The stronger the color of a cell, the larger its share of the second's responses; the faintest cells \
                have less than 0.1 %.";
    chart.notes.push(note.to_owned());
    Some(chart)
}

/// Merges consecutive rows into one column. The drain after the last second has none.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::model::names::NamedRun;

    #[test]
    fn a_second_without_the_servers_cpu_is_a_gap() {
        let mut run = fixture::watched();
        run.series[4].server_user_cpus = None;
        let drawn = [NamedRun {
            name: String::new(),
            run: &run,
        }];
        let time = TimeAxis::of(&drawn).unwrap();
        let charts = cpu_charts(&time, &run, &Environment::default());
        for curve in &charts[0].curves {
            assert_eq!(curve.pieces.len(), 2, "{}", curve.name);
            assert_eq!(curve.pieces[0].points.last().unwrap().0, 4.0);
            assert_eq!(curve.pieces[1].points[0].0, 5.0);
        }
    }

    #[test]
    fn each_second_is_a_column_and_rare_times_stay_visible() {
        let mut run = fixture::closed();
        for row in &mut run.series {
            row.response_times = TimeBuckets::of([(500_000, 99_999), (40_000_000, 1)]);
        }
        let drawn = [NamedRun {
            name: String::new(),
            run: &run,
        }];
        let time = TimeAxis::of(&drawn).unwrap();
        let map = heat_map(&time, &run).unwrap();
        assert_eq!(map.cells.len(), 2 * run.series.len());
        let intensities: Vec<u8> = map.cells[..2].iter().map(|cell| cell.intensity).collect();
        assert_eq!(intensities, [8, 1]);
        assert!(map.y.from <= 500.0 && map.y.to >= 40_000.0, "{:?}", map.y);
        run.series
            .iter_mut()
            .for_each(|row| row.response_times = None);
        assert!(heat_map(&time, &run).is_none());
    }

    #[test]
    fn a_long_run_has_few_columns() {
        let mut run = fixture::closed();
        let row = SeriesRow {
            response_times: TimeBuckets::of([(500_000, 10)]),
            ..run.series[0].clone()
        };
        run.series = (0..1_000)
            .map(|i| SeriesRow {
                from_s: f64::from(i),
                to_s: f64::from(i + 1),
                ..row.clone()
            })
            .collect();
        let drawn = [NamedRun {
            name: String::new(),
            run: &run,
        }];
        let map = heat_map(&TimeAxis::of(&drawn).unwrap(), &run).unwrap();
        assert!(map.cells.len() <= MAX_COLUMNS, "{}", map.cells.len());
    }
}
