//! Calls between their entry and their exit: what they will change, and what they have changed.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

use super::calls::{PathArgument, RequestedCall, TEMPORARY};
use super::error::TraceError;
use super::follower::{self, Follower, WatchedPath};
use super::ptrace::{self, Tid};
use crate::trace::{EntryName, FileId, NodeKind, Operation};

/// Maximum number of buffers of a vectored write (UIO_MAXIOV).
const MAX_BUFFERS: u64 = 1024;

/// A call that has begun and may change the watched folder or send data.
#[derive(Debug)]
pub(super) enum StartedCall {
    Open {
        flags: i32,
    },
    Write {
        file: FileId,
        offset: u64,
        bytes: Vec<u8>,
        durable: bool,
    },
    Send {
        socket: u64,
        bytes: Vec<u8>,
    },
    Resize {
        file: FileId,
        size: u64,
    },
    Allocate {
        file: FileId,
        fd: i32,
    },
    Sync {
        file: FileId,
    },
    SyncAll,
    Rename {
        from: EntryName,
        to: EntryName,
        swap: bool,
    },
    Link {
        file: FileId,
        entry: EntryName,
    },
    Unlink {
        entry: EntryName,
    },
    MakeFolder {
        at: WatchedPath,
    },
    MakeLink {
        at: WatchedPath,
        target: PathBuf,
    },
}

impl StartedCall {
    /// Returns whether no other call may change the folder at the same time. These calls are run one
    /// after another, so that the order of the trace is the order in which they took effect.
    pub(super) fn is_exclusive(&self) -> bool {
        !matches!(
            self,
            StartedCall::Send { .. } | StartedCall::Sync { .. } | StartedCall::SyncAll
        )
    }
}

/// Reads what a call will do at its entry. `room` is the maximum number of bytes to keep. Returns
/// `None` if the call neither changes the watched folder nor sends data. A call with invalid
/// arguments fails, so it is ignored.
pub(super) fn begin(
    follower: &Follower,
    tid: Tid,
    call: RequestedCall,
    room: u64,
) -> Result<Option<StartedCall>, TraceError> {
    match call {
        RequestedCall::Open { path, flags } => begin_open(follower, tid, path, flags),
        RequestedCall::OpenHow { path, how } => {
            let flags = ptrace::read_memory(tid, how, 8).ok();
            let flags = flags.and_then(|bytes| bytes.try_into().ok());
            match flags.map(u64::from_ne_bytes) {
                Some(flags) => begin_open(follower, tid, path, flags),
                None => Ok(None),
            }
        }
        RequestedCall::Write {
            fd,
            buffer,
            length,
            offset,
        } => {
            let write = WriteCall {
                fd,
                offset,
                flags: 0,
                room,
            };
            begin_write(follower, tid, write, &[(buffer, length)])
        }
        RequestedCall::WriteVector {
            fd,
            vector,
            count,
            offset,
            flags,
        } => {
            let data = read_vector(tid, vector, count);
            let write = WriteCall {
                fd,
                offset,
                flags: flags as u32 as i32,
                room,
            };
            begin_write(follower, tid, write, &data)
        }
        RequestedCall::Send { fd, buffer, length } => {
            begin_send(tid, fd, &[(buffer, length)], room)
        }
        RequestedCall::SendMessage { fd, message } => {
            let header = ptrace::read_memory(tid, message, size_of::<libc::msghdr>()).ok();
            let Some(header) = header.filter(|bytes| bytes.len() >= 32) else {
                return Ok(None);
            };
            // Layout of `struct msghdr` on 64-bit Linux: name, name length, vector, vector length.
            let data = read_vector(tid, word(&header, 2), word(&header, 3));
            begin_send(tid, fd, &data, room)
        }
        RequestedCall::Resize { fd, size } => {
            let file = watched_file(follower, tid, fd)?;
            Ok(file.map(|file| StartedCall::Resize { file, size }))
        }
        RequestedCall::ResizePath { path, size } => {
            let at = follower.resolve(tid, path);
            let metadata = at.and_then(|at| fs::metadata(at.path).ok());
            let file = metadata.and_then(|metadata| follower.by_inode(&metadata));
            Ok(file.map(|file| StartedCall::Resize { file, size }))
        }
        RequestedCall::Allocate { fd, mode } => {
            let file = watched_file(follower, tid, fd)?;
            let keeps_size = libc::FALLOC_FL_KEEP_SIZE as u64;
            match (file, mode & !keeps_size) {
                (Some(file), 0) => Ok(Some(StartedCall::Allocate { file, fd })),
                (None, _) => Ok(None),
                _ => Err(unsupported(
                    "it calls fallocate with a mode that changes data",
                    tid,
                    fd,
                )),
            }
        }
        RequestedCall::Sync { fd } => {
            let metadata = follower::metadata_of(tid, fd).ok();
            let file = metadata.and_then(|metadata| follower.by_inode(&metadata));
            Ok(file.map(|file| StartedCall::Sync { file }))
        }
        RequestedCall::SyncAll { fd } => {
            let covers = |fd| {
                let metadata = follower::metadata_of(tid, fd);
                metadata.is_ok_and(|metadata| metadata.dev() == follower.device())
            };
            Ok(fd.is_none_or(covers).then_some(StartedCall::SyncAll))
        }
        RequestedCall::Map { fd } => match watched_file(follower, tid, fd)? {
            None => Ok(None),
            Some(_) => Err(unsupported(
                "it maps a data file shared and writable",
                tid,
                fd,
            )),
        },
        RequestedCall::Copy { fd, name } => match watched_file(follower, tid, fd)? {
            None => Ok(None),
            Some(_) => Err(unsupported(&format!("it writes data with {name}"), tid, fd)),
        },
        RequestedCall::Rename { .. }
        | RequestedCall::Link { .. }
        | RequestedCall::Unlink { .. }
        | RequestedCall::MakeFolder { .. }
        | RequestedCall::MakeLink { .. } => begin_entry(follower, tid, call),
    }
}

fn begin_open(
    follower: &Follower,
    tid: Tid,
    path: PathArgument,
    flags: u64,
) -> Result<Option<StartedCall>, TraceError> {
    // All open flags fit in 32 bits.
    let flags = flags as u32 as i32;
    if flags & TEMPORARY != 0 {
        let at = follower.resolve(tid, path);
        return match at {
            None => Ok(None),
            Some(_) => Err(TraceError::Unsupported(
                "it creates a file without a name (O_TMPFILE) in the watched folder".to_owned(),
            )),
        };
    }
    match flags & (libc::O_CREAT | libc::O_TRUNC) {
        0 => Ok(None),
        _ => Ok(Some(StartedCall::Open { flags })),
    }
}

/// Arguments of a write, except for its data.
struct WriteCall {
    fd: i32,
    offset: Option<u64>,
    /// Flags as for pwritev2(2).
    flags: i32,
    room: u64,
}

fn begin_write(
    follower: &Follower,
    tid: Tid,
    call: WriteCall,
    data: &[(u64, u64)],
) -> Result<Option<StartedCall>, TraceError> {
    let Ok(metadata) = follower::metadata_of(tid, call.fd) else {
        return Ok(None);
    };
    if metadata.file_type().is_socket() {
        return begin_send(tid, call.fd, data, call.room);
    }
    let Some(file) = watched_file(follower, tid, call.fd)? else {
        return Ok(None);
    };
    let Ok(open) = follower::open_state(tid, call.fd) else {
        return Ok(None);
    };
    // A write to a file opened with O_APPEND ignores the offset (pwrite(2)).
    let appends = open.flags & libc::O_APPEND != 0 || call.flags & libc::RWF_APPEND != 0;
    let offset = match (appends, call.offset) {
        (true, _) => metadata.size(),
        (false, Some(offset)) => offset,
        (false, None) => open.position,
    };
    let durable =
        open.flags & libc::O_DSYNC != 0 || call.flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0;
    let bytes = read_data(tid, data, call.room)?;
    Ok(Some(StartedCall::Write {
        file,
        offset,
        bytes,
        durable,
    }))
}

fn begin_send(
    tid: Tid,
    fd: i32,
    data: &[(u64, u64)],
    room: u64,
) -> Result<Option<StartedCall>, TraceError> {
    let Ok(metadata) = follower::metadata_of(tid, fd) else {
        return Ok(None);
    };
    let socket = metadata.ino();
    let bytes = read_data(tid, data, room)?;
    Ok(Some(StartedCall::Send { socket, bytes }))
}

fn begin_entry(
    follower: &Follower,
    tid: Tid,
    call: RequestedCall,
) -> Result<Option<StartedCall>, TraceError> {
    let resolve = |path| follower.resolve(tid, path);
    Ok(match call {
        RequestedCall::Rename { from, to, flags } => {
            let (from, to) = (resolve(from), resolve(to));
            let flags = flags as u32;
            match (from, to) {
                (Some(from), Some(to)) if flags & libc::RENAME_WHITEOUT == 0 => {
                    let swap = flags & libc::RENAME_EXCHANGE != 0;
                    let (from, to) = (from.entry, to.entry);
                    Some(StartedCall::Rename { from, to, swap })
                }
                (None, None) => None,
                (from, to) => {
                    let path = from.or(to).map(|at| follower::file_name(&at.path));
                    return Err(TraceError::Unsupported(format!(
                        "it moves {} into or out of the watched folder",
                        path.unwrap_or_default()
                    )));
                }
            }
        }
        RequestedCall::Link { from, to } => {
            let Some(to) = resolve(to) else {
                return Ok(None);
            };
            let from = resolve(from).and_then(|from| follower.by_name(&from.entry));
            let Some(file) = from else {
                let name = follower::file_name(&to.path);
                let reason = format!("it links {name} to a file outside of the watched folder");
                return Err(TraceError::Unsupported(reason));
            };
            let entry = to.entry;
            Some(StartedCall::Link { file, entry })
        }
        RequestedCall::Unlink { path } => {
            let at = resolve(path).map(|at| at.entry);
            // Sockets and pipes are not recorded.
            let at = at.filter(|entry| follower.by_name(entry).is_some());
            at.map(|entry| StartedCall::Unlink { entry })
        }
        RequestedCall::MakeFolder { path } => {
            resolve(path).map(|at| StartedCall::MakeFolder { at })
        }
        RequestedCall::MakeLink { target, path } => {
            let target = follower::read_path(tid, target).unwrap_or_default();
            resolve(path).map(|at| StartedCall::MakeLink { at, target })
        }
        _ => None,
    })
}

/// Returns the effect of a call that has returned. `result` is negative if the call failed.
pub(super) fn finish(
    follower: &mut Follower,
    tid: Tid,
    started: StartedCall,
    result: i64,
) -> Result<Vec<Operation>, TraceError> {
    if let StartedCall::Sync { file } = started {
        let succeeded = result >= 0;
        return Ok(vec![Operation::Sync { file, succeeded }]);
    }
    let Ok(count) = usize::try_from(result) else {
        return Ok(Vec::new());
    };
    Ok(match started {
        StartedCall::Open { flags } => return finish_open(follower, tid, flags, result),
        StartedCall::Write {
            file,
            offset,
            mut bytes,
            durable,
        } => {
            bytes.truncate(count);
            let bytes = Arc::from(bytes);
            vec![Operation::Write {
                file,
                offset,
                bytes,
                durable,
            }]
        }
        StartedCall::Send { socket, mut bytes } => {
            bytes.truncate(count);
            let bytes = Arc::from(bytes);
            vec![Operation::Send { socket, bytes }]
        }
        StartedCall::Resize { file, size } => vec![Operation::Resize { file, size }],
        StartedCall::Allocate { file, fd } => {
            let metadata = follower::metadata_of(tid, fd);
            let resize = metadata.map(|metadata| Operation::Resize {
                file,
                size: metadata.size(),
            });
            resize.into_iter().collect()
        }
        StartedCall::Sync { .. } => Vec::new(),
        StartedCall::SyncAll => vec![Operation::SyncAll],
        StartedCall::Rename { from, to, swap } => {
            let (old, replaced) = (follower.by_name(&from), follower.by_name(&to));
            follower.set(&from, replaced.filter(|_| swap));
            follower.set(&to, old);
            vec![Operation::Rename { from, to, swap }]
        }
        StartedCall::Link { file, entry } => {
            follower.set(&entry, Some(file));
            vec![Operation::Link { entry, file }]
        }
        StartedCall::Unlink { entry } => {
            follower.set(&entry, None);
            vec![Operation::Unlink { entry }]
        }
        StartedCall::MakeFolder { at } => create(follower, at, NodeKind::Folder),
        StartedCall::MakeLink { at, target } => create(follower, at, NodeKind::Link(target)),
    })
}

fn create(follower: &mut Follower, at: WatchedPath, kind: NodeKind) -> Vec<Operation> {
    let Ok(metadata) = fs::symlink_metadata(&at.path) else {
        return Vec::new();
    };
    let entry = at.entry;
    let file = follower.create(&entry, &metadata);
    vec![Operation::Create { entry, file, kind }]
}

fn finish_open(
    follower: &mut Follower,
    tid: Tid,
    flags: i32,
    result: i64,
) -> Result<Vec<Operation>, TraceError> {
    let fd = i32::try_from(result).unwrap_or(-1);
    let at = follower::path_of(tid, fd).ok();
    let at = at.and_then(|path| follower.watched(&path));
    let (Some(at), Ok(metadata)) = (at, follower::metadata_of(tid, fd)) else {
        return Ok(Vec::new());
    };
    if !metadata.is_file() {
        return Ok(Vec::new());
    }
    let file = follower.by_name(&at.entry);
    Ok(match file {
        None => {
            let entry = at.entry;
            let file = follower.create(&entry, &metadata);
            let kind = NodeKind::File;
            vec![Operation::Create { entry, file, kind }]
        }
        Some(file) if flags & libc::O_TRUNC != 0 => vec![Operation::Resize { file, size: 0 }],
        Some(_) => Vec::new(),
    })
}

/// Returns the watched file of a file descriptor. Returns `None` for other files and for invalid
/// file descriptors.
fn watched_file(follower: &Follower, tid: Tid, fd: i32) -> Result<Option<FileId>, TraceError> {
    let Ok(metadata) = follower::metadata_of(tid, fd) else {
        return Ok(None);
    };
    if !metadata.is_file() {
        return Ok(None);
    }
    let file = follower.by_inode(&metadata);
    let is_unknown = || follower::path_of(tid, fd).is_ok_and(|path| follower.contains(&path));
    if file.is_none() && is_unknown() {
        return Err(unsupported(
            "another process created a file in the watched folder",
            tid,
            fd,
        ));
    }
    Ok(file)
}

fn unsupported(reason: &str, tid: Tid, fd: i32) -> TraceError {
    let path = follower::path_of(tid, fd).unwrap_or_default();
    TraceError::Unsupported(format!("{reason} ({})", follower::file_name(&path)))
}

/// Returns the 64-bit word with the given index.
fn word(bytes: &[u8], index: usize) -> u64 {
    let bytes = bytes.get(index * 8..index * 8 + 8);
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_ne_bytes)
}

/// Reads the addresses and lengths of a vectored write.
fn read_vector(tid: Tid, vector: u64, count: u64) -> Vec<(u64, u64)> {
    let count = usize::try_from(count.min(MAX_BUFFERS)).unwrap_or(0);
    let bytes = ptrace::read_memory(tid, vector, count * 16).unwrap_or_default();
    let buffers = bytes.chunks_exact(16);
    buffers
        .map(|buffer| (word(buffer, 0), word(buffer, 1)))
        .collect()
}

/// Reads the data of a write or send.
fn read_data(tid: Tid, data: &[(u64, u64)], room: u64) -> Result<Vec<u8>, TraceError> {
    let total = data
        .iter()
        .fold(0_u64, |sum, (_, length)| sum.saturating_add(*length));
    if total > room {
        return Err(TraceError::Full);
    }
    let mut bytes = Vec::new();
    for (address, length) in data {
        let length = usize::try_from(*length).unwrap_or(0);
        if length > 0 {
            // If the memory is not mapped, the call fails or ends early as well.
            let part = ptrace::read_memory(tid, *address, length).unwrap_or_default();
            bytes.extend_from_slice(&part);
        }
    }
    Ok(bytes)
}
