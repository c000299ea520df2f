//! Computes the servers, load threads and source addresses needed for a number of connections.

use std::net::Ipv4Addr;

use floodmark_observe::{Root, environment};

use crate::bench::Failure;

/// Number of files that a server opens in addition to its connections (see
/// `docs/decisions/0002-native-servers.md`).
const SERVER_FILES: u64 = 320;

/// Margin for a server with more connections than the mean, in standard deviations. The kernel
/// assigns connections to servers by a hash.
const DEVIATIONS: f64 = 6.0;

/// Maximum fraction of an address's ports to use. Finding a free port is slow when few are left.
const MAX_PORT_SHARE: f64 = 0.5;

/// This host's limits on connections.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Hard limit on open files.
    pub files: u64,
    /// Local ports per source address.
    pub ports: u64,
}

impl ConnectionLimits {
    /// Reads the limits of this host.
    pub fn read() -> Result<Self, Failure> {
        let ports = environment::ports(&Root::host())
            .ok_or("/proc/sys/net/ipv4/ip_local_port_range: cannot be read")?;
        Ok(ConnectionLimits {
            files: floodmark_host::open_files().hard,
            ports: ports.usable(),
        })
    }
}

/// Resources needed for a number of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Number of servers that share the port.
    pub servers: u32,
    /// Number of load threads.
    pub threads: u32,
    /// Number of source addresses.
    pub addresses: u32,
}

impl Capacity {
    /// Computes the resources for this number of connections.
    pub fn of(connections: u32, limits: ConnectionLimits) -> Self {
        let room = limits.files.saturating_sub(SERVER_FILES).max(1) as f64;
        let fits = |servers: &u32| {
            let mean = f64::from(connections) / f64::from(*servers);
            mean + DEVIATIONS * mean.sqrt() <= room
        };
        let table = u32::try_from(limits.files.max(1)).unwrap_or(u32::MAX);
        let ports = (limits.ports as f64 * MAX_PORT_SHARE).max(1.0);
        Capacity {
            servers: (1..).find(fits).unwrap_or(u32::MAX),
            threads: connections.div_ceil(table),
            addresses: ((f64::from(connections) / ports).ceil() as u32).max(1),
        }
    }

    /// Returns the source addresses as a range that starts after 127.0.0.1.
    pub fn sources(&self) -> String {
        let last = Ipv4Addr::LOCALHOST.to_bits() + self.addresses;
        format!("127.0.0.2-{}", Ipv4Addr::from_bits(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_many_connections_under_a_low_limit() {
        let limits = ConnectionLimits {
            files: 20_000,
            ports: 28_232,
        };
        let capacity = Capacity::of(100_000, limits);
        let Capacity {
            servers,
            threads,
            addresses,
        } = capacity;
        assert_eq!((servers, threads, addresses), (6, 5, 8));
        assert_eq!(capacity.sources(), "127.0.0.2-127.0.0.9");
    }

    #[test]
    fn needs_one_of_each_under_a_high_limit() {
        let limits = ConnectionLimits {
            files: 1 << 20,
            ports: 64_512,
        };
        let capacity = Capacity::of(10_000, limits);
        let Capacity {
            servers,
            threads,
            addresses,
        } = capacity;
        assert_eq!((servers, threads, addresses), (1, 1, 1));
        assert_eq!(capacity.sources(), "127.0.0.2-127.0.0.2");
    }

    #[test]
    fn reads_the_limits_of_this_host() {
        let limits = ConnectionLimits::read().unwrap();
        assert!(limits.files > 0 && limits.ports > 0, "{limits:?}");
    }
}
