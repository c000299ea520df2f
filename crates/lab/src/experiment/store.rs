//! The store behind a trial's server: started empty, waited for, reached through a proxy where that is asked for, and stopped.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use floodmark_host::{Scratch, Stop};
use floodmark_observe::{StoreKind, WatchedStore};

use super::delayed::Delayed;
use super::launch::{Launch, Launched, Places, free_address};
use super::{Ended, Hosts};
use crate::manifest::{Behind, Filler, From};

/// Longest wait for a connection to a store.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where a store keeps its data while it runs: below the folder that is swept at the next start.
#[derive(Debug)]
pub struct Around<'a> {
    /// Where its log and its other files go.
    pub places: Places<'a>,
    /// Where folders of data are.
    pub data: &'a Path,
    /// The program that runs, for the proxy.
    pub floodmark: &'a Path,
}

/// A store that a server can use. Dropping it ends what was started.
#[derive(Debug)]
pub struct Standing {
    /// Host and port for the server.
    pub reached: String,
    /// Where it listens itself.
    address: SocketAddr,
    /// The store itself, where it was started here. It is before its data, which goes after it.
    launched: Option<Launched>,
    proxy: Option<Delayed>,
    _data: Option<Scratch>,
}

impl Standing {
    /// Starts the store on the server's side, or finds the one that is there, and the proxy before it.
    pub fn start(
        behind: &Behind,
        hosts: &Hosts,
        mut filler: Filler,
        around: Around<'_>,
        stop: &Stop,
    ) -> Result<Self, Ended> {
        let failed =
            |what: String| Ended::Failed(format!("{} does not start: {what}", behind.name()));
        let mut standing = Standing {
            reached: String::new(),
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            launched: None,
            proxy: None,
            _data: None,
        };
        standing.address = match &behind.from {
            From::There(url) => {
                let connected = hosts.server.within(|| first_address(url));
                connected
                    .unwrap_or_else(|error| Err(error.to_string()))
                    .map_err(|what| {
                        Ended::Failed(format!("the store {url} is not there: {what}"))
                    })?
            }
            From::Started { store, setting } => {
                let data = Scratch::create(around.data, &store.name)
                    .map_err(|error| failed(format!("{}: {error}", around.data.display())))?;
                let other = hosts
                    .server
                    .within(|| free_address(Ipv4Addr::LOCALHOST, None))
                    .unwrap_or_else(|error| Err(error.to_string()))
                    .map_err(failed)?;
                filler.set("data", data.path().display().to_string());
                filler.set("host", Ipv4Addr::LOCALHOST.to_string());
                filler.set("other-port", other.port().to_string());
                store.fill(setting, &mut filler);
                let launch = Launch {
                    name: &store.name,
                    start: &store.start,
                    folder: &store.folder,
                    side: &hosts.server,
                    host: Ipv4Addr::LOCALHOST,
                    port: None,
                    filler,
                };
                let ready = |address: SocketAddr| {
                    let connected = hosts
                        .server
                        .within(|| TcpStream::connect_timeout(&address, PATIENCE));
                    connected
                        .and_then(|stream| stream)
                        .map(drop)
                        .map_err(|error| error.to_string())
                };
                standing._data = Some(data);
                let launched = launch.run(around.places, &ready, stop)?;
                standing.launched.insert(launched).address()
            }
        };
        let mut address = standing.address;
        if let Some(delay) = behind.delay {
            // Half of it each way.
            let proxy = Delayed::start(around.floodmark, hosts, address, delay / 2);
            address = standing.proxy.insert(proxy.map_err(failed)?).address();
        }
        standing.reached = address.to_string();
        Ok(standing)
    }

    /// The process that was started, where it was started here; what serves is it or one of its descendants.
    pub fn pid(&self) -> Option<u32> {
        self.launched.as_ref().map(|launched| launched.pid())
    }

    /// What is to be watched of it.
    pub fn watched(&self, behind: &Behind) -> WatchedStore {
        let kind = behind.started().and_then(|store| store.kind.as_deref());
        WatchedStore {
            name: behind.name().to_owned(),
            kind: kind.and_then(StoreKind::named),
            address: self.address,
            pid: self.pid(),
        }
    }

    /// How it ended, with its last word, where it has.
    pub fn ended(&mut self) -> Option<String> {
        let launched = self.launched.as_mut()?;
        let status = launched.ended()?;
        Some(format!("({status}){}", launched.said()))
    }

    /// Ends it, sooner once `stop` is set; a line where that took force.
    pub fn stop(self, name: &str, stop: &Stop) -> Option<String> {
        drop(self.proxy);
        self.launched?.stop(&format!("the store {name}"), stop)
    }
}

/// The first address of a host and port that takes a connection.
fn first_address(url: &str) -> Result<SocketAddr, String> {
    let addresses = std::net::ToSocketAddrs::to_socket_addrs(url).map_err(|e| e.to_string())?;
    let mut why = "it has no address".to_owned();
    for address in addresses {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(_) => return Ok(address),
            Err(error) => why = format!("{address}: {error}"),
        }
    }
    Err(why)
}

/// Where folders of stores' data are, of all floodmarks of this user.
pub fn data_folder() -> PathBuf {
    crate::folder::own_temporary().join("stores")
}
