//! What a verdict cites: moments and levels that charts mark, and the metrics that show the path.

use floodmark_record::Metric;
use floodmark_record::cause::Cause;
use floodmark_record::metric::{
    CgroupFigure, DiskFigure, HostFigure, JvmFigure, ListenerFigure, PoolFigure, PostgresqlFigure,
    ProcessFigure, Role, SocketFigure, ThreadGroupFigure, UpstreamFigure,
};
use floodmark_record::path::{Actor, ActorResource, StepKind};
use floodmark_record::run::Run;
use floodmark_record::units::show_rate;

use super::curves::steps;
use super::{Chart, ChartBand};

/// Maximum ratio of a limit to the highest throughput. A farther limit would flatten the curve.
const FARTHEST_LIMIT: f64 = 2.0;

/// Minimum share of a step that a garbage collection takes to be marked.
const LONG_COLLECTION: f64 = 0.2;

/// Maximum number of marked ranges. More would be narrower than a pixel.
const MAX_BANDS: usize = 40;

/// Returns the chart with the verdict's limit of throughput, if the axis can show it.
pub(super) fn with_limit(chart: Chart, run: &Run) -> Chart {
    let limit = run.verdict.as_ref().and_then(|verdict| {
        let limit_per_s = verdict
            .limit_per_s
            .filter(|limit| *limit <= FARTHEST_LIMIT * chart.y.to)?;
        Some((limit_per_s, verdict.cause))
    });
    match limit {
        Some((limit_per_s, cause)) => {
            let label = format!("{cause}: at most {}/s", show_rate(limit_per_s));
            chart.with_level(limit_per_s, label)
        }
        None => chart,
    }
}

/// Returns the start of the first second with failed requests, if the first second has none.
pub(super) fn first_failure_s(run: &Run) -> Option<f64> {
    let first = run.series.iter().position(|row| row.failed > 0)?;
    (first > 0).then(|| run.series[first].from_s)
}

/// Returns the time ranges that the verdict cites: garbage collections, and seconds in which no
/// request succeeded.
pub(super) fn bands(run: &Run) -> Vec<ChartBand> {
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
        let is_long = |step: &super::curves::CurveStep| {
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

/// Returns whether a step of the verdict's path is about a metric.
pub(super) fn is_cited(run: &Run, metric: &Metric) -> bool {
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
pub(super) fn limit_of(metric: &Metric) -> Option<(Metric, &'static str)> {
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
mod tests {
    use super::*;
    use crate::fixture;
    use floodmark_record::path::PathStep;

    #[test]
    fn cites_the_thread_group_of_a_step() {
        let mut run = fixture::judged(Cause::WorkerPool);
        let pool = Actor::Server.with(ActorResource::ThreadGroup("pool".to_owned()));
        if let Some(verdict) = &mut run.verdict {
            verdict.path = vec![PathStep::new(StepKind::Threads, pool, "counted")];
        }
        let working = |group: &str| {
            Metric::ThreadGroup(Role::Server, group.to_owned(), ThreadGroupFigure::Working)
        };
        assert!(is_cited(&run, &working("pool")));
        assert!(!is_cited(&run, &working("pool-2")));
    }
}
