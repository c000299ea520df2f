//! The server of a trial, its store and their delay proxies.
//!
//! A store is either started empty or already running.

use std::fmt::Display;
use std::io::BufReader;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use floodmark_host::{Child, ProcessPlacement, Scratch, Stop};
use floodmark_load::tls::Tls;
use floodmark_observe::MonitoredStore;
use floodmark_record::origin::Origin;
use floodmark_record::units::show_duration;
use floodmark_workers::read_line;

use super::program::{
    ProgramPaths, ProgramSpec, RunningProgram, StartOrder, free_address, restartable_address,
    within,
};
use super::{
    EarlierResult, ExperimentRunner, RunningExperiment, STORE_DATA, StepError, TrialHosts,
    plan_offline, plan_trial,
};
use crate::manifest::{Filler, Store, StoreSource, Trial, TrialStore, UrlScheme, WorkloadRequest};
use crate::probe::{self, ProbeTarget};

/// Timeout for connecting to a store.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Prefix of the first line that the proxy prints. The proxy's address follows the prefix.
pub const LISTENING: &str = "listening on ";

/// Maximum length of the proxy's first line, in bytes.
const LINE_LIMIT: usize = 1024;

impl RunningExperiment<'_> {
    /// Starts a trial's store, if any, and then its server. `order` applies to the server. Also
    /// returns the TLS settings for probes of the server.
    pub(super) fn start(
        &self,
        trial: &Trial,
        name: &str,
        order: StartOrder,
        hosts: &TrialHosts,
    ) -> Result<(RunningProgram, Option<StoreInstance>, Option<Tls>), StepError> {
        let tls = tls(trial, hosts)?;
        let store = trial.at.store.as_ref().map(|behind| {
            self.start_store(behind, trial, hosts, &format!("{name}-store"))
                .map_err(|error| error.of(&trial.name))
        });
        let store = store.transpose()?;
        let reached = store.as_ref().map(|store| &*store.reached);
        let server = self.start_server(trial, (hosts, tls.as_ref()), reached, name, order)?;
        Ok((server, store, tls))
    }

    /// Starts a store on the server's host, with an empty data directory, or connects to a running
    /// store. Starts a delay proxy if requested.
    fn start_store(
        &self,
        behind: &TrialStore,
        trial: &Trial,
        hosts: &TrialHosts,
        name: &str,
    ) -> Result<StoreInstance, StepError> {
        let failed = |what: String| format!("{} does not start: {what}", behind.name());
        let (mut program, mut scratch) = (None, None);
        let mut filler = self.runner.filler(trial, hosts);
        let address = match &behind.from {
            StoreSource::Running(url) => within(&hosts.server, || first_address(url)).map_err(
                |what| {
                    format!("the store {url} is unreachable: {what}; start the store, or correct its url")
                },
            )?,
            StoreSource::Started { store, setting } => {
                // If floodmark is killed, the next experiment removes the data from this directory.
                let data = self.temporary.join(STORE_DATA);
                let directory = Scratch::create(&data, &store.name)
                    .map_err(|error| failed(format!("{}: {error}", data.display())))?;
                let directory = scratch.insert(directory);
                let free = || restartable_address(Ipv4Addr::LOCALHOST);
                let own = within(&hosts.server, free).map_err(failed)?;
                let free = || free_address(Ipv4Addr::LOCALHOST, None);
                let other = within(&hosts.server, free).map_err(failed)?;
                filler.set("data", directory.path().display().to_string());
                filler.set("host", Ipv4Addr::LOCALHOST.to_string());
                filler.set("other-port", other.port().to_string());
                store.fill(setting, &mut filler);
                let spec = store_spec(store, hosts, own, filler.clone());
                let ready = |address| within(&hosts.server, || connect(address));
                let (paths, stop) = (self.paths(name), self.runner.stop);
                program
                    .insert(spec.start(paths, StartOrder::First, &ready, stop)?)
                    .address
            }
        };
        // The proxy adds half of the round-trip delay in each direction.
        let proxy = behind
            .delay
            .map(|delay| DelayProxy::start(&self.runner.floodmark, hosts, address, delay / 2));
        let proxy = proxy.transpose().map_err(failed)?;
        let reached = proxy.as_ref().map_or(address, |proxy| proxy.address);
        Ok(StoreInstance {
            reached: reached.to_string(),
            address,
            program,
            filler,
            proxy,
            _data: scratch,
        })
    }

    /// Starts the server of a trial and waits until it is ready. `store` is the address of the
    /// trial's store, which is already running. `name` is the name of the server's log and run
    /// directory. `tls` is used to probe the server.
    pub(super) fn start_server(
        &self,
        trial: &Trial,
        (hosts, tls): (&TrialHosts, Option<&Tls>),
        store: Option<&str>,
        name: &str,
        order: StartOrder,
    ) -> Result<RunningProgram, StepError> {
        let ready = |address| {
            let target = probe_target(trial, hosts, tls, address);
            let Some(path) = &trial.ready else {
                return probe::check_health(target);
            };
            let is_posted = *path == trial.path && trial.request().method != "GET";
            match probe::status(target, WorkloadRequest::get(path))? {
                200..400 => Ok(()),
                // A server may reject GET requests for a path that expects POST.
                405 if is_posted => Ok(()),
                status => Err(format!(
                    "GET {path} returns {status}; if another path shows that the server is ready, \
                     set ready = \"GET /path\""
                )),
            }
        };
        let runner = self.runner;
        runner
            .server(trial, hosts, store)
            .start(self.paths(name), order, &ready, runner.stop)
    }

    /// Stops a trial's server and its store. Reports and returns a message for each program that
    /// had to be killed.
    pub(super) fn stop_programs(
        &mut self,
        trial: &Trial,
        server: Option<RunningProgram>,
        store: Option<StoreInstance>,
    ) -> Vec<String> {
        let stop = self.runner.stop;
        let store_name = trial.at.store.as_ref().map_or("", |behind| behind.name());
        // Stop the server first, so that it does not log the loss of its store.
        let killed = [
            server.and_then(|server| server.stop("the server", stop)),
            store.and_then(|store| store.stop(store_name, stop)),
        ];
        let killed: Vec<String> = killed.into_iter().flatten().collect();
        for what in &killed {
            self.listener.on_problem(&format!("{}: {what}", trial.name));
        }
        killed
    }
}

impl ExperimentRunner<'_> {
    /// Returns how to start the server of a trial.
    pub(super) fn server<'a>(
        &self,
        trial: &'a Trial,
        hosts: &'a TrialHosts,
        store: Option<&str>,
    ) -> ProgramSpec<'a> {
        let mut filler = self.filler(trial, hosts);
        filler.set("store", store.unwrap_or("none"));
        trial.server.fill(&trial.setting, &mut filler);
        ProgramSpec {
            name: &trial.name,
            program: &trial.server.program,
            side: &hosts.server,
            host: hosts.address,
            port: trial.port,
            filler,
        }
    }
}

/// Returns the TLS settings of a trial's load, for probes. Returns `None` for plain HTTP. Reads the
/// certificate files.
///
/// # Errors
/// The load cannot be planned, for example because a certificate file has changed since the
/// experiment was checked.
pub(super) fn tls(trial: &Trial, hosts: &TrialHosts) -> Result<Option<Tls>, String> {
    let at_line = |what: &dyn Display| format!("{}: {what}", trial.place);
    if trial.server.start.scheme == UrlScheme::Http {
        return Ok(None);
    }
    let planned = plan_offline(trial, hosts, hosts.address).map_err(|what| at_line(&what))?;
    Tls::of(&planned.plan, &planned.credentials).map_err(|error| at_line(&error))
}

/// Returns a trial's server, for probes in the load's HTTP version.
fn probe_target<'a>(
    trial: &Trial,
    hosts: &'a TrialHosts,
    tls: Option<&'a Tls>,
    address: SocketAddr,
) -> ProbeTarget<'a> {
    ProbeTarget {
        from: &hosts.client,
        address,
        http: trial.load.http(),
        tls,
        origin: Origin::File,
    }
}

/// Checks a server's response to the trial's request. `tls` is the result of [`tls`].
///
/// # Errors
/// The response is unexpected, or the message of a gRPC call differs from the one in
/// `earlier`. The error message names the trial and the problem.
pub fn check_response(
    server: &mut RunningProgram,
    trial: &Trial,
    (hosts, tls): (&TrialHosts, Option<&Tls>),
    earlier: Option<&EarlierResult>,
) -> Result<(), String> {
    let target = probe_target(trial, hosts, tls, server.address);
    if let Some(method) = &trial.load.grpc {
        let planned = plan_trial(trial, hosts, server.address)
            .map_err(|what| format!("{}: {what}", trial.place))?;
        if earlier
            .is_some_and(|earlier| earlier.has_other_message(&trial.name, &planned.plan.request))
        {
            return Err(format!(
                "{}: the message of {method} differs from the resumed result; restore `body` and the \
                 server's description, or start a new result",
                trial.name
            ));
        }
        return probe::check_call(target, &planned.plan).map_err(|why| {
            let last_words = server.last_words();
            format!(
                "{}: unexpected response: {method}: {why}{last_words}",
                trial.name
            )
        });
    }
    let request = trial.request();
    let response = probe::request(target, request);
    let fault = match (response, trial.workload) {
        (Err(why), _) => Some(format!("{request}: {why}{}", server.last_words())),
        (Ok(response), Some(workload)) => workload.fault(response.status, &response.body),
        (Ok(response), None) if (200..400).contains(&response.status) => None,
        (Ok(response), None) => Some(format!("{request} returns {}", response.status)),
    };
    fault.map_or(Ok(()), |fault| {
        Err(format!("{}: unexpected response: {fault}", trial.name))
    })
}

/// A store that is ready for use. Dropping this value ends the processes that floodmark started.
#[derive(Debug)]
pub struct StoreInstance {
    /// Host and port that the server connects to.
    pub reached: String,
    /// Address of the store itself.
    address: SocketAddr,
    /// The store's process, if floodmark started it. Declared before the data directory, so that
    /// the process ends first.
    pub(super) program: Option<RunningProgram>,
    /// Values of all placeholders except the port and the run directory.
    filler: Filler,
    proxy: Option<DelayProxy>,
    _data: Option<Scratch>,
}

impl StoreInstance {
    /// Restarts a store that has exited, with the same data and address. Waits until the store
    /// accepts connections.
    pub fn restart(
        &mut self,
        store: &Store,
        hosts: &TrialHosts,
        paths: ProgramPaths<'_>,
        stop: &Stop,
    ) -> Result<(), StepError> {
        // Drop the old process before the new one starts. Dropping it also removes the run
        // directory if the directory is empty, and the new process uses the same directory.
        self.program = None;
        let spec = store_spec(store, hosts, self.address, self.filler.clone());
        let program = self.program.insert(spec.restart(paths)?);
        let ready = |address| within(&hosts.server, || connect(address));
        program
            .wait_until_ready(store.start.ready_within(), &ready, stop)
            .map_err(|error| error.of(&format!("{} does not start again", store.name)))
    }

    /// Returns the PID of the process that floodmark started. Either this process or one of its
    /// descendants accepts connections.
    pub fn pid(&self) -> Option<u32> {
        self.program.as_ref().map(RunningProgram::pid)
    }

    /// Returns the information that is needed to monitor the store.
    pub fn watched(&self, behind: &TrialStore) -> MonitoredStore {
        MonitoredStore {
            name: behind.name().to_owned(),
            kind: behind.started().and_then(|store| store.kind),
            address: self.address,
            pid: self.pid(),
        }
    }

    /// Returns the exit status and a quoted log line if the store has exited.
    pub fn exit(&mut self) -> Option<String> {
        let program = self.program.as_mut()?;
        let status = program.exit_status()?;
        Some(format!("({status}){}", program.last_words()))
    }

    /// Stops the store, and shortens the grace period once `stop` is set. Returns a message if the
    /// store had to be killed.
    pub fn stop(self, name: &str, stop: &Stop) -> Option<String> {
        drop(self.proxy);
        self.program?.stop(&format!("the store {name}"), stop)
    }
}

fn store_spec<'a>(
    store: &'a Store,
    hosts: &'a TrialHosts,
    address: SocketAddr,
    filler: Filler,
) -> ProgramSpec<'a> {
    ProgramSpec {
        name: &store.name,
        program: &store.program,
        side: &hosts.server,
        host: Ipv4Addr::LOCALHOST,
        port: Some(address.port()),
        filler,
    }
}

fn connect(address: SocketAddr) -> Result<(), String> {
    let connected = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT);
    connected.map(drop).map_err(|error| error.to_string())
}

/// Resolves a host and port. Returns the first address that accepts a connection.
fn first_address(url: &str) -> Result<SocketAddr, String> {
    let mut why = "it has no address".to_owned();
    for address in url.to_socket_addrs().map_err(|error| error.to_string())? {
        match connect(address) {
            Ok(()) => return Ok(address),
            Err(error) => why = format!("{address}: {error}"),
        }
    }
    Err(why)
}

/// A running proxy. Dropping this value ends the proxy's process.
#[derive(Debug)]
pub struct DelayProxy {
    child: Child,
    /// Address that the proxy listens on.
    pub address: SocketAddr,
}

impl DelayProxy {
    /// Starts a proxy for a server or store in the same network namespace. The proxy is not bound
    /// to the server's CPUs.
    ///
    /// `delay` is added in each direction.
    ///
    /// # Errors
    /// The proxy does not start.
    pub fn start(
        floodmark: &Path,
        hosts: &TrialHosts,
        server: SocketAddr,
        delay: Duration,
    ) -> Result<Self, String> {
        let mut command = Command::new(floodmark);
        command
            .arg("delay")
            .arg(format!("--listen={}:0", server.ip()))
            .arg(format!("--to={server}"))
            .arg(format!("--by={}ns", delay.as_nanos()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let failed = |why: String| {
            let delay = show_duration(delay);
            format!("the proxy with a delay of {delay} does not start: {why}")
        };
        let on_any_cpu = ProcessPlacement {
            cpus: None,
            ..hosts.server.clone()
        };
        on_any_cpu.place(&mut command);
        let mut child = Child::start(command).map_err(|error| failed(error.to_string()))?;
        let mut line = Vec::new();
        if let Some(stdout) = child.stdout() {
            // If this read fails, parsing the address below fails too.
            let _ = read_line(&mut BufReader::new(stdout), &mut line, LINE_LIMIT);
        }
        let line = String::from_utf8_lossy(&line);
        let address = line
            .strip_prefix(LISTENING)
            .and_then(|rest| rest.parse().ok());
        let address = address.ok_or_else(|| failed("see its messages above".to_owned()))?;
        Ok(DelayProxy { child, address })
    }

    /// Returns the PID of the proxy.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }
}
