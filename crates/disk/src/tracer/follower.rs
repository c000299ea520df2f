//! The watched directory and the open files as the traced process sees them: which file an inode or
//! a path refers to, and which connection a socket belongs to.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{io, iter};

use floodmark_observe::listener;

use super::TraceError;
use super::ptrace::{self, Tid};
use crate::trace::{BaseNode, EntryName, FileId, NodeKind, Operation, TcpPorts};

/// Maximum length of a path in bytes, with its final NUL (limits.h).
const PATH_MAX: usize = 4096;
const PAGE: usize = 4096;

/// The bits of a file's mode that chmod(2) can change.
const MODE: u32 = 0o7777;

/// Permission bits of the owner.
const OWNER: u32 = 0o700;

/// Device and inode number.
type Inode = (u64, u64);

/// An open file of a traced process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenState {
    /// Position in bytes.
    pub position: u64,
    /// Flags, as for open(2).
    pub flags: i32,
}

/// A path below the watched directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WatchedPath {
    pub entry: EntryName,
    pub path: PathBuf,
}

/// Files, directories and names in the watched directory.
#[derive(Debug, Default)]
pub(super) struct Follower {
    root: PathBuf,
    /// Device number of the watched directory.
    pub(super) device: u64,
    inodes: HashMap<Inode, FileId>,
    modes: BTreeMap<FileId, u32>,
    names: HashMap<FileId, BTreeMap<OsString, FileId>>,
    next: u32,
}

impl Follower {
    /// Reads the watched directory and everything below it. Returns this content for the trace.
    pub(super) fn read(directory: &Path) -> Result<(Self, Vec<BaseNode>), TraceError> {
        let failed = |source| TraceError::Directory {
            path: directory.to_owned(),
            source,
        };
        let root = directory.canonicalize().map_err(failed)?;
        let mut follower = Follower {
            device: fs::metadata(&root).map_err(failed)?.dev(),
            root: root.clone(),
            ..Follower::default()
        };
        let mut base = Vec::new();
        follower.read_directory(&root, &mut base).map_err(failed)?;
        Ok((follower, base))
    }

    fn read_directory(&mut self, path: &Path, base: &mut Vec<BaseNode>) -> io::Result<FileId> {
        let directory = self.add(&fs::symlink_metadata(path)?);
        base.push(BaseNode::Directory(BTreeMap::new()));
        let mut names = BTreeMap::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let kind = metadata.file_type();
            let known = self.inodes.get(&inode(&metadata)).copied();
            let file = if let Some(file) = known {
                file
            } else if kind.is_dir() {
                self.read_directory(&entry.path(), base)?
            } else if kind.is_file() {
                base.push(BaseNode::File(fs::read(entry.path())?.into()));
                self.add(&metadata)
            } else if kind.is_symlink() {
                base.push(BaseNode::Link(fs::read_link(entry.path())?));
                self.add(&metadata)
            } else {
                // Sockets and pipes have no content.
                continue;
            };
            names.insert(entry.file_name(), file);
        }
        base[directory.index()] = BaseNode::Directory(names.clone());
        self.names.insert(directory, names);
        Ok(directory)
    }

    /// Registers a new file. If an earlier file had the same inode number, the number now refers to
    /// the new file.
    fn add(&mut self, metadata: &Metadata) -> FileId {
        let file = FileId(self.next);
        self.next += 1;
        self.inodes.insert(inode(metadata), file);
        self.modes.insert(file, metadata.mode() & MODE);
        file
    }

    /// Returns the permission bits of all files and directories. Rereads the bits of those that
    /// still exist.
    pub(super) fn modes(mut self) -> BTreeMap<FileId, u32> {
        let mut paths = vec![self.root.clone()];
        while let Some(path) = paths.pop() {
            // Files that cannot be read keep the permission bits recorded earlier.
            let Ok(metadata) = fs::symlink_metadata(&path) else {
                continue;
            };
            if let Some(file) = self.by_inode(&metadata) {
                // Keep the owner's earlier bits: crash points before a chmod need them.
                let owner = self.modes.get(&file).map_or(0, |first| first & OWNER);
                self.modes.insert(file, metadata.mode() & MODE | owner);
            }
            if metadata.is_dir() {
                let entries = fs::read_dir(path).into_iter().flatten().flatten();
                paths.extend(entries.map(|entry| entry.path()));
            }
        }
        self.modes
    }

    /// Registers a new file, directory or symbolic link under a name. Returns the operation
    /// that created it.
    pub(super) fn create(
        &mut self,
        entry: EntryName,
        kind: NodeKind,
        metadata: &Metadata,
    ) -> Operation {
        let file = self.add(metadata);
        if metadata.is_dir() {
            self.names.insert(file, BTreeMap::new());
        }
        self.set(&entry, Some(file));
        Operation::Create { entry, file, kind }
    }

    /// Returns the file with this metadata, if it is watched.
    pub(super) fn by_inode(&self, metadata: &Metadata) -> Option<FileId> {
        self.inodes.get(&inode(metadata)).copied()
    }

    /// Returns the file with this name.
    pub(super) fn by_name(&self, entry: &EntryName) -> Option<FileId> {
        self.names.get(&entry.directory)?.get(&entry.name).copied()
    }

    /// Changes the file that a name refers to.
    pub(super) fn set(&mut self, entry: &EntryName, file: Option<FileId>) {
        let names = self.names.entry(entry.directory).or_default();
        match file {
            Some(file) => drop(names.insert(entry.name.clone(), file)),
            None => drop(names.remove(&entry.name)),
        }
    }

    /// Returns whether a path is in the watched directory, or is the directory itself.
    pub(super) fn contains(&self, path: &Path) -> bool {
        path.starts_with(&self.root)
    }

    /// Returns the directory entry that a path refers to, if the entry is in the watched directory.
    /// The directory part of the path must already be resolved.
    pub(super) fn watched(&self, path: &Path) -> Option<WatchedPath> {
        let (directory, name) = (path.parent()?, path.file_name()?);
        if !self.contains(directory) {
            return None;
        }
        let directory = self.by_inode(&fs::metadata(directory).ok()?)?;
        let is_directory = self.names.contains_key(&directory);
        is_directory.then(|| WatchedPath {
            entry: EntryName {
                directory,
                name: name.to_owned(),
            },
            path: path.to_owned(),
        })
    }

    /// Resolves a path argument, except for its last component. `directory` is a file descriptor or
    /// `AT_FDCWD`. Returns `None` if the path is invalid or outside the watched directory.
    pub(super) fn resolve(&self, tid: Tid, directory: i32, address: u64) -> Option<WatchedPath> {
        let mut path = read_path(tid, address).ok()?;
        if !path.is_absolute() {
            let base = match directory {
                libc::AT_FDCWD => fs::read_link(format!("/proc/{tid}/cwd")),
                fd => path_of(tid, fd),
            };
            path = base.ok()?.join(path);
        }
        let name = path.file_name()?.to_owned();
        let directory = path.parent()?.canonicalize().ok()?;
        self.watched(&directory.join(name))
    }
}

fn inode(metadata: &Metadata) -> Inode {
    (metadata.dev(), metadata.ino())
}

/// Reads a path from the memory of a traced process.
pub(super) fn read_path(tid: Tid, address: u64) -> io::Result<PathBuf> {
    let mut bytes = Vec::new();
    while bytes.len() < PATH_MAX {
        let at = address + bytes.len() as u64;
        // A read across a page boundary could fail even if the path ends before the boundary.
        let in_page = usize::try_from(at).unwrap_or(0) % PAGE;
        let chunk = ptrace::read_memory(tid, at, PAGE - in_page)?;
        if let Some(end) = chunk.iter().position(|byte| *byte == 0) {
            bytes.extend_from_slice(&chunk[..end]);
            return Ok(OsString::from_vec(bytes).into());
        }
        bytes.extend_from_slice(&chunk);
    }
    Err(io::ErrorKind::InvalidFilename.into())
}

/// Returns the path of an open file.
pub(super) fn path_of(tid: Tid, fd: i32) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/{tid}/fd/{fd}"))
}

/// Returns the metadata of an open file.
pub(super) fn metadata_of(tid: Tid, fd: i32) -> io::Result<Metadata> {
    fs::metadata(format!("/proc/{tid}/fd/{fd}"))
}

/// Returns the position and flags of an open file (proc_pid_fdinfo(5)).
pub(super) fn open_state(tid: Tid, fd: i32) -> io::Result<OpenState> {
    let text = fs::read_to_string(format!("/proc/{tid}/fdinfo/{fd}"))?;
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.map(str::trim)
    };
    let position = field("pos:").and_then(|value| value.parse().ok());
    let flags = field("flags:").and_then(|value| i32::from_str_radix(value, 8).ok());
    match (position, flags) {
        (Some(position), Some(flags)) => Ok(OpenState { position, flags }),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Returns the last component of a path for messages.
pub(super) fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(OsStr::new("?"));
    name.to_string_lossy().into_owned()
}

/// Maximum number of times that each table is read to find one socket.
const MAX_READS: usize = 5;

/// Returns the ports of a traced thread's connected TCP socket, from `/proc/TID/net/tcp` and `tcp6`
/// (proc_pid_net(5)). Returns `None` for other sockets.
pub(super) fn ports(tid: Tid, socket: u64) -> Option<TcpPorts> {
    ports_from(socket, |table| {
        fs::read_to_string(format!("/proc/{tid}/net/{table}")).ok()
    })
}

/// Reads the tables until one contains the socket. Each table is read in several parts, so a socket
/// can be missing if other sockets are closed between the reads of two parts.
fn ports_from(
    socket: u64,
    mut read: impl FnMut(&'static str) -> Option<String>,
) -> Option<TcpPorts> {
    let mut tables = iter::repeat_n(["tcp", "tcp6"], MAX_READS).flatten();
    tables.find_map(|table| ports_in(&read(table)?, socket))
}

fn ports_in(table: &str, socket: u64) -> Option<TcpPorts> {
    let socket = listener::parse(table, None).find(|listed| listed.inode == socket)?;
    Some(TcpPorts {
        local: socket.address.port(),
        peer: socket.remote.port(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_socket_by_its_inode() {
        let four = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 100 0 0 10 0
   1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000000000000000 20 4 30 10 -1
";
        let six = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000100007F:C351 01 00000000:00000000 00:00000000 00000000     0        0 4713 1 0000000000000000 20 4 30 10 -1
";
        let ports = |peer| TcpPorts { local: 8080, peer };
        assert_eq!(ports_in(four, 4712), Some(ports(50_000)));
        assert_eq!(ports_in(six, 4713), Some(ports(50_001)));
        assert_eq!(ports_in(four, 4713), None);
        assert_eq!(ports_in("", 4712), None);
    }

    #[test]
    fn reads_incomplete_tables_again() {
        let complete = "  sl  local_address rem_address
   0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 4712 1
";
        let mut reads = Vec::new();
        let mut ports = |socket, missing| {
            reads.clear();
            let ports = ports_from(socket, |table| {
                reads.push(table);
                let is_complete = table == "tcp" && reads.len() > missing;
                Some(if is_complete { complete } else { "" }.to_owned())
            });
            (ports.map(|ports| ports.peer), reads.len())
        };
        assert_eq!(ports(4712, 0), (Some(50_000), 1));
        assert_eq!(ports(4712, 1), (Some(50_000), 3));
        // A socket that is not in the tables, such as a Unix socket.
        assert_eq!(ports(4713, 0), (None, 2 * MAX_READS));
    }
}
