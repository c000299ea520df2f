//! Two network namespaces joined by a pair of virtual interfaces, as two machines are by a cable (veth(4)).

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::namespace::Namespace;

/// The client's address: private (RFC 1918), and nothing else is in its namespace that could have the same.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// The server's.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);

/// Bits that both addresses have in common at least.
const PREFIX: u8 = 24;

/// Name of the interface in either namespace.
const INTERFACE: &CStr = c"veth0";
const LOOPBACK: &CStr = c"lo";

/// Largest answer of the kernel to one of these requests: an acknowledgement quotes the request.
const LARGEST: usize = 8192;

/// Makes the namespaces of a client and a server, joined; all interfaces are up, and kernel settings are the kernel's defaults.
///
/// # Errors
/// It is not permitted (see [`crate::namespace::permit`]), or the kernel has no virtual interfaces.
pub fn pair() -> io::Result<(Arc<Namespace>, Arc<Namespace>)> {
    let (client, server) = (Namespace::new()?, Namespace::new()?);
    client.within(|| join(&server))??;
    for (namespace, address) in [(&client, CLIENT), (&server, SERVER)] {
        namespace.within(|| {
            up(LOOPBACK)?;
            give(INTERFACE, address)?;
            up(INTERFACE)
        })??;
    }
    Ok((Arc::new(client), Arc::new(server)))
}

/// Makes a pair of interfaces, one here and the other in another namespace.
fn join(other: &Namespace) -> io::Result<()> {
    let name = || LinkAttribute::IfName(INTERFACE.to_string_lossy().into_owned());
    let mut peer = LinkMessage::default();
    peer.attributes = vec![name(), LinkAttribute::NetNsFd(other.raw())];
    let mut link = LinkMessage::default();
    let veth = InfoData::Veth(InfoVeth::Peer(peer));
    let info = vec![LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(veth)];
    link.attributes = vec![name(), LinkAttribute::LinkInfo(info)];
    ask(
        RouteNetlinkMessage::NewLink(link),
        NLM_F_CREATE | NLM_F_EXCL,
    )
}

/// Gives an interface its address.
fn give(interface: &CStr, address: Ipv4Addr) -> io::Result<()> {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = PREFIX;
    message.header.index = index(interface)?;
    let address = IpAddr::V4(address);
    message.attributes = vec![
        AddressAttribute::Local(address),
        AddressAttribute::Address(address),
    ];
    let message = RouteNetlinkMessage::NewAddress(message);
    ask(message, NLM_F_CREATE | NLM_F_EXCL)
}

/// Sets an interface going.
fn up(interface: &CStr) -> io::Result<()> {
    let mut link = LinkMessage::default();
    link.header.index = index(interface)?;
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    ask(RouteNetlinkMessage::SetLink(link), 0)
}

fn index(interface: &CStr) -> io::Result<u32> {
    // SAFETY: the name ends with a zero.
    match unsafe { libc::if_nametoindex(interface.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// Asks the kernel for something in the network namespace of this thread, and waits for its answer (rtnetlink(7)).
fn ask(what: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    let mut message = NetlinkMessage::from(what);
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&bytes, 0)?;
    let mut answer = Vec::with_capacity(LARGEST);
    socket.recv(&mut answer, 0)?;
    let garbled = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
        .map_err(|error| garbled(error.to_string()))?;
    match answer.payload {
        NetlinkPayload::Error(error) if error.code.is_none() => Ok(()),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        _ => Err(garbled(
            "the kernel does not say whether it was done".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// Namespaces where this machine allows them; tests of them say so where it does not.
    fn allowed() -> Option<(Arc<Namespace>, Arc<Namespace>)> {
        pair()
            .inspect_err(|error| println!("skipped: no network namespaces here: {error}"))
            .ok()
    }

    #[test]
    fn two_namespaces_reach_each_other_and_nobody_else_reaches_them() {
        let Some((client, server)) = allowed() else {
            return;
        };
        let listener = server
            .within(|| TcpListener::bind((SERVER, 0)))
            .unwrap()
            .unwrap();
        let address = listener.local_addr().unwrap();
        let mut stream = client
            .within(|| TcpStream::connect(address))
            .unwrap()
            .unwrap();
        let (mut accepted, from) = listener.accept().unwrap();
        assert_eq!(from.ip(), IpAddr::V4(CLIENT));
        stream.write_all(b"hello").unwrap();
        let mut read = [0; 5];
        accepted.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"hello");
        assert!(TcpListener::bind((SERVER, 0)).is_err(), "it is not ours");
        let again = client.within(|| TcpListener::bind((SERVER, 0)));
        assert!(again.unwrap().is_err(), "nor the client's");
    }
}
