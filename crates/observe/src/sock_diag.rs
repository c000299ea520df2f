//! Reads sockets from the kernel's netlink interface (`sock_diag(7)`), which filters them by port.
//!
//! The structures are written by hand, because `netlink-packet-sock-diag` has no filter and
//! allocates for each socket.

use std::collections::HashSet;
use std::io;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{netlink, recv, send, socket_with};

/// Message type of the older interface (`TCPDIAG_GETSOCK`). One dump returns both IP versions,
/// whereas the newer interface needs two dumps.
const BOTH_FAMILIES: u16 = 18;

/// Message type of the newer interface (`SOCK_DIAG_BY_FAMILY`), used for single sockets.
const BY_FAMILY: u16 = 20;

/// Request attribute that contains the filter (`INET_DIAG_REQ_BYTECODE`).
const BYTECODE: u16 = 1;

/// `struct tcp_info` (`INET_DIAG_INFO`): a request extension and a response attribute.
const INFO: u16 = 2;

/// Filter instructions (`INET_DIAG_BC_*` in `linux/inet_diag.h`).
const PORT: u8 = 0;
const JUMP: u8 = 1;
const SOURCE_AT_LEAST: u8 = 2;
const SOURCE_AT_MOST: u8 = 3;
const TARGET_AT_LEAST: u8 = 4;
const TARGET_AT_MOST: u8 = 5;

const NETLINK_HEAD: usize = 16;
const SOCKET_ID: usize = 48;
/// Size of `struct inet_diag_msg`.
const MESSAGE: usize = 72;

/// Bit of the state `LISTEN` (`TCP_LISTEN` in `tcp_states.h`).
pub(crate) const LISTEN: u32 = 1 << 10;

/// Size of the receive buffer. The kernel sends at most 32 KiB per datagram.
const ROOM: usize = 32 << 10;

/// Maximum time to wait for a response.
const TIMEOUT: Duration = Duration::from_secs(2);

/// `struct inet_diag_sockid`: ports, addresses, interface and cookie, exactly as the kernel sent
/// them.
pub(crate) type SocketId = [u8; SOCKET_ID];

/// One socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Socket {
    pub family: u8,
    /// One of the `TCP_*` states in `tcp_states.h`, from 1 (established) to 12.
    pub state: u8,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// Unread bytes; for a listener, the number of connections waiting to be accepted.
    pub receive_queue: u32,
    /// Unacknowledged bytes; for a listener, the limit on waiting connections.
    pub send_queue: u32,
    /// Inode, as in `/proc/PID/fd`; 0 if no process holds the socket.
    pub inode: u32,
    pub id: SocketId,
}

impl Socket {
    fn parse(message: &[u8]) -> Option<Self> {
        let message: &[u8; MESSAGE] = message.get(..MESSAGE)?.try_into().ok()?;
        let u16_at = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
        let u32_at = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| message[at + i]));
        let family = message[0];
        let address = |at: usize| -> IpAddr {
            let bytes: [u8; 16] = std::array::from_fn(|i| message[at + i]);
            if i32::from(family) == libc::AF_INET {
                Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()
            } else {
                Ipv6Addr::from(bytes).to_canonical()
            }
        };
        Some(Self {
            family,
            state: message[1],
            local: SocketAddr::new(address(8), u16_at(4)),
            remote: SocketAddr::new(address(24), u16_at(6)),
            receive_queue: u32_at(56),
            send_queue: u32_at(60),
            inode: u32_at(68),
            id: std::array::from_fn(|i| message[4 + i]),
        })
    }
}

/// Fields of `struct tcp_info`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TcpInfo {
    /// Smoothed round-trip time in µs.
    pub rtt_us: u32,
    /// Segments retransmitted since the connection was established.
    pub retransmitted: u32,
    /// Unacknowledged segments.
    pub unacknowledged: u32,
    /// Times in ms since the connection last sent and last received data, rounded to kernel ticks.
    pub last_sent_ms: u32,
    pub last_received_ms: u32,
}

/// A netlink socket for queries.
#[derive(Debug)]
pub(crate) struct SockDiag {
    socket: OwnedFd,
    request: Vec<u8>,
    response: Vec<u8>,
    sequence: u32,
}

impl SockDiag {
    /// Opens a netlink socket.
    ///
    /// # Errors
    /// The kernel has no `sock_diag`, or access is denied.
    pub(crate) fn open() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
        let protocol = Some(netlink::SOCK_DIAG);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
        Ok(Self {
            socket,
            request: Vec::new(),
            response: vec![0; ROOM],
            sequence: 0,
        })
    }

    /// Calls `on` for every TCP socket in this network namespace whose local or remote port is
    /// `port`. Skips sockets whose state is not in `states`, which has one bit per state number.
    ///
    /// # Errors
    /// The kernel reports an error.
    pub(crate) fn each(
        &mut self,
        port: u16,
        states: u32,
        on: impl FnMut(Socket),
    ) -> io::Result<()> {
        self.dump(&port_filter(port), states, on)
    }

    /// Calls `on` for every TCP socket in this network namespace that does not use `port`. Skips
    /// sockets whose state is not in `states`.
    ///
    /// # Errors
    /// The kernel reports an error.
    pub(crate) fn each_of_others(
        &mut self,
        port: u16,
        states: u32,
        mut on: impl FnMut(Socket),
    ) -> io::Result<()> {
        self.dump(&other_ports_filter(port), states, |socket| {
            // The kernel's filter can't exclude port 65535.
            if socket.local.port() != port && socket.remote.port() != port {
                on(socket);
            }
        })
    }

    /// Returns the local ports of all listening TCP sockets in this network namespace.
    ///
    /// # Errors
    /// The kernel reports an error.
    pub(crate) fn listening_ports(&mut self) -> io::Result<HashSet<u16>> {
        let mut ports = HashSet::new();
        self.dump(&other_ports_filter(u16::MAX), LISTEN, |socket| {
            ports.insert(socket.local.port());
        })?;
        Ok(ports)
    }

    fn dump(&mut self, filter: &[u8], states: u32, mut on: impl FnMut(Socket)) -> io::Result<()> {
        self.begin(BOTH_FAMILIES, libc::NLM_F_DUMP);
        // struct inet_diag_req: family, prefix lengths, extensions, id, states, dbs. The kernel
        // ignores the family.
        self.request
            .extend([libc::AF_INET as u8, 0, 0, 0].iter().chain(&[0; SOCKET_ID]));
        self.request.extend(states.to_ne_bytes());
        self.request.extend([0; 4]);
        self.request.extend((filter.len() as u16 + 4).to_ne_bytes());
        self.request.extend(BYTECODE.to_ne_bytes());
        self.request.extend(filter);
        self.query(|message| {
            if let Some(socket) = Socket::parse(message) {
                on(socket);
            }
        })
    }

    /// Returns the `tcp_info` of one connection, or `None` if it is closed.
    ///
    /// # Errors
    /// The kernel reports an error.
    pub(crate) fn info(&mut self, socket: &Socket) -> io::Result<Option<TcpInfo>> {
        self.begin(BY_FAMILY, 0);
        // struct inet_diag_req_v2: family, protocol, extensions, padding, states, id.
        let extension = 1 << (INFO - 1);
        self.request
            .extend([socket.family, libc::IPPROTO_TCP as u8, extension, 0]);
        self.request.extend(u32::MAX.to_ne_bytes());
        self.request.extend(socket.id);
        let mut info = None;
        let result = self.query(|message| info = message.get(MESSAGE..).and_then(read_info));
        match result {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            other => other.map(|()| info),
        }
    }

    fn begin(&mut self, kind: u16, flags: libc::c_int) {
        self.sequence = self.sequence.wrapping_add(1);
        let flags = (libc::NLM_F_REQUEST | flags) as u16;
        self.request.clear();
        self.request.extend([0; 4]);
        self.request.extend(kind.to_ne_bytes());
        self.request.extend(flags.to_ne_bytes());
        self.request.extend(self.sequence.to_ne_bytes());
        self.request.extend([0; 4]);
    }

    /// Sends the request and calls `on` for each message of the response.
    fn query(&mut self, mut on: impl FnMut(&[u8])) -> io::Result<()> {
        let length = self.request.len() as u32;
        self.request[..4].copy_from_slice(&length.to_ne_bytes());
        send(&self.socket, &self.request, SendFlags::empty())?;
        loop {
            let (read, _) = recv(&self.socket, &mut self.response[..], RecvFlags::empty())?;
            let mut rest = &self.response[..read];
            while let Some((head, _)) = rest.split_at_checked(NETLINK_HEAD) {
                let u16_at = |at: usize| i32::from(u16::from_ne_bytes([head[at], head[at + 1]]));
                let u32_at = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| head[at + i]));
                let length = u32_at(0) as usize;
                let Some(message) = rest.get(NETLINK_HEAD..length) else {
                    break;
                };
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                // Skip the rest of an abandoned response.
                if u32_at(8) != self.sequence {
                    continue;
                }
                match u16_at(4) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => {
                        let code = message.first_chunk().copied().unwrap_or_default();
                        return Err(io::Error::from_raw_os_error(-i32::from_ne_bytes(code)));
                    }
                    _ => on(message),
                }
                if u16_at(6) & libc::NLM_F_MULTI == 0 {
                    return Ok(());
                }
            }
        }
    }
}

/// Returns the filter "local or remote port is `port`". An instruction has a code, an offset on
/// success and an offset on failure. A comparison is followed by an instruction that holds the
/// port. A jump to the end accepts the socket; a jump 4 bytes beyond the end rejects it.
fn port_filter(port: u16) -> Vec<u8> {
    filter(&[
        (SOURCE_AT_LEAST, 8, 20),
        (PORT, 0, port),
        (SOURCE_AT_MOST, 8, 12),
        (PORT, 0, port),
        (JUMP, 4, 20),
        (TARGET_AT_LEAST, 8, 20),
        (PORT, 0, port),
        (TARGET_AT_MOST, 8, 12),
        (PORT, 0, port),
    ])
}

/// Returns the filter "neither port is `port`", which tests whether each port is above or below
/// `port`. The kernel requires every failure target to lie on the success path, so "above" skips
/// the second comparison.
fn other_ports_filter(port: u16) -> Vec<u8> {
    let (above, below) = (port.saturating_add(1), port.saturating_sub(1));
    filter(&[
        (SOURCE_AT_LEAST, 8, 12),
        (PORT, 0, above),
        (JUMP, 4, 12),
        (SOURCE_AT_MOST, 8, 32),
        (PORT, 0, below),
        (TARGET_AT_LEAST, 8, 12),
        (PORT, 0, above),
        (JUMP, 4, 12),
        (TARGET_AT_MOST, 8, 12),
        (PORT, 0, below),
    ])
}

fn filter(instructions: &[(u8, u8, u16)]) -> Vec<u8> {
    let bytes = instructions.iter().flat_map(|(code, yes, no)| {
        let [low, high] = no.to_ne_bytes();
        [*code, *yes, low, high]
    });
    bytes.collect()
}

/// Finds `struct tcp_info` among the attributes of a response.
fn read_info(mut attributes: &[u8]) -> Option<TcpInfo> {
    loop {
        let head = attributes.get(..4)?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]);
        let value = attributes.get(4..length)?;
        if kind == INFO {
            let u32_at = |at: usize| -> Option<u32> {
                Some(u32::from_ne_bytes(value.get(at..at + 4)?.try_into().ok()?))
            };
            return Some(TcpInfo {
                rtt_us: u32_at(offset_of!(libc::tcp_info, tcpi_rtt))?,
                retransmitted: u32_at(offset_of!(libc::tcp_info, tcpi_total_retrans))?,
                unacknowledged: u32_at(offset_of!(libc::tcp_info, tcpi_unacked))?,
                last_sent_ms: u32_at(offset_of!(libc::tcp_info, tcpi_last_data_sent))?,
                last_received_ms: u32_at(offset_of!(libc::tcp_info, tcpi_last_data_recv))?,
            });
        }
        attributes = attributes.get(length.next_multiple_of(4).max(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    /// All states except TIME_WAIT, because another program may have used the port in the last
    /// minute.
    const LIVE: u32 = !(1 << 6);

    fn all(port: u16, states: u32) -> Vec<Socket> {
        let mut sockets = Vec::new();
        let mut diag = SockDiag::open().unwrap();
        diag.each(port, states, |socket| sockets.push(socket))
            .unwrap();
        sockets
    }

    #[test]
    fn lists_both_ends_of_the_connections_of_a_port() {
        for address in ["127.0.0.1:0", "[::]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let other = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let _unrelated = TcpStream::connect(other.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            client.write_all(b"12345").unwrap();
            // On loopback, written data is in the peer's queue as soon as the write returns.
            let sockets = all(port, LIVE);
            assert_eq!(sockets.len(), 3, "{sockets:?}");
            let seen = sockets
                .iter()
                .find(|s| s.local == client.local_addr().unwrap());
            let at_client = seen.unwrap();
            assert_eq!(at_client.remote.port(), port);
            assert_eq!((at_client.state, at_client.receive_queue), (1, 0));
            let at_server = sockets
                .iter()
                .find(|s| s.remote == client.local_addr().unwrap())
                .unwrap();
            assert_eq!(at_server.receive_queue, 5, "{at_server:?}");
            server.read_exact(&mut [0; 5]).unwrap();
            assert_eq!(all(port, 1 << 10).len(), 1, "only the listener");
            let mut others = Vec::new();
            let mut diag = SockDiag::open().unwrap();
            diag.each_of_others(port, LIVE, |socket| others.push(socket))
                .unwrap();
            let of = |port: u16| {
                let has = |s: &&Socket| s.local.port() == port || s.remote.port() == port;
                others.iter().filter(has).count()
            };
            assert_eq!(of(port), 0, "{others:?}");
            let unrelated = other.local_addr().unwrap().port();
            assert_eq!(of(unrelated), 3, "the listener and both ends: {others:?}");
            let inode = std::fs::read_link(format!("/proc/self/fd/{}", client.as_raw_fd()));
            let inode = inode.unwrap().to_string_lossy().into_owned();
            assert_eq!(inode, format!("socket:[{}]", at_client.inode));

            let mut diag = SockDiag::open().unwrap();
            let info = diag.info(at_client).unwrap().unwrap();
            assert!(info.rtt_us > 0 && info.rtt_us < 10_000_000, "{info:?}");
            assert_eq!(info.retransmitted, 0);
            let gone = *at_client;
            drop((client, server));
            // Closed sockets and sockets in TIME_WAIT have no `tcp_info`.
            assert_eq!(diag.info(&gone).unwrap(), None);
        }
    }

    #[test]
    fn receives_many_sockets_in_several_datagrams() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let held: Vec<_> = (0..300)
            .map(|_| {
                (
                    TcpStream::connect(address).unwrap(),
                    listener.accept().unwrap(),
                )
            })
            .collect();
        assert_eq!(all(address.port(), 1 << 1).len(), 2 * held.len());
    }

    #[test]
    fn ignores_damaged_attributes() {
        for bytes in [
            &[][..],
            &[1],
            &[0, 0, 0, 0],
            &[4, 0, 2, 0],
            &[255, 255, 2, 0, 1],
        ] {
            assert_eq!(read_info(bytes), None, "{bytes:?}");
        }
    }
}
