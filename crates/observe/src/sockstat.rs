//! Sockets that exist now: `/proc/net/sockstat` and `/proc/net/sockstat6`.

use std::io;

use crate::Root;

/// TCP sockets of this network namespace. `time_wait`, `orphaned`, `allocated` and `memory_pages` count both IP versions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpSockets {
    /// In use, IPv4.
    pub in_use: u64,
    /// In use, IPv6.
    pub in_use6: u64,
    /// Closed by their process but not yet by TCP.
    pub orphaned: u64,
    /// In TIME_WAIT.
    pub time_wait: u64,
    /// Allocated in any state, on the whole machine.
    pub allocated: u64,
    /// Memory of their buffers, in pages, on the whole machine.
    pub memory_pages: u64,
}

/// Reads the texts of both files; the second is empty where there is no IPv6.
#[must_use]
pub fn parse(sockstat: &str, sockstat6: &str) -> Option<TcpSockets> {
    let tcp = sockstat
        .lines()
        .find_map(|line| line.strip_prefix("TCP:"))?;
    let tcp6 = sockstat6
        .lines()
        .find_map(|line| line.strip_prefix("TCP6:"))
        .unwrap_or("");
    Some(TcpSockets {
        in_use: value(tcp, "inuse")?,
        in_use6: value(tcp6, "inuse").unwrap_or(0),
        orphaned: value(tcp, "orphan")?,
        time_wait: value(tcp, "tw")?,
        allocated: value(tcp, "alloc")?,
        memory_pages: value(tcp, "mem")?,
    })
}

fn value(line: &str, name: &str) -> Option<u64> {
    let mut words = line.split_ascii_whitespace();
    words.find(|word| *word == name)?;
    words.next()?.parse().ok()
}

/// Reads the sockets of this network namespace.
///
/// # Errors
/// `/proc/net/sockstat` cannot be read or has no line for TCP.
pub fn read(root: &Root) -> io::Result<TcpSockets> {
    let sockstat = root.read("/proc/net/sockstat")?;
    let sockstat6 = root.line("/proc/net/sockstat6").unwrap_or_default();
    parse(&sockstat, &sockstat6).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "/proc/net/sockstat: no line for TCP",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ip_versions() {
        let text = "sockets: used 1216\nTCP: inuse 101 orphan 2 tw 27804 alloc 215 mem 233\nUDP: inuse 0 mem 0\n";
        let text6 = "TCP6: inuse 7\nUDP6: inuse 0\n";
        let expected = TcpSockets {
            in_use: 101,
            in_use6: 7,
            orphaned: 2,
            time_wait: 27_804,
            allocated: 215,
            memory_pages: 233,
        };
        assert_eq!(parse(text, text6), Some(expected));
        assert_eq!(parse(text, "").map(|tcp| tcp.in_use6), Some(0));
        assert_eq!(parse("sockets: used 16\n", text6), None);
    }

    #[test]
    fn a_socket_is_seen() {
        let _listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = read(&Root::host()).unwrap();
        assert!(tcp.in_use >= 1, "{tcp:?}");
        assert!(tcp.allocated >= tcp.in_use, "{tcp:?}");
    }
}
