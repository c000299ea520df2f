//! Opens the samplers for the host, the server, the client, their sockets and the store.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use floodmark_record::host::BusyProcess;
use floodmark_record::metric::Role;
use floodmark_record::target::Address;
use floodmark_record::watch::{Observed, Watcher};

use crate::busy_processes::ProcessListing;
use crate::clock::thread_cpu;
use crate::process_sampler::ProcessSampler;
use crate::sampler::{EVERY, MonitorCommand, Sampled};
use crate::samples::{self, Samples};
use crate::sock_diag::SockDiag;
use crate::sockets::{Ends, Sockets};
use crate::store::StoreMonitor;
use crate::targets::{LiveCpu, MonitorTargets, MonitoredStore, SharedCpu, SharedHostCpu};
use crate::{Root, cgroup, clock, host, namespace, server, store};

/// Interval between connection samples. For each sample, the kernel scans its whole connection
/// table, which takes up to 1 ms even with few connections.
const CONNECTIONS_STEP: Duration = Duration::from_millis(250);

/// Maximum CPU shares for sampling connections and for sampling the listener.
const CONNECTIONS_SHARE: f64 = 0.004;
const LISTENER_SHARE: f64 = 0.002;

/// Maximum number of processes outside the experiment that are recorded.
const OTHER_PROCESSES: usize = 3;

/// State of the sampler's thread.
pub(crate) struct Monitor {
    root: Root,
    targets: MonitorTargets,
    pub(crate) samples: Samples,
    pub(crate) server: Option<ProcessSampler>,
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
    pub(crate) fn open(every: Duration, targets: &MonitorTargets, live: &LiveCpu) -> Self {
        let root = &Root::host();
        let mut monitor = Self::new(root, Samples::new(every), targets);
        host::open(&mut monitor.samples, root, &live.host);
        let server = monitor.open_processes(&live.server);
        monitor.server = or_missing(&mut monitor.samples, server).flatten();
        if let Some(store) = &targets.store {
            monitor.open_store(store, &live.store);
        }
        // Open these before the client starts, so that the counters include the whole load.
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
    pub(crate) fn open_server(root: &Root, targets: &MonitorTargets) -> Result<Self, String> {
        let mut monitor = Self::new(root, Samples::drained(EVERY), targets);
        monitor.server = monitor.open_processes(&SharedCpu::default())?;
        host::machine(&mut monitor.samples, root, &SharedHostCpu::default());
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
    fn open_processes(&mut self, live: &SharedCpu) -> Result<Option<ProcessSampler>, String> {
        let (addresses, pid) = (&self.targets.addresses, self.targets.server_pid);
        if self.targets.observed_remotely || addresses.is_empty() && pid.is_none() {
            return Ok(None);
        }
        let (samples, who) = (&mut self.samples, (Role::Server, "server"));
        open_processes(samples, &self.root, who, pid, addresses, live).map(Some)
    }

    /// Starts sampling a store's processes, and its statistics if the kind of store is known.
    fn open_store(&mut self, store: &MonitoredStore, live: &SharedCpu) {
        let (samples, root) = (&mut self.samples, &self.root);
        let who = format!("store: {}", store.name);
        let addresses = [Address::Ip(store.address)];
        let role = (Role::Store, who.as_str());
        let opened = open_processes(samples, root, role, store.pid, &addresses, live);
        self.store = or_missing(samples, opened);
        let store_monitor = StoreMonitor::start(root, samples.begin, store);
        let store_monitor = store_monitor
            .map_err(|error| format!("{who}: cannot start the sampler thread: {error}"));
        self.store_monitor = or_missing(samples, store_monitor).flatten();
    }

    /// Starts sampling the server's control group if it differs from `own`, and the connections
    /// that the server opens.
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

    /// Handles a command.
    pub(crate) fn handle(&mut self, command: MonitorCommand) {
        match command {
            MonitorCommand::Clients(pids) => {
                for sampler in self.server.iter().chain(&self.store) {
                    pids.iter().for_each(|pid| sampler.exclude(*pid));
                }
                let (samples, live) = (&mut self.samples, SharedCpu::default());
                let role = Role::Client;
                let client = ProcessSampler::open(samples, &self.root, role, &pids, None, &live);
                let client = client.map_err(|error| format!("client: {error}"));
                self.client = or_missing(samples, client);
                if let Some(pid) = pids.first() {
                    self.open_network(*pid);
                }
            }
            MonitorCommand::Measuring(at) => {
                self.measured_from = Some(at);
                for sampler in self.server.iter_mut().chain(&mut self.store) {
                    sampler.mark();
                }
                self.processes = Some(ProcessListing::read(&self.root));
            }
        }
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

    fn open_sockets(&mut self, ends: Ends, namespace_of: Option<u32>) {
        let addresses = self.targets.ip_addresses();
        if addresses.is_empty() {
            return;
        }
        let samples = &mut self.samples;
        match namespace::within(&self.root, namespace_of, SockDiag::open) {
            Ok(diag) => {
                let mut sockets = Sockets::new(diag, ends, addresses);
                let (timing, metrics) = (
                    (CONNECTIONS_STEP, CONNECTIONS_SHARE),
                    Sockets::metrics(ends),
                );
                samples.add_values("sock_diag", timing, metrics, move || sockets.connections());
            }
            Err(error) => samples.missing(format!("sockets: sock_diag: {error}")),
        }
    }

    fn open_listener(&mut self, namespace_of: Option<u32>) {
        let addresses = self.targets.ip_addresses();
        // If this fails, the connection sampler has already reported the failure.
        if let Ok(diag) = namespace::within(&self.root, namespace_of, SockDiag::open)
            && !addresses.is_empty()
        {
            let mut sockets = Sockets::new(diag, Ends::Server, addresses);
            let timing = (self.samples.step, LISTENER_SHARE);
            let (source, metrics) = ("sock_diag: listener", Sockets::listener_metrics());
            let read = move || sockets.listener();
            self.samples.add_values(source, timing, metrics, read);
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
    pub(crate) fn finish(mut self, cpu_before: Duration) -> Sampled {
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

/// Keeps one line per ended process tree, because each sampler of a tree reports the end. Drops
/// such lines about the client, because floodmark reports the client's end elsewhere.
fn merge_ends(missing: &mut Vec<String>) {
    let mut ended = HashSet::new();
    missing.retain(|line| match line.split_once(": ") {
        _ if !line.contains("sampling stopped") => true,
        Some((role @ ("server" | "store"), _)) => ended.insert(role.to_owned()),
        Some(("client", _)) => false,
        _ => true,
    });
}

/// Returns the value. After an error, returns `None` and adds the message to the missing sources.
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
    live: &SharedCpu,
) -> Result<ProcessSampler, String> {
    let pids = match pid {
        Some(pid) => vec![pid],
        None => server::processes(root, (role, name), addresses)?,
    };
    // floodmark may be a child of the server under test. In tests, floodmark may itself be the
    // server.
    let own = Some(std::process::id()).filter(|own| !pids.contains(own));
    ProcessSampler::open(samples, root, role, &pids, own, live)
        .map_err(|error| format!("{name}: process {pids:?}: {error}"))
}
