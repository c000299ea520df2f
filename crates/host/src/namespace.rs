//! Anonymous network namespaces, and pairs of namespaces joined by virtual interfaces (veth(4)).
//!
//! The kernel removes a namespace and its interfaces once no process runs in the namespace or holds
//! it open.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::{io, thread};

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
use rustix::net::netdevice::name_to_index;
use rustix::process::{getegid, geteuid};
use rustix::thread::{
    CapabilitySet, LinkNameSpaceType, UnshareFlags, capabilities, move_into_link_name_space,
    unshare_unsafe,
};

/// Capabilities needed to create and configure network namespaces (capabilities(7)).
const NEEDED: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::SYS_ADMIN);

/// A network namespace.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

impl Namespace {
    /// Creates a namespace. Its only interface is a loopback interface that is down.
    ///
    /// # Errors
    /// This process is not allowed to create namespaces; see [`permit`].
    pub fn new() -> io::Result<Self> {
        // Use a separate thread, because a thread may not be allowed to return to its old
        // namespace.
        in_thread(|| {
            // SAFETY: the call changes only the network namespace of this thread, not its file
            // descriptors.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            Self::open(Path::new("/proc/thread-self/ns/net"))
        })?
    }

    /// Opens the namespace of a process, from a file such as `/proc/PID/ns/net`.
    ///
    /// # Errors
    /// The process has ended or belongs to another user.
    pub fn open(file: &Path) -> io::Result<Self> {
        Ok(Namespace(File::open(file)?.into()))
    }

    /// Runs `work` on a new thread in this namespace. Threads started by `work` inherit the
    /// namespace.
    /// `work` must not start a [`crate::Child`], because the child would die with the thread.
    ///
    /// # Errors
    /// The thread cannot be started, or cannot enter the namespace.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        in_thread(|| {
            enter(self.fd())?;
            Ok(work())
        })?
    }

    /// Returns the file descriptor.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Moves the calling thread into a network namespace. Async-signal-safe.
pub(crate) fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network)).map_err(io::Error::from)
}

fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, work)?;
        // Propagate a panic to the caller.
        Ok(thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Ensures that this process may create network namespaces.
///
/// An unprivileged process enters a user namespace (user_namespaces(7)) and keeps its user ID. Call
/// this function before starting any threads.
///
/// # Errors
/// The host allows neither network nor user namespaces.
pub fn permit() -> io::Result<()> {
    if capabilities(None)?.effective.contains(NEEDED) {
        return Ok(());
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: the call does not affect file descriptors. The kernel refuses the call if there are
    // several threads.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    // The kernel requires this write before an unprivileged user may map a group.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// The client's private address (RFC 1918), in a namespace without other addresses.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);

/// The server's private address, in a namespace without other addresses.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);

/// Length of the network prefix in bits.
const PREFIX: u8 = 24;

/// Name of the interface in both namespaces.
const INTERFACE: &str = "veth0";

const LOOPBACK: &str = "lo";

/// Creates a network namespace for the client and one for the server, and joins them.
/// All interfaces are up, and kernel settings keep their defaults.
///
/// # Errors
/// This process is not allowed to create namespaces (see [`crate::namespace::permit`]), or the
/// kernel does not support virtual interfaces.
pub fn pair() -> io::Result<(Arc<Namespace>, Arc<Namespace>)> {
    let (client, server) = (Namespace::new()?, Namespace::new()?);
    client.within(|| join(&server))??;
    for (namespace, address) in [(&client, CLIENT), (&server, SERVER)] {
        namespace.within(|| {
            set_up(LOOPBACK)?;
            add_address(INTERFACE, address)?;
            set_up(INTERFACE)
        })??;
    }
    Ok((Arc::new(client), Arc::new(server)))
}

/// Creates a pair of interfaces, one in this thread's namespace and the other in `other`.
fn join(other: &Namespace) -> io::Result<()> {
    let name = || LinkAttribute::IfName(INTERFACE.to_owned());
    let mut peer = LinkMessage::default();
    peer.attributes = vec![name(), LinkAttribute::NetNsFd(other.fd().as_raw_fd())];
    let mut link = LinkMessage::default();
    let veth = InfoData::Veth(InfoVeth::Peer(peer));
    let info = vec![LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(veth)];
    link.attributes = vec![name(), LinkAttribute::LinkInfo(info)];
    request(
        RouteNetlinkMessage::NewLink(link),
        NLM_F_CREATE | NLM_F_EXCL,
    )
}

/// Adds an address to an interface.
fn add_address(interface: &str, address: Ipv4Addr) -> io::Result<()> {
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
    request(message, NLM_F_CREATE | NLM_F_EXCL)
}

/// Brings an interface up.
fn set_up(interface: &str) -> io::Result<()> {
    let mut link = LinkMessage::default();
    link.header.index = index(interface)?;
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    request(RouteNetlinkMessage::SetLink(link), 0)
}

fn index(interface: &str) -> io::Result<u32> {
    Ok(name_to_index(UnixDatagram::unbound()?, interface)?)
}

/// Sends a request in the network namespace of this thread, and waits for the reply (rtnetlink(7)).
fn request(what: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    let mut message = NetlinkMessage::from(what);
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&bytes, 0)?;
    let (reply, _) = socket.recv_from_full()?;
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let reply = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&reply)
        .map_err(|error| invalid(error.to_string()))?;
    match reply.payload {
        NetlinkPayload::Error(error) if error.code.is_none() => Ok(()),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        _ => Err(invalid("the kernel sent no acknowledgement".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    #[cfg_attr(
        not(network_namespaces),
        ignore = "network namespaces are not allowed on this host"
    )]
    fn namespaces_reach_only_each_other() {
        let (client, server) = pair().unwrap();
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
        assert!(
            TcpListener::bind((SERVER, 0)).is_err(),
            "the address belongs to another namespace"
        );
        let again = client.within(|| TcpListener::bind((SERVER, 0)));
        assert!(again.unwrap().is_err(), "the address belongs to the server");
    }
}
