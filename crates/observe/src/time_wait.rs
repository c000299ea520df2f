//! Which local ports rest in TIME_WAIT: `/proc/net/tcp{,6}`.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use floodmark_record::host::PortFacts;

use crate::Root;
use crate::listener::parse_address;

/// State `TIME_WAIT` in `/proc/net/tcp` (`TCP_TIME_WAIT` of the kernel's `tcp_states.h`).
const TIME_WAIT: &str = "06";

/// Counts the ports of a range that connections in TIME_WAIT hold, at the local address that holds most of them.
///
/// Takes the texts of `/proc/net/tcp` and `/proc/net/tcp6`. A port counts once: a server within the range, to which many
/// connections rest, holds one.
#[must_use]
pub fn ports_held(texts: [&str; 2], range: PortFacts) -> u64 {
    let mut held: HashMap<IpAddr, HashSet<u16>> = HashMap::new();
    for line in texts.iter().flat_map(|text| text.lines()) {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (Some(local), Some(TIME_WAIT)) = (fields.next(), fields.nth(1)) else {
            continue;
        };
        if let Some(local) = parse_address(local)
            && (range.low..=range.high).contains(&local.port())
        {
            held.entry(local.ip().to_canonical())
                .or_default()
                .insert(local.port());
        }
    }
    let most = held.values().map(HashSet::len).max().unwrap_or(0);
    u64::try_from(most).unwrap_or(u64::MAX)
}

/// Reads the ports held now; at most `tcp_max_tw_buckets` lines of 150 bytes, so 20 MB by default. None where the kernel's table
/// cannot be read.
#[must_use]
pub fn read(root: &Root, range: PortFacts) -> Option<u64> {
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
    fn only_ports_of_the_range_and_each_once() {
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
    fn the_side_that_closed_first_is_seen() {
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
