//! Kernel representation of addresses, sockets for them, and system calls that `std` and `socket2` do
//! not offer in a suitable form.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;

use floodmark_record::plan::Address;
use rustix::thread::set_current_timer_slack;
use socket2::{Protocol, SockAddr, Socket, Type};

use crate::libc_calls::result;

/// Target address of connections.
pub(super) struct KernelAddress {
    pub address: SockAddr,
}

impl KernelAddress {
    /// Converts addresses to their kernel representation.
    /// The result is boxed, because io_uring reads an address only when it submits the connect.
    ///
    /// # Errors
    /// Fails if a unix socket's path and its terminator exceed 108 bytes (`unix(7)`).
    pub fn all(addresses: &[Address]) -> io::Result<Box<[KernelAddress]>> {
        let convert = |address: &Address| {
            let address = match address {
                Address::Ip(address) => (*address).into(),
                Address::Unix(path) => SockAddr::unix(path)?,
            };
            Ok(KernelAddress { address })
        };
        addresses.iter().map(convert).collect()
    }

    pub fn is_unix(&self) -> bool {
        self.address.is_unix()
    }

    /// Creates a socket for the address. With `at_once`, TCP sends small segments without waiting
    /// for outstanding acknowledgements (`TCP_NODELAY`).
    pub fn socket(&self, kind: Type, at_once: bool, source: Option<IpAddr>) -> io::Result<Socket> {
        let domain = self.address.domain();
        if self.is_unix() {
            return Socket::new(domain, kind.cloexec(), None);
        }
        let socket = Socket::new(domain, kind.cloexec(), Some(Protocol::TCP))?;
        if at_once {
            socket.set_tcp_nodelay(true)?;
        }
        if let Some(source) = source {
            bind_address_no_port(&socket)?;
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        Ok(socket)
    }
}

/// Defers the choice of a local port from `bind` to `connect` (Linux 4.2).
/// `connect` considers the whole four-tuple. Without this option, all source addresses would share
/// one port range.
pub(super) fn bind_address_no_port(socket: &Socket) -> io::Result<()> {
    turn_on(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT)
}

/// The value that setsockopt(2) expects to turn on a socket option.
pub(super) static ON: libc::c_int = 1;

/// Turns a socket option on.
pub(super) fn turn_on(socket: &Socket, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
    // SAFETY: the option takes an int that outlives the call.
    result(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const ON).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
        .into()
    })
}

/// Makes the calling thread's waits end on time instead of up to 50 µs late.
pub(super) fn fire_when_due() -> io::Result<()> {
    Ok(set_current_timer_slack(Some(NonZeroU64::MIN))?)
}
