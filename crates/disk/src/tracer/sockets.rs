//! The ports of TCP sockets, from `/proc/PID/net/tcp` and `tcp6` (proc_pid_net(5)).

use std::fs;

use super::ptrace::Tid;
use crate::trace::TcpPorts;

/// Column with the socket's inode number.
const INODE: usize = 9;

/// Returns the ports of a traced thread's connected TCP socket. Returns `None` for other sockets.
pub(super) fn ports(tid: Tid, socket: u64) -> Option<TcpPorts> {
    ["tcp", "tcp6"].iter().find_map(|table| {
        let text = fs::read_to_string(format!("/proc/{tid}/net/{table}")).ok()?;
        ports_in(&text, socket)
    })
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
}
