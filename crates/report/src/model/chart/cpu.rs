//! CPU use over time as stacked areas: client, server, store, other programs and idle CPUs.

use floodmark_record::host::Environment;
use floodmark_record::metric::{HostFigure, Role};
use floodmark_record::run::{Run, SeriesRow};
use floodmark_record::{Metric, Observation};

use super::curves::{Aggregation, CurveStep, joined};
use super::observed::steps;
use super::over_time::TimeAxis;
use super::{AreaColor, Axis, Chart, Curve, CurvePiece, CurveRole, Quantity};

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
pub(super) fn charts(time: &TimeAxis, run: &Run, environment: &Environment) -> Vec<Chart> {
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
    hosts.filter_map(|host| chart(time, run, &host)).collect()
}

/// Returns the CPU use of participants on one host. Other programs and idle CPUs are included if
/// the host was monitored.
fn chart(time: &TimeAxis, run: &Run, host: &Host) -> Option<Chart> {
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
        let charts = charts(&time, &run, &Environment::default());
        for curve in &charts[0].curves {
            assert_eq!(curve.pieces.len(), 2, "{}", curve.name);
            assert_eq!(curve.pieces[0].points.last().unwrap().0, 4.0);
            assert_eq!(curve.pieces[1].points[0].0, 5.0);
        }
    }
}
