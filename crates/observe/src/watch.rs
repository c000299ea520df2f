//! What is to be watched beside a load, and what is shown of it while that goes on.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use floodmark_record::target::Address;

/// What to watch beside the machine.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// Where the server listens.
    pub addresses: Vec<Address>,
    /// Its process, where it is not to be looked up by its address.
    pub server_pid: Option<u32>,
    /// Somebody else observes it, and its ends of the connections.
    pub elsewhere: bool,
    /// The store behind it, where there is one.
    pub store: Option<WatchedStore>,
}

/// A database behind the server under load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedStore {
    /// What it is called in what cannot be read of it.
    pub name: String,
    /// What it is, where that is known.
    pub kind: Option<StoreKind>,
    /// Where it listens.
    pub address: SocketAddr,
    /// The process it was started as; where that is not known it is looked up by the address.
    pub pid: Option<u32>,
}

/// Databases that can be asked what they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// Apache Cassandra, by CQL.
    Cassandra,
    /// PostgreSQL.
    Postgresql,
}

impl StoreKind {
    /// The kind that a manifest calls by this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "cassandra" => Some(StoreKind::Cassandra),
            "postgresql" => Some(StoreKind::Postgresql),
            _ => None,
        }
    }
}

/// CPU that a side's processes have used at a moment, ended ones included.
#[derive(Debug, Clone, Copy)]
pub struct UsedCpu {
    /// When it was read.
    pub at: Instant,
    /// In user mode.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

/// The last reading, for those who look on while the sampler's thread goes on reading.
pub(crate) type LastRead = Arc<Mutex<Option<UsedCpu>>>;

/// What the thread shows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown {
    pub server: LastRead,
    pub store: LastRead,
}
