//! Which process listens on a local address: `/proc/net/tcp{,6}` gives the socket, `/proc/PID/fd` its owner.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use crate::Root;
use crate::process::parse_stat;

/// State `LISTEN` in `/proc/net/tcp` (`TCP_LISTEN` of the kernel's `tcp_states.h`).
const LISTEN: &str = "0A";

/// What stands above the states.
const HEADING: &str = "st";

/// A listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its inode, which names it in `/proc/PID/fd`.
    pub inode: u64,
}

/// Reads the listening sockets from the text of `/proc/net/tcp` or `/proc/net/tcp6`.
#[must_use]
pub fn parse(text: &str) -> Vec<Listening> {
    text.lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            if fields.get(3) != Some(&LISTEN) {
                return None;
            }
            Some(Listening {
                address: parse_address(fields.get(1)?)?,
                inode: fields.get(9)?.parse().ok()?,
            })
        })
        .collect()
}

/// Reads `0100007F:1F90`. The kernel prints each 32-bit word of the address as it lies in memory, so in host order.
#[must_use]
pub fn parse_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    if !address.is_ascii() {
        return None;
    }
    let word = |index: usize| {
        let word = address.get(index * 8..index * 8 + 8)?;
        Some(u32::from_str_radix(word, 16).ok()?.to_ne_bytes())
    };
    let address: IpAddr = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (index, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(index)?);
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

/// Who listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listeners {
    /// These processes, ascending: several where each has a socket of its own (`SO_REUSEPORT`). Where several share a socket
    /// (workers that were forked from a master), it is the one whose parent does not hold it.
    Processes(Vec<u32>),
    /// Somebody who may not be looked at: another user's process, another PID namespace.
    Hidden,
    /// Nobody on this machine, or in another network namespace.
    Nobody,
}

/// Finds the processes that listen on an address of this machine, or on a wildcard that covers it.
#[must_use]
pub fn find(root: &Root, target: SocketAddr) -> Listeners {
    let mut listening = Vec::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        listening.extend(parse(&head(root, file)));
    }
    listening.retain(|socket| covers(socket.address, target));
    // The kernel prefers sockets of the exact address to those of a wildcard.
    let exact =
        |socket: &Listening| socket.address.ip().to_canonical() == target.ip().to_canonical();
    if listening.iter().any(exact) {
        listening.retain(exact);
    }
    owners(root, listening.iter().map(|socket| socket.inode).collect())
}

/// Where something listens on a port of this network namespace, each address once.
#[must_use]
pub fn addresses(root: &Root, port: u16) -> Vec<SocketAddr> {
    let files = ["/proc/net/tcp", "/proc/net/tcp6"];
    let listening = files.iter().flat_map(|file| parse(&head(root, file)));
    let mut addresses: Vec<SocketAddr> = listening.map(|socket| socket.address).collect();
    addresses.retain(|address| address.port() == port);
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// The listening sockets of a file, which stand before all others (`Documentation/networking/proc_net_tcp.rst`): the rest, a line for
/// each connection and each TIME_WAIT, takes the kernel tens of milliseconds to write where there are many.
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
#[must_use]
pub fn find_unix(root: &Root, path: &Path) -> Listeners {
    let text = root.read("/proc/net/unix").unwrap_or_default();
    owners(root, parse_unix(&text, path))
}

/// Inodes of the listening sockets of a path in the text of `/proc/net/unix`.
fn parse_unix(text: &str, path: &Path) -> Vec<u64> {
    /// The kernel's flag of a listening socket (`SO_ACCEPTCON`).
    const ACCEPTS: &str = "00010000";
    let of_path = |line: &str| {
        // Num RefCount Protocol Flags Type St Inode Path; the path may hold blanks.
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
    let mut pids: Vec<u32> = inodes
        .into_iter()
        .filter_map(|inode| owner(root, inode))
        .collect();
    pids.sort_unstable();
    pids.dedup();
    if pids.is_empty() {
        Listeners::Hidden
    } else {
        Listeners::Processes(pids)
    }
}

pub(crate) fn covers(listening: SocketAddr, target: SocketAddr) -> bool {
    let (ours, theirs) = (listening.ip().to_canonical(), target.ip().to_canonical());
    listening.port() == target.port()
        && (ours == theirs || (ours.is_unspecified() && (ours.is_ipv6() || theirs.is_ipv4())))
}

fn owner(root: &Root, inode: u64) -> Option<u32> {
    let link = format!("socket:[{inode}]");
    let owners: Vec<u32> = root
        .numbered("/proc")
        .into_iter()
        .filter(|pid| holds(root, *pid, &link))
        .collect();
    let parent = |pid: &u32| {
        let text = root.read(format!("/proc/{pid}/stat")).ok()?;
        Some(parse_stat(&text, 1.0)?.parent)
    };
    owners
        .iter()
        .find(|pid| parent(pid).is_none_or(|parent| !owners.contains(&parent)))
        .or_else(|| owners.first())
        .copied()
}

fn holds(root: &Root, pid: u32, link: &str) -> bool {
    let Ok(entries) = std::fs::read_dir(root.path(format!("/proc/{pid}/fd"))) else {
        return false;
    };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .any(|target| target.as_os_str() == link)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[cfg(target_endian = "little")]
    #[test]
    fn listeners_of_both_files() {
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
            parse(text)
                .iter()
                .map(|l| format!("{} {}", l.address, l.inode))
                .collect()
        };
        assert_eq!(shown(tcp), ["0.0.0.0:2024 648", "127.0.0.1:8080 4711"]);
        assert_eq!(shown(tcp6), ["[::1]:80 99", "[::ffff:127.0.0.1]:81 98"]);
        assert!(parse("  0: 0100007F:XYZ1 x 0A\n 1: é000007:0050 0 0A 0 0 0 0 0 1").is_empty());
    }

    #[test]
    fn what_comes_behind_the_listeners_is_not_read() {
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
        assert_eq!(parse(&read), parse(&text));
        assert_eq!(head(&root, "/proc/net/tcp6"), "");
    }

    #[test]
    fn wildcards_cover() {
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
    fn several_sockets_of_one_port_have_several_owners() {
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
        // A child inherits the second, and then has it alone.
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
    fn unix_sockets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let ours = Listeners::Processes(vec![std::process::id()]);
        assert_eq!(find_unix(&Root::host(), &path), ours);
        drop(listener);
        assert_eq!(find_unix(&Root::host(), &path), Listeners::Nobody);
    }

    #[test]
    fn finds_itself() {
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
