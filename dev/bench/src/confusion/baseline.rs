//! Other verdicts on the same runs, as baselines for floodmark's accuracy. Some verdicts ignore
//! figures that require privileges; the others follow simpler rules.

use floodmark_diagnose::why;
use floodmark_record::cause::Cause;
use floodmark_record::metric::{
    CgroupFigure, HostFigure, JvmFigure, NetworkFigure, ProcessFigure, Role,
};
use floodmark_record::run::Run;
use floodmark_record::verdict::Confidence;
use floodmark_record::{Metric, Record};

use super::judging::{FAULT, most_frequent};

/// A cause, and the confidence of the verdict that names it.
pub type NamedCause = (Cause, Confidence);

/// A row of a table in `docs/accuracy.md`: a description, and the function that judges a case.
type OtherVerdict = (&'static str, fn(&Record) -> NamedCause);

/// Returns whether a metric is hidden from the verdict.
type Hidden = fn(&Metric) -> bool;

/// Sets of hidden metrics, from none to all metrics that may require privileges.
pub const HIDDEN: [Hidden; 5] = [
    |_| false,
    is_system_call,
    is_code,
    |of| is_system_call(of) || is_code(of),
    |of| is_traced(of) || is_code(of),
];

/// Rows of the table. The first four verdicts ignore figures that require privileges.
pub const OTHERS: [OtherVerdict; 7] = [
    ("all, system calls of threads not visible", |record| {
        without(record, HIDDEN[1])
    }),
    ("all, CPU samples not visible", |record| {
        without(record, HIDDEN[2])
    }),
    ("all, neither visible", |record| without(record, HIDDEN[3])),
    ("all, server runs as another user", |record| {
        without(record, HIDDEN[4])
    }),
    ("all, baseline: always server-cpu", |_| {
        (Cause::ServerCpu, Confidence::Likely)
    }),
    (
        "all, baseline: thresholds for utilization, saturation and errors",
        |record| by_rule(record, by_thresholds),
    ),
    ("all, baseline: the client's figures alone", |record| {
        by_rule(record, |run, _| by_client(run))
    }),
];

/// Removes figures from the runs with the fault, and judges the runs again.
fn without(record: &Record, is_hidden: Hidden) -> NamedCause {
    let judge = |run: &Run| {
        let mut run = run.clone();
        run.observations.retain(|of| !is_hidden(&of.metric));
        run.verdict = None;
        run.verdict = why::verdict(&run, &record.environment);
        run
    };
    let runs: Vec<Run> = record.runs_of(FAULT).map(judge).collect();
    let verdict = most_frequent(&runs.iter().collect::<Vec<_>>());
    verdict.map_or((Cause::Unknown, Confidence::Unknown), |verdict| {
        (verdict.cause, verdict.confidence)
    })
}

/// Returns whether a metric comes from `/proc/PID/task/TID/syscall`, which requires permission to
/// trace the server.
fn is_system_call(metric: &Metric) -> bool {
    matches!(metric, Metric::ThreadsBlocked { .. })
}

/// Returns whether a metric comes from `perf_event_open`, which requires root, `CAP_PERFMON`, or
/// `kernel.perf_event_paranoid` set to 0 or less.
fn is_code(metric: &Metric) -> bool {
    matches!(metric, Metric::Code(..))
}

/// Returns whether a metric requires permission to trace the server.
fn is_traced(metric: &Metric) -> bool {
    use ProcessFigure::{OpenFiles, OpenFilesLimit, ReadBytes, WriteBytes};
    matches!(
        metric,
        Metric::Process(
            Role::Server,
            OpenFiles | OpenFilesLimit | ReadBytes | WriteBytes
        ) | Metric::ThreadsBlocked { .. }
            | Metric::ThreadsWaitingIn { .. }
            | Metric::Upstream(..)
            | Metric::Jvm(..)
    )
}

/// Returns the cause that a rule names for the last run with the fault.
fn by_rule(record: &Record, rule: fn(&Run, f64) -> Cause) -> NamedCause {
    let last = record.runs_of(FAULT).last();
    let cause = last.map(|run| rule(run, f64::from(record.environment.cpus)));
    (cause.unwrap_or(Cause::Unknown), Confidence::Likely)
}

/// Utilization above which most dashboards report a resource as saturated.
const HIGH_UTILIZATION: f64 = 0.9;

/// Returns the cause that B. Gregg's USE method names (Systems Performance, 2nd edition, 2.5.9).
///
/// The method checks the errors, saturation and utilization of each resource. The first value
/// beyond its threshold determines the cause.
fn by_thresholds(run: &Run, cpus: f64) -> Cause {
    let series = |is: fn(&Metric) -> bool| {
        let all = run.observations.iter();
        all.filter(move |of| !of.is_peak && is(&of.metric))
    };
    let sum = |is| -> f64 { series(is).flat_map(|of| &of.values).sum() };
    let is_busy = |of: &Metric| matches!(of, Metric::Host(None, HostFigure::Busy));
    let busy = series(is_busy).next().map_or(&[][..], |of| &of.values);
    let busy = busy.iter().sum::<f64>() / busy.len().max(1) as f64;
    if run.errors.contains_key("fds_exhausted") && !run.errors.contains_key("ports_exhausted") {
        return Cause::ClientFds;
    }
    if let Some(cause) = by_errors(run) {
        return cause;
    }
    if sum(|of| matches!(of, Metric::Network(_, NetworkFigure::ListenOverflows))) > 0.0 {
        return Cause::ListenBacklog;
    }
    if sum(|of| matches!(of, Metric::Cgroup(_, CgroupFigure::ThrottledPeriods))) > 0.0 {
        return Cause::CpuQuota;
    }
    let gc_s = sum(|of| matches!(of, Metric::Jvm(_, JvmFigure::CollectionTime)));
    if gc_s > (1.0 - HIGH_UTILIZATION) * run.sending_s {
        return Cause::Gc;
    }
    let server = run.server.as_ref();
    let server_cpus = server.map_or(0.0, |server| server.cpu_s / server.wall_s.max(1e-9));
    let client_cpus = (run.client.cpu_s / run.sending_s.max(1e-9)).min(cpus);
    if busy >= HIGH_UTILIZATION * cpus {
        return if server_cpus >= client_cpus {
            Cause::ServerCpu
        } else {
            Cause::ClientCpu
        };
    }
    let has_busy_thread = server.is_some_and(|server| {
        let mut threads = server.seen.threads.iter();
        threads.any(|thread| thread.on_cpu_s >= HIGH_UTILIZATION * server.wall_s.max(1e-9))
    });
    if has_busy_thread {
        Cause::ServerCpuOneThread
    } else {
        met(run).unwrap_or(Cause::Unknown)
    }
}

/// Returns the cause that a load generator could infer from its own figures.
fn by_client(run: &Run) -> Cause {
    if let Some(cause) = by_errors(run) {
        return cause;
    }
    let is_saturated = run.client.threads.iter().any(|thread| {
        thread.drives_load && thread.user_s + thread.system_s >= HIGH_UTILIZATION * thread.wall_s
    });
    if is_saturated {
        return Cause::ClientCpu;
    }
    met(run).unwrap_or(Cause::ServerCpu)
}

fn by_errors(run: &Run) -> Option<Cause> {
    if run.errors.contains_key("ports_exhausted") {
        return Some(Cause::EphemeralPorts);
    }
    if run.requests.rejected > 0 {
        return Some(Cause::RateLimiter);
    }
    (run.requests.wrong > 0).then_some(Cause::Errors)
}

/// Returns `Cause::None` for an open-model run in which at least 99 % of the intended requests were
/// ok.
fn met(run: &Run) -> Option<Cause> {
    let offered = run.requests.intended as f64;
    let met = run.plan.is_open() && run.requests.ok as f64 >= 0.99 * offered;
    met.then_some(Cause::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_do_not_overlap() {
        let metric = |name: &str| {
            let subject = "server threads".to_owned();
            Metric::parse(subject, name.to_owned(), "threads".to_owned())
        };
        let blocked = metric("worker on timer");
        assert!(is_system_call(&blocked) && is_traced(&blocked));
        assert!(!is_code(&blocked));
        let threads = metric("worker threads");
        assert!(
            ![is_system_call, is_traced, is_code]
                .iter()
                .any(|is_hidden| is_hidden(&threads))
        );
    }
}
