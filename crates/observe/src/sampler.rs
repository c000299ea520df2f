//! [`Sampler`] monitors the host, the server, the client and the store during a load, on a separate
//! thread. [`Observer`] monitors a server and its host during a load from another host.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use floodmark_record::Metric;
use floodmark_record::host::BusyProcess;
use floodmark_record::metric::{ListenerFigure, Role};
use floodmark_record::plan::Address;
use floodmark_record::watch::{ClockReading, Observed, ObservedSecond, SeriesGroup, Watcher};

use crate::clock::{self, thread_cpu};
use crate::process::ProcessListing;
use crate::process_sampler::ProcessSampler;
use crate::samples::{self, Samples};
use crate::sock_diag::SockDiag;
use crate::sockets::{Ends, Sockets};
use crate::store::{self, StoreMonitor};
use crate::{Root, cgroup, host, listener, namespace};

/// Interval between samples of CPU time, run delay and accept queue. One sample per second would
/// miss stalls of 0.1 s. More expensive samples are taken less often.
pub const EVERY: Duration = Duration::from_millis(50);

/// All samples, and one line per source that could not be sampled.
pub type Sampled = (Observed, Vec<String>);

/// A command to the sampler's thread.
type MonitorCommand = Box<dyn FnOnce(&mut Monitor) + Send>;

/// Monitors the host, the server, the client and the store's processes. On the host, it samples the
/// network, the CPUs, the control group and the disks. For the server, it also samples threads,
/// sockets and the JVM.
///
/// Series that stay zero are kept, because a zero is evidence. Host and network counters cover
/// everything on the host. A source whose samples exceed a small CPU share is sampled less often,
/// so its series are coarser if there are many connections or threads. Memory is bounded: beyond
/// 3,600 values per series, the resolution is halved.
#[derive(Debug)]
pub struct Sampler {
    /// Dropping the sender stops the thread.
    commands: Option<mpsc::Sender<MonitorCommand>>,
    thread: io::Result<JoinHandle<Sampled>>,
    live: Arc<Mutex<LiveCpu>>,
}

impl Sampler {
    /// Starts sampling at `start`, which is time 0 of the series. Takes the first samples before
    /// returning, unless `start` is in the future. `every` must be in whole milliseconds, and at
    /// least one tick of the kernel's CPU accounting (10 ms).
    #[must_use]
    pub fn start_at(start: Instant, every: Duration, targets: MonitorTargets) -> Self {
        let (commands, received) = mpsc::channel();
        let (opened, is_open) = mpsc::channel();
        let live = Arc::<Mutex<LiveCpu>>::default();
        let shared = Arc::clone(&live);
        let thread = std::thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || run((start, every), &targets, (&received, opened), shared));
        if start <= Instant::now() {
            // Wait for the first samples, because counters must include the whole load. A thread
            // that fails drops the sender, which ends the wait.
            let _ = is_open.recv();
        }
        Self {
            commands: Some(commands),
            thread,
            live,
        }
    }

    /// Starts sampling the client, which consists of one or more processes.
    pub fn clients(&self, pids: &[u32]) {
        let pids = pids.to_vec();
        self.send(move |monitor| monitor.open_client(&pids));
    }

    /// Marks the start of the measurement. Thread CPU usage is measured from this point.
    pub fn measuring(&self) {
        let now = Instant::now();
        self.send(move |monitor| monitor.mark(now));
    }

    /// Returns the CPU time of the server, the store and the host as of their last samples.
    #[must_use]
    pub fn live(&self) -> LiveCpu {
        // If the thread panicked, `stop` reports this.
        self.live.lock().map(|live| *live).unwrap_or_default()
    }

    fn send(&self, command: impl FnOnce(&mut Monitor) + Send + 'static) {
        if let Some(commands) = &self.commands {
            // If the thread panicked, `stop` reports this.
            let _ = commands.send(Box::new(command));
        }
    }

    /// Takes the last samples and stops. The last step may be shorter than the others.
    #[must_use]
    pub fn stop(mut self) -> Sampled {
        self.commands = None;
        let nothing = |line: String| (Observed::default(), vec![line]);
        match self.thread {
            Ok(thread) => thread.join().unwrap_or_else(|_| {
                nothing("host counters: the sampler thread panicked".to_owned())
            }),
            Err(error) => nothing(format!(
                "host counters: cannot start the sampler thread: {error}"
            )),
        }
    }
}

fn run(
    (start, every): (Instant, Duration),
    targets: &MonitorTargets,
    (received, opened): (&mpsc::Receiver<MonitorCommand>, mpsc::Sender<()>),
    live: Arc<Mutex<LiveCpu>>,
) -> Sampled {
    let mut early = Vec::new();
    loop {
        match received.recv_timeout(start.saturating_duration_since(Instant::now())) {
            Ok(command) => early.push(command),
            Err(RecvTimeoutError::Disconnected) if Instant::now() < start => {
                return (Observed::default(), Vec::new());
            }
            Err(_) => break,
        }
    }
    let cpu = thread_cpu();
    let mut monitor = Monitor::open(every, targets, live);
    drop(opened);
    for command in early {
        command(&mut monitor);
    }
    loop {
        let wait = monitor.samples.next();
        match received.recv_timeout(wait.saturating_duration_since(Instant::now())) {
            Ok(command) => command(&mut monitor),
            Err(RecvTimeoutError::Timeout) => monitor.samples.take(Instant::now()),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    monitor.finish(cpu)
}

/// Interval between connection samples, and their maximum CPU share. For each sample, the kernel
/// scans its whole connection table. Even with few connections, this takes up to 2.5 ms on a host
/// with 24 GB of memory, because the size of the table depends on the amount of memory.
const CONNECTIONS: (Duration, f64) = (Duration::from_millis(250), 0.01);

/// Maximum CPU share for sampling the listener.
const LISTENER_SHARE: f64 = 0.002;

/// Maximum number of processes outside the experiment that are recorded.
const OTHER_PROCESSES: usize = 3;

/// State of the sampler's thread.
struct Monitor {
    root: Root,
    targets: MonitorTargets,
    samples: Samples,
    server: Option<ProcessSampler>,
    store: Option<ProcessSampler>,
    store_monitor: Option<StoreMonitor>,
    client: Option<ProcessSampler>,
    measured_from: Option<Instant>,
    /// All processes at the start of the measurement.
    processes: Option<ProcessListing>,
}

impl Monitor {
    fn new(root: &Root, samples: Samples, targets: &MonitorTargets) -> Self {
        Self {
            root: root.clone(),
            targets: targets.clone(),
            samples,
            server: None,
            store: None,
            store_monitor: None,
            client: None,
            measured_from: None,
            processes: None,
        }
    }

    /// Starts sampling the host, the server and the store.
    fn open(every: Duration, targets: &MonitorTargets, live: Arc<Mutex<LiveCpu>>) -> Self {
        let root = &Root::host();
        let mut monitor = Self::new(root, Samples::new(every), targets);
        monitor.samples.live = live;
        host::open(&mut monitor.samples, root);
        let server = monitor.open_processes();
        monitor.server = or_missing(&mut monitor.samples, server).flatten();
        if let Some(store) = &targets.store {
            monitor.open_store(store);
        }
        // Start sampling before the client starts, so that the counters include the whole load.
        let namespace_of = monitor.server_namespace();
        if let Some(server) = namespace_of {
            monitor.open_counters(Role::Server, server);
        }
        let own = cgroup::throttled_level(root, "self");
        monitor.open_server_groups(own.as_deref(), namespace_of);
        monitor
    }

    /// Starts sampling a server and its host for a load from another host. The caller must drain
    /// the samples.
    ///
    /// # Errors
    /// The server was not found.
    fn open_server(targets: &MonitorTargets) -> Result<Self, String> {
        let root = &Root::host();
        let mut monitor = Self::new(root, Samples::drained(EVERY), targets);
        monitor.server = monitor.open_processes()?;
        host::machine(&mut monitor.samples, root);
        let namespace_of = monitor.server_namespace();
        match namespace_of {
            Some(server) => monitor.open_counters(Role::Server, server),
            None => host::network(&mut monitor.samples, root, None, "/proc/net"),
        }
        monitor.open_server_groups(None, namespace_of);
        monitor.open_sockets(Ends::Server, namespace_of);
        monitor.open_listener(namespace_of);
        Ok(monitor)
    }

    /// Starts sampling the server's processes. Does nothing if there is no server, or if a remote
    /// observer samples the server.
    fn open_processes(&mut self) -> Result<Option<ProcessSampler>, String> {
        let (addresses, pid) = (&self.targets.addresses, self.targets.server_pid);
        if self.targets.observed_remotely || addresses.is_empty() && pid.is_none() {
            return Ok(None);
        }
        let (samples, who) = (&mut self.samples, (Role::Server, "server"));
        open_processes(samples, &self.root, who, pid, addresses).map(Some)
    }

    /// Starts sampling a store's processes, and its statistics if the kind of store is known.
    fn open_store(&mut self, store: &MonitoredStore) {
        let (samples, root) = (&mut self.samples, &self.root);
        let who = format!("store: {}", store.name);
        let addresses = [Address::Ip(store.address)];
        let role = (Role::Store, who.as_str());
        let opened = open_processes(samples, root, role, store.pid, &addresses);
        self.store = or_missing(samples, opened);
        let store_monitor = StoreMonitor::start(root, samples.begin, store);
        let store_monitor = store_monitor
            .map_err(|error| format!("{who}: cannot start the sampler thread: {error}"));
        self.store_monitor = or_missing(samples, store_monitor).flatten();
    }

    /// Starts sampling the code that the server executes and the connections that it opens. Also
    /// starts sampling the server's control group if it differs from `own`.
    fn open_server_groups(&mut self, own: Option<&Path>, namespace_of: Option<u32>) {
        let Some(server) = &self.server else {
            return;
        };
        let samples = &mut self.samples;
        server.open_cgroup(samples, own);
        server.open_code(samples);
        let addresses = self.targets.ip_addresses();
        let port = addresses.first().map_or(0, SocketAddr::port);
        match namespace::within(&self.root, namespace_of, SockDiag::open) {
            Ok(diag) => server.open_upstreams(samples, port, diag),
            Err(error) => samples.missing(format!("upstreams: sock_diag: {error}")),
        }
    }

    /// Returns the PID of a server process if its network namespace differs from this thread's.
    fn server_namespace(&self) -> Option<u32> {
        let pid = *self.server.as_ref()?.pids.first()?;
        namespace::is_other(&self.root, pid).then_some(pid)
    }

    /// Starts sampling the network counters of a process's namespace.
    fn open_counters(&mut self, role: Role, pid: u32) {
        let net = format!("/proc/{pid}/net");
        host::network(&mut self.samples, &self.root, Some(role), &net);
    }

    /// Starts sampling the client's processes.
    fn open_client(&mut self, pids: &[u32]) {
        for sampler in self.server.iter().chain(&self.store) {
            pids.iter().for_each(|pid| sampler.exclude(*pid));
        }
        let samples = &mut self.samples;
        let client = ProcessSampler::open(samples, &self.root, Role::Client, pids, None);
        let client = client.map_err(|error| format!("client: {error}"));
        self.client = or_missing(samples, client);
        if let Some(pid) = pids.first() {
            self.open_network(*pid);
        }
    }

    /// Marks the start of the measurement.
    fn mark(&mut self, at: Instant) {
        self.measured_from = Some(at);
        for sampler in self.server.iter_mut().chain(&mut self.store) {
            sampler.mark();
        }
        self.processes = Some(ProcessListing::read(&self.root));
    }

    /// Starts sampling the sockets of all local roles. If the client has its own network namespace,
    /// also starts sampling that namespace's network counters.
    fn open_network(&mut self, client: u32) {
        let server_namespace = self.server_namespace();
        let client_namespace = namespace::is_other(&self.root, client).then_some(client);
        if let Some(client) = client_namespace {
            self.open_counters(Role::Client, client);
        }
        if self.targets.observed_remotely {
            self.open_sockets(Ends::Client, client_namespace);
        } else if server_namespace.is_none() && client_namespace.is_none() {
            self.open_sockets(Ends::Both, None);
        } else {
            self.open_sockets(Ends::Server, server_namespace);
            self.open_sockets(Ends::Client, client_namespace);
        }
        // A remote server has no listener on this host.
        if self.server.is_some() {
            self.open_listener(server_namespace);
        }
    }

    /// Returns a sampler of the sockets in a namespace, or `None` if the server has no IP address
    /// or the sockets can't be read.
    fn sockets(&mut self, ends: Ends, namespace_of: Option<u32>) -> Option<Sockets> {
        let addresses = self.targets.ip_addresses();
        if addresses.is_empty() {
            return None;
        }
        let diag = namespace::within(&self.root, namespace_of, SockDiag::open);
        let diag = diag.map_err(|error| format!("sockets: sock_diag: {error}"));
        or_missing(&mut self.samples, diag).map(|diag| Sockets::new(diag, ends, addresses))
    }

    fn open_sockets(&mut self, ends: Ends, namespace_of: Option<u32>) {
        if let Some(mut sockets) = self.sockets(ends, namespace_of) {
            let (samples, metrics) = (&mut self.samples, Sockets::metrics(ends));
            let read = move || sockets.connections();
            samples.add_values("sock_diag", CONNECTIONS, metrics, read);
        }
    }

    fn open_listener(&mut self, namespace_of: Option<u32>) {
        if let Some(mut sockets) = self.sockets(Ends::Server, namespace_of) {
            let timing = (self.samples.step, LISTENER_SHARE);
            let metrics = ListenerFigure::ALL.map(Metric::Listener).into();
            let (samples, read) = (&mut self.samples, move || sockets.listener());
            samples.add_values("sock_diag: listener", timing, metrics, read);
        }
    }

    /// Returns the busiest processes outside the experiment since the start of the measurement.
    fn other_processes(&self) -> Vec<BusyProcess> {
        let Some(before) = &self.processes else {
            return Vec::new();
        };
        let samplers = [&self.server, &self.store, &self.client];
        let members = samplers.into_iter().flatten();
        let mut participants: Vec<u32> = members.flat_map(ProcessSampler::members).collect();
        participants.push(std::process::id());
        let mut busy = ProcessListing::read(&self.root).since(before);
        busy.retain(|process| !participants.contains(&process.pid));
        busy.truncate(OTHER_PROCESSES);
        busy
    }

    /// Takes the last samples. `cpu_before` is the CPU time of this thread before its first sample.
    fn finish(mut self, cpu_before: Duration) -> Sampled {
        self.samples.take_last(Instant::now());
        let other_processes = self.other_processes();
        let begin = self.samples.begin;
        let [server, store] =
            [&self.server, &self.store].map(|of| of.as_ref().map(ProcessSampler::seen));
        let wall_s = begin.elapsed().as_secs_f64();
        let store_samples = self.store_monitor.map(StoreMonitor::stop);
        let room =
            samples::MAX_JSON_LENGTH - store_samples.as_ref().map_or(0, |_| store::MAX_JSON_LENGTH);
        let (mut observations, mut missing) = self.samples.finish(room);
        merge_ends(&mut missing);
        let store_samples = store_samples.unwrap_or_default();
        observations.extend(store_samples.observations);
        missing.extend(store_samples.missing);
        let since = |at: Instant| at.saturating_duration_since(begin);
        let observed = Observed {
            observations,
            measured_from_ms: self
                .measured_from
                .and_then(|at| u64::try_from(since(at).as_millis()).ok()),
            server,
            store,
            other_processes,
            watcher: Some(Watcher {
                cpu_s: (thread_cpu().saturating_sub(cpu_before) + store_samples.cpu).as_secs_f64(),
                wall_s,
            }),
            clocks: Some(clock::read(&self.root, begin)),
            remote: None,
        };
        (observed, missing)
    }
}

/// Keeps one line per ended process tree, because each sampler of a tree reports that the tree
/// ended. Drops such lines about the client, because floodmark reports elsewhere that the client
/// ended.
fn merge_ends(missing: &mut Vec<String>) {
    let mut ended = HashSet::new();
    missing.retain(|line| match line.split_once(": ") {
        _ if !line.contains("sampling stopped") => true,
        Some((role @ ("server" | "store"), _)) => ended.insert(role.to_owned()),
        Some(("client", _)) => false,
        _ => true,
    });
}

/// Returns the value. In case of an error, adds the message to the missing sources and returns
/// `None`.
fn or_missing<T>(samples: &mut Samples, opened: Result<T, String>) -> Option<T> {
    opened.map_err(|line| samples.missing(line)).ok()
}

/// Starts sampling the processes of a role. If no PID is given, samples the processes that listen
/// on the addresses. Each error message starts with `name`.
fn open_processes(
    samples: &mut Samples,
    root: &Root,
    (role, name): (Role, &str),
    pid: Option<u32>,
    addresses: &[Address],
) -> Result<ProcessSampler, String> {
    let pids = match pid {
        Some(pid) => vec![pid],
        None => listener::processes(root, (role, name), addresses)?,
    };
    // floodmark may be a child of the server under test, so exclude it. In tests, floodmark may
    // itself be the server.
    let own = Some(std::process::id()).filter(|own| !pids.contains(own));
    ProcessSampler::open(samples, root, role, &pids, own)
        .map_err(|error| format!("{name}: process {pids:?}: {error}"))
}

/// Samples a server and its host on the calling thread.
///
/// Memory use and sampling cost don't grow with time, because drained samples are dropped.
pub struct Observer {
    monitor: Monitor,
    cpu_before: Duration,
    /// Time of the last sample.
    taken: Instant,
    drained_to_ms: u64,
}

impl Observer {
    /// Starts observing a server.
    ///
    /// # Errors
    /// The server's processes don't exist or can't be read. The error is a one-line message.
    pub fn open(targets: &MonitorTargets) -> Result<Self, String> {
        let cpu_before = thread_cpu();
        Ok(Self {
            monitor: Monitor::open_server(targets)?,
            cpu_before,
            taken: Instant::now(),
            drained_to_ms: 0,
        })
    }

    /// Returns the server's name and the PIDs of its initial processes.
    #[must_use]
    pub fn server(&self) -> (String, Vec<u32>) {
        let server = self.monitor.server.as_ref();
        let server = server.map(|server| (server.name.clone(), server.pids.clone()));
        server.unwrap_or_default()
    }

    /// Returns the CPUs on which at least one of the server's threads may run; `None` if unknown.
    #[must_use]
    pub fn allowed_cpus(&self) -> Option<BTreeSet<u32>> {
        self.monitor.server.as_ref()?.allowed_cpus()
    }

    /// Returns whether any server process is running.
    #[must_use]
    pub fn server_is_alive(&self) -> bool {
        let server = self.monitor.server.as_ref();
        server.is_some_and(ProcessSampler::is_alive)
    }

    /// Reads the monotonic clock and the wall clock.
    #[must_use]
    pub fn clocks(&self) -> ClockReading {
        clock::read(&self.monitor.root, self.monitor.samples.begin)
    }

    /// Waits until the next sample is due, then takes it.
    pub fn step(&mut self) {
        let due = self.monitor.samples.next();
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        self.taken = Instant::now();
        self.monitor.samples.take(self.taken);
    }

    /// Returns new groups and all samples since the previous call.
    pub fn drain(&mut self) -> (Vec<SeriesGroup>, ObservedSecond) {
        let (new, groups, mut missing) = self.monitor.samples.drain();
        let server = self.monitor.server.as_mut();
        let threads = server.map(ProcessSampler::drain_threads);
        let (threads, other_threads) = threads.unwrap_or_default();
        let clocks = self.clocks();
        let from_ms = self.drained_to_ms;
        let begin = self.monitor.samples.begin;
        let steps = self.taken.saturating_duration_since(begin).as_millis() / EVERY.as_millis();
        let to_ms = u64::try_from(steps * EVERY.as_millis()).unwrap_or(u64::MAX);
        self.drained_to_ms = to_ms.max(from_ms);
        if !self.server_is_alive() {
            // Report once that the server ended, not once per sampler.
            missing = vec!["server: the process ended".to_owned()];
        }
        let second = ObservedSecond {
            from_ms,
            to_ms: self.drained_to_ms,
            clocks,
            groups,
            threads,
            other_threads,
            watcher_cpu_s: thread_cpu().saturating_sub(self.cpu_before).as_secs_f64(),
            missing,
        };
        (new, second)
    }
}

/// Targets to monitor in addition to the host.
#[derive(Debug, Clone, Default)]
pub struct MonitorTargets {
    /// Addresses of the server.
    pub addresses: Vec<Address>,
    /// PID of the server. Without a PID, the server is found by its address.
    pub server_pid: Option<u32>,
    /// Whether a remote observer samples the server and the server's end of each connection.
    pub observed_remotely: bool,
    /// The store behind the server.
    pub store: Option<MonitoredStore>,
}

impl MonitorTargets {
    /// Returns the addresses of the server, except unix sockets.
    pub(crate) fn ip_addresses(&self) -> Vec<SocketAddr> {
        self.addresses.iter().filter_map(Address::ip).collect()
    }
}

/// A database behind the server under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonitoredStore {
    /// Name of the store, for messages.
    pub name: String,
    /// Kind of the store, if known.
    pub kind: Option<StoreKind>,
    /// Address of the store.
    pub address: SocketAddr,
    /// PID of the process that started the store. Without a PID, the store is found by its address.
    pub pid: Option<u32>,
}

/// Kind of database whose statistics can be queried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// Apache Cassandra, through CQL.
    Cassandra,
    /// PostgreSQL.
    Postgresql,
}

/// Total CPU time that a role's processes have used so far, including ended processes.
#[derive(Debug, Clone, Copy)]
pub struct UsedCpu {
    /// Time of the sample.
    pub at: Instant,
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
}

/// CPU time of the host since boot, summed over all CPUs.
#[derive(Debug, Clone, Copy)]
pub struct HostCpu {
    /// Time of the sample.
    pub at: Instant,
    /// Time that programs and interrupts have used, in seconds.
    pub busy_s: f64,
    /// Total, including idle and stolen time, in seconds.
    pub total_s: f64,
}

/// The most recent samples of CPU time, for the live view. A field is `None` if there is no sample.
#[derive(Debug, Clone, Copy, Default)]
pub struct LiveCpu {
    /// The server's processes.
    pub server: Option<UsedCpu>,
    /// The store's processes.
    pub store: Option<UsedCpu>,
    /// The host.
    pub host: Option<HostCpu>,
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::testing::{max, series, sum};

    fn start(every_ms: u64, targets: MonitorTargets) -> Sampler {
        Sampler::start_at(Instant::now(), Duration::from_millis(every_ms), targets)
    }

    #[test]
    fn samples_connections_and_cpu_and_keeps_zeros() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sampler = start(200, MonitorTargets::default());
        let begin = Instant::now();
        std::thread::sleep(Duration::from_millis(20));
        for _ in 0..50 {
            drop(TcpStream::connect(address).unwrap());
            drop(listener.accept().unwrap());
        }
        while begin.elapsed() < Duration::from_millis(350) {
            std::hint::black_box(begin);
        }
        let (observed, missing) = sampler.stop();
        assert!(
            !missing.iter().any(|line| line.contains("netstat")),
            "{missing:?}"
        );

        let opens = series(&observed, "network", "ActiveOpens");
        assert!(opens.values.iter().sum::<f64>() >= 50.0, "{opens:?}");
        assert_eq!(
            (opens.start_ms, opens.step_ms, opens.unit()),
            (0, 200, "count".to_owned())
        );
        // There is one full step and a partial one. On a busy host, the sampler may wake up late,
        // but it never skips a step.
        assert!(opens.values.len() >= 2, "{opens:?}");
        let overflows = series(&observed, "network", "TCPTimeWaitOverflow");
        assert_eq!(overflows.values.len(), opens.values.len());
        let resting = series(&observed, "network", "tw");
        assert!(resting.values.iter().any(|tw| *tw > 0.0));
        let busy: f64 = sum(&observed, "host", "busy") * 0.2;
        let stolen = sum(&observed, "host", "steal");
        assert!(busy + stolen > 0.1, "{busy} {stolen}");
        assert!(observed.server.is_none());
        let watcher = observed.watcher.unwrap();
        assert!(watcher.cpu_s > 0.0 && watcher.cpu_s < watcher.wall_s);
    }

    #[test]
    fn returns_nothing_if_stopped_before_its_start() {
        let sampler = Sampler::start_at(
            Instant::now() + Duration::from_secs(60),
            Duration::from_secs(1),
            MonitorTargets::default(),
        );
        assert_eq!(sampler.stop(), (Observed::default(), Vec::new()));
    }

    /// Starts a child that waits for a line, burns CPU and prints its own CPU time.
    fn burner() -> std::process::Child {
        let program =
            "read line; i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; times; read line";
        std::process::Command::new("sh")
            .args(["-c", program])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    }

    #[test]
    fn measures_the_cpu_that_a_busy_server_reports() {
        use std::io::{BufRead, Write};
        let mut child = burner();
        let targets = MonitorTargets {
            server_pid: Some(child.id()),
            ..MonitorTargets::default()
        };
        let sampler = start(50, targets);
        sampler.clients(&[std::process::id()]);
        std::thread::sleep(Duration::from_millis(120));
        sampler.measuring();
        let mut stdin = child.stdin.take().unwrap();
        writeln!(stdin).unwrap();
        let mut line = String::new();
        let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let (observed, missing) = sampler.stop();
        writeln!(stdin).unwrap();
        child.wait().unwrap();
        // The first line that `times` prints is for the shell itself: "0m0.41s 0m0.00s".
        let truth: f64 = line
            .split_ascii_whitespace()
            .map(|time| {
                let (minutes, seconds) = time.trim_end_matches('s').split_once('m').unwrap();
                minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
            })
            .sum();
        let measured = sum(&observed, "server", "user") + sum(&observed, "server", "system");
        assert!(truth > 0.1, "{line}");
        assert!(
            (measured - truth).abs() <= 0.05,
            "{measured} {truth} {missing:?}"
        );
        let on_cpu = sum(&observed, "server", "on_cpu");
        assert!((on_cpu - truth).abs() <= 0.05, "{on_cpu} {truth}");
        let seen = observed.server.as_ref().unwrap();
        assert_eq!((seen.pids.clone(), seen.processes), (vec![child.id()], 1));
        assert_eq!(seen.name, "sh");
        let thread = &seen.threads[0];
        assert!((thread.on_cpu_s - truth).abs() <= 0.05, "{thread:?}");
        assert!(seen.peak_rss_bytes > 100_000);
        let wall_ms = observed.watcher.unwrap().wall_s * 1e3;
        let measured_from_ms = observed.measured_from_ms.unwrap() as f64;
        assert!(measured_from_ms > 0.0 && measured_from_ms < wall_ms);
        let client = series(&observed, "client", "on_cpu");
        assert!(client.values.iter().sum::<f64>() > 0.0);
        assert!(sum(&observed, "client", "voluntary_ctxt_switches") >= 0.0);
    }

    #[test]
    fn keeps_the_samples_of_a_server_that_ends_early() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        let targets = MonitorTargets {
            server_pid: Some(child.id()),
            ..MonitorTargets::default()
        };
        let sampler = start(20, targets.clone());
        sampler.measuring();
        std::thread::sleep(Duration::from_millis(500));
        child.kill().unwrap();
        child.wait().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let (observed, missing) = sampler.stop();
        assert!(sum(&observed, "server", "user") > 0.02);
        // Any file may be the first to be read after the process ends, but there is always exactly
        // one line.
        let ended = |line: &&String| {
            line.starts_with("server: /proc/PID/") && line.contains("sampling stopped")
        };
        assert_eq!(missing.iter().filter(ended).count(), 1, "{missing:?}");
        assert!(missing.iter().all(|line| !line.contains('\n')));
        assert!(observed.server.unwrap().peak_rss_bytes > 0);

        // A process that does not exist is also reported.
        let (observed, missing) = start(20, targets).stop();
        assert!(observed.server.is_none());
        assert!(
            missing.iter().any(|line| line.contains("does not exist")),
            "{missing:?}"
        );
    }

    #[test]
    fn finds_a_server_by_port_and_counts_its_sockets() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..5)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let targets = MonitorTargets {
            addresses: vec![Address::Ip(address)],
            server_pid: None,
            ..MonitorTargets::default()
        };
        let sampler = start(20, targets);
        // The sockets are counted regardless of which process is the client.
        let mut client = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        sampler.clients(&[client.id()]);
        std::thread::sleep(Duration::from_millis(600));
        let (observed, missing) = sampler.stop();
        client.kill().unwrap();
        client.wait().unwrap();
        drop(clients);
        assert!(
            !missing.iter().any(|line| line.contains("server")),
            "{missing:?}"
        );
        assert_eq!(observed.server.as_ref().unwrap().pids, [std::process::id()]);
        assert_eq!(max(&observed, "listener", "accept_queue"), 5.0);
        assert_eq!(max(&observed, "client sockets", "established"), 5.0);
        // The kernel establishes connections before the server accepts them.
        assert_eq!(max(&observed, "server sockets", "established"), 5.0);
        assert!(max(&observed, "tcp_info", "rtt") > 0.0);
    }

    #[test]
    fn reports_a_remote_server_once() {
        let address = Address::Ip("127.0.0.1:1".parse().unwrap());
        let targets = MonitorTargets {
            addresses: vec![address],
            server_pid: None,
            ..MonitorTargets::default()
        };
        let (observed, missing) = start(20, targets).stop();
        assert!(observed.server.is_none());
        let lines = missing.iter().filter(|line| line.starts_with("server"));
        assert_eq!(lines.count(), 1, "{missing:?}");
    }
}
