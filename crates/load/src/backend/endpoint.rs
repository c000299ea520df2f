//! Kernel representation of addresses, and sockets for them.

use std::io;
use std::net::{IpAddr, SocketAddr};

use floodmark_record::plan::Address;
use socket2::{Protocol, SockAddr, Socket, Type};

use super::calls::bind_address_no_port;

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
