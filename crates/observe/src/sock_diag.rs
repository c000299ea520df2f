//! Sockets as the kernel tells them over netlink (`sock_diag(7)`), filtered by port in the kernel.
//!
//! The few structures are written out here: `netlink-packet-sock-diag` knows no filter and allocates for each socket.

use std::cell::Cell;
use std::io;
use std::mem::{offset_of, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Messages of the older interface (`TCPDIAG_GETSOCK`): one walk gives both IP versions, where the newer one takes two.
const BOTH_FAMILIES: u16 = 18;

/// Messages of the newer interface (`SOCK_DIAG_BY_FAMILY`), here for one socket.
const BY_FAMILY: u16 = 20;

/// Attribute of a request: the filter (`INET_DIAG_REQ_BYTECODE`).
const BYTECODE: u16 = 1;

/// Attribute of an answer, and extension of a request: `struct tcp_info` (`INET_DIAG_INFO`).
const INFO: u16 = 2;

/// Filter instructions (`INET_DIAG_BC_*` of `linux/inet_diag.h`).
const JUMP: u8 = 1;
const SOURCE_AT_LEAST: u8 = 2;
const SOURCE_AT_MOST: u8 = 3;
const TARGET_AT_LEAST: u8 = 4;
const TARGET_AT_MOST: u8 = 5;

const NETLINK_HEAD: usize = 16;
const SOCKET_ID: usize = 48;
/// `struct inet_diag_msg`.
const MESSAGE: usize = 72;

/// Room for one piece of an answer; the kernel fills at most 32 KiB at once.
const ROOM: usize = 32 << 10;

/// `struct inet_diag_sockid`: ports, addresses, interface and cookie, as the kernel gave it.
pub(crate) type SocketId = [u8; SOCKET_ID];

/// One socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Socket {
    pub family: u8,
    /// `TCP_*` of `tcp_states.h`, 1 (established) to 12.
    pub state: u8,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// Bytes that were received and not read; of a listener connections that wait to be accepted.
    pub receive_queue: u32,
    /// Bytes that were sent and not acknowledged; of a listener the most connections that may wait.
    pub send_queue: u32,
    /// Which names it in `/proc/PID/fd`; 0 where it belongs to no process (any more, or not yet).
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

/// Some of `struct tcp_info`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TcpInfo {
    /// Smoothed round-trip time, µs.
    pub rtt_us: u32,
    /// Segments sent again since the connection stands.
    pub retransmitted: u32,
    /// Segments sent and not acknowledged.
    pub unacknowledged: u32,
    /// Since when it has sent nothing, and received nothing, ms in ticks of the kernel.
    pub last_sent_ms: u32,
    pub last_received_ms: u32,
}

/// A netlink socket to ask with.
#[derive(Debug)]
pub(crate) struct SockDiag {
    socket: OwnedFd,
    request: Vec<u8>,
    answer: Vec<u8>,
    sequence: u32,
}

impl SockDiag {
    /// # Errors
    /// The kernel has no `sock_diag`, or it is forbidden here.
    pub(crate) fn open() -> io::Result<Self> {
        // SAFETY: plain numbers.
        let fd = unsafe {
            libc::socket(
                libc::AF_NETLINK,
                libc::SOCK_DGRAM | libc::SOCK_CLOEXEC,
                libc::NETLINK_SOCK_DIAG,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let patience = libc::timeval {
            tv_sec: 2,
            tv_usec: 0,
        };
        // SAFETY: the kernel reads a timeval of the given size, which outlives the call.
        let set = unsafe {
            libc::setsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                (&raw const patience).cast(),
                size_of::<libc::timeval>() as libc::socklen_t,
            )
        };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            socket,
            request: Vec::new(),
            answer: vec![0; ROOM],
            sequence: 0,
        })
    }

    /// Tells every TCP socket of this network namespace, in any of `states` (bits by number), whose own or other port is `port`.
    ///
    /// # Errors
    /// Those of the kernel.
    pub(crate) fn each(
        &mut self,
        port: u16,
        states: u32,
        on: impl FnMut(Socket),
    ) -> io::Result<()> {
        self.dump(&port_filter(port), states, on)
    }

    /// Tells every TCP socket of this network namespace, in any of `states`, neither of whose ports is `port`.
    ///
    /// # Errors
    /// Those of the kernel.
    pub(crate) fn each_of_others(
        &mut self,
        port: u16,
        states: u32,
        mut on: impl FnMut(Socket),
    ) -> io::Result<()> {
        self.dump(&other_ports_filter(port), states, |socket| {
            // The filter lets the highest port of all pass.
            if socket.local.port() != port && socket.remote.port() != port {
                on(socket);
            }
        })
    }

    fn dump(&mut self, filter: &[u8], states: u32, mut on: impl FnMut(Socket)) -> io::Result<()> {
        self.begin(BOTH_FAMILIES, libc::NLM_F_DUMP);
        // struct inet_diag_req: family, prefix lengths, extensions, id, states, dbs. The family is ignored.
        self.request
            .extend([libc::AF_INET as u8, 0, 0, 0].iter().chain(&[0; SOCKET_ID]));
        self.request.extend(states.to_ne_bytes());
        self.request.extend([0; 4]);
        self.request.extend((filter.len() as u16 + 4).to_ne_bytes());
        self.request.extend(BYTECODE.to_ne_bytes());
        self.request.extend(filter);
        self.send()?;
        self.receive(|message| {
            if let Some(socket) = Socket::parse(message) {
                on(socket);
            }
        })
    }

    /// Looks into one connection; none where it is gone.
    ///
    /// # Errors
    /// Those of the kernel.
    pub(crate) fn info(&mut self, socket: &Socket) -> io::Result<Option<TcpInfo>> {
        self.begin(BY_FAMILY, 0);
        // struct inet_diag_req_v2: family, protocol, extensions, padding, states, id.
        let extension = 1 << (INFO - 1);
        self.request
            .extend([socket.family, libc::IPPROTO_TCP as u8, extension, 0]);
        self.request.extend(u32::MAX.to_ne_bytes());
        self.request.extend(socket.id);
        self.send()?;
        let mut info = None;
        match self.receive_one(|message| {
            info = message.get(MESSAGE..).and_then(read_info);
        }) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            other => other.map(|()| info),
        }
    }

    fn begin(&mut self, kind: u16, flags: libc::c_int) {
        self.sequence = self.sequence.wrapping_add(1);
        self.request.clear();
        self.request.extend([0; 4]);
        self.request.extend(kind.to_ne_bytes());
        self.request
            .extend(((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        self.request.extend(self.sequence.to_ne_bytes());
        self.request.extend([0; 4]);
    }

    fn send(&mut self) -> io::Result<()> {
        let length = self.request.len() as u32;
        self.request[..4].copy_from_slice(&length.to_ne_bytes());
        // SAFETY: the kernel reads as many bytes as the request has; it outlives the call.
        let sent = unsafe {
            libc::send(
                self.socket.as_raw_fd(),
                self.request.as_ptr().cast(),
                self.request.len(),
                0,
            )
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Takes the messages of an answer in several parts.
    fn receive(&mut self, mut on: impl FnMut(&[u8])) -> io::Result<()> {
        while !self.receive_some(&mut on)? {}
        Ok(())
    }

    /// Takes an answer of one message.
    fn receive_one(&mut self, mut on: impl FnMut(&[u8])) -> io::Result<()> {
        let answered = Cell::new(false);
        let mut first = |message: &[u8]| {
            answered.set(true);
            on(message);
        };
        while !self.receive_some(&mut first)? && !answered.get() {}
        Ok(())
    }

    /// Takes one piece; returns whether it was the last one.
    fn receive_some(&mut self, on: &mut impl FnMut(&[u8])) -> io::Result<bool> {
        // SAFETY: the kernel writes at most as many bytes as the buffer has; it outlives the call.
        let read = unsafe {
            libc::recv(
                self.socket.as_raw_fd(),
                self.answer.as_mut_ptr().cast(),
                self.answer.len(),
                0,
            )
        };
        if read < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut rest = &self.answer[..read as usize];
        while let Some((head, _)) = rest.split_at_checked(NETLINK_HEAD) {
            let u32_at = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| head[at + i]));
            let length = u32_at(0) as usize;
            let Some(message) = rest.get(NETLINK_HEAD..length) else {
                break;
            };
            let kind = i32::from(u16::from_ne_bytes([head[4], head[5]]));
            // What was left of an answer that was given up is passed over.
            if u32_at(8) == self.sequence {
                if kind == libc::NLMSG_DONE {
                    return Ok(true);
                }
                if kind == libc::NLMSG_ERROR {
                    let code = message.get(..4).and_then(|code| code.try_into().ok());
                    let code = i32::from_ne_bytes(code.unwrap_or_default());
                    return Err(io::Error::from_raw_os_error(-code));
                }
                on(message);
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(false)
    }
}

/// The filter "own port or other port is `port`". An instruction is code, offset on yes, offset on no; the comparing ones are
/// followed by one that holds the port. Whoever jumps to the end is taken, whoever jumps 4 beyond is not.
fn port_filter(port: u16) -> [u8; 36] {
    let mut filter = [0; 36];
    put(&mut filter, 0, (SOURCE_AT_LEAST, 8, 20), port);
    put(&mut filter, 8, (SOURCE_AT_MOST, 8, 12), port);
    put(&mut filter, 16, (JUMP, 4, 20), 0);
    put(&mut filter, 20, (TARGET_AT_LEAST, 8, 20), port);
    put(&mut filter, 28, (TARGET_AT_MOST, 8, 12), port);
    filter
}

/// The filter "neither own port nor other port is `port`", each as "above it, or below it". The kernel wants every target of a "no" to
/// stand on the way of all "yes", so what is above jumps over the second comparison.
fn other_ports_filter(port: u16) -> [u8; 40] {
    let (above, below) = (port.saturating_add(1), port.saturating_sub(1));
    let mut filter = [0; 40];
    put(&mut filter, 0, (SOURCE_AT_LEAST, 8, 12), above);
    put(&mut filter, 8, (JUMP, 4, 12), 0);
    put(&mut filter, 12, (SOURCE_AT_MOST, 8, 32), below);
    put(&mut filter, 20, (TARGET_AT_LEAST, 8, 12), above);
    put(&mut filter, 28, (JUMP, 4, 12), 0);
    put(&mut filter, 32, (TARGET_AT_MOST, 8, 12), below);
    filter
}

/// Writes an instruction: code, offset on yes, offset on no; behind those that compare the port.
fn put(filter: &mut [u8], at: usize, (code, yes, no): (u8, u8, u16), port: u16) {
    filter[at] = code;
    filter[at + 1] = yes;
    filter[at + 2..at + 4].copy_from_slice(&no.to_ne_bytes());
    if code != JUMP {
        filter[at + 6..at + 8].copy_from_slice(&port.to_ne_bytes());
    }
}

/// Finds `struct tcp_info` among the attributes of an answer.
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

    /// All states but TIME_WAIT: the port may have been another program's a minute ago.
    const LIVE: u32 = !(1 << 6);

    fn all(port: u16, states: u32) -> Vec<Socket> {
        let mut sockets = Vec::new();
        let mut diag = SockDiag::open().unwrap();
        diag.each(port, states, |socket| sockets.push(socket))
            .unwrap();
        sockets
    }

    #[test]
    fn connections_of_a_port_and_no_others_on_both_sides() {
        for address in ["127.0.0.1:0", "[::]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let other = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let _unrelated = TcpStream::connect(other.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            client.write_all(b"12345").unwrap();
            // On loopback what was written is in the other's queue when the call returns.
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
            assert_eq!(all(port, 1 << 10).len(), 1, "the listener alone");
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
            assert_eq!(of(unrelated), 3, "its listener and both ends: {others:?}");
            let inode = std::fs::read_link(format!("/proc/self/fd/{}", client.as_raw_fd()));
            let inode = inode.unwrap().to_string_lossy().into_owned();
            assert_eq!(inode, format!("socket:[{}]", at_client.inode));

            let mut diag = SockDiag::open().unwrap();
            let info = diag.info(at_client).unwrap().unwrap();
            assert!(info.rtt_us > 0 && info.rtt_us < 10_000_000, "{info:?}");
            assert_eq!(info.retransmitted, 0);
            let gone = *at_client;
            drop((client, server));
            // It is in TIME_WAIT or gone: either has no tcp_info.
            assert_eq!(diag.info(&gone).unwrap(), None);
        }
    }

    #[test]
    fn many_sockets_come_in_several_pieces() {
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
    fn broken_attributes_are_passed_over() {
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
