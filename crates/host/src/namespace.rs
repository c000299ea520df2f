//! Anonymous network namespaces, and pairs of namespaces joined by virtual interfaces (veth(4)).
//!
//! The kernel removes a namespace and its interfaces once no process runs in the namespace or holds
//! it open.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::{io, thread};

use libc::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST};
use rustix::net::netdevice::name_to_index;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
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

/// The client's private address (RFC 1918). The namespace is isolated, so the address cannot
/// conflict with the host's networks.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);

/// The server's private address, in the same subnet.
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
    let name = || attribute(libc::IFLA_IFNAME, INTERFACE.as_bytes());
    let namespace = other.fd().as_raw_fd().to_ne_bytes();
    let namespace = attribute(libc::IFLA_NET_NS_FD, &namespace);
    let peer = [link(0, 0), name(), namespace].concat();
    let data = attribute(libc::IFLA_INFO_DATA, &attribute(VETH_INFO_PEER, &peer));
    let info = [attribute(libc::IFLA_INFO_KIND, b"veth"), data].concat();
    let pair = [link(0, 0), name(), attribute(libc::IFLA_LINKINFO, &info)].concat();
    request(libc::RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &pair)
}

/// Adds an address to an interface.
fn add_address(interface: &str, address: Ipv4Addr) -> io::Result<()> {
    // struct ifaddrmsg: family, length of the prefix, flags, scope, index.
    let mut message = vec![libc::AF_INET as u8, PREFIX, 0, 0];
    message.extend(index(interface)?.to_ne_bytes());
    for kind in [libc::IFA_LOCAL, libc::IFA_ADDRESS] {
        message.extend(attribute(kind, &address.octets()));
    }
    request(libc::RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &message)
}

/// Brings an interface up.
fn set_up(interface: &str) -> io::Result<()> {
    let link = link(index(interface)?, libc::IFF_UP as u32);
    request(libc::RTM_SETLINK, 0, &link)
}

fn index(interface: &str) -> io::Result<u32> {
    Ok(name_to_index(UnixDatagram::unbound()?, interface)?)
}

/// Size of `struct nlmsghdr`, which precedes each message.
const HEAD: usize = 16;

/// Attribute of a veth interface that contains its peer (`linux/veth.h`).
const VETH_INFO_PEER: u16 = 1;

/// Returns a `struct ifinfomsg` that sets flags of the interface with this index.
fn link(index: u32, flags: u32) -> Vec<u8> {
    // Family and type, index, flags, mask of the flags to change.
    [0, index, flags, flags].map(u32::to_ne_bytes).concat()
}

/// Returns an attribute, padded to a multiple of 4 bytes (rtnetlink(7)).
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = value.len() as u16 + 4;
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Sends a request in the network namespace of this thread, and waits for the reply (netlink(7)).
fn request(message: u16, flags: libc::c_int, body: &[u8]) -> io::Result<()> {
    // The default protocol of the family is NETLINK_ROUTE.
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    let flags = (NLM_F_REQUEST | NLM_F_ACK | flags) as u16;
    // struct nlmsghdr: length, type, flags, sequence number, port.
    let mut bytes = (HEAD as u32 + body.len() as u32).to_ne_bytes().to_vec();
    bytes.extend([message.to_ne_bytes(), flags.to_ne_bytes()].concat());
    bytes.resize(HEAD, 0);
    bytes.extend(body);
    send(&socket, &bytes, SendFlags::empty())?;
    // An acknowledgement contains an error number, which is 0 on success, and the request.
    let mut reply = vec![0; HEAD + 4 + bytes.len()];
    recv(&socket, &mut reply[..], RecvFlags::empty())?;
    let kind = u16::from_ne_bytes([reply[4], reply[5]]);
    let error = i32::from_ne_bytes([0, 1, 2, 3].map(|at| reply[HEAD + at]));
    match (i32::from(kind), error) {
        (libc::NLMSG_ERROR, 0) => Ok(()),
        (libc::NLMSG_ERROR, error) => Err(io::Error::from_raw_os_error(-error)),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the kernel sent no acknowledgement",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{IpAddr, TcpListener, TcpStream};

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
