//! Which process listens on an address, from `/proc/net/tcp` and `tcp6` (proc_pid_net(5)).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddrV4;

/// State `LISTEN` (`TCP_LISTEN` in the kernel's tcp_states.h).
const LISTEN: &str = "0A";

/// Returns whether a process listens on an address.
pub(super) fn is_used(address: SocketAddrV4) -> bool {
    // To bind a socket instead would be wrong: a child that another thread starts at the same time
    // holds the socket until its exec.
    !sockets(address).is_empty()
}

/// Returns whether only processes of a group listen on an address. Also returns true if nobody
/// listens.
pub(super) fn is_own(group: u32, address: SocketAddrV4) -> bool {
    let mut sockets = sockets(address);
    remove_held(&mut sockets, group);
    if !sockets.is_empty() {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        processes
            .filter(|pid| group_of(*pid) == Some(group))
            .for_each(|pid| remove_held(&mut sockets, pid));
    }
    sockets.is_empty()
}

/// Returns the inode numbers of the sockets that accept connections to an address. The kernel
/// prefers sockets that are bound to exactly this address.
fn sockets(address: SocketAddrV4) -> BTreeSet<u64> {
    // The kernel prints each 32-bit word of an address in host byte order.
    let ip = format!("{:08X}", u32::from_ne_bytes(address.ip().octets()));
    let prefix = u32::from_ne_bytes([0, 0, 0xff, 0xff]);
    let mapped = format!("{:016X}{prefix:08X}{ip}", 0);
    let at = |ip: &str| format!("{ip}:{:04X}", address.port());
    let (exact, any) = (
        [at(&ip), at(&mapped)],
        [at(&"0".repeat(8)), at(&"0".repeat(32))],
    );
    let listening: Vec<(String, u64)> = ["tcp", "tcp6"].into_iter().flat_map(listening).collect();
    let of = |addresses: &[String]| -> BTreeSet<u64> {
        let sockets = listening.iter().filter(|(at, _)| addresses.contains(at));
        sockets.map(|(_, inode)| *inode).collect()
    };
    match of(&exact) {
        exact if exact.is_empty() => of(&any),
        exact => exact,
    }
}

/// Returns the address and inode number of each listening socket. The kernel prints these sockets
/// before the connections (`Documentation/networking/proc_net_tcp.rst`), which can be many.
fn listening(table: &str) -> Vec<(String, u64)> {
    // Without IPv6, there is no table of its sockets.
    let file = File::open(format!("/proc/net/{table}")).into_iter();
    let lines = file.flat_map(|file| BufReader::new(file).lines().skip(1));
    let sockets = lines.map_while(|line| {
        let line = line.ok()?;
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        (*columns.get(3)? == LISTEN).then_some(())?;
        Some((columns[1].to_owned(), columns.get(9)?.parse().ok()?))
    });
    sockets.collect()
}

/// Returns the process group of a process.
fn group_of(pid: u32) -> Option<u32> {
    // The name of the process, in parentheses, can contain spaces (proc_pid_stat(5)).
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(2)?.parse().ok()
}

/// Removes the sockets that a process holds.
fn remove_held(sockets: &mut BTreeSet<u64>, pid: u32) {
    let files = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    for file in files.flatten() {
        let inode = fs::read_link(file.path()).ok().and_then(|target| {
            let inode = target.to_str()?.strip_prefix("socket:[")?;
            inode.strip_suffix(']')?.parse().ok()
        });
        if let Some(inode) = inode {
            sockets.remove(&inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::os::unix::process::CommandExt;
    use std::process::{self, Command};

    use super::*;

    #[test]
    fn tells_own_from_foreign_listeners() {
        let own = process::id();
        let mut other = Command::new("sleep")
            .arg("60")
            .process_group(0)
            .spawn()
            .unwrap();
        let groups = [own, group_of(own).unwrap(), other.id()];
        let groups = |address| groups.map(|group| is_own(group, address));
        for host in [
            "127.64.9.9:0",
            "0.0.0.0:0",
            "[::]:0",
            "[::ffff:127.64.9.9]:0",
        ] {
            let Ok(listener) = TcpListener::bind(host) else {
                assert!(host.starts_with('['), "{host}");
                continue;
            };
            let port = listener.local_addr().as_ref().map_or(0, SocketAddr::port);
            let address = SocketAddrV4::new([127, 64, 9, 9].into(), port);
            assert_eq!(groups(address), [true, true, false], "{host}");
            assert!(is_used(address));
            drop(listener);
            assert!(!is_used(address));
            assert_eq!(groups(address), [true, true, true], "{host}");
        }
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
