//! The ports of TCP sockets, from `/proc/PID/net/tcp` and `tcp6` (proc_pid_net(5)).

use std::{fs, iter};

use super::ptrace::Tid;
use crate::trace::TcpPorts;

/// Maximum number of times that each table is read to find one socket.
const MAX_READS: usize = 5;

/// Column with the socket's inode number.
const INODE: usize = 9;

/// Returns the ports of a traced thread's connected TCP socket. Returns `None` for other sockets.
pub(super) fn ports(tid: Tid, socket: u64) -> Option<TcpPorts> {
    ports_from(socket, |table| {
        fs::read_to_string(format!("/proc/{tid}/net/{table}")).ok()
    })
}

/// Reads the tables until one contains the socket. Each table is read in several parts, so a socket
/// can be missing if other sockets are closed between two parts.
fn ports_from(
    socket: u64,
    mut read: impl FnMut(&'static str) -> Option<String>,
) -> Option<TcpPorts> {
    let mut tables = iter::repeat_n(["tcp", "tcp6"], MAX_READS).flatten();
    tables.find_map(|table| ports_in(&read(table)?, socket))
}

fn ports_in(table: &str, socket: u64) -> Option<TcpPorts> {
    table.lines().skip(1).find_map(|line| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let inode: u64 = columns.get(INODE)?.parse().ok()?;
        let port = |address: &str| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok();
        (inode == socket).then_some(())?;
        Some(TcpPorts {
            local: port(columns[1])?,
            peer: port(columns[2])?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_socket_by_its_inode() {
        let four = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 100 0 0 10 0
   1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000000000000000 20 4 30 10 -1
";
        let six = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000100007F:C351 01 00000000:00000000 00:00000000 00000000     0        0 4713 1 0000000000000000 20 4 30 10 -1
";
        let ports = |peer| TcpPorts { local: 8080, peer };
        assert_eq!(ports_in(four, 4712), Some(ports(50_000)));
        assert_eq!(ports_in(six, 4713), Some(ports(50_001)));
        assert_eq!(ports_in(four, 4713), None);
        assert_eq!(ports_in("", 4712), None);
    }

    #[test]
    fn reads_incomplete_tables_again() {
        let complete = "  sl  local_address rem_address
   0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 4712 1
";
        let mut reads = Vec::new();
        let mut ports = |socket, missing| {
            reads.clear();
            let ports = ports_from(socket, |table| {
                reads.push(table);
                let is_complete = table == "tcp" && reads.len() > missing;
                Some(if is_complete { complete } else { "" }.to_owned())
            });
            (ports.map(|ports| ports.peer), reads.len())
        };
        assert_eq!(ports(4712, 0), (Some(50_000), 1));
        assert_eq!(ports(4712, 1), (Some(50_000), 3));
        // A socket that is not in the tables, such as a Unix socket.
        assert_eq!(ports(4713, 0), (None, 2 * MAX_READS));
    }
}
