//! Facts about a run: rates and means over the window. All rules take these facts as input.

use floodmark_record::Metric;
use floodmark_record::events::ThreadUsage;
use floodmark_record::metric::{
    HostFigure, JvmFigure, ProcessFigure, Role, SocketFigure, ThreadGroupFigure,
};
use floodmark_record::plan::ConnectionUse;
use floodmark_record::run::{Environment, Run};
use floodmark_record::watch::{Server, ServerThread};

use super::rules::{CONTENDED, HALF, NEAR_LIMIT};

mod consumed;
mod samples;
mod waiting;

pub use consumed::consumed;
pub use samples::WindowSamples;
pub use waiting::{DatabaseSessions, ThreadGroupFacts, UpstreamFacts};

/// Maximum number of CPUs that the compiler of a warm JVM uses.
const WARM: f64 = 0.05;

/// Facts about one run. `None` means that a fact is not available.
#[derive(Debug)]
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
    /// Number of CPUs on the client's host.
    pub cpus: f64,
    /// Whether the client has dedicated CPUs.
    pub client_has_own_cpus: bool,
    /// Whether the server and its store have dedicated CPUs.
    pub server_has_own_cpus: bool,
    pub client: CpuUse,
    pub server: Option<CpuUse>,
    pub store: Option<CpuUse>,
    /// Number of busy CPUs on the client's host.
    pub host_busy: Option<f64>,
    /// Number of busy CPUs on the server's host.
    pub server_host_busy: Option<f64>,
    /// Number of CPUs on the server's host.
    pub server_cpus: f64,
    /// Number of requests that the server works on concurrently: ok responses per second × service
    /// time without queueing.
    pub concurrency: Option<f64>,
    /// Groups of similar threads in the server.
    pub thread_groups: Vec<ThreadGroupFacts>,
    /// Connections that the server opened.
    pub upstreams: Vec<UpstreamFacts>,
    /// Sessions of a PostgreSQL store.
    pub sessions: Option<DatabaseSessions>,
}

/// CPU use of one role.
#[derive(Debug)]
pub struct CpuUse {
    /// Number of CPUs that the role may use.
    pub allowed: f64,
    /// Number of CPUs used.
    pub used: f64,
    /// Number of CPUs used in kernel mode.
    pub in_kernel: f64,
    /// Mean number of runnable threads that wait for a CPU.
    pub runnable: Option<f64>,
    /// CPU time per response, in µs.
    pub cpu_us: Option<f64>,
    pub busiest: Option<BusiestThread>,
}

/// The busiest thread of the client, server or store.
#[derive(Debug)]
pub struct BusiestThread {
    pub name: String,
    /// Share of the time that the thread was on a CPU.
    pub on_cpu: f64,
    /// Share of the time that the thread was runnable but waited for a CPU.
    pub runnable: f64,
}

impl BusiestThread {
    /// Returns the share of the time that the thread was running or runnable.
    pub fn busy(&self) -> f64 {
        self.on_cpu + self.runnable
    }
}

impl<'a> RunFacts<'a> {
    /// Collects the facts about a run. Returns `None` if the run has no throughput.
    #[must_use]
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
        let cpus = f64::from(environment.cpus.max(1));
        let remote = run.remote.as_ref();
        let server_cpus = remote.map_or(cpus, |of| f64::from(of.environment.cpus.max(1)));
        let place = run.place.as_ref();
        let server_allowed = place.map_or(server_cpus, |of| f64::from(of.server.cpu_count));
        let client_allowed = place.map_or(cpus, |of| f64::from(of.client.cpu_count));
        let process = |role, of: &Option<Server>| {
            let of = of.as_ref()?;
            Some(process_cpu(
                of,
                role,
                &samples,
                server_allowed,
                responses_per_s,
            ))
        };
        let host_busy = |role| samples.mean(Metric::Host(role, HostFigure::Busy));
        Some(RunFacts {
            run,
            responses_per_s,
            ok_per_s,
            offered_per_s: run
                .plan
                .is_open()
                .then(|| counts.intended as f64 / sending_s),
            in_flight: mean_s.map(|s| in_flight(run, ok_per_s * s, sending_s)),
            cpus,
            client_has_own_cpus: place.is_some_and(|of| of.client.cpus.is_some()),
            server_has_own_cpus: place.is_some_and(|of| of.server.cpus.is_some()),
            client: client_cpu(run, &samples, client_allowed, responses_per_s),
            server: process(Role::Server, &run.server),
            store: process(Role::Store, &run.store),
            host_busy: host_busy(None),
            server_host_busy: host_busy(remote.map(|_| Role::Server)),
            server_cpus,
            concurrency: concurrency(run, ok_per_s, &samples),
            thread_groups: waiting::thread_groups(&samples),
            upstreams: waiting::upstreams(&samples),
            sessions: waiting::sessions(&samples),
            samples,
        })
    }

    /// Returns whether client and server run on separate CPUs or hosts.
    #[must_use]
    pub fn is_client_separate(&self) -> bool {
        self.run.remote.is_some() || (self.client_has_own_cpus && self.server_has_own_cpus)
    }

    /// Returns how many of the server's CPUs the client uses.
    #[must_use]
    pub fn client_on_server_cpus(&self) -> f64 {
        if self.is_client_separate() {
            0.0
        } else {
            self.client.used
        }
    }

    /// Returns the number of idle CPUs and the total number of CPUs available to the server.
    /// Returns `None` without server metrics, because the server's host is then unknown.
    #[must_use]
    pub fn idle_cpus(&self) -> Option<(f64, f64)> {
        let server = self.server.as_ref()?;
        let (busy, cpus) = if self.server_has_own_cpus {
            (server.used + used(&self.store), server.allowed)
        } else {
            (self.server_host_busy?, self.server_cpus)
        };
        Some(((cpus - busy).max(0.0), cpus))
    }

    /// Returns how many more CPUs the server could use, and the total number of CPUs. CPUs that
    /// other programs use count as usable if client, server and store get all the CPU time they
    /// need.
    #[must_use]
    pub fn spare_cpus(&self) -> Option<(f64, f64)> {
        let (idle, cpus) = self.idle_cpus()?;
        let programs = self.other_programs();
        let programs = programs.filter(|_| !self.server_has_own_cpus && !self.lacks_cpu());
        Some((idle + programs.unwrap_or(0.0), cpus))
    }

    /// Returns the number of CPUs that programs outside the experiment use on the server's host.
    #[must_use]
    pub fn other_programs(&self) -> Option<f64> {
        let of_server = used(&self.server) + used(&self.store);
        let of_client = match self.run.remote {
            Some(_) => 0.0,
            None => self.client.used,
        };
        let busy = self.server_host_busy? - self.stolen();
        Some((busy - of_server - of_client).max(0.0))
    }

    /// Returns the number of CPUs that the hypervisor gives to other guests.
    #[must_use]
    pub fn stolen(&self) -> f64 {
        let host = self.run.remote.as_ref().map(|_| Role::Server);
        self.samples
            .mean(Metric::Host(host, HostFigure::Steal))
            .unwrap_or(0.0)
    }

    /// Returns whether client, server or store need more CPU time than they get: one of their
    /// threads waits only for CPU time, or together they could use all CPUs.
    #[must_use]
    pub fn lacks_cpu(&self) -> bool {
        let participants = [
            Some(&self.client),
            self.server.as_ref(),
            self.store.as_ref(),
        ];
        let participants = participants.iter().flatten();
        let is_starved = |on_cpu: f64, runnable: f64, share: f64| {
            on_cpu + runnable >= share && runnable >= CONTENDED * on_cpu
        };
        let mut threads = participants.clone().filter_map(|of| of.busiest.as_ref());
        let demand = participants.map(|of| of.used + of.runnable.unwrap_or(0.0));
        threads.any(|of| is_starved(of.on_cpu, of.runnable, NEAR_LIMIT))
            || self.thread_groups.iter().any(|group| {
                group.never_waits()
                    && is_starved(group.on_cpu, group.runnable, HALF * group.workers())
            })
            || demand.sum::<f64>() >= NEAR_LIMIT * self.server_cpus
    }

    /// Returns whether floodmark recorded the run without thread states: the run's thread groups
    /// have no run delay.
    #[must_use]
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
    #[must_use]
    pub fn unread(&self) -> Option<f64> {
        let run = self.run;
        let size = run.bytes.sent as f64 / run.requests.sent.max(1) as f64;
        let bytes = self
            .samples
            .sockets(Role::Server, SocketFigure::ReceiveQueue);
        bytes.filter(|_| size > 0.0).map(|bytes| bytes / size)
    }

    /// Returns the busiest thread of the server.
    #[must_use]
    pub fn busiest_thread(&self) -> Option<&BusiestThread> {
        self.server.as_ref()?.busiest.as_ref()
    }

    /// Returns the mean of one of the server's JVM metrics.
    #[must_use]
    pub fn jvm(&self, figure: JvmFigure) -> Option<f64> {
        self.samples.mean(Metric::Jvm(Role::Server, figure))
    }
}

/// Returns the number of CPUs that a process used, or 0 if unknown.
pub fn used(process: &Option<CpuUse>) -> f64 {
    process.as_ref().map_or(0.0, |process| process.used)
}

/// Returns the mean number of requests in flight. `answered` is the mean number of requests that
/// get an ok response.
fn in_flight(run: &Run, answered: f64, sending_s: f64) -> f64 {
    let (plan, errors) = (&run.plan, &run.error_time_us);
    let failed_s = errors.count as f64 * errors.mean.unwrap_or(0.0) / 1e6;
    let timed_out_s = run.requests.timed_out as f64 * plan.timeout.as_secs_f64();
    let in_flight = answered + (failed_s + timed_out_s) / sending_s;
    match plan.connection_use {
        // Each connection carries one request until the run ends, even without a response.
        ConnectionUse::Kept if !plan.is_open() => in_flight
            .max(run.requests.in_flight_at_end as f64)
            .min(f64::from(plan.connections)),
        _ => in_flight,
    }
}

/// Returns the server's concurrency: ok responses per second × shortest service time.
///
/// The first requests of a load do not queue, so the shortest service time excludes queueing.
/// Returns `None` for a cold JVM, whose first requests run interpreted code, and for a mix, whose
/// requests differ.
fn concurrency(run: &Run, ok_per_s: f64, samples: &WindowSamples<'_>) -> Option<f64> {
    let jvm = |figure| Metric::Jvm(Role::Server, figure);
    let is_cold = samples.series(&jvm(JvmFigure::JavaThreads)).is_some()
        && (samples.mean(jvm(JvmFigure::CompilerTime))).is_none_or(|cpus| cpus > WARM);
    let is_warmed_up = run.attempt > 1 || run.warmup.is_some();
    let least_s = run.least_service_time_us.filter(|us| *us > 0.0)? / 1e6;
    (run.plan.mix.is_none() && (is_warmed_up || !is_cold)).then_some(ok_per_s * least_s)
}

/// Returns the CPU use of a sampled process.
fn process_cpu(
    of: &Server,
    role: Role,
    samples: &WindowSamples<'_>,
    allowed: f64,
    responses_per_s: f64,
) -> CpuUse {
    let seconds = of.wall_s.max(f64::MIN_POSITIVE);
    // Series cover only the window, while totals cover the whole run.
    let mean = |figure| samples.mean(Metric::Process(role, figure));
    let in_kernel = mean(ProcessFigure::System).unwrap_or(of.system_s / seconds);
    let used = mean(ProcessFigure::User).map_or(of.cpu_s / seconds, |user| user + in_kernel);
    let busiest = of
        .seen
        .threads
        .iter()
        .map(|thread: &ServerThread| BusiestThread {
            name: thread.name.clone(),
            on_cpu: thread.on_cpu_s / seconds,
            runnable: thread.run_delay_s / seconds,
        });
    CpuUse {
        allowed,
        used,
        in_kernel,
        runnable: mean(ProcessFigure::RunDelay),
        cpu_us: (responses_per_s > 0.0).then(|| used / responses_per_s * 1e6),
        busiest: busiest.max_by(|a, b| a.on_cpu.total_cmp(&b.on_cpu)),
    }
}

/// Returns the CPU use of the client. floodmark's threads report their own use; an external client
/// is sampled.
fn client_cpu(
    run: &Run,
    samples: &WindowSamples<'_>,
    allowed: f64,
    responses_per_s: f64,
) -> CpuUse {
    let client = &run.client;
    if client.name.is_some() || client.threads.is_empty() {
        // Short-lived processes appear only in their parent's total (wait4).
        let whole_s = client.tool.as_ref().map(|tool| tool.wall_s);
        let whole_s = whole_s.filter(|s| *s > 0.0).unwrap_or(run.sending_s);
        return CpuUse {
            allowed,
            used: (client.user_s + client.system_s) / whole_s,
            in_kernel: client.system_s / whole_s,
            runnable: samples.mean(Metric::Process(Role::Client, ProcessFigure::RunDelay)),
            cpu_us: client.cpu_us_per_request,
            busiest: None,
        };
    }
    let threads = || client.threads.iter().filter(|thread| thread.wall_s > 0.0);
    let share = |seconds: f64, thread: &ThreadUsage| (seconds / thread.wall_s).min(1.0);
    let used: f64 = threads().map(|t| share(t.user_s + t.system_s, t)).sum();
    let busiest = threads().filter(|t| t.drives_load).map(|t| BusiestThread {
        name: t.name.clone(),
        on_cpu: share(t.user_s + t.system_s, t),
        runnable: share(t.run_delay_s.unwrap_or(0.0), t),
    });
    CpuUse {
        allowed,
        used,
        in_kernel: threads().map(|t| share(t.system_s, t)).sum(),
        runnable: threads().map(|t| t.run_delay_s.map(|s| share(s, t))).sum(),
        cpu_us: (responses_per_s > 0.0).then(|| used / responses_per_s * 1e6),
        busiest: busiest.max_by(|a, b| a.busy().total_cmp(&b.busy())),
    }
}
