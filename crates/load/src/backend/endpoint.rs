//! An address as the kernel takes it, and sockets for it.

use std::io;
use std::net::{IpAddr, SocketAddr};

use floodmark_record::plan::Address;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::calls::bind_address_no_port;

/// Where connections go.
pub(super) struct Endpoint {
    pub address: SockAddr,
    pub domain: Domain,
}

impl Endpoint {
    /// Each address as the kernel takes it. Boxed, since io_uring reads them when a connect is submitted.
    ///
    /// # Errors
    /// A path that is too long for a unix socket (108 bytes with its end, `unix(7)`).
    pub fn all(addresses: &[Address]) -> io::Result<Box<[Endpoint]>> {
        addresses.iter().map(Endpoint::new).collect()
    }

    fn new(address: &Address) -> io::Result<Self> {
        Ok(match address {
            Address::Ip(address) => Endpoint {
                address: (*address).into(),
                domain: Domain::for_address(*address),
            },
            Address::Unix(path) => Endpoint {
                address: SockAddr::unix(path)?,
                domain: Domain::UNIX,
            },
        })
    }

    pub fn is_unix(&self) -> bool {
        self.domain == Domain::UNIX
    }

    /// A socket for it. Where `at_once`, TCP sends small segments without waiting for what is not yet acknowledged
    /// (`TCP_NODELAY`).
    pub fn socket(&self, kind: Type, at_once: bool, source: Option<IpAddr>) -> io::Result<Socket> {
        if self.is_unix() {
            return Socket::new(self.domain, kind.cloexec(), None);
        }
        let socket = Socket::new(self.domain, kind.cloexec(), Some(Protocol::TCP))?;
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
