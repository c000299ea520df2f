//! Judges the same runs by simpler rules, as baselines for floodmark's accuracy.

use floodmark_record::Metric;
use floodmark_record::cause::Cause;
use floodmark_record::metric::{CgroupFigure, HostFigure, JvmFigure, NetworkFigure};
use floodmark_record::run::Run;

/// Names of the baselines.
pub const NAMES: [&str; 3] = [
    "always server-cpu",
    "thresholds for utilization, saturation and errors",
    "the client's figures alone",
];

/// Utilization above which most dashboards report a resource as saturated.
const HIGH_UTILIZATION: f64 = 0.9;

/// Returns the cause that each baseline names for a run on a host with `cpus` CPUs.
pub fn of(run: &Run, cpus: f64) -> [Cause; 3] {
    [Cause::ServerCpu, by_thresholds(run, cpus), by_client(run)]
}

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

/// Returns `Cause::None` for an open-model run that met the offered rate.
fn met(run: &Run) -> Option<Cause> {
    let offered = run.requests.intended as f64;
    let met = run.plan.is_open() && run.requests.ok as f64 >= 0.99 * offered;
    met.then_some(Cause::None)
}
