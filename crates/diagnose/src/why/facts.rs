//! What a run says, as rates and means over its window: all that rules look at.

use floodmark_record::events::ThreadUse;
use floodmark_record::outcome::Counts;
use floodmark_record::plan::Model;
use floodmark_record::run::{Environment, Run};
use floodmark_record::watch::{Server, ServerThread};

mod seen;
mod waiting;

use seen::Seen;
pub use waiting::{Calls, Sessions, ThreadKind, Upstream};

/// CPUs that a JVM's compiler may take where its program is warm.
const WARM: f64 = 0.05;

/// Facts of one run. What was not read is none: it is for each rule to say what follows from that.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// The run itself.
    pub run: &'a Run,
    /// Answers of any kind per second: what client and server had to do.
    pub answered_per_s: f64,
    /// Ok answers per second.
    pub ok_per_s: f64,
    /// What was to be sent per second; none in the closed model.
    pub offered_per_s: Option<f64>,
    /// Mean of requests under way, by Little's law: ok answers per second times their mean service time.
    pub under_way: Option<f64>,
    /// CPUs of the machine that floodmark may use.
    pub cpus: f64,
    /// The load process.
    pub client: Side,
    /// The server's processes.
    pub server: Option<Side>,
    /// The store's.
    pub store: Option<Side>,
    /// CPUs that were busy with anything.
    pub host_busy: Option<f64>,
    /// The same of the server's machine, and how many CPUs that has: another one's where it was observed there.
    pub server_host_busy: Option<f64>,
    pub server_cpus: f64,
    /// The server's JVM.
    pub jvm: Option<Jvm>,
    /// Connections and their queues.
    pub network: Network,
    /// Requests that the server works on at once: ok answers per second times what a request takes that meets no other; none where that
    /// is not known.
    pub at_once: Option<f64>,
    /// The kinds of the server's threads.
    pub kinds: Vec<ThreadKind>,
    /// Connections that the server opened itself.
    pub upstreams: Vec<Upstream>,
    /// The store's sessions, where it is a PostgreSQL that could be asked.
    pub sessions: Option<Sessions>,
    /// What its Cassandra works on, where that was asked.
    pub calls: Option<Calls>,
}

/// CPU of one side.
#[derive(Debug, Clone, Default)]
pub struct Side {
    /// CPUs it may use.
    pub may_use: f64,
    /// CPUs it used.
    pub used: f64,
    /// Of these in the kernel.
    pub in_kernel: f64,
    /// Threads that were ready to run and had no CPU, mean; none where it could not be read.
    pub waiting: Option<f64>,
    /// CPU per answer, µs.
    pub cpu_us: Option<f64>,
    /// Its busiest thread.
    pub busiest: Option<Busiest>,
}

/// A side's busiest thread.
#[derive(Debug, Clone, Default)]
pub struct Busiest {
    pub name: String,
    /// Share of its time on a CPU.
    pub on_cpu: f64,
    /// Share of its time ready to run, without one.
    pub waiting: f64,
}

impl Busiest {
    /// Share of its time in which it had work to do.
    pub fn busy(&self) -> f64 {
        self.on_cpu + self.waiting
    }
}

/// The server's JVM, as shares of the window.
#[derive(Debug, Clone, Default)]
pub struct Jvm {
    /// Time of collections; concurrent ones run beside the program.
    pub gc: Option<f64>,
    /// Collections per second.
    pub gc_per_s: Option<f64>,
    /// Time in which all threads stood still.
    pub safepoint: Option<f64>,
    /// CPUs of the compiler's threads.
    pub compiling: Option<f64>,
    /// Methods compiled per second.
    pub compilations_per_s: Option<f64>,
    /// CPUs of the collector's threads.
    pub collecting: Option<f64>,
    /// Share of the time in which its busiest compiler thread was on a CPU, or ready to be; none where it is not among the busiest of the
    /// server.
    pub compiler_busy: Option<f64>,
}

/// Connections and their queues over the window, by the counters' names.
#[derive(Debug, Clone, Default)]
pub struct Network {
    pub listen_overflows_per_s: Option<f64>,
    pub syn_retransmits_per_s: Option<f64>,
    pub active_opens_per_s: Option<f64>,
    /// Sockets in TIME_WAIT at the client's end of the target's connections, mean.
    pub client_time_wait: Option<f64>,
    /// Connections that stand and wait to be accepted, mean, and how many may.
    pub accept_queue: Option<f64>,
    pub accept_queue_limit: Option<f64>,
    /// Bytes that the server has not read, over all connections, mean.
    pub unread_by_server: Option<f64>,
    /// Bytes that the client has not read.
    pub unread_by_client: Option<f64>,
    /// Bytes that the server has sent and the client's kernel has not acknowledged, over all connections, mean.
    pub unacknowledged: Option<f64>,
    /// Acknowledgements that were sent late, per second.
    pub delayed_acks_per_s: Option<f64>,
    /// Connections that were opened by others than the client, per second.
    pub opened_by_others_per_s: Option<f64>,
    /// Files that the server's process has open that is nearest to its limit, and that limit.
    pub open_files: Option<f64>,
    pub open_files_limit: Option<f64>,
    /// Periods of the control group that were cut short, per second.
    pub throttled_per_s: Option<f64>,
    /// Time that was held back by its quota, CPU-seconds per second.
    pub throttled: Option<f64>,
    /// CPU that the host gave to others, CPUs.
    pub steal: Option<f64>,
}

impl<'a> Facts<'a> {
    /// Of a run; none of one without a window to speak of.
    #[must_use]
    pub fn of(run: &'a Run, environment: &Environment) -> Option<Self> {
        let seconds = run.window.to_s - run.window.from_s;
        if seconds <= 0.0 {
            return None;
        }
        let ok_per_s = run.throughput_per_s?;
        // Those that were not ok are not counted by window, so that they are spread over the run.
        let others = answered(&run.requests).saturating_sub(run.requests.ok);
        let answered_per_s = ok_per_s + others as f64 / run.sending_s.max(seconds);
        let mean_s = run.service_time_us.mean.map(|us| us / 1e6);
        let seen = Seen::of(run);
        let jvm = Jvm::of(&seen);
        let cpus = f64::from(environment.cpus.max(1));
        let elsewhere = run.elsewhere.as_ref();
        let server_cpus = elsewhere.map_or(cpus, |there| f64::from(there.environment.cpus.max(1)));
        let place = run.place.as_ref();
        let may_use = |count: Option<u32>| count.map_or(cpus, f64::from);
        let server_may_use = place.map_or(server_cpus, |p| f64::from(p.server.cpu_count));
        let side = |of: &Server, subject: &str, may_use: f64| {
            processes(of, subject, &seen, may_use, answered_per_s)
        };
        Some(Facts {
            run,
            answered_per_s,
            ok_per_s,
            offered_per_s: (run.plan.model == Model::Open)
                .then(|| run.requests.intended as f64 / run.sending_s.max(seconds)),
            under_way: mean_s.map(|s| ok_per_s * s),
            cpus,
            client: load(
                run,
                &seen,
                may_use(place.map(|p| p.client.cpu_count)),
                answered_per_s,
            ),
            server: run
                .server
                .as_ref()
                .map(|of| side(of, "server", server_may_use)),
            store: run
                .store
                .as_ref()
                .map(|of| side(of, "store", server_may_use)),
            host_busy: seen.mean("host", "busy"),
            server_host_busy: match elsewhere {
                Some(_) => seen.mean("server host", "busy"),
                None => seen.mean("host", "busy"),
            },
            server_cpus,
            at_once: at_once(run, ok_per_s, jvm.as_ref()),
            jvm,
            network: Network::of(&seen),
            kinds: waiting::kinds(&seen),
            upstreams: waiting::upstreams(&seen),
            sessions: waiting::sessions(&seen),
            calls: waiting::calls(&seen),
        })
    }

    /// Whether client and server have CPUs of their own, or machines.
    #[must_use]
    pub fn server_is_apart(&self) -> bool {
        let place = self.run.place.as_ref();
        let both =
            place.is_some_and(|place| place.client.cpus.is_some() && place.server.cpus.is_some());
        self.run.elsewhere.is_some() || both
    }

    /// Whether the server's CPUs were set apart for it and its store.
    #[must_use]
    pub fn has_cpus_of_its_own(&self) -> bool {
        let place = self.run.place.as_ref();
        place.is_some_and(|place| place.server.cpus.is_some())
    }

    /// CPUs that the client takes of those that the server might have.
    #[must_use]
    pub fn client_beside(&self) -> f64 {
        if self.server_is_apart() {
            0.0
        } else {
            self.client.used
        }
    }

    /// CPUs that nobody used of those that the server might use, and how many these are; none where nothing is known of the server, which
    /// may be on another machine then.
    #[must_use]
    pub fn idle_to_server(&self) -> Option<(f64, f64)> {
        let server = self.server.as_ref()?;
        if self.has_cpus_of_its_own() {
            let store = self.store.as_ref().map_or(0.0, |store| store.used);
            let idle = server.may_use - server.used - store;
            return Some((idle.max(0.0), server.may_use));
        }
        let busy = self.server_host_busy?;
        Some(((self.server_cpus - busy).max(0.0), self.server_cpus))
    }
}

/// Ok answers per second times the shortest service time. A load begins with all of its connections at once, so that its first answers
/// are of requests that met no others; on a JVM that was not warm they are of code that had yet to be compiled, and of a mix each kind
/// of request has its own.
fn at_once(run: &Run, ok_per_s: f64, jvm: Option<&Jvm>) -> Option<f64> {
    let cold = jvm.is_some_and(|jvm| jvm.compiling.is_none_or(|cpus| cpus > WARM));
    let warmed = run.attempt > 1 || run.warmup.is_some();
    let of_one_kind = run.plan.mix.is_none();
    let least_s = run.least_service_time_us.filter(|us| *us > 0.0)? / 1e6;
    (of_one_kind && (warmed || !cold)).then_some(ok_per_s * least_s)
}

/// Requests that something came back for.
fn answered(counts: &Counts) -> u64 {
    counts.ok + counts.rejected + counts.wrong + counts.malformed
}

/// Processes that were watched.
fn processes(of: &Server, subject: &str, seen: &Seen<'_>, may_use: f64, answered: f64) -> Side {
    let seconds = of.wall_s.max(f64::MIN_POSITIVE);
    // The series are of the window, the sums of the whole measurement.
    let user = seen.rate(subject, "user");
    let in_kernel = seen
        .rate(subject, "system")
        .unwrap_or(of.system_s / seconds);
    let used = user.map_or(of.cpu_s / seconds, |user| user + in_kernel);
    let of_thread = |thread: &ServerThread| Busiest {
        name: thread.name.clone(),
        on_cpu: thread.on_cpu_s / seconds,
        waiting: thread.run_delay_s / seconds,
    };
    let busiest = of.seen.threads.iter().map(of_thread);
    Side {
        may_use,
        used,
        in_kernel,
        waiting: seen.rate(subject, "run_delay"),
        cpu_us: (answered > 0.0).then(|| used / answered * 1e6),
        busiest: busiest.max_by(|a, b| a.on_cpu.total_cmp(&b.on_cpu)),
    }
}

/// The load process, which tells of itself; another load generator is only watched.
fn load(run: &Run, seen: &Seen<'_>, may_use: f64, answered: f64) -> Side {
    let threads = || {
        run.client
            .threads
            .iter()
            .filter(|thread| thread.wall_s > 0.0)
    };
    let share = |seconds: f64, thread: &ThreadUse| (seconds / thread.wall_s).min(1.0);
    let used: f64 = threads().map(|t| share(t.user_s + t.system_s, t)).sum();
    let in_kernel = threads().map(|t| share(t.system_s, t)).sum();
    let waiting = threads().map(|t| t.run_delay_s.map(|s| share(s, t)));
    let busiest = threads().filter(|t| t.drives_load).map(|t| Busiest {
        name: t.name.clone(),
        on_cpu: share(t.user_s + t.system_s, t),
        waiting: share(t.run_delay_s.unwrap_or(0.0), t),
    });
    if run.client.name.is_some() || run.client.threads.is_empty() {
        // What its processes used that came and went between two looks is in its own account alone (wait4).
        let whole_s = run.client.tool.as_ref().map(|tool| tool.wall_s);
        let whole_s = whole_s.filter(|s| *s > 0.0).unwrap_or(run.sending_s);
        let in_kernel = run.client.system_s / whole_s;
        return Side {
            may_use,
            used: run.client.user_s / whole_s + in_kernel,
            in_kernel,
            waiting: seen.rate("client", "run_delay"),
            cpu_us: run.client.cpu_us_per_request,
            busiest: None,
        };
    }
    Side {
        may_use,
        used,
        in_kernel,
        waiting: waiting.sum(),
        cpu_us: (answered > 0.0).then(|| used / answered * 1e6),
        busiest: busiest.max_by(|a, b| a.busy().total_cmp(&b.busy())),
    }
}

impl Jvm {
    fn of(seen: &Seen<'_>) -> Option<Self> {
        seen.series("jvm", "java_threads")?;
        Some(Jvm {
            gc: seen.rate("jvm", "gc_time"),
            gc_per_s: seen.rate("jvm", "gc_count"),
            safepoint: seen.rate("jvm", "safepoint_time"),
            compiling: seen.rate("jvm", "compiler_threads"),
            compilations_per_s: seen.rate("jvm", "compilations"),
            collecting: seen.rate("jvm", "collector_threads"),
            compiler_busy: compiler_busy(seen.run),
        })
    }
}

/// The kernel keeps 15 bytes of the names that HotSpot gives its compilers' threads.
fn compiler_busy(run: &Run) -> Option<f64> {
    const COMPILERS: [&str; 2] = ["C1 CompilerThre", "C2 CompilerThre"];
    let server = run.server.as_ref().filter(|server| server.wall_s > 0.0)?;
    let threads = server.seen.threads.iter();
    let compilers = threads.filter(|thread| COMPILERS.contains(&&*thread.name));
    compilers
        .map(|thread| (thread.on_cpu_s + thread.run_delay_s) / server.wall_s)
        .max_by(f64::total_cmp)
}

impl Network {
    fn of(seen: &Seen<'_>) -> Self {
        let there = |metric: &str| seen.mean("listener", metric).is_some_and(|n| n > 0.0);
        let ends = seen.mean("server sockets", "established");
        // Of a server on another machine, which nobody observed there, its ends of the connections and its kernel are not seen: zeros are
        // of this one.
        let here = seen.run.server.is_some()
            || ends.is_some_and(|n| n > 0.0)
            || there("accept_queue_limit");
        let of_server = |subject: &str, metric: &str| seen.mean(subject, metric).filter(|_| here);
        Network {
            listen_overflows_per_s: seen.of_server_network("ListenOverflows").filter(|_| here),
            syn_retransmits_per_s: seen.of_client_network("TCPSynRetrans"),
            active_opens_per_s: seen.of_client_network("ActiveOpens"),
            client_time_wait: seen.mean("client sockets", "time_wait"),
            accept_queue: of_server("listener", "accept_queue"),
            accept_queue_limit: of_server("listener", "accept_queue_limit"),
            unread_by_server: of_server("server sockets", "receive_queue"),
            unread_by_client: seen.mean("client sockets", "receive_queue"),
            unacknowledged: of_server("server sockets", "send_queue"),
            delayed_acks_per_s: seen.of_client_network("DelayedACKs"),
            opened_by_others_per_s: opened_by_others(seen),
            open_files: seen.level("server", "open_files"),
            open_files_limit: seen.level("server", "open_files_limit"),
            throttled_per_s: seen
                .rate("server cgroup", "nr_throttled")
                .or_else(|| seen.rate("cgroup", "nr_throttled")),
            throttled: seen
                .rate("server cgroup", "throttled_time")
                .or_else(|| seen.rate("cgroup", "throttled_time")),
            steal: seen.rate("host", "steal"),
        }
    }
}

/// Of a network that both sides have together those of the client are taken off: they are spread over the measurement.
fn opened_by_others(seen: &Seen<'_>) -> Option<f64> {
    if let Some(opened) = seen.rate("server network", "ActiveOpens") {
        return Some(opened);
    }
    let all = seen.rate("network", "ActiveOpens")?;
    let run = seen.run;
    let own = run.connections.opened as f64 / run.sending_s.max(f64::MIN_POSITIVE);
    Some((all - own).max(0.0))
}
