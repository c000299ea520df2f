//! What simpler judges say of the same runs: what floodmark's verdicts have to be better than.

use floodmark_record::cause::Cause;
use floodmark_record::plan::Model;
use floodmark_record::run::Run;

/// Their names.
pub const NAMES: [&str; 3] = [
    "always server-cpu",
    "thresholds of utilisation, saturation and errors",
    "the client's figures alone",
];

/// A resource that is used by so much of its time counts as the limit: the threshold of most dashboards.
const UTILISED: f64 = 0.9;

/// What each of them says of a run on a machine of some CPUs.
pub fn of(run: &Run, cpus: f64) -> Vec<Cause> {
    vec![Cause::ServerCpu, by_thresholds(run, cpus), by_client(run)]
}

/// B. Gregg's method (Systems Performance, 2nd edition, 2.5.9): for every resource errors, then saturation, then utilisation, the first
/// that is beyond its threshold.
fn by_thresholds(run: &Run, cpus: f64) -> Cause {
    let sum = |metric: &str| -> f64 {
        let all = run.observations.iter().filter(|o| o.metric == metric);
        all.flat_map(|o| &o.values).sum()
    };
    let mean = |subject: &str, metric: &str| -> f64 {
        let mut all = run.observations.iter();
        let series = all.find(|o| o.subject == subject && o.metric == metric);
        series.map_or(0.0, |o| {
            o.values.iter().sum::<f64>() / o.values.len().max(1) as f64
        })
    };
    if run.errors.contains_key("ports_exhausted") {
        return Cause::EphemeralPorts;
    }
    if run.errors.contains_key("fds_exhausted") {
        return Cause::ClientFds;
    }
    if run.requests.rejected > 0 {
        return Cause::RateLimiter;
    }
    if run.requests.wrong > 0 {
        return Cause::Errors;
    }
    if sum("ListenOverflows") > 0.0 {
        return Cause::ListenBacklog;
    }
    if sum("nr_throttled") > 0.0 {
        return Cause::CpuQuota;
    }
    let gc_s: f64 = sum("gc_time");
    if gc_s > (1.0 - UTILISED) * run.sending_s {
        return Cause::Gc;
    }
    let used = |server: &floodmark_record::watch::Server| server.cpu_s / server.wall_s.max(1e-9);
    let server = run.server.as_ref().map_or(0.0, used);
    let client = (run.client.cpu_s / run.sending_s.max(1e-9)).min(cpus);
    if mean("host", "busy") >= UTILISED * cpus {
        return match server >= client {
            true => Cause::ServerCpu,
            false => Cause::ClientCpu,
        };
    }
    let threads = run.server.iter().flat_map(|server| {
        let wall_s = server.wall_s.max(1e-9);
        server.seen.threads.iter().map(move |t| t.on_cpu_s / wall_s)
    });
    if threads.fold(0.0, f64::max) >= UTILISED {
        return Cause::ServerCpuOneThread;
    }
    met(run).unwrap_or(Cause::Unknown)
}

/// What a load generator that looks at nothing else could say.
fn by_client(run: &Run) -> Cause {
    if run.errors.contains_key("ports_exhausted") {
        return Cause::EphemeralPorts;
    }
    if run.requests.rejected > 0 {
        return Cause::RateLimiter;
    }
    if run.requests.wrong > 0 {
        return Cause::Errors;
    }
    let full = run.client.threads.iter().any(|thread| {
        thread.drives_load && thread.user_s + thread.system_s >= UTILISED * thread.wall_s
    });
    if full {
        return Cause::ClientCpu;
    }
    met(run).unwrap_or(Cause::ServerCpu)
}

/// In the open model: what was offered was answered.
fn met(run: &Run) -> Option<Cause> {
    let offered = run.requests.intended as f64;
    let met = run.plan.model == Model::Open && run.requests.ok as f64 >= 0.99 * offered;
    met.then_some(Cause::None)
}
