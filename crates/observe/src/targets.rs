//! Targets to monitor during a load, and the CPU usage that the live view shows.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use floodmark_record::target::Address;

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

/// The last sample of a role's processes, shared with the live view.
pub(crate) type SharedCpu = Arc<Mutex<Option<UsedCpu>>>;

/// The last sample of the host, shared with the live view.
pub(crate) type SharedHostCpu = Arc<Mutex<Option<HostCpu>>>;

/// CPU usage shown during the load.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveCpu {
    pub server: SharedCpu,
    pub store: SharedCpu,
    pub host: SharedHostCpu,
}
