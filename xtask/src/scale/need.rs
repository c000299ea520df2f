//! How many servers, load threads and source addresses it takes.

use std::fs;
use std::io;

/// Open files that a server keeps for itself (`docs/decisions/0002-native-servers.md` has its bounds).
const SERVERS_OWN: u64 = 320;

/// Standard deviations by which one server's share may exceed the mean: the kernel deals connections out by a hash.
const DEVIATIONS: f64 = 6.0;

/// Share of an address's ports that is used: the search for a free one takes long when few are left.
const PORTS_SHARE: f64 = 0.5;

/// What bounds it.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// The hard limit on open files.
    pub files: u64,
    /// Local ports of each source address.
    pub ports: u64,
}

impl Machine {
    /// Reads this machine.
    pub fn read() -> io::Result<Self> {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the kernel writes into an rlimit that outlives the call.
        if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")?;
        let mut ends = range
            .split_whitespace()
            .filter_map(|n| n.parse::<u64>().ok());
        let ports = match (ends.next(), ends.next()) {
            (Some(low), Some(high)) if low <= high => high - low + 1,
            _ => return Err(io::Error::other("the range of local ports cannot be read")),
        };
        Ok(Machine {
            files: limit.rlim_max,
            ports,
        })
    }
}

/// What it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Servers that share the port.
    pub servers: u32,
    /// Load threads.
    pub threads: u32,
    /// Source addresses.
    pub addresses: u32,
}

impl Need {
    /// What `connections` connections take.
    pub fn of(connections: u32, machine: Machine) -> Self {
        let room = machine.files.saturating_sub(SERVERS_OWN).max(1) as f64;
        let fits = |servers: &u32| {
            let mean = f64::from(connections) / f64::from(*servers);
            mean + DEVIATIONS * mean.sqrt() <= room
        };
        let table = u32::try_from(machine.files.max(1)).unwrap_or(u32::MAX);
        let ports = (machine.ports as f64 * PORTS_SHARE).max(1.0);
        Need {
            servers: (1..).find(fits).unwrap_or(u32::MAX),
            threads: connections.div_ceil(table),
            addresses: ((f64::from(connections) / ports).ceil() as u32).max(1),
        }
    }

    /// The source addresses as a range: 127.0.0.1 is left to others.
    pub fn sources(&self) -> String {
        let last = u32::from_be_bytes([127, 0, 0, 1]) + self.addresses;
        format!("127.0.0.2-{}", std::net::Ipv4Addr::from_bits(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_thousand_with_twenty_thousand_files() {
        let machine = Machine {
            files: 20_000,
            ports: 28_232,
        };
        let need = Need::of(100_000, machine);
        assert_eq!((need.servers, need.threads, need.addresses), (6, 5, 8));
        assert_eq!(need.sources(), "127.0.0.2-127.0.0.9");
    }

    #[test]
    fn one_of_each_where_the_limit_is_high() {
        let machine = Machine {
            files: 1 << 20,
            ports: 64_512,
        };
        let need = Need::of(10_000, machine);
        assert_eq!((need.servers, need.threads, need.addresses), (1, 1, 1));
        assert_eq!(need.sources(), "127.0.0.2-127.0.0.2");
    }

    #[test]
    fn this_machine_has_limits() {
        let machine = Machine::read().unwrap();
        assert!(machine.files > 0 && machine.ports > 0, "{machine:?}");
    }
}
