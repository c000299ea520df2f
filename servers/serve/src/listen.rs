//! The listening socket.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use socket2::{Domain, Protocol, SockFilter, SockRef, Socket, Type};

/// Length of the accept queue; the kernel limits it to `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;

/// Opens a non-blocking listener.
///
/// If `share` is set, other processes of this user may listen on the same port, and the kernel
/// distributes connections among the processes. Accepted sockets inherit `TCP_NODELAY`, which saves
/// a system call per connection.
pub(crate) fn listen(address: SocketAddr, share: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        Some(Protocol::TCP),
    )?;
    // A restarted server must not wait for old connections in TIME_WAIT. This option does not allow
    // two listeners on one port.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(share)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Accepts a connection and makes it non-blocking with one system call. The standard library needs
/// two.
pub(crate) fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(accept_with(listener, flags)?.into())
}

/// Makes the kernel drop the SYN of each new connection, so that no further handshake begins.
/// Handshakes in progress complete, and connections in the accept queue can still be accepted.
///
/// A filter that also dropped other packets would break connections: a client whose last packet of
/// the handshake is dropped considers the connection established, and accepted sockets inherit the
/// filter.
///
/// # Errors
/// The kernel has no memory or a security policy forbids filters.
pub(crate) fn refuse_handshakes(listener: &TcpListener) -> io::Result<()> {
    /// Offset of the flags in a TCP header (RFC 9293, section 3.1).
    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    // Classic BPF instructions (linux/bpf_common.h).
    const LOAD_BYTE: u16 = 0x30;
    const AND: u16 = 0x54;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    SockRef::from(listener).attach_filter(&[
        SockFilter::new(LOAD_BYTE, 0, 0, FLAGS),
        SockFilter::new(AND, 0, 0, SYN | ACK),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, SYN), // otherwise skip one instruction
        SockFilter::new(RETURN, 0, 0, 0),          // drop the packet
        SockFilter::new(RETURN, 0, 0, u32::MAX),   // keep the whole packet
    ])
}

/// Returns whether a connection waits in the accept queue.
pub(crate) fn is_queued(listener: &TcpListener) -> bool {
    let mut listeners = [PollFd::new(listener, PollFlags::IN)];
    // Polling fails only for lack of memory. A connection may then be waiting.
    poll(&mut listeners, Some(&Timespec::default())).map_or(true, |ready| ready > 0)
}

/// Returns whether `accept` failed for lack of file descriptors or memory. After such an error, an
/// immediate retry would fail again.
pub(crate) fn is_exhaustion(error: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| exhausted.contains(&errno))
}
