//! The record of a traced process: the watched directory before the start, and every call that
//! changed the directory or sent data.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;

/// Identifies a file, directory or symbolic link within a trace. Unlike an inode number, an ID is
/// never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

impl FileId {
    /// The watched directory.
    pub const ROOT: FileId = FileId(0);

    /// Returns the position of the file in [`Trace::base`], if it is in range.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryName {
    /// The directory.
    pub directory: FileId,
    /// The name.
    pub name: OsString,
}

/// A file, directory or symbolic link that existed before the process started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BaseNode {
    /// A file with its content.
    File(Arc<[u8]>),
    /// A directory with its entries.
    Directory(BTreeMap<OsString, FileId>),
    /// A symbolic link with its target.
    Link(PathBuf),
}

/// What a call created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeKind {
    /// An empty file.
    File,
    /// An empty directory.
    Directory,
    /// A symbolic link with its target.
    Link(PathBuf),
}

/// The effect of a call. A failed call has no effect and is not recorded, except for a failed sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// A new file, directory or symbolic link.
    Create {
        /// The name.
        entry: EntryName,
        /// The new file.
        file: FileId,
        /// What was created.
        kind: NodeKind,
    },
    /// A further name for a file.
    Link {
        /// The new name.
        entry: EntryName,
        /// The file.
        file: FileId,
    },
    /// Removal of a name.
    Unlink {
        /// The name.
        entry: EntryName,
    },
    /// A rename, which replaces an existing `to`.
    Rename {
        /// The old name.
        from: EntryName,
        /// The new name.
        to: EntryName,
        /// Whether the two names swap their files (`RENAME_EXCHANGE`).
        swap: bool,
    },
    /// Data written to a file.
    Write {
        /// The file.
        file: FileId,
        /// Position of the first byte, in bytes.
        offset: u64,
        /// The bytes that were written.
        bytes: Arc<[u8]>,
        /// Whether the data was durable when the call returned (`O_DSYNC`, `RWF_DSYNC`).
        durable: bool,
    },
    /// A new file size. Bytes beyond the old size are zeros.
    Resize {
        /// The file.
        file: FileId,
        /// The new size in bytes.
        size: u64,
    },
    /// A sync of a file or directory (fsync, fdatasync).
    Sync {
        /// The file or directory.
        file: FileId,
        /// Whether the call succeeded.
        succeeded: bool,
    },
    /// A sync of the whole file system (sync, syncfs).
    SyncAll,
    /// Data sent on a socket.
    Send {
        /// Inode number of the socket. Linux does not reuse the number within a trace.
        socket: u64,
        /// The bytes that were sent.
        bytes: Arc<[u8]>,
    },
}

impl Operation {
    /// Returns the names that the operation changes. The result is empty if the operation changes
    /// no directory.
    pub(crate) fn names(&self) -> Vec<&EntryName> {
        match self {
            Operation::Create { entry, .. }
            | Operation::Link { entry, .. }
            | Operation::Unlink { entry } => vec![entry],
            Operation::Rename { from, to, .. } => vec![from, to],
            _ => Vec::new(),
        }
    }

    /// Returns the file whose data or size the operation changes.
    pub(crate) fn changed_file(&self) -> Option<FileId> {
        match self {
            Operation::Write { file, .. } | Operation::Resize { file, .. } => Some(*file),
            _ => None,
        }
    }
}

/// Ports of a TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TcpPorts {
    /// Port of the traced process.
    pub local: u16,
    /// Port of the peer.
    pub peer: u16,
}

/// A call with its place in the total order of entries and exits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedCall {
    /// Position of the entry.
    pub began: u64,
    /// Position of the exit, greater than `began`.
    pub ended: u64,
    /// The effect.
    pub operation: Operation,
}

/// A complete trace. Entries and exits have distinct positions, starting at 1. A call that never
/// returned is not part of the trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// The watched directory and everything below it, at the start. The index is the [`FileId`].
    /// All of this content counts as durable.
    pub base: Vec<BaseNode>,
    /// Permission bits of files and directories at the end of the trace. For a removed file, those
    /// at the start or at its creation.
    pub modes: BTreeMap<FileId, u32>,
    /// The calls in the order of their exits.
    pub calls: Vec<TracedCall>,
    /// Ports of the TCP sockets on which data was sent, by inode number.
    pub ports: BTreeMap<u64, TcpPorts>,
    /// Position of the exit of the first call that returned an injected error.
    pub first_error: Option<u64>,
    /// Exit status of the traced process if it exited by itself; `None` if the tracer stopped it.
    pub own_exit: Option<ExitStatus>,
}

impl Trace {
    /// Returns the points at which the possible disk states or the data sent to TCP peers change:
    /// the start, the entry of each call that changes the directory, the exit of each durable
    /// write, successful sync and send, and the exit of the first call with an injected error.
    #[must_use]
    pub fn crash_points(&self) -> Vec<u64> {
        let of_calls = self.calls.iter().filter_map(|call| match &call.operation {
            Operation::Send { socket, .. } => self.ports.contains_key(socket).then_some(call.ended),
            Operation::Sync { succeeded, .. } => succeeded.then_some(call.ended),
            Operation::SyncAll => Some(call.ended),
            _ => Some(call.began),
        });
        let is_durable =
            |call: &&TracedCall| matches!(call.operation, Operation::Write { durable: true, .. });
        let durable = self.calls.iter().filter(is_durable).map(|call| call.ended);
        let points = of_calls.chain(durable).chain(self.first_error).chain([0]);
        Vec::from_iter(points.collect::<BTreeSet<u64>>())
    }

    /// Returns the position of the exit of the last send to a TCP peer, or 0.
    #[must_use]
    pub fn last_send(&self) -> u64 {
        let sends = self.calls.iter().filter_map(|call| match &call.operation {
            Operation::Send { socket, .. } => self.ports.contains_key(socket).then_some(call.ended),
            _ => None,
        });
        sends.max().unwrap_or(0)
    }

    /// Returns the bytes sent on each socket before the crash. Data of sends that had not yet
    /// returned is excluded.
    #[must_use]
    pub fn sent_before(&self, at: u64) -> BTreeMap<u64, Vec<u8>> {
        self.sent(|call| call.ended <= at)
    }

    /// Returns the bytes that the selected calls sent on each socket.
    #[must_use]
    pub fn sent(&self, selects: impl Fn(&TracedCall) -> bool) -> BTreeMap<u64, Vec<u8>> {
        let mut sent: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for call in self.calls.iter().filter(|call| selects(call)) {
            if let Operation::Send { socket, bytes } = &call.operation {
                sent.entry(*socket).or_default().extend_from_slice(bytes);
            }
        }
        sent
    }

    /// Returns the calls that change the data or size of a file, with their indexes.
    pub(crate) fn file_changes(&self) -> impl Iterator<Item = (usize, FileId, &TracedCall)> {
        let calls = self.calls.iter().enumerate();
        calls.filter_map(|(index, call)| Some((index, call.operation.changed_file()?, call)))
    }

    /// Returns whether any call changed a file or a name in the watched directory.
    #[must_use]
    pub fn changes_directory(&self) -> bool {
        let mut operations = self.calls.iter().map(|call| &call.operation);
        operations
            .any(|operation| operation.changed_file().is_some() || !operation.names().is_empty())
    }

    /// Returns the number of writes to files in the watched directory.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.count(|operation| matches!(operation, Operation::Write { .. }))
    }

    /// Returns the number of syncs of files and directories in the watched directory.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.count(|operation| matches!(operation, Operation::Sync { .. }))
    }

    fn count(&self, counts: impl Fn(&Operation) -> bool) -> u64 {
        let calls = self.calls.iter();
        calls.filter(|call| counts(&call.operation)).count() as u64
    }
}
