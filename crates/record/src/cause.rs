//! What can limit a run: the ids of which a verdict names one.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One list for the kinds, their ids and their order.
macro_rules! causes {
    ($($(#[$about:meta])* $name:ident = $id:literal,)*) => {
        /// What limited a run.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum Cause {
            $($(#[$about])* #[serde(rename = $id)] $name,)*
        }

        impl Cause {
            /// All of them, from the client to the wire.
            pub const ALL: &[Cause] = &[$(Cause::$name),*];

            /// As records and experiments spell it.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self {
                    $(Cause::$name => $id,)*
                }
            }
        }
    };
}

causes! {
    /// The load generator has no CPU left.
    ClientCpu = "client-cpu",
    /// Client and server take the same CPUs from each other.
    SharedCpu = "shared-cpu",
    /// Too few requests are under way to keep anything busy.
    Concurrency = "concurrency",
    /// The load generator stood still.
    ClientStall = "client-stall",
    /// No local port was left for another connection, as a rule since all rest in TIME_WAIT.
    EphemeralPorts = "ephemeral-ports",
    /// The load generator may open no more files.
    ClientFds = "client-fds",
    /// Names are resolved slowly.
    Dns = "dns",
    /// The table of tracked connections is full.
    Conntrack = "conntrack",
    /// Connections come faster than the server lets them in, and its queue of them is short.
    ListenBacklog = "listen-backlog",
    /// The server may open no more files.
    ServerFds = "server-fds",
    /// The server serves no more than so many connections at once.
    MaxConnections = "max-connections",
    /// The server ends connections after a number of requests, so that new ones take their time.
    KeepaliveLimit = "keepalive-limit",
    /// All threads that do the work wait for something.
    WorkerPool = "worker-pool",
    /// One thread of the server is full, and others could not take its work.
    ServerCpuOneThread = "server-cpu-one-thread",
    /// All requests go through one place, one after the other.
    Serialised = "serialised",
    /// Requests wait for a connection to the store.
    ConnectionPool = "connection-pool",
    /// The server has no CPU left.
    ServerCpu = "server-cpu",
    /// The server's memory is being collected.
    Gc = "gc",
    /// The server's code is still being compiled.
    Jit = "jit",
    /// Handshakes take the CPU.
    TlsHandshake = "tls-handshake",
    /// Requests wait for a line of the log to be written.
    SyncLogging = "sync-logging",
    /// The store has no CPU left.
    StoreCpu = "store-cpu",
    /// Requests wait for each other's locks in the store.
    StoreLock = "store-lock",
    /// Requests wait for the store's log to reach the disk.
    StoreCommit = "store-commit",
    /// The store tidies up.
    StoreMaintenance = "store-maintenance",
    /// The store takes in no more at once.
    StoreAdmission = "store-admission",
    /// The control group's quota of CPU is used up.
    CpuQuota = "cpu-quota",
    /// The host gives its CPUs to others.
    Steal = "steal",
    /// Memory is short.
    Memory = "memory",
    /// The disk is slow, with other things than commits.
    Disk = "disk",
    /// The CPUs run slower than they could.
    Frequency = "frequency",
    /// The link is full.
    Bandwidth = "bandwidth",
    /// One side holds back what it sends until the other acknowledges, which that delays.
    DelayedAck = "delayed-ack",
    /// The server lets only so many requests through.
    RateLimiter = "rate-limiter",
    /// Failures were answered faster than anything else.
    Errors = "errors",
    /// What stands between client and server.
    ProxyHop = "proxy-hop",
    /// Nothing: what was offered was answered.
    None = "none",
    /// The figure is the rate that was asked for, and not what the server can do.
    OfferedRate = "offered-rate",
    /// What was seen does not tell.
    Unknown = "unknown",
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_written_as_its_id_and_read_again() {
        for cause in Cause::ALL {
            let written = serde_json::to_value(cause).unwrap();
            assert_eq!(written, cause.id());
            assert_eq!(serde_json::from_value::<Cause>(written).unwrap(), *cause);
        }
    }
}
