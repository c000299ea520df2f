//! Which process listens on an address, from the kernel's list of sockets (sock_diag(7)).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddrV4};

use rustix::net::netlink::SOCK_DIAG;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// Length of a request in bytes.
const REQUEST: u32 = 72;
/// `SOCK_DIAG_BY_FAMILY` in linux/sock_diag.h.
const BY_FAMILY: u16 = 20;
/// `TCPF_LISTEN` in net/tcp_states.h.
const LISTEN: u32 = 1 << 10;
/// Size of the receive buffer in bytes.
const ROOM: usize = 1 << 15;

/// Returns whether a process listens on an address.
pub(super) fn is_used(address: SocketAddrV4) -> io::Result<bool> {
    // To bind a socket instead would be wrong: a child that another thread starts at the same time
    // holds the socket until its exec.
    Ok(!sockets(address)?.is_empty())
}

/// Returns whether only processes of a group listen on an address. Also returns true if nobody
/// listens.
pub(super) fn is_own(group: u32, address: SocketAddrV4) -> io::Result<bool> {
    let mut sockets = sockets(address)?;
    remove_held(&mut sockets, group);
    if !sockets.is_empty() {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        processes
            .filter(|pid| group_of(*pid) == Some(group))
            .for_each(|pid| remove_held(&mut sockets, pid));
    }
    Ok(sockets.is_empty())
}

/// Returns the inode numbers of the sockets that accept connections to an address. The kernel
/// prefers sockets that are bound to exactly this address.
fn sockets(address: SocketAddrV4) -> io::Result<BTreeSet<u64>> {
    let (mut exact, mut any) = (BTreeSet::new(), BTreeSet::new());
    for_each_listener(|ip, port, inode| {
        if port == address.port() && ip.to_canonical() == *address.ip() {
            exact.insert(inode);
        } else if port == address.port() && ip.is_unspecified() {
            any.insert(inode);
        }
    })?;
    Ok(if exact.is_empty() { any } else { exact })
}

/// Calls `on` with the address, port and inode number of each listening TCP socket. `/proc/net/tcp`
/// would take milliseconds, because the kernel searches all connections for it.
fn for_each_listener(mut on: impl FnMut(IpAddr, u16, u64)) -> io::Result<()> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
    let netlink = socket_with(family, kind, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
    let mut buffer = vec![0; ROOM];
    for family in [libc::AF_INET, libc::AF_INET6] {
        // struct nlmsghdr: length, type, flags, sequence, port.
        let mut request = REQUEST.to_ne_bytes().to_vec();
        request.extend(BY_FAMILY.to_ne_bytes());
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
        request.extend(flags.to_ne_bytes());
        request.extend([0; 8]);
        // struct inet_diag_req_v2: family, protocol, extensions, padding, states, socket ID.
        request.extend([family as u8, libc::IPPROTO_TCP as u8, 0, 0]);
        request.extend(LISTEN.to_ne_bytes());
        request.resize(REQUEST as usize, 0);
        send(&netlink, &request, SendFlags::empty())?;
        let mut is_done = false;
        while !is_done {
            let (read, _) = recv(&netlink, &mut buffer[..], RecvFlags::empty())?;
            let mut rest = &buffer[..read];
            while let Some(head) = rest.first_chunk::<16>() {
                let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
                let message = rest.get(16..length).ok_or(io::ErrorKind::InvalidData)?;
                match i32::from(u16::from_ne_bytes([head[4], head[5]])) {
                    libc::NLMSG_DONE => is_done = true,
                    libc::NLMSG_ERROR => {
                        let code = message.first_chunk().copied().unwrap_or_default();
                        return Err(io::Error::from_raw_os_error(-i32::from_ne_bytes(code)));
                    }
                    _ => {
                        let (ip, port, inode) = parse(message).ok_or(io::ErrorKind::InvalidData)?;
                        on(ip, port, inode);
                    }
                }
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }
    Ok(())
}

/// Parses `struct inet_diag_msg`: the local address, port and inode number.
fn parse(message: &[u8]) -> Option<(IpAddr, u16, u64)> {
    let port = u16::from_be_bytes(message.get(4..6)?.try_into().ok()?);
    let ip: [u8; 16] = message.get(8..24)?.try_into().ok()?;
    let ip = match i32::from(message[0]) {
        libc::AF_INET => IpAddr::from([ip[0], ip[1], ip[2], ip[3]]),
        _ => IpAddr::from(ip),
    };
    let inode = u32::from_ne_bytes(message.get(68..72)?.try_into().ok()?);
    Some((ip, port, inode.into()))
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
        let groups = |address| groups.map(|group| is_own(group, address).unwrap());
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
            assert!(is_used(address).unwrap());
            drop(listener);
            assert!(!is_used(address).unwrap());
            assert_eq!(groups(address), [true, true, true], "{host}");
        }
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
