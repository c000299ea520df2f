//! Finds the process that listens on a local address.
//!
//! `/proc/net/tcp{,6}` lists the sockets, and `/proc/PID/fd` shows which process holds a socket.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use crate::{Root, process};

/// State `LISTEN` in `/proc/net/tcp` (`TCP_LISTEN` of the kernel's `tcp_states.h`).
const LISTEN: &str = "0A";

/// Heading of the state column.
const HEADING: &str = "st";

/// A socket listed in `/proc/net/tcp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListedSocket {
    /// Local address.
    pub address: SocketAddr,
    /// Inode, as in `/proc/PID/fd`.
    pub inode: u64,
}

/// Parses the sockets in one state from the contents of `/proc/net/tcp` or `/proc/net/tcp6`.
pub(crate) fn parse<'a>(text: &'a str, state: &'a str) -> impl Iterator<Item = ListedSocket> + 'a {
    let socket = move |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let address = fields.next()?;
        fields.nth(1).filter(|listed| *listed == state)?;
        let inode = fields.nth(5)?;
        Some(ListedSocket {
            address: parse_address(address)?,
            inode: inode.parse().ok()?,
        })
    };
    text.lines().filter_map(socket)
}

/// Parses an address such as `0100007F:1F90`. The kernel prints each 32-bit word of the address in
/// host byte order.
#[must_use]
pub fn parse_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words = (0..address.len()).step_by(8).map(|at| {
        let word = u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    });
    let address: IpAddr = match words.collect::<Option<Vec<[u8; 4]>>>()?[..] {
        [word] => Ipv4Addr::from(word).into(),
        [a, b, c, d] => Ipv6Addr::from(<[u8; 16]>::try_from([a, b, c, d].concat()).ok()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

/// Owners of listening sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listeners {
    /// PIDs of the listening processes, in ascending order. There are several PIDs if each process
    /// has its own socket (`SO_REUSEPORT`). If processes share a socket, as forked workers do, only
    /// the process whose parent does not hold this socket is listed.
    Processes(Vec<u32>),
    /// A process that can't be inspected, because it belongs to another user or PID namespace.
    Hidden,
    /// No process in this network namespace is listening.
    Nobody,
}

/// Finds the processes that listen on a local address, or on a wildcard address that includes it.
#[must_use]
pub fn find(root: &Root, target: SocketAddr) -> Listeners {
    let mut listening = listening(root);
    listening.retain(|socket| covers(socket.address, target));
    // The kernel prefers sockets that are bound to the exact address.
    let ip = target.ip().to_canonical();
    let exact = |socket: &ListedSocket| socket.address.ip().to_canonical() == ip;
    if listening.iter().any(exact) {
        listening.retain(exact);
    }
    owners(root, listening.iter().map(|socket| socket.inode).collect())
}

/// Returns the addresses that have a listener on a port in this network namespace.
pub(crate) fn addresses(root: &Root, port: u16) -> Vec<SocketAddr> {
    let addresses = listening(root).into_iter().map(|socket| socket.address);
    let addresses = addresses.filter(|address| address.port() == port);
    addresses.collect::<BTreeSet<_>>().into_iter().collect()
}

fn listening(root: &Root) -> Vec<ListedSocket> {
    let texts = ["/proc/net/tcp", "/proc/net/tcp6"].map(|file| head(root, file));
    texts.iter().flat_map(|text| parse(text, LISTEN)).collect()
}

/// Reads the listening sockets from a file. The kernel prints listening sockets first
/// (`Documentation/networking/proc_net_tcp.rst`). With many connections, reading the rest of the
/// file takes tens of milliseconds.
fn head(root: &Root, file: &str) -> String {
    let Ok(file) = File::open(root.path(file)) else {
        return String::new();
    };
    let listens = |line: &String| {
        let state = line.split_ascii_whitespace().nth(3);
        state == Some(LISTEN) || state == Some(HEADING)
    };
    let lines = BufReader::new(file).lines().map_while(Result::ok);
    lines
        .take_while(listens)
        .flat_map(|line| [line, "\n".to_owned()])
        .collect()
}

/// Finds the processes that listen on a unix socket.
pub(crate) fn find_unix(root: &Root, path: &Path) -> Listeners {
    let text = root.read("/proc/net/unix").unwrap_or_default();
    owners(root, parse_unix(&text, path))
}

/// Returns the inodes of the sockets that listen on a path, from the contents of `/proc/net/unix`.
fn parse_unix(text: &str, path: &Path) -> Vec<u64> {
    /// Flag of a listening socket (`SO_ACCEPTCON`).
    const ACCEPTS: &str = "00010000";
    let of_path = |line: &str| {
        // Fields: Num RefCount Protocol Flags Type St Inode Path. The path may contain spaces.
        let mut words = line.split_ascii_whitespace();
        let flags = words.nth(3)?;
        let inode = words.nth(2)?;
        let (_, named) = line.split_once(&format!(" {inode} "))?;
        (flags == ACCEPTS && Path::new(named) == path).then(|| inode.parse().ok())?
    };
    text.lines().filter_map(of_path).collect()
}

fn owners(root: &Root, inodes: Vec<u64>) -> Listeners {
    if inodes.is_empty() {
        return Listeners::Nobody;
    }
    let pids = inodes.into_iter().filter_map(|inode| owner(root, inode));
    let pids: BTreeSet<u32> = pids.collect();
    if pids.is_empty() {
        Listeners::Hidden
    } else {
        Listeners::Processes(pids.into_iter().collect())
    }
}

pub(crate) fn covers(listening: SocketAddr, target: SocketAddr) -> bool {
    let (ours, theirs) = (listening.ip().to_canonical(), target.ip().to_canonical());
    listening.port() == target.port()
        && (ours == theirs || (ours.is_unspecified() && (ours.is_ipv6() || theirs.is_ipv4())))
}

fn owner(root: &Root, inode: u64) -> Option<u32> {
    let mut owners = root.numbered("/proc");
    owners.retain(|pid| socket_inodes(root, *pid).any(|held| held == inode));
    let parent = |pid: &u32| Some(process::stat(root, *pid).ok()?.ppid.cast_unsigned());
    owners
        .iter()
        .find(|pid| parent(pid).is_none_or(|parent| !owners.contains(&parent)))
        .or_else(|| owners.first())
        .copied()
}

/// Returns the inodes of the sockets that a process holds.
pub fn socket_inodes(root: &Root, pid: u32) -> impl Iterator<Item = u64> {
    let files = std::fs::read_dir(root.path(format!("/proc/{pid}/fd"))).into_iter();
    files.flatten().filter_map(|file| {
        let target = std::fs::read_link(file.ok()?.path()).ok()?;
        let inode = target.to_str()?.strip_prefix("socket:[")?;
        inode.strip_suffix(']')?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[cfg(target_endian = "little")]
    #[test]
    fn parses_listeners_of_both_files() {
        let tcp = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 648 1 00000000792228b3 100 0 0 10 0
   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000000000000000 100 0 0 10 0
   2: 0100007F:1F90 0100007F:A2C4 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0000000000000000 20 4 30 10 -1
";
        let tcp6 = "\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 99 1 0 100 0 0 10 0
   1: 0000000000000000FFFF00000100007F:0051 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 98 1 0 100 0 0 10 0
";
        let shown = |text| -> Vec<_> {
            parse(text, LISTEN)
                .map(|l| format!("{} {}", l.address, l.inode))
                .collect()
        };
        assert_eq!(shown(tcp), ["0.0.0.0:2024 648", "127.0.0.1:8080 4711"]);
        assert_eq!(shown(tcp6), ["[::1]:80 99", "[::ffff:127.0.0.1]:81 98"]);
        let damaged = "  0: 0100007F:XYZ1 x 0A\n 1: é000007:0050 0 0A 0 0 0 0 0 1";
        assert_eq!(parse(damaged, LISTEN).count(), 0);
    }

    #[test]
    fn stops_reading_after_the_listeners() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("proc/net")).unwrap();
        let line = |port: &str, state: &str| {
            format!(
                "   0: 0100007F:{port} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 0 0 1 1\n"
            )
        };
        let heading = "  sl  local_address rem_address   st tx_queue rx_queue\n";
        let text = [
            heading,
            &line("1F90", LISTEN),
            &line("1F91", LISTEN),
            &line("1F90", "06"),
        ]
        .concat();
        std::fs::write(folder.path().join("proc/net/tcp"), &text).unwrap();
        let root = Root::at(folder.path());
        let read = head(&root, "/proc/net/tcp");
        assert_eq!(read.lines().count(), 3, "{read}");
        assert!(parse(&read, LISTEN).eq(parse(&text, LISTEN)));
        assert_eq!(head(&root, "/proc/net/tcp6"), "");
    }

    #[test]
    fn wildcards_match_addresses() {
        let covers = |ours: &str, theirs: &str| {
            super::covers(ours.parse().unwrap(), theirs.parse().unwrap())
        };
        assert!(covers("0.0.0.0:80", "127.0.0.1:80"));
        assert!(covers("[::]:80", "127.0.0.1:80"));
        assert!(covers("[::]:80", "[::1]:80"));
        assert!(covers("[::ffff:127.0.0.1]:80", "127.0.0.1:80"));
        assert!(!covers("0.0.0.0:80", "[::1]:80"));
        assert!(!covers("127.0.0.1:80", "127.0.0.2:80"));
        assert!(!covers("0.0.0.0:80", "127.0.0.1:81"));
    }

    #[test]
    fn finds_all_owners_of_a_shared_port() {
        let listener = |port: u16| {
            let socket =
                socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            socket.set_reuse_port(true).unwrap();
            let address: SocketAddr = ([127, 0, 0, 1], port).into();
            socket.bind(&address.into()).unwrap();
            socket.listen(5).unwrap();
            socket
        };
        let first = listener(0);
        let address = first.local_addr().unwrap().as_socket().unwrap();
        let second = listener(address.port());
        // The child inherits the second socket. After the drop, only the child holds this socket.
        second.set_cloexec(false).unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        drop(second);
        let found = find(&Root::host(), address);
        child.kill().unwrap();
        child.wait().unwrap();
        let mut both = vec![std::process::id(), child.id()];
        both.sort_unstable();
        assert_eq!(found, Listeners::Processes(both));
    }

    #[test]
    fn finds_the_owner_of_a_unix_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let ours = Listeners::Processes(vec![std::process::id()]);
        assert_eq!(find_unix(&Root::host(), &path), ours);
        drop(listener);
        assert_eq!(find_unix(&Root::host(), &path), Listeners::Nobody);
    }

    #[test]
    fn finds_this_process() {
        for address in ["127.0.0.1:0", "0.0.0.0:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let target = (Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port()).into();
            let ours = Listeners::Processes(vec![std::process::id()]);
            assert_eq!(find(&Root::host(), target), ours);
            let bound = listener.local_addr().unwrap();
            assert!(addresses(&Root::host(), bound.port()).contains(&bound));
            drop(listener);
            assert_eq!(find(&Root::host(), target), Listeners::Nobody);
        }
    }
}
