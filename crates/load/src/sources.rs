//! Source addresses of connections.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use floodmark_record::plan::Sources;

/// Cycles through a range of addresses.
#[derive(Debug, Clone)]
pub struct SourceCycle {
    first: IpAddr,
    count: u128,
    next: u128,
    stride: u128,
}

impl SourceCycle {
    /// Creates the cycle for thread `thread` of `threads`.
    /// If there are fewer addresses than threads, threads share addresses.
    #[must_use]
    pub fn new(sources: Sources, thread: u32, threads: u32) -> Self {
        SourceCycle {
            first: sources.first,
            count: sources.count(),
            next: u128::from(thread),
            stride: u128::from(threads.max(1)),
        }
    }

    /// Returns the next address.
    pub fn take(&mut self) -> IpAddr {
        let at = self.next % self.count;
        self.next = self.next.wrapping_add(self.stride);
        nth(self.first, at)
    }
}

/// Returns the address `n` places after `first`.
fn nth(first: IpAddr, n: u128) -> IpAddr {
    match first {
        IpAddr::V4(a) => IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() + n as u32)),
        IpAddr::V6(a) => IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() + n)),
    }
}

/// Returns the first address in the range that this host cannot send from.
/// The error explains why no socket can be bound to that address.
#[must_use]
pub fn unusable(sources: Sources) -> Option<(IpAddr, io::Error)> {
    (0..sources.count())
        .map(|n| nth(sources.first, n))
        .find_map(|address| Some((address, UdpSocket::bind((address, 0)).err()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: &str, last: &str) -> Sources {
        Sources {
            first: first.parse().unwrap(),
            last: last.parse().unwrap(),
        }
    }

    #[test]
    fn threads_together_use_every_address() {
        let sources = range("127.0.0.2", "127.0.0.6");
        assert_eq!(sources.count(), 5);
        let mut seen: Vec<IpAddr> = (0..2)
            .flat_map(|t| {
                let mut cycle = SourceCycle::new(sources, t, 2);
                (0..5).map(move |_| cycle.take()).collect::<Vec<_>>()
            })
            .collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 5);
    }

    #[test]
    fn finds_unusable_source_addresses() {
        assert!(unusable(range("127.0.0.2", "127.0.0.6")).is_none());
        // 192.0.2.0/24 is reserved for documentation (RFC 5737).
        let (address, error) = unusable(range("192.0.2.7", "192.0.2.9")).unwrap();
        assert_eq!(address.to_string(), "192.0.2.7");
        assert_eq!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL));
    }

    #[test]
    fn reversed_and_mixed_ranges_are_empty() {
        assert_eq!(range("127.0.0.9", "127.0.0.2").count(), 0);
        assert_eq!(range("127.0.0.9", "::1").count(), 0);
        assert_eq!(range("::1", "::3").count(), 3);
    }
}
