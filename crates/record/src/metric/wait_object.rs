//! What a blocked thread waits for.

use std::borrow::Cow;
use std::net::SocketAddr;

crate::names::named! {
    /// An object without an identity, for which a thread waits.
    WaitKind {
        /// A lock or condition for which no other thread waits. Runtimes that park each thread on
        /// a lock of its own, such as HotSpot and Go, appear here.
        OwnLock = "own lock",
        /// A lock or condition, for a limited time.
        TimedLock = "timed lock",
        /// Events of several file descriptors, as in an event loop.
        Events = "events",
        /// A new connection.
        Accept = "accept",
        /// Data from a client.
        ClientRead = "client read",
        /// Space in a client's send buffer.
        ClientWrite = "client write",
        /// Data in a pipe, or in a socket pair.
        PipeRead = "pipe read",
        /// Space in a pipe or in a socket pair.
        PipeWrite = "pipe write",
        /// The end of a pause.
        Timer = "timer",
        /// The end of a child process.
        Child = "child",
        /// A signal.
        Signal = "signal",
        /// Memory that the kernel provides, such as a page on disk.
        PageFault = "page fault",
        /// An object that could not be identified, or one of too many objects.
        Other = "other",
    }
}

/// What a blocked thread waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WaitObject {
    /// An object without an identity.
    Kind(WaitKind),
    /// A lock or condition for which several threads wait, by its address.
    Lock(u64),
    /// A response on a connection to this address.
    Connection(SocketAddr),
    /// A response on a connection to this Unix socket.
    UnixSocket(String),
    /// The disk or device of a file.
    File(String),
    /// A system call that has no object of its own here, by its number.
    SystemCall(u32),
}

impl WaitObject {
    /// Returns the name in a record.
    #[must_use]
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Kind(kind) => kind.name().into(),
            Self::Lock(address) => format!("lock 0x{address:x}").into(),
            Self::Connection(to) => format!("connection {to}").into(),
            Self::UnixSocket(path) => format!("unix {path}").into(),
            Self::File(path) => format!("file {path}").into(),
            Self::SystemCall(number) => format!("system call {number}").into(),
        }
    }

    /// Returns the object with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        if let Some(kind) = WaitKind::from_name(name) {
            return Some(Self::Kind(kind));
        }
        if let Some(number) = name.strip_prefix("system call ") {
            return Some(Self::SystemCall(number.parse().ok()?));
        }
        let (kind, of) = name.split_once(' ')?;
        Some(match kind {
            "lock" => Self::Lock(u64::from_str_radix(of.strip_prefix("0x")?, 16).ok()?),
            "connection" => Self::Connection(of.parse().ok()?),
            "unix" => Self::UnixSocket(of.to_owned()),
            "file" => Self::File(of.to_owned()),
            _ => return None,
        })
    }
}
