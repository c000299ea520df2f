//! Charts of monitored metrics.

use floodmark_record::metric::{
    CgroupFigure, DiskFigure, HostFigure, JvmFigure, ListenerFigure, MetricKind, NetworkFigure,
    PoolFigure, PostgresqlFigure, ProcessFigure, Role, SocketFigure,
};
use floodmark_record::run::Run;
use floodmark_record::{Metric, Observation};

use super::curves::{Aggregation, joined, pieces, steps};
use super::over_time::TimeAxis;
use super::{AxisFit, Chart, Curve, Quantity, evidence};
use crate::model::figures::{extremes, seconds};
use crate::model::names::NamedRun;

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

/// Returns the factor from recorded values to displayed ones, their unit and their quantity. A
/// counter becomes a rate.
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

/// Returns the charts of metrics that change; those cited by verdicts come first. Also returns the
/// names of metrics without a chart.
pub(crate) fn charts(drawn: &[NamedRun<'_>]) -> (Vec<Chart>, Vec<String>) {
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
    let is_cited = |metric| drawn.iter().any(|one| evidence::is_cited(one.run, metric));
    keys.sort_by_cached_key(|key| (!is_cited(&key.metric), priority(&key.metric)));
    let charts = keys.iter().map(|key| (key, chart(&time, drawn, key)));
    let mut charts = charts.filter(|(_, chart)| chart.curves.iter().any(is_changing));
    let first = charts.by_ref().take(MAX_CHARTS);
    let first = first.map(|(_, chart)| chart).collect();
    (first, charts.map(|(key, _)| name(key)).collect())
}

/// Returns whether the drawn values differ by more than 2 % of the largest. A chart
/// of flat curves adds no information.
fn is_changing(curve: &Curve) -> bool {
    const FLAT: f64 = 0.02;
    let values: Vec<f64> = curve.values().collect();
    extremes(&values).is_some_and(|(least, largest)| largest - least > FLAT * largest)
}

fn same(a: &Observation, b: &Observation) -> bool {
    (&a.metric, a.is_peak, &a.source) == (&b.metric, b.is_peak, &b.source)
}

fn name(seen: &Observation) -> String {
    format!("{} {}", seen.metric.subject(), seen.metric.name())
}

fn chart(time: &TimeAxis, drawn: &[NamedRun<'_>], key: &Observation) -> Chart {
    let (factor, unit, quantity) = display(key);
    let scaled = |run: &Run, seen: &Observation| {
        let mut steps = joined(steps(run, seen), Aggregation::Mean);
        for step in &mut steps {
            step.value = step.value.map(|value| factor * value);
        }
        steps
    };
    let title = key.metric.title();
    let curve = |(i, one): (usize, &NamedRun<'_>)| {
        let seen = one.run.observations.iter().find(|seen| same(seen, key))?;
        let name = match drawn.len() {
            1 => &title,
            _ => &one.name,
        };
        Some(Curve::measured(
            i,
            name,
            pieces(one.run, &scaled(one.run, seen)),
        ))
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
        [one] => with_limit(chart, one.run, &key.metric),
        _ => chart,
    }
}

/// Returns the chart with the metric's limit, if the metric comes close to it.
fn with_limit(chart: Chart, run: &Run, metric: &Metric) -> Chart {
    const NEAR: f64 = 0.4;
    let limit = evidence::limit_of(metric).and_then(|(limit, label)| {
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

#[cfg(test)]
mod tests {
    use floodmark_record::outcome::Counts;
    use floodmark_record::run::WarmupRun;

    use super::*;
    use crate::fixture;

    #[test]
    fn failure_metrics_come_first_and_duplicates_are_left_out() {
        let seen = |metric, is_peak| Observation {
            metric,
            is_peak,
            source: String::new(),
            start_ms: 0,
            step_ms: 1000,
            values: vec![0.0, 1.0],
        };
        let mut run = fixture::closed();
        run.observations = vec![
            seen(Metric::Host(None, HostFigure::Busy), false),
            seen(Metric::Process(Role::Server, ProcessFigure::User), false),
            seen(Metric::Process(Role::Server, ProcessFigure::Rss), false),
            seen(Metric::Process(Role::Server, ProcessFigure::Rss), true),
            seen(Metric::Network(None, NetworkFigure::FailedAttempts), false),
            seen(Metric::Sockets(Role::Client, SocketFigure::TimeWait), false),
        ];
        let drawn = [NamedRun {
            name: String::new(),
            run: &run,
        }];
        let (charts, left) = charts(&drawn);
        let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
        assert_eq!(
            titles,
            [
                "Client sockets: connections in TIME_WAIT",
                "Network: connection attempts that failed",
                "Server: resident memory",
                "Host: busy CPUs"
            ]
        );
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn a_change_during_the_warmup_has_no_chart() {
        let mut run = fixture::closed();
        run.warmup = Some(WarmupRun {
            duration_s: 1.0,
            requests: Counts::default(),
        });
        run.measured_from_ms = Some(1000);
        let seen = |metric, values: &[f64]| Observation {
            metric,
            is_peak: false,
            source: String::new(),
            start_ms: 0,
            step_ms: 500,
            values: values.to_vec(),
        };
        run.observations = vec![
            seen(
                Metric::Disk(None, DiskFigure::BusyTime),
                &[5.0, 1.0, 0.0, 0.0],
            ),
            seen(Metric::Host(None, HostFigure::Busy), &[0.0, 0.0, 1.0, 2.0]),
            // Sampling ended before the measurement.
            seen(Metric::Host(None, HostFigure::Steal), &[1.0, 2.0]),
        ];
        let drawn = [NamedRun {
            name: String::new(),
            run: &run,
        }];
        let (charts, left) = charts(&drawn);
        let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
        assert_eq!(titles, ["Host: busy CPUs"]);
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn omits_values_of_the_warmup() {
        let mut run = fixture::closed();
        run.measured_from_ms = None;
        let seen = Observation {
            metric: Metric::Network(None, NetworkFigure::TimeWait),
            is_peak: false,
            source: "/proc/net/sockstat".to_owned(),
            start_ms: 0,
            step_ms: 1000,
            values: vec![900.0, 901.0, 1.0, 2.0],
        };
        let drawn = |warmup_s: f64, run: &mut Run| {
            run.warmup = Some(WarmupRun {
                duration_s: warmup_s,
                requests: Counts::default(),
            });
            let steps = joined(steps(run, &seen), Aggregation::Mean);
            steps
                .iter()
                .map(|step| (step.from_s, step.value))
                .collect::<Vec<_>>()
        };
        let whole = drawn(2.0004, &mut run);
        assert_eq!(whole.len(), 2);
        assert_eq!(whole[0], (0.0, Some(1.0)));
        assert_eq!(whole[1].1, Some(2.0));
        // Skip a value that covers part of the warm-up and part of the measurement.
        assert_eq!(drawn(2.5, &mut run), [(0.5, Some(2.0))]);
        // The measured start is more accurate than the sum of the step lengths.
        run.measured_from_ms = Some(1000);
        assert_eq!(drawn(2.5, &mut run).len(), 3);
    }
}
