//! Local ports in TIME_WAIT: `/proc/net/tcp{,6}`.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use floodmark_record::host::PortFacts;

use crate::Root;
use crate::listener::parse;

/// State `TIME_WAIT` in `/proc/net/tcp` (`TCP_TIME_WAIT` in the kernel's `tcp_states.h`).
const TIME_WAIT: &str = "06";

/// Counts the ports in a range that connections in TIME_WAIT hold. Considers only the local address
/// with the most such ports.
///
/// `texts` contains the contents of `/proc/net/tcp` and `/proc/net/tcp6`. Counts a port once, even
/// if it has many connections in TIME_WAIT. This matters if a server's port lies in the range.
fn ports_held(texts: [&str; 2], range: PortFacts) -> u64 {
    let mut held: HashMap<IpAddr, HashSet<u16>> = HashMap::new();
    for socket in texts.iter().flat_map(|text| parse(text, TIME_WAIT)) {
        let local = socket.address;
        if (range.low..=range.high).contains(&local.port()) {
            let ports = held.entry(local.ip().to_canonical()).or_default();
            ports.insert(local.port());
        }
    }
    let most = held.values().map(HashSet::len).max().unwrap_or(0);
    u64::try_from(most).unwrap_or(u64::MAX)
}

/// Returns the number of ports held now, or `None` if the kernel's table can't be read. Reads at
/// most `tcp_max_tw_buckets` lines of 150 bytes each (20 MB by default).
pub(crate) fn read(root: &Root, range: PortFacts) -> Option<u64> {
    let tcp = root.read("/proc/net/tcp").ok()?;
    let tcp6 = root.read("/proc/net/tcp6").unwrap_or_default();
    Some(ports_held([&tcp, &tcp6], range))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    const RANGE: PortFacts = PortFacts {
        low: 32_768,
        high: 60_999,
        reserved: 0,
    };

    #[cfg(target_endian = "little")]
    #[test]
    fn counts_each_port_of_the_range_once() {
        let line = |local: &str, state: &str| {
            format!(
                "   0: {local} 0100007F:1F90 {state} 00000000:00000000 03:00001234 00000000 0 0 0 3 0\n"
            )
        };
        let text: String = [
            ("0100007F:1F90", "06"), // the server's port, 8080
            ("0100007F:A2C4", "06"),
            ("0100007F:A2C4", "06"), // to two servers
            ("0100007F:A2C5", "06"),
            ("0100007F:A2C6", "01"), // open
            ("0200007F:A2C7", "06"), // another source address
        ]
        .iter()
        .map(|(local, state)| line(local, state))
        .collect();
        assert_eq!(ports_held([&text, ""], RANGE), 2);
        let mapped = line("0000000000000000FFFF00000100007F:A2C8", "06");
        assert_eq!(ports_held([&text, &mapped], RANGE), 3);
        assert_eq!(ports_held(["", "  sl  local_address\n"], RANGE), 0);
    }

    #[test]
    fn finds_the_port_of_the_end_that_closed_first() {
        let listener = TcpListener::bind("127.9.8.7:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let port = client.local_addr().unwrap().port();
        let server = listener.accept().unwrap().0;
        drop(client);
        drop(server);
        let range = PortFacts {
            low: port,
            high: port,
            reserved: 0,
        };
        assert_eq!(read(&Root::host(), range), Some(1));
    }
}
