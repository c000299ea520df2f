//! Waits until a server has no open connections in the kernel's socket table.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// Maximum time to wait until all connections are closed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Interval between two reads of the socket table.
const POLL: Duration = Duration::from_millis(5);

/// States of open sockets (include/net/tcp_states.h): ESTABLISHED, SYN_RECV, CLOSE_WAIT.
const OPEN: [&str; 3] = ["01", "03", "08"];

/// Waits until a server has no open connections on the port.
pub fn settle(port: u16) -> io::Result<()> {
    let end = Instant::now() + TIMEOUT;
    while is_open(&fs::read_to_string("/proc/net/tcp")?, port) {
        if Instant::now() >= end {
            let text = format!("a connection to port {port} is still open");
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Returns whether `/proc/net/tcp` has an open socket with this local port. The columns of a line
/// are `sl local_address rem_address st …`, in hexadecimal.
fn is_open(table: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, state) = (fields.next(), fields.nth(1));
        local.is_some_and(|local| local.ends_with(&port))
            && state.is_some_and(|state| OPEN.contains(&state))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_open_sockets_of_the_port() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let of = |row: &str| is_open(&format!("{head}{row}"), 8080);
        for (row, open) in [
            ("0: 0100007F:1F90 0100007F:C001 01 00000000:00000000", true),
            ("0: 0100007F:1F90 0100007F:C001 08 00000000:00000000", true),
            ("0: 0100007F:1F90 00000000:0000 0A 00000000:00000000", false),
            ("0: 0100007F:1F90 0100007F:C001 06 00000000:00000000", false),
            ("0: 0100007F:C001 0100007F:1F90 01 00000000:00000000", false),
        ] {
            assert_eq!(of(row), open, "{row}");
        }
        assert!(!of(""));
    }
}
