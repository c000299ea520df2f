//! Finds the processes that listen on a local address, such as the server under test or a store,
//! without sending requests to them. Also counts local ports in TIME_WAIT.
//!
//! `/proc/net/tcp{,6}` lists the sockets, and `/proc/PID/fd` shows which process holds a socket.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use floodmark_record::host::PortFacts;
use floodmark_record::metric::Role;
use floodmark_record::plan::Address;

use crate::sock_diag::{self, SockDiag};
use crate::{Root, process};

/// State `LISTEN` in `/proc/net/tcp` (`TCP_LISTEN` of the kernel's `tcp_states.h`).
const LISTEN: &str = "0A";

/// State `ESTABLISHED` in `/proc/net/tcp` (`TCP_ESTABLISHED` of the kernel's `tcp_states.h`).
pub const ESTABLISHED: &str = "01";

/// Heading of the state column.
const HEADING: &str = "st";

/// A socket listed in `/proc/net/tcp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedSocket {
    /// Local address.
    pub address: SocketAddr,
    /// Remote address; unspecified for a listener.
    pub remote: SocketAddr,
    /// Inode, as in `/proc/PID/fd`.
    pub inode: u64,
}

/// Parses the sockets in one state, such as [`ESTABLISHED`], from the contents of `/proc/net/tcp`
/// or `/proc/net/tcp6`. Without a state, parses all sockets.
pub fn parse(text: &str, state: Option<&str>) -> impl Iterator<Item = ListedSocket> {
    let socket = move |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (address, remote, listed) = (fields.next()?, fields.next()?, fields.next()?);
        if state.is_some_and(|state| listed != state) {
            return None;
        }
        Some(ListedSocket {
            address: parse_address(address)?,
            remote: parse_address(remote)?,
            inode: fields.nth(5)?.parse().ok()?,
        })
    };
    text.lines().filter_map(socket)
}

/// Parses an address such as `0100007F:1F90`. The kernel prints each 32-bit word of the address in
/// host byte order.
fn parse_address(text: &str) -> Option<SocketAddr> {
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
    owners(root, accepting(listening(root), target))
}

/// Returns the inodes of the sockets that accept connections to an address in this network
/// namespace. Reading `/proc/net/tcp` instead would take milliseconds, because the kernel scans all
/// connections.
///
/// # Errors
/// The kernel does not support `sock_diag`, or reports an error.
pub fn sockets(target: SocketAddr) -> io::Result<Vec<u64>> {
    let mut listening = Vec::new();
    SockDiag::open()?.each(target.port(), sock_diag::LISTEN, |socket| {
        listening.push(ListedSocket {
            address: socket.local,
            remote: socket.remote,
            inode: socket.inode.into(),
        });
    })?;
    Ok(accepting(listening, target))
}

/// Returns the inodes of the sockets that accept connections to an address. The kernel prefers
/// sockets that are bound to the exact address.
fn accepting(mut listening: Vec<ListedSocket>, target: SocketAddr) -> Vec<u64> {
    listening.retain(|socket| covers(socket.address, target));
    let ip = target.ip().to_canonical();
    let exact = |socket: &ListedSocket| socket.address.ip().to_canonical() == ip;
    if listening.iter().any(exact) {
        listening.retain(exact);
    }
    listening.iter().map(|socket| socket.inode).collect()
}

/// Returns the addresses of the sockets that listen on a port in this network namespace.
pub(crate) fn addresses(root: &Root, port: u16) -> Vec<SocketAddr> {
    let addresses = listening(root).into_iter().map(|socket| socket.address);
    let addresses = addresses.filter(|address| address.port() == port);
    addresses.collect::<BTreeSet<_>>().into_iter().collect()
}

fn listening(root: &Root) -> Vec<ListedSocket> {
    let texts = ["/proc/net/tcp", "/proc/net/tcp6"].map(|file| head(root, file));
    texts
        .iter()
        .flat_map(|text| parse(text, Some(LISTEN)))
        .collect()
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

/// Returns the PIDs of a role's initial processes. Each error message starts with `name`.
///
/// # Errors
/// The processes are not on this host or can't be inspected. The error is a one-line message for
/// the record.
pub(crate) fn processes(
    root: &Root,
    (role, name): (Role, &str),
    addresses: &[Address],
) -> Result<Vec<u32>, String> {
    let mut pids = BTreeSet::new();
    let mut hidden = None;
    for address in addresses {
        let found = match address {
            Address::Ip(ip) => find(root, *ip),
            Address::Unix(path) => find_unix(root, path),
        };
        match found {
            Listeners::Processes(found) => pids.extend(found),
            Listeners::Hidden => hidden = hidden.or(Some(address)),
            Listeners::Nobody => {}
        }
    }
    if !pids.is_empty() {
        return Ok(pids.into_iter().collect());
    }
    let or_pass_pid = match role {
        Role::Server => ", or pass --server-pid",
        Role::Client | Role::Store => "",
    };
    Err(match (hidden, addresses.first()) {
        (Some(address), _) => format!(
            "{name}: cannot inspect the process that listens on {address} (it belongs to another user or runs in a \
             container); run floodmark as that user or as root{or_pass_pid}"
        ),
        (None, Some(address)) => format!(
            "{name}: no process on this host listens on {address}, so CPU, memory and threads are not measured; it may \
             run on another host or in another network namespace"
        ),
        (None, None) => format!("{name}: the address is unknown"),
    })
}

/// Returns the addresses of the server that listens on a port. `only` restricts the search to one
/// IP address.
///
/// # Errors
/// No server is listening there, or several servers are. The one-line message suggests a fix.
pub fn on_port(root: &Root, port: u16, only: Option<IpAddr>) -> Result<Vec<Address>, NotFound> {
    let mut found = addresses(root, port);
    if let Some(only) = only {
        let target = SocketAddr::new(only, port);
        found.retain(|address| covers(*address, target));
    }
    if found.is_empty() {
        let at = only.map_or_else(String::new, |only| format!(" at {only}"));
        return Err(NotFound::Nobody(format!(
            "no process listens on port {port}{at} in this network namespace; start the server first, or pass \
             --server-pid"
        )));
    }
    let owners: Vec<Listeners> = found.iter().map(|address| find(root, *address)).collect();
    if owners.iter().any(|owner| *owner != owners[0]) {
        let shown: Vec<String> = found.iter().map(SocketAddr::to_string).collect();
        return Err(NotFound::Several(format!(
            "several servers listen on port {port} ({}); select one with --address or --server-pid",
            shown.join(", ")
        )));
    }
    Ok(found.into_iter().map(Address::Ip).collect())
}

/// Reason why the search did not find exactly one server on a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotFound {
    /// No server is listening there.
    Nobody(String),
    /// Several servers are listening there.
    Several(String),
}

/// State `TIME_WAIT` in `/proc/net/tcp` (`TCP_TIME_WAIT` in the kernel's `tcp_states.h`).
const TIME_WAIT: &str = "06";

/// Counts the ports of a range that are held by connections in TIME_WAIT, on the local address with
/// the most such ports.
///
/// `texts` contains the contents of `/proc/net/tcp` and `/proc/net/tcp6`. Counts a port once, even
/// if it has many connections in TIME_WAIT. This matters if a server's port lies in the range.
fn ports_held(texts: [&str; 2], range: PortFacts) -> u64 {
    let mut held: HashMap<IpAddr, HashSet<u16>> = HashMap::new();
    for socket in texts.iter().flat_map(|text| parse(text, Some(TIME_WAIT))) {
        let local = socket.address;
        if (range.low..=range.high).contains(&local.port()) {
            let ports = held.entry(local.ip().to_canonical()).or_default();
            ports.insert(local.port());
        }
    }
    let most = held.values().map(HashSet::len).max().unwrap_or(0);
    u64::try_from(most).unwrap_or(u64::MAX)
}

/// Returns the number of ports of a range that connections in TIME_WAIT currently hold on the local
/// address with the most such ports, or `None` if the kernel's table can't be read. The table lists
/// at most `tcp_max_tw_buckets` such connections, with 150 bytes for each (20 MB by default).
pub(crate) fn ports_in_time_wait(root: &Root, range: PortFacts) -> Option<u64> {
    let tcp = root.read("/proc/net/tcp").ok()?;
    let tcp6 = root.read("/proc/net/tcp6").unwrap_or_default();
    Some(ports_held([&tcp, &tcp6], range))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

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
            parse(text, Some(LISTEN))
                .map(|l| format!("{} {}", l.address, l.inode))
                .collect()
        };
        assert_eq!(shown(tcp), ["0.0.0.0:2024 648", "127.0.0.1:8080 4711"]);
        assert_eq!(shown(tcp6), ["[::1]:80 99", "[::ffff:127.0.0.1]:81 98"]);
        let damaged = "  0: 0100007F:XYZ1 x 0A\n 1: é000007:0050 0 0A 0 0 0 0 0 1";
        assert_eq!(parse(damaged, Some(LISTEN)).count(), 0);
    }

    #[test]
    fn stops_reading_after_the_listeners() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("proc/net")).unwrap();
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
        std::fs::write(directory.path().join("proc/net/tcp"), &text).unwrap();
        let root = Root::at(directory.path());
        let read = head(&root, "/proc/net/tcp");
        assert_eq!(read.lines().count(), 3, "{read}");
        assert!(parse(&read, Some(LISTEN)).eq(parse(&text, Some(LISTEN))));
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
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a socket");
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

    const SERVER: (Role, &str) = (Role::Server, "server");

    #[test]
    fn finds_a_server_by_any_address_or_reports_the_reason() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let unused: std::net::SocketAddr = ([127, 9, 9, 9], local.port()).into();
        let root = Root::host();
        let addresses = [Address::Ip(unused), Address::Ip(local)];
        assert_eq!(
            processes(&root, SERVER, &addresses),
            Ok(vec![std::process::id()])
        );
        let error = processes(&root, SERVER, &addresses[..1]).unwrap_err();
        assert!(error.contains(&unused.to_string()), "{error}");
        assert!(error.contains("another host"), "{error}");
        assert!(processes(&root, SERVER, &[]).is_err());
    }

    #[test]
    fn reports_a_listener_with_a_hidden_owner() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("proc/net")).unwrap();
        let line = "   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1\n";
        std::fs::write(directory.path().join("proc/net/tcp"), line).unwrap();
        let address = Address::Ip("127.0.0.1:8080".parse().unwrap());
        let error = processes(
            &Root::at(directory.path()),
            SERVER,
            std::slice::from_ref(&address),
        )
        .unwrap_err();
        assert!(error.contains("--server-pid"), "{error}");
        let store = (Role::Store, "store: bars");
        let error = processes(&Root::at(directory.path()), store, &[address]).unwrap_err();
        assert!(
            error.starts_with("store: bars: cannot inspect the process"),
            "{error}"
        );
        assert!(!error.contains("--server-pid"), "{error}");
    }

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
        assert_eq!(ports_in_time_wait(&Root::host(), range), Some(1));
    }
}
