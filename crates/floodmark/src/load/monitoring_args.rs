//! Flags that choose what is monitored.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use clap::Args;
use floodmark_host::Stop;
use floodmark_lab::{Monitoring, RemoteObserver};
use floodmark_observe::{MonitorTargets, Root};
use floodmark_record::plan::{Address, Plan};
use floodmark_workers::{ObserverLink, ObserverPlace};

use crate::exit::Ending;

/// File in the result folder for the output of the observer that --observe starts.
const OBSERVER_FILE: &str = "observer.jsonl";

/// Flags that choose what is monitored.
#[derive(Debug, Clone, Args)]
pub struct MonitoringArgs {
    /// Process to monitor as the server, with its children [default: the local process that listens
    /// on the URL's port]
    #[arg(long, value_name = "PID", value_parser = crate::process_id, help_heading = "Monitoring")]
    pub server_pid: Option<u32>,

    /// Disable monitoring of client, server and host
    #[arg(long, conflicts_with = "server_pid", help_heading = "Monitoring")]
    pub no_watch: bool,

    /// File written by floodmark observe, which monitors the server on the server's own host during
    /// the run [default: none; monitor a local server]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server_pid", "no_watch", "unix_socket"], help_heading = "Monitoring")]
    pub with: Option<PathBuf>,

    /// Run floodmark observe on the server's own host during the run: ssh:HOST, kubernetes:pod/NAME,
    /// or command:TEMPLATE with {port} [default: none; monitor a local server]
    #[arg(long, value_name = "WHERE", conflicts_with_all = ["with", "server_pid", "no_watch", "unix_socket"], help_heading = "Monitoring")]
    pub observe: Option<ObserverPlace>,
}

impl MonitoringArgs {
    /// Opens the --with file and checks that it matches the target.
    pub fn open_file(&self, plan: &Plan) -> Result<Option<RemoteObserver>, Ending> {
        let Some(path) = &self.with else {
            return Ok(None);
        };
        let opened = RemoteObserver::open(path, port("--with", plan)?);
        opened
            .map(Some)
            .map_err(|e| Ending::usage(format!("--with {e}")))
    }

    /// Starts the observer of --observe, which writes to a file in the result folder. If the observer
    /// cannot be used, removes the folder, which contains nothing else yet.
    pub fn start(
        &self,
        plan: &Plan,
        folder: &Path,
        stop: &Stop,
    ) -> Result<Option<(ObserverLink, RemoteObserver)>, Ending> {
        let Some(place) = &self.observe else {
            return Ok(None);
        };
        let start = || {
            let port = port("--observe", plan)?;
            let file = folder.join(OBSERVER_FILE);
            let failed = |why: &dyn Display| {
                if stop.is_set() {
                    Ending::before_result("the load, while --observe was starting")
                } else {
                    Ending::server(format!("--observe {place}: {why}"))
                }
            };
            let link = ObserverLink::start(place, port, &file, stop).map_err(|why| failed(&why))?;
            let opened = RemoteObserver::open(&file, port).map_err(|error| failed(&error))?;
            Ok((link, opened))
        };
        start().map(Some).inspect_err(|_| {
            // The message about the observer matters more than a folder that cannot be removed.
            let _ = std::fs::remove_dir_all(folder);
        })
    }

    /// Returns what is monitored. `remote` is the observer of --with or --observe, if any.
    pub fn monitoring<'a>(&self, remote: Option<&'a RemoteObserver>) -> Monitoring<'a> {
        match remote {
            Some(remote) => Monitoring::Remote(remote),
            None if self.no_watch => Monitoring::Off,
            None => Monitoring::Local(MonitorTargets {
                server_pid: self.server_pid,
                ..MonitorTargets::default()
            }),
        }
    }
}

/// Checks that the process given with --server-pid exists.
pub fn check_server_pid(server_pid: Option<u32>) -> Result<(), Ending> {
    match server_pid {
        Some(pid) if floodmark_observe::process::cpu_s(&Root::host(), pid).is_err() => {
            Err(Ending::usage(format!(
                "--server-pid {pid}: no such process; check the ID, or omit the flag to find a local server by its port"
            )))
        }
        _ => Ok(()),
    }
}

/// Returns the server's port. Fails if the target is a unix socket, which `flag` does not support.
fn port(flag: &str, plan: &Plan) -> Result<u16, Ending> {
    match plan.target.address {
        Address::Ip(address) => Ok(address.port()),
        Address::Unix(_) => Err(Ending::usage(format!(
            "{flag}: a server on a unix socket is local and is monitored without {flag}; omit {flag}"
        ))),
    }
}
