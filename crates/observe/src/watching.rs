//! What the sampler's thread watches: the machine, the server, the load process, the sockets between them, and the store behind the server.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use floodmark_record::target::Address;
use floodmark_record::watch::{Observed, OtherThreads, ServerThread, Watcher};

use crate::sampler::{Sampled, Word};
use crate::samples::{self, Samples};
use crate::sides::Side;
use crate::sock_diag::SockDiag;
use crate::sockets::{Ends, Sockets};
use crate::store::Asking;
use crate::watch::{LastRead, Shown, Watch};
use crate::watcher::thread_cpu;
use crate::{Root, cgroup, host, namespace, server, store, wall_clock};

/// How often connections are looked at: the kernel goes over its whole table each time, which takes most of a millisecond where it
/// is large, however few connections there are.
const CONNECTIONS_STEP: Duration = Duration::from_millis(250);

/// Shares of one CPU that looking at connections, and at the listener alone, may take.
const CONNECTIONS: f64 = 0.004;
const LISTENER: f64 = 0.002;

/// The state of the thread.
pub(crate) struct Watching {
    root: Root,
    watch: Watch,
    pub(crate) samples: Samples,
    server: Option<Side>,
    store: Option<Side>,
    asking: Option<Asking>,
    client: Option<Side>,
    measured_from: Option<Instant>,
}

impl Watching {
    /// Begins to read the machine, the server and the store behind it.
    pub(crate) fn open(root: &Root, every: Duration, watch: &Watch, shown: &Shown) -> Self {
        let mut samples = Samples::new(every);
        host::open(&mut samples, root);
        let server = open_server(&mut samples, root, watch, &shown.server);
        let server = said(&mut samples, server);
        let store = watch.store.as_ref();
        let store = store.map(|store| store::open(&mut samples, root, store, &shown.store));
        let store = store.and_then(|side| said(&mut samples, side.map(Some)));
        let asking = ask(&mut samples, root, watch);
        if let Some(server) = &server {
            server.open_cgroup(&mut samples, root, cgroup::group(root, "cpu"));
        }
        let mut watching = Self {
            root: root.clone(),
            watch: watch.clone(),
            samples,
            server,
            store,
            asking,
            client: None,
            measured_from: None,
        };
        // Before there is a client, so that all of its load is in the counters.
        let there = watching.server_elsewhere();
        if let Some(server) = there {
            watching.open_counters("server network", server);
        }
        watching.open_upstreams(there);
        watching
    }

    /// Reads the connections that the server opens itself.
    fn open_upstreams(&mut self, namespace_of: Option<u32>) {
        let Some(server) = &self.server else {
            return;
        };
        let port = ip_addresses(&self.watch)
            .first()
            .map_or(0, SocketAddr::port);
        match ask_in(&self.root, namespace_of) {
            Ok(diag) => server.open_upstreams(&mut self.samples, &self.root, port, diag),
            Err(error) => self
                .samples
                .missing(format!("upstreams: sock_diag: {error}")),
        }
    }

    /// Begins to read a server and its machine for a load elsewhere; what is read is to be drained.
    ///
    /// # Errors
    /// There is no server to read.
    pub(crate) fn open_server(
        root: &Root,
        every: Duration,
        watch: &Watch,
        shown: &Shown,
    ) -> Result<Self, String> {
        let mut samples = Samples::drained(every);
        let server = open_server(&mut samples, root, watch, &shown.server)?;
        host::machine(&mut samples, root);
        let mut watching = Self {
            root: root.clone(),
            watch: watch.clone(),
            samples,
            server,
            store: None,
            asking: None,
            client: None,
            measured_from: None,
        };
        let there = watching.server_elsewhere();
        match there {
            Some(server) => watching.open_counters("server network", server),
            None => host::network(&mut watching.samples, root, "network", "/proc/net"),
        }
        watching.open_upstreams(there);
        if let Some(server) = &watching.server {
            server.open_cgroup(&mut watching.samples, root, None);
        }
        let addresses = ip_addresses(watch);
        open_sockets(&mut watching.samples, root, &addresses, Ends::Server, there);
        if !addresses.is_empty() {
            open_listener(&mut watching.samples, root, &addresses, there);
        }
        Ok(watching)
    }

    /// Name and ids of the server's first processes.
    pub(crate) fn server_named(&self) -> (String, Vec<u32>) {
        self.server.as_ref().map(Side::named).unwrap_or_default()
    }

    /// Whether any process of the server lives.
    pub(crate) fn server_lives(&self) -> bool {
        self.server.as_ref().is_some_and(Side::lives)
    }

    /// What the server's threads used since this was last asked.
    pub(crate) fn server_threads(&mut self) -> (Vec<ServerThread>, Option<OtherThreads>) {
        let threads = self.server.as_mut().map(Side::drain_threads);
        threads.unwrap_or_default()
    }

    /// A process of the server, where that is in another network namespace than this thread.
    fn server_elsewhere(&self) -> Option<u32> {
        let pid = self.server.as_ref().and_then(Side::first_pid)?;
        namespace::is_other(&self.root, pid).then_some(pid)
    }

    /// Reads the counters of a process's network.
    fn open_counters(&mut self, whose: &'static str, pid: u32) {
        let net = format!("/proc/{pid}/net");
        host::network(&mut self.samples, &self.root, whose, &net);
    }

    /// Takes in what the thread is told.
    pub(crate) fn told(&mut self, word: Word) {
        match word {
            Word::Client(pid) => {
                for side in self.server.iter().chain(&self.store) {
                    side.disown(pid);
                }
                self.client = match Side::open(
                    &mut self.samples,
                    &self.root,
                    "client",
                    &[pid],
                    &[],
                    &LastRead::default(),
                ) {
                    Ok(side) => Some(side),
                    Err(error) => {
                        self.samples.missing(format!("client: {error}"));
                        None
                    }
                };
                self.open_network(pid);
            }
            Word::Measuring(at) => {
                self.measured_from = Some(at);
                for side in self.server.iter_mut().chain(&mut self.store) {
                    side.mark();
                }
            }
        }
    }

    /// Reads the sockets of all sides that are to be watched here, and the counters of a client that is in a network namespace of its own.
    fn open_network(&mut self, client: u32) {
        let server_there = self.server_elsewhere();
        let client_there = namespace::is_other(&self.root, client).then_some(client);
        if let Some(client) = client_there {
            self.open_counters("client network", client);
        }
        let (samples, root) = (&mut self.samples, &self.root);
        let addresses = ip_addresses(&self.watch);
        let server = self.server.as_ref().and_then(Side::first_pid);
        if self.watch.elsewhere {
            open_sockets(samples, root, &addresses, Ends::Client, client_there);
        } else if server_there.is_none() && client_there.is_none() {
            open_sockets(samples, root, &addresses, Ends::Both, None);
        } else {
            open_sockets(samples, root, &addresses, Ends::Server, server_there);
            open_sockets(samples, root, &addresses, Ends::Client, client_there);
        }
        // Of a server elsewhere there is no listener here to look at.
        if server.is_some() && !addresses.is_empty() {
            open_listener(samples, root, &addresses, server_there);
        }
    }

    /// Takes a last reading; what the thread's CPU was when it began tells what watching took.
    pub(crate) fn finish(mut self, cpu_before: Duration) -> Sampled {
        self.samples.take_last(Instant::now());
        let begin = self.samples.begin;
        let server = self.server.as_ref().map(Side::seen);
        let store = self.store.as_ref().map(Side::seen);
        let wall_s = begin.elapsed().as_secs_f64();
        let told = self.asking.map(Asking::stop);
        let room = samples::MOST_WRITTEN - told.as_ref().map_or(0, |_| store::MOST_WRITTEN);
        let (mut observations, mut missing) = self.samples.finish(room);
        said_once(&mut missing);
        let told = told.unwrap_or_default();
        observations.extend(told.observations);
        missing.extend(told.missing);
        let since = |at: Instant| at.saturating_duration_since(begin);
        let observed = Observed {
            observations,
            measured_from_ms: self
                .measured_from
                .and_then(|at| u64::try_from(since(at).as_millis()).ok()),
            server,
            store,
            watcher: Some(Watcher {
                cpu_s: (thread_cpu().saturating_sub(cpu_before) + told.cpu).as_secs_f64(),
                wall_s,
            }),
            clocks: Some(wall_clock::read(&self.root, begin)),
            elsewhere: None,
        };
        (observed, missing)
    }
}

/// A side that ends takes all of its readings with it, which is one thing to say. The load process ends with each run, and how it
/// ended is told elsewhere.
fn said_once(missing: &mut Vec<String>) {
    let (mut server, mut store) = (false, false);
    missing.retain(|line| {
        let before = match line.split_once(": ") {
            _ if !line.contains("values only") => return true,
            Some(("server", _)) => &mut server,
            Some(("store", _)) => &mut store,
            Some(("client", _)) => return false,
            _ => return true,
        };
        !std::mem::replace(before, true)
    });
}

/// What could be opened; what could not is said.
fn said(samples: &mut Samples, opened: Result<Option<Side>, String>) -> Option<Side> {
    opened.unwrap_or_else(|line| {
        samples.missing(line);
        None
    })
}

fn open_server(
    samples: &mut Samples,
    root: &Root,
    watch: &Watch,
    shown: &LastRead,
) -> Result<Option<Side>, String> {
    if watch.elsewhere || watch.addresses.is_empty() && watch.server_pid.is_none() {
        return Ok(None);
    }
    let pids = match watch.server_pid {
        Some(pid) => vec![pid],
        None => server::processes(root, &watch.addresses)?,
    };
    let own = std::process::id();
    // Where floodmark was started by the server under load, it is no part of it; where it is the server, as in tests, it is.
    let strangers = if pids.contains(&own) {
        Vec::new()
    } else {
        vec![own]
    };
    let side = Side::open(samples, root, "server", &pids, &strangers, shown);
    side.map(Some)
        .map_err(|error| format!("server: process {pids:?}: {error}"))
}

/// Begins to ask the store, where there is one and it can be asked.
fn ask(samples: &mut Samples, root: &Root, watch: &Watch) -> Option<Asking> {
    let store = watch.store.as_ref()?;
    Asking::start(root, samples.begin, store).unwrap_or_else(|error| {
        let what = format!("store: {}: no thread to ask it: {error}", store.name);
        samples.missing(what);
        None
    })
}

fn ip_addresses(watch: &Watch) -> Vec<SocketAddr> {
    let ip = |address: &Address| match address {
        Address::Ip(ip) => Some(*ip),
        Address::Unix(_) => None,
    };
    watch.addresses.iter().filter_map(ip).collect()
}

/// Asks in our own network namespace, or in that of a process.
fn ask_in(root: &Root, namespace_of: Option<u32>) -> io::Result<SockDiag> {
    match namespace_of {
        None => SockDiag::open(),
        Some(pid) => namespace::within(root, pid, SockDiag::open),
    }
}

fn open_sockets(
    samples: &mut Samples,
    root: &Root,
    addresses: &[SocketAddr],
    ends: Ends,
    namespace_of: Option<u32>,
) {
    if addresses.is_empty() {
        return;
    }
    match ask_in(root, namespace_of) {
        Ok(diag) => {
            let mut sockets = Sockets::new(diag, ends, addresses);
            let subjects = Sockets::subjects(ends);
            let read = move |into: &mut Vec<f64>| sockets.connections(into);
            let read = Box::new(read);
            samples.add_every(CONNECTIONS_STEP, "sock_diag", CONNECTIONS, subjects, read);
        }
        Err(error) => samples.missing(format!("sockets: sock_diag: {error}")),
    }
}

fn open_listener(
    samples: &mut Samples,
    root: &Root,
    addresses: &[SocketAddr],
    namespace_of: Option<u32>,
) {
    // Where it fails, so it did for the connections, which has been said.
    if let Ok(diag) = ask_in(root, namespace_of) {
        let mut sockets = Sockets::new(diag, Ends::Server, addresses);
        let subjects = Sockets::listener_subjects();
        samples.add("sock_diag: listener", LISTENER, subjects, move |into| {
            sockets.listener(into)
        });
    }
}
