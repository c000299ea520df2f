//! Facts about a run: rates and means over the window. All rules take these facts as input.

use std::borrow::Cow;
use std::cell::OnceCell;

use floodmark_record::Metric;
use floodmark_record::events::ThreadUsage;
use floodmark_record::host::Environment;
use floodmark_record::metric::{
    CodeFigure, HostFigure, JvmFigure, Role, SocketFigure, ThreadGroupFigure,
};
use floodmark_record::plan::{ConnectionUse, Http};
use floodmark_record::run::{Run, SeriesRow};
use floodmark_record::times::Times;
use floodmark_record::watch::Server;
use floodmark_stats::steady::SHORTEST_ROW_S;

use super::graph::Service;
use super::thresholds::{MOST, NOTICEABLE};

mod cpus;
mod samples;
mod waiting;

pub use cpus::{AllowedCpus, CpuUse, used};
pub use samples::{WindowSamples, consumed};
pub use waiting::{AcceptQueue, DatabaseSessions, ThreadGroupFacts, UpstreamFacts, is_compiler};

/// Facts about one run. `None` means that a fact is not available.
pub struct RunFacts<'a> {
    pub run: &'a Run,
    pub samples: WindowSamples<'a>,
    /// Responses per second, including unexpected responses.
    pub responses_per_s: f64,
    pub ok_per_s: f64,
    /// Offered rate in requests per second, or `None` in the closed model.
    pub offered_per_s: Option<f64>,
    /// Mean number of requests in flight (Little's law), including requests that fail or get no
    /// response.
    pub in_flight: Option<f64>,
    pub allowed: AllowedCpus,
    pub client: CpuUse,
    /// The client's CPU use on the coordinator's host, or `None` if all agents run on other hosts.
    pub client_here: Option<CpuUse>,
    pub server: Option<CpuUse>,
    pub store: Option<CpuUse>,
    /// Number of busy CPUs on the client's host.
    pub host_busy: Option<f64>,
    /// Number of busy CPUs on the server's host.
    pub server_host_busy: Option<f64>,
    /// Number of requests that the server works on concurrently: ok responses per second × service
    /// time without queueing.
    pub concurrency: Option<f64>,
    /// Groups of similar threads in the server.
    pub thread_groups: Vec<ThreadGroupFacts>,
    /// CPUs that the server uses in system calls that write a file to disk, such as fsync.
    pub in_file_sync: Option<f64>,
    /// Connections that the server opened.
    pub upstreams: Vec<UpstreamFacts>,
    /// Sessions of a PostgreSQL store.
    pub sessions: Option<DatabaseSessions>,
    /// What limits the number of requests in service; determined on first use.
    pub(super) service: OnceCell<Service>,
}

impl<'a> RunFacts<'a> {
    /// Collects the facts about a run. Returns `None` if the run has no throughput.
    pub fn of(run: &'a Run, environment: &Environment) -> Option<Self> {
        let seconds = run.window.to_s - run.window.from_s;
        let ok_per_s = run.throughput_per_s.filter(|_| seconds > 0.0)?;
        let sending_s = run.sending_s.max(seconds);
        let counts = &run.requests;
        // The counts of other outcomes cover the whole run rather than the window, so use the mean
        // rate.
        let others = counts.rejected + counts.wrong + counts.malformed;
        let responses_per_s = ok_per_s + others as f64 / sending_s;
        let mean_s = run.service_time_us.mean.map(|us| us / 1e6);
        let samples = WindowSamples::of(run);
        let allowed = AllowedCpus::of(run, environment);
        let remote = run.remote.as_ref();
        let client = |threads: &[ThreadUsage]| {
            cpus::client_cpu(run, threads, &samples, allowed.client, responses_per_s)
        };
        let process = |role, of: &Option<Server>, allowed| {
            let of = of.as_ref()?;
            Some(cpus::process_cpu(
                of,
                role,
                &samples,
                allowed,
                responses_per_s,
            ))
        };
        let host_busy = |role| samples.mean(Metric::Host(role, HostFigure::Busy));
        let server = process(Role::Server, &run.server, allowed.server);
        let in_file_sync = server
            .as_ref()
            .and_then(|server| in_file_sync(server, &samples));
        Some(RunFacts {
            run,
            responses_per_s,
            ok_per_s,
            offered_per_s: run
                .plan
                .is_open()
                .then(|| counts.intended as f64 / sending_s),
            in_flight: mean_s.map(|s| in_flight(run, ok_per_s * s, sending_s)),
            allowed,
            client: client(&run.client.threads),
            client_here: threads_here(run).map(|threads| client(&threads)),
            server,
            store: process(Role::Store, &run.store, allowed.store),
            host_busy: host_busy(None),
            server_host_busy: host_busy(remote.map(|_| Role::Server)),
            concurrency: concurrency(run, ok_per_s, responses_per_s - ok_per_s, &samples),
            thread_groups: waiting::thread_groups(&samples, in_file_sync),
            in_file_sync,
            upstreams: waiting::upstreams(&samples),
            sessions: waiting::sessions(&samples),
            samples,
            service: OnceCell::new(),
        })
    }

    /// Returns the maximum total number of load threads across all agents.
    pub fn client_threads(&self) -> f64 {
        f64::from(self.run.plan.threads) * self.run.agents.len().max(1) as f64
    }

    /// Returns the mean number of waiting requests, computed from the times that they waited
    /// (Little's law).
    pub fn mean_waiting(&self, times: &Times) -> f64 {
        times.count as f64 * times.mean.unwrap_or(0.0) / 1e6 / self.run.sending_s
    }

    /// Returns the plural name of what carries one request at a time.
    pub fn carriers(&self) -> &'static str {
        match self.run.plan.http {
            Http::V1 => "connections",
            Http::V2(_) => "streams",
        }
    }

    /// Returns whether floodmark recorded the run without thread states: the run's thread groups
    /// have no run delay.
    pub fn lacks_thread_states(&self) -> bool {
        let has = |wanted| {
            let mut metrics = self.samples.metrics();
            metrics.any(|metric| matches!(metric, Metric::ThreadGroup(_, _, of) if *of == wanted))
        };
        has(ThreadGroupFigure::Threads) && !has(ThreadGroupFigure::RunDelay)
    }

    /// Returns the number of requests that the server's kernel received but the server did not
    /// read, including requests on connections in the accept queue. Assumes requests of similar
    /// sizes.
    pub fn unread(&self) -> Option<f64> {
        let run = self.run;
        let size = run.bytes.sent as f64 / run.requests.sent.max(1) as f64;
        let bytes = self
            .samples
            .sockets(Role::Server, SocketFigure::ReceiveQueue);
        bytes.filter(|_| size > 0.0).map(|bytes| bytes / size)
    }

    /// Returns whether at least half of `requests` (a number of requests) are waiting for the
    /// server to read them. Returns `None` if this is unknown.
    pub fn are_unread(&self, requests: f64) -> Option<bool> {
        Some(self.unread()? >= MOST * requests)
    }

    /// Returns the throughput in each second of the window, in requests per second.
    pub fn rates(&self) -> Vec<f64> {
        let window = &self.run.window;
        let rows = seconds(self.run);
        let rows = rows.filter(|row| row.from_s >= window.from_s && row.to_s <= window.to_s);
        rows.map(|row| row.throughput_per_s).collect()
    }

    /// Returns whether it is visible for which objects the server's threads wait in system calls.
    pub fn sees_system_calls(&self) -> bool {
        let is_blocked = |of: &Metric| {
            matches!(
                of,
                Metric::ThreadsBlocked {
                    role: Role::Server,
                    ..
                }
            )
        };
        self.samples.metrics().any(is_blocked)
    }

    /// Names the sources that provided no figures about the server, usually because reading them
    /// was not permitted.
    pub fn unseen_sources(&self) -> Vec<String> {
        let sources = [
            (
                self.sees_system_calls(),
                "what the server's threads wait for (/proc/PID/task/TID/syscall)",
            ),
            (
                self.is_code_seen(),
                "the code that the server executes (perf_event_open)",
            ),
        ];
        let unseen = sources
            .iter()
            .filter(|(is_seen, _)| !is_seen && !self.thread_groups.is_empty());
        unseen.map(|(_, source)| (*source).to_owned()).collect()
    }

    /// Returns whether the kinds of code that the server executes were sampled.
    pub fn is_code_seen(&self) -> bool {
        let mut metrics = self.samples.metrics();
        metrics.any(|metric| matches!(metric, Metric::Code(..)))
    }

    /// Returns the mean of one of the server's JVM metrics.
    pub fn jvm(&self, figure: JvmFigure) -> Option<f64> {
        self.samples.mean(Metric::Jvm(Role::Server, figure))
    }

    /// Returns the share of the server's CPU time that a kind of code takes.
    pub fn code_share(&self, figure: CodeFigure) -> Option<f64> {
        let sampled = |figure| self.samples.mean(Metric::Code(Role::Server, figure));
        let all = sampled(CodeFigure::All).filter(|all| *all > 0.0)?;
        Some(sampled(figure)? / all * self.server.as_ref()?.in_user())
    }
}

/// Returns the CPUs that the server uses in system calls that write a file to disk, such as fsync.
fn in_file_sync(server: &CpuUse, samples: &WindowSamples<'_>) -> Option<f64> {
    let sampled = |figure| samples.mean(Metric::Code(Role::Server, figure));
    let kernel = sampled(CodeFigure::Kernel).filter(|kernel| *kernel > 0.0)?;
    Some(sampled(CodeFigure::FileSync)? / kernel * server.in_kernel)
}

/// Returns the client's threads on the coordinator's host, or `None` if all agents run on other
/// hosts.
fn threads_here(run: &Run) -> Option<Cow<'_, [ThreadUsage]>> {
    if run.agents.is_empty() {
        return Some(Cow::Borrowed(&run.client.threads));
    }
    let agents = || run.agents.iter().filter(|agent| agent.shares_host);
    let threads = agents().flat_map(|agent| agent.client.threads.iter().cloned());
    agents().next().map(|_| threads.collect())
}

/// Returns the rows of the sending window. Excludes a last row of less than half a second, whose
/// rate is too coarse.
pub fn seconds(run: &Run) -> impl Iterator<Item = &SeriesRow> {
    let rows = run.series.iter();
    rows.filter(|row| row.to_s.min(run.sending_s) - row.from_s >= SHORTEST_ROW_S)
}

/// Returns the mean number of requests in flight. `answered` is the mean number of requests that
/// get an ok response.
fn in_flight(run: &Run, answered: f64, sending_s: f64) -> f64 {
    let (plan, errors) = (&run.plan, &run.error_time_us);
    let failed_s = errors.count as f64 * errors.mean.unwrap_or(0.0) / 1e6;
    let timed_out_s = run.requests.timed_out as f64 * plan.timeout.as_secs_f64();
    let in_flight = answered + (failed_s + timed_out_s) / sending_s;
    match plan.connection_use {
        // A request without a response occupies its stream until the run ends.
        ConnectionUse::Kept if !plan.is_open() => in_flight
            .max(run.requests.in_flight_at_end as f64)
            .min(run.max_in_flight() as f64),
        _ => in_flight,
    }
}

/// Returns the server's concurrency: ok responses per second × shortest service time, plus
/// failures per second × mean time until a failure if failures are faster.
///
/// The first requests of a load do not queue, so the shortest service time excludes queueing.
/// Returns `None` for a cold JVM, whose first requests run interpreted code, and for a mix, whose
/// requests differ.
fn concurrency(
    run: &Run,
    ok_per_s: f64,
    failed_per_s: f64,
    samples: &WindowSamples<'_>,
) -> Option<f64> {
    let jvm = |figure| Metric::Jvm(Role::Server, figure);
    let is_cold = samples.series(&jvm(JvmFigure::JavaThreads)).is_some()
        && (samples.mean(jvm(JvmFigure::CompilerTime))).is_none_or(|cpus| cpus > NOTICEABLE);
    let is_warmed_up = run.attempt > 1 || run.warmup.is_some();
    let least_s = run.least_service_time_us.filter(|us| *us > 0.0)? / 1e6;
    let failed_s = run.error_time_us.mean.map_or(least_s, |us| us / 1e6);
    let concurrency = ok_per_s * least_s + failed_per_s * failed_s.min(least_s);
    (run.plan.mix.is_none() && (is_warmed_up || !is_cold)).then_some(concurrency)
}
