//! The store of a trial. The store is either started empty or already running, and may have a delay
//! proxy.

use std::net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use floodmark_host::{Scratch, Stop};
use floodmark_observe::MonitoredStore;

use super::delay_proxy::DelayProxy;
use super::program::{
    ProgramPaths, ProgramSpec, RunningProgram, StartOrder, free_address, restartable_address,
};
use super::{ExperimentRunner, StepError, TrialHosts, child};
use crate::manifest::{Filler, Store, StoreSource, TrialStore};

/// Timeout for connecting to a store.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A store that is ready for use. Dropping this value ends the processes that floodmark started.
#[derive(Debug)]
pub struct StoreInstance {
    /// Host and port that the server connects to.
    pub reached: String,
    /// Address of the store itself.
    address: SocketAddr,
    /// The store's process, if floodmark started it. Declared before the data folder, so that the
    /// process ends first.
    pub(super) program: Option<RunningProgram>,
    /// Values of all placeholders except the port and the run folder.
    filler: Filler,
    proxy: Option<DelayProxy>,
    _data: Option<Scratch>,
}

impl StoreInstance {
    /// Starts the store on the server's host or connects to a running store. Starts a delay proxy
    /// if requested.
    ///
    /// `data` is the parent of the data folders. If floodmark is killed, the next experiment
    /// removes the data from this folder.
    pub fn start(
        runner: &ExperimentRunner<'_>,
        behind: &TrialStore,
        hosts: &TrialHosts,
        mut filler: Filler,
        paths: ProgramPaths<'_>,
        data: &Path,
    ) -> Result<Self, StepError> {
        let failed = |what: String| format!("{} does not start: {what}", behind.name());
        let (mut program, mut scratch) = (None, None);
        let address = match &behind.from {
            StoreSource::Running(url) => child::within(&hosts.server, || first_address(url))
                .map_err(|what| {
                    format!("the store {url} is unreachable: {what}; start the store, or correct its url")
                })?,
            StoreSource::Started { store, setting } => {
                let folder = Scratch::create(data, &store.name)
                    .map_err(|error| failed(format!("{}: {error}", data.display())))?;
                let folder = scratch.insert(folder);
                let free = || restartable_address(Ipv4Addr::LOCALHOST);
                let own = child::within(&hosts.server, free).map_err(failed)?;
                let free = || free_address(Ipv4Addr::LOCALHOST, None);
                let other = child::within(&hosts.server, free).map_err(failed)?;
                filler.set("data", folder.path().display().to_string());
                filler.set("host", Ipv4Addr::LOCALHOST.to_string());
                filler.set("other-port", other.port().to_string());
                store.fill(setting, &mut filler);
                let spec = spec(store, hosts, own, filler.clone());
                let ready = |address| child::within(&hosts.server, || connect(address));
                program
                    .insert(spec.start(paths, StartOrder::First, &ready, runner.stop)?)
                    .address
            }
        };
        // The proxy adds half of the round-trip delay in each direction.
        let proxy = behind
            .delay
            .map(|delay| DelayProxy::start(&runner.floodmark, hosts, address, delay / 2));
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

    /// Starts a store that has ended again, with the same data and address. Waits until the store
    /// accepts connections.
    pub fn restart(
        &mut self,
        store: &Store,
        hosts: &TrialHosts,
        paths: ProgramPaths<'_>,
        stop: &Stop,
    ) -> Result<(), StepError> {
        // The run folder of the ended process goes first.
        self.program = None;
        let spec = spec(store, hosts, self.address, self.filler.clone());
        let program = self.program.insert(spec.restart(paths)?);
        let ready = |address| child::within(&hosts.server, || connect(address));
        program
            .wait_until_ready(store.start.ready_within(), &ready, stop)
            .map_err(|error| error.of(&format!("{} does not start again", store.name)))
    }

    /// Returns the id of the process that floodmark started. Either this process or one of its
    /// descendants accepts connections.
    pub fn pid(&self) -> Option<u32> {
        self.program.as_ref().map(RunningProgram::pid)
    }

    /// Returns the monitoring targets of the store.
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

fn spec<'a>(
    store: &'a Store,
    hosts: &'a TrialHosts,
    address: SocketAddr,
    filler: Filler,
) -> ProgramSpec<'a> {
    ProgramSpec {
        name: &store.name,
        start: &store.start,
        folder: &store.folder,
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
