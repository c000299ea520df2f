//! The listening socket, and accepting from it.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that the kernel keeps for us to accept; it lowers this to `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;

/// Listens, non-blocking; with `share` other processes of the same user may listen there too, and the kernel deals connections out among
/// them. Accepted sockets inherit `TCP_NODELAY`, which saves a system call on each.
pub(crate) fn listen(address: SocketAddr, share: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        Some(Protocol::TCP),
    )?;
    // A restart must not wait for the TIME_WAITs of the server before; two listeners at once stay impossible unless both share.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(share)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Accepts one connection, non-blocking, in one system call (the standard library needs two).
pub(crate) fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    // SAFETY: the descriptor is open for the call, and the kernel may be told not to return an address.
    let fd = unsafe {
        libc::accept4(
            listener.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: accept4 has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

/// Whether accepting failed for want of files or memory, so that trying again at once would only spin.
pub(crate) fn is_exhaustion(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
    )
}
