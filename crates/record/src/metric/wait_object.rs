//! Objects that blocked threads wait for.

use std::borrow::Cow;
use std::net::SocketAddr;

crate::names::named! {
    /// Kind of object that a blocked thread waits for.
    WaitKind {
        /// A lock or condition for which no other thread waits. HotSpot and Go, for example, park
        /// each thread on a separate lock.
        OwnLock = "own lock",
        /// A lock or condition, with a timeout.
        TimedLock = "timed lock",
        /// A lock on a file.
        FileLock = "file lock",
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
        /// A timer.
        Timer = "timer",
        /// The exit of a child process.
        Child = "child",
        /// A signal.
        Signal = "signal",
        /// A page of memory, which the kernel may have to read from disk.
        PageFault = "page fault",
        /// An object that was not identified, or that exceeds the maximum number of objects.
        Other = "other",
    }
}

/// Object that a blocked thread waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WaitObject {
    /// An object known only by its kind.
    Kind(WaitKind),
    /// A lock or condition for which several threads wait, identified by its address.
    Lock(u64),
    /// A response on a connection to this address.
    Connection(SocketAddr),
    /// A response on a connection to this Unix socket.
    UnixSocket(String),
    /// The disk or device of a file.
    File(String),
    /// The disk or device of a file that the process opened for appending, such as a log.
    AppendedFile(String),
    /// An unknown object, identified only by the number of the blocking system call.
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
            Self::AppendedFile(path) => format!("appended file {path}").into(),
            Self::SystemCall(number) => format!("system call {number}").into(),
        }
    }

    /// Returns the object with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        if let Some(kind) = WaitKind::from_name(name) {
            return Some(Self::Kind(kind));
        }
        let (kind, of) = name.split_once(' ')?;
        Some(match kind {
            "lock" => Self::Lock(u64::from_str_radix(of.strip_prefix("0x")?, 16).ok()?),
            "connection" => Self::Connection(of.parse().ok()?),
            "unix" => Self::UnixSocket(of.to_owned()),
            "file" => Self::File(of.to_owned()),
            "appended" => Self::AppendedFile(of.strip_prefix("file ")?.to_owned()),
            "system" => Self::SystemCall(of.strip_prefix("call ")?.parse().ok()?),
            _ => return None,
        })
    }
}
