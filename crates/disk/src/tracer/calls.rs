//! The system calls that the tracer follows: the seccomp filter that reports them, the expected
//! change at a call's entry, and the actual change at its exit.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::Arc;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

use super::TraceError;
use super::follower::{self, Follower, WatchedPath};
use super::ptrace::{self, RawCall, Tid};
use crate::trace::{FileId, NodeKind, Operation};

/// Calls that the filter always reports.
const ALWAYS: &[libc::c_long] = &[
    libc::SYS_openat2,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_ftruncate,
    libc::SYS_truncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync,
    libc::SYS_syncfs,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_unlinkat,
    libc::SYS_symlinkat,
    libc::SYS_mkdirat,
    libc::SYS_copy_file_range,
    libc::SYS_splice,
    libc::SYS_sendfile,
];

/// Older calls, which exist only on x86-64.
#[cfg(target_arch = "x86_64")]
const OLDER: &[libc::c_long] = &[
    libc::SYS_creat,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_unlink,
    libc::SYS_symlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[libc::c_long] = &[];

/// Flags with which an open call can change a directory or file. Open calls without these flags run
/// at full speed.
const CHANGING: [libc::c_int; 3] = [libc::O_CREAT, libc::O_TRUNC, TEMPORARY];

/// The bit of `O_TMPFILE` that is not `O_DIRECTORY`.
const TEMPORARY: libc::c_int = libc::O_TMPFILE & !libc::O_DIRECTORY;

/// Returns two seccomp filters. One stops the traced process at each followed call. The other
/// denies io_uring and asynchronous I/O with ENOSYS, because the tracer does not see their writes.
pub(super) fn filters() -> Result<[BpfProgram; 2], BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in ALWAYS.iter().chain(OLDER) {
        rules.insert(*call, Vec::new());
    }
    let opens = |argument| {
        let rules = CHANGING.map(|flag| rule(&[(argument, bits(flag))]));
        rules.into_iter().collect::<Result<Vec<_>, _>>()
    };
    rules.insert(libc::SYS_openat, opens(2)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, opens(1)?);
    let map = [(2, bits(libc::PROT_WRITE)), (3, bits(libc::MAP_SHARED))];
    rules.insert(libc::SYS_mmap, vec![rule(&map)?]);
    let clone = |request| rule(&[(1, (SeccompCmpOp::Eq, request))]);
    let clones = vec![clone(libc::FICLONE)?, clone(libc::FICLONERANGE)?];
    rules.insert(libc::SYS_ioctl, clones);
    let denied = [libc::SYS_io_uring_setup, libc::SYS_io_setup];
    let denied = denied.map(|call| (call, Vec::new())).into();
    let enosys = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    Ok([
        program(rules, SeccompAction::Trace(0))?,
        program(denied, enosys)?,
    ])
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    action: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, action, architecture)?.try_into()
}

fn bits(flag: libc::c_int) -> (SeccompCmpOp, u64) {
    let flag = u64::from(flag.cast_unsigned());
    (SeccompCmpOp::MaskedEq(flag), flag)
}

/// Returns a rule that matches if all conditions on arguments hold.
fn rule(conditions: &[(u8, (SeccompCmpOp, u64))]) -> Result<SeccompRule, BackendError> {
    let conditions = conditions.iter().map(|(argument, (operator, value))| {
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, operator.clone(), *value)
    });
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}

/// Maximum number of buffers in a vectored write (UIO_MAXIOV).
const MAX_BUFFERS: u64 = 1024;

/// A call that has begun and may change the watched directory or send data.
#[derive(Debug)]
pub(super) enum StartedCall {
    /// A call that may create or truncate a file.
    Open { flags: i32 },
    /// A call that creates a directory or a symbolic link.
    Create { at: WatchedPath, kind: NodeKind },
    /// A call that may enlarge a file.
    Allocate { file: FileId, fd: i32 },
    /// A sync of a file, which is recorded even if it fails.
    Sync { file: FileId },
    /// A call whose effect is known at its entry, unless the call fails or ends early.
    Known(Operation),
}

impl StartedCall {
    /// Returns whether this call must be the only running call that can change the directory. Such
    /// calls run one after another, so that the trace contains them in the order in which they took
    /// effect.
    pub(super) fn is_exclusive(&self) -> bool {
        use Operation::{Send, SyncAll};
        !matches!(self, Self::Sync { .. } | Self::Known(Send { .. } | SyncAll))
    }
}

/// What a call is about to do; `None` if it neither changes the watched directory nor sends data.
type Started = Result<Option<StartedCall>, TraceError>;

/// Returns whether a call may run while an exclusive call is running.
pub(super) fn is_shared(call: RawCall) -> bool {
    matches!(
        call.number,
        libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_sync
            | libc::SYS_syncfs
    )
}

/// Returns the offset argument of a write; `None` for a write at the file's position.
pub(super) fn offset_argument(call: RawCall) -> Option<u64> {
    let offset = call.arguments[3];
    match call.number {
        libc::SYS_pwrite64 | libc::SYS_pwritev => Some(offset),
        // -1 stands for the file's position.
        libc::SYS_pwritev2 => (offset != u64::MAX).then_some(offset),
        _ => None,
    }
}

/// Converts an older call, which exists only on x86-64, to the call that has replaced it.
#[cfg(target_arch = "x86_64")]
fn current_form(call: RawCall) -> RawCall {
    let [a, b, ..] = call.arguments;
    let created = (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC).cast_unsigned();
    let (number, [a, b, c, d]) = match call.number {
        libc::SYS_open => (libc::SYS_openat, [HERE, a, b, 0]),
        libc::SYS_creat => (libc::SYS_openat, [HERE, a, created.into(), 0]),
        libc::SYS_rename => (libc::SYS_renameat, [HERE, a, HERE, b]),
        libc::SYS_link => (libc::SYS_linkat, [HERE, a, HERE, b]),
        libc::SYS_unlink | libc::SYS_rmdir => (libc::SYS_unlinkat, [HERE, a, 0, 0]),
        libc::SYS_symlink => (libc::SYS_symlinkat, [a, HERE, b, 0]),
        libc::SYS_mkdir => (libc::SYS_mkdirat, [HERE, a, 0, 0]),
        _ => return call,
    };
    let arguments = [a, b, c, d, 0, 0];
    RawCall { number, arguments }
}

/// Argument that stands for the thread's current directory.
const HERE: u64 = libc::AT_FDCWD as u64;

/// Determines, at the entry to a call, what the call will do. `room` is the maximum number of
/// written or sent bytes to keep. Returns `None` if the call neither changes the watched directory
/// nor sends data. A call with invalid arguments fails, so it is ignored.
pub(super) fn begin(follower: &Follower, tid: Tid, call: RawCall, room: u64) -> Started {
    #[cfg(target_arch = "x86_64")]
    let call = current_form(call);
    let [a, b, c, d, e, f] = call.arguments;
    let fd = |argument: u64| argument as u32 as i32;
    let caller = Caller {
        follower,
        tid,
        room,
    };
    let at = |directory, address| follower.resolve(tid, fd(directory), address);
    match call.number {
        libc::SYS_openat => Caller::open(|| at(a, b), c),
        libc::SYS_openat2 => match ptrace::read_memory(tid, c, 8) {
            Ok(how) if how.len() == 8 => Caller::open(|| at(a, b), word(&how, 0)),
            _ => Ok(None),
        },
        libc::SYS_write | libc::SYS_pwrite64 => caller.write(fd(a), &[(b, c)], call, 0),
        libc::SYS_writev | libc::SYS_pwritev => caller.write(fd(a), &caller.vector(b, c), call, 0),
        libc::SYS_pwritev2 => caller.write(fd(a), &caller.vector(b, c), call, fd(f)),
        libc::SYS_sendto => caller.send(fd(a), &[(b, c)]),
        libc::SYS_sendmsg => match ptrace::read_memory(tid, b, size_of::<libc::msghdr>()) {
            // Layout of `struct msghdr` on 64-bit Linux: name, name length, vector, vector length.
            Ok(header) if header.len() >= 32 => {
                caller.send(fd(a), &caller.vector(word(&header, 2), word(&header, 3)))
            }
            _ => Ok(None),
        },
        libc::SYS_ftruncate => Ok((caller.watched_file(fd(a))?).map(|file| resize(file, b))),
        libc::SYS_truncate => {
            let metadata = at(HERE, a).and_then(|at| fs::metadata(at.path).ok());
            let file = metadata.and_then(|metadata| follower.by_inode(&metadata));
            Ok(file.map(|file| resize(file, b)))
        }
        libc::SYS_fallocate => match caller.watched_file(fd(a))? {
            Some(_) if b & !(libc::FALLOC_FL_KEEP_SIZE as u64) != 0 => {
                Err(caller.unsupported("it calls fallocate with a mode that changes data", fd(a)))
            }
            file => Ok(file.map(|file| StartedCall::Allocate { file, fd: fd(a) })),
        },
        libc::SYS_fsync | libc::SYS_fdatasync => {
            let metadata = follower::metadata_of(tid, fd(a)).ok();
            let file = metadata.and_then(|metadata| follower.by_inode(&metadata));
            Ok(file.map(|file| StartedCall::Sync { file }))
        }
        libc::SYS_sync => Ok(Some(StartedCall::Known(Operation::SyncAll))),
        libc::SYS_syncfs => {
            let metadata = follower::metadata_of(tid, fd(a));
            let is_watched = metadata.is_ok_and(|metadata| metadata.dev() == follower.device);
            Ok(is_watched.then_some(StartedCall::Known(Operation::SyncAll)))
        }
        libc::SYS_renameat => caller.rename(at(a, b), at(c, d), 0),
        libc::SYS_renameat2 => caller.rename(at(a, b), at(c, d), e as u32),
        libc::SYS_linkat => caller.link(at(a, b), at(c, d)),
        libc::SYS_unlinkat => {
            let entry = at(a, b).map(|at| at.entry);
            // Sockets and pipes are not recorded.
            let entry = entry.filter(|entry| follower.by_name(entry).is_some());
            Ok(entry.map(|entry| StartedCall::Known(Operation::Unlink { entry })))
        }
        libc::SYS_mkdirat => Ok(at(a, b).map(|at| StartedCall::Create {
            at,
            kind: NodeKind::Directory,
        })),
        libc::SYS_symlinkat => {
            let kind = NodeKind::Link(follower::read_path(tid, a).unwrap_or_default());
            Ok(at(b, c).map(|at| StartedCall::Create { at, kind }))
        }
        libc::SYS_mmap => caller.refuse(fd(e), "it maps a data file as shared and writable"),
        libc::SYS_copy_file_range => caller.refuse(fd(c), "it writes data with copy_file_range"),
        libc::SYS_splice => caller.refuse(fd(c), "it writes data with splice"),
        libc::SYS_sendfile => caller.refuse(fd(a), "it writes data with sendfile"),
        libc::SYS_ioctl => caller.refuse(fd(a), "it writes data with ioctl(FICLONE)"),
        _ => Ok(None),
    }
}

fn resize(file: FileId, size: u64) -> StartedCall {
    StartedCall::Known(Operation::Resize { file, size })
}

/// A thread at the entry to a call.
struct Caller<'f> {
    follower: &'f Follower,
    tid: Tid,
    /// Maximum number of bytes to keep.
    room: u64,
}

impl Caller<'_> {
    fn open(at: impl FnOnce() -> Option<WatchedPath>, flags: u64) -> Started {
        // All open flags fit in 32 bits.
        let flags = flags as u32 as i32;
        let is_temporary = flags & TEMPORARY != 0;
        if is_temporary && at().is_some() {
            let reason = "it creates a file without a name (O_TMPFILE) in the watched directory";
            return Err(TraceError::Unsupported(reason.to_owned()));
        }
        let changes = !is_temporary && flags & (libc::O_CREAT | libc::O_TRUNC) != 0;
        Ok(changes.then_some(StartedCall::Open { flags }))
    }

    /// Reads the arguments of a call that writes buffers to a file or sends them on a socket.
    /// `flags` are the flags of pwritev2(2).
    fn write(&self, fd: i32, data: &[(u64, u64)], call: RawCall, flags: i32) -> Started {
        let Ok(metadata) = follower::metadata_of(self.tid, fd) else {
            return Ok(None);
        };
        if metadata.file_type().is_socket() {
            return self.send(fd, data);
        }
        let Some(file) = self.watched_file(fd)? else {
            return Ok(None);
        };
        let Ok(open) = follower::open_state(self.tid, fd) else {
            return Ok(None);
        };
        // A write to a file opened with O_APPEND ignores the offset (pwrite(2)).
        let appends = open.flags & libc::O_APPEND != 0 || flags & libc::RWF_APPEND != 0;
        Ok(Some(StartedCall::Known(Operation::Write {
            file,
            offset: if appends {
                metadata.size()
            } else {
                offset_argument(call).unwrap_or(open.position)
            },
            bytes: self.read(data)?,
            durable: open.flags & libc::O_DSYNC != 0
                || flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0,
        })))
    }

    fn send(&self, fd: i32, data: &[(u64, u64)]) -> Started {
        let Ok(metadata) = follower::metadata_of(self.tid, fd) else {
            return Ok(None);
        };
        Ok(Some(StartedCall::Known(Operation::Send {
            socket: metadata.ino(),
            bytes: self.read(data)?,
        })))
    }

    fn rename(&self, from: Option<WatchedPath>, to: Option<WatchedPath>, flags: u32) -> Started {
        match (from, to) {
            (Some(from), Some(to)) if flags & libc::RENAME_WHITEOUT == 0 => {
                Ok(Some(StartedCall::Known(Operation::Rename {
                    from: from.entry,
                    to: to.entry,
                    swap: flags & libc::RENAME_EXCHANGE != 0,
                })))
            }
            (None, None) => Ok(None),
            (from, to) => {
                let path = from.or(to).map(|at| follower::file_name(&at.path));
                Err(TraceError::Unsupported(format!(
                    "it moves {} into or out of the watched directory",
                    path.unwrap_or_default()
                )))
            }
        }
    }

    fn link(&self, from: Option<WatchedPath>, to: Option<WatchedPath>) -> Started {
        let Some(to) = to else {
            return Ok(None);
        };
        let Some(file) = from.and_then(|from| self.follower.by_name(&from.entry)) else {
            return Err(TraceError::Unsupported(format!(
                "it links {} to a file outside the watched directory",
                follower::file_name(&to.path)
            )));
        };
        let entry = to.entry;
        Ok(Some(StartedCall::Known(Operation::Link { entry, file })))
    }

    /// Returns an error if a call changes a watched file in a way that the tracer cannot follow.
    fn refuse(&self, fd: i32, reason: &str) -> Started {
        match self.watched_file(fd)? {
            None => Ok(None),
            Some(_) => Err(self.unsupported(reason, fd)),
        }
    }

    /// Returns the watched file that a file descriptor refers to. Returns `None` for other files
    /// and for invalid file descriptors.
    fn watched_file(&self, fd: i32) -> Result<Option<FileId>, TraceError> {
        let metadata = follower::metadata_of(self.tid, fd).ok();
        let Some(metadata) = metadata.filter(|metadata| metadata.is_file()) else {
            return Ok(None);
        };
        let file = self.follower.by_inode(&metadata);
        let path = || follower::path_of(self.tid, fd);
        if file.is_none() && path().is_ok_and(|path| self.follower.contains(&path)) {
            let reason = "another process created a file in the watched directory";
            return Err(self.unsupported(reason, fd));
        }
        Ok(file)
    }

    fn unsupported(&self, reason: &str, fd: i32) -> TraceError {
        let path = follower::path_of(self.tid, fd).unwrap_or_default();
        TraceError::Unsupported(format!("{reason} ({})", follower::file_name(&path)))
    }

    /// Reads the addresses and lengths of the buffers of a vectored write.
    fn vector(&self, vector: u64, count: u64) -> Vec<(u64, u64)> {
        let count = usize::try_from(count.min(MAX_BUFFERS)).unwrap_or(0);
        let bytes = ptrace::read_memory(self.tid, vector, count * 16).unwrap_or_default();
        let buffers = bytes.chunks_exact(16);
        buffers
            .map(|buffer| (word(buffer, 0), word(buffer, 1)))
            .collect()
    }

    /// Reads the data of a write or send.
    fn read(&self, data: &[(u64, u64)]) -> Result<Arc<[u8]>, TraceError> {
        let lengths = data.iter().map(|(_, length)| *length);
        if lengths.fold(0, u64::saturating_add) > self.room {
            return Err(TraceError::Full);
        }
        let mut bytes = Vec::new();
        for (address, length) in data.iter().filter(|(_, length)| *length > 0) {
            let length = usize::try_from(*length).unwrap_or(0);
            // If the memory is not mapped, the call itself also fails or ends early.
            let part = ptrace::read_memory(self.tid, *address, length).unwrap_or_default();
            bytes.extend_from_slice(&part);
        }
        Ok(bytes.into())
    }
}

/// Returns the 64-bit word with the given index.
fn word(bytes: &[u8], index: usize) -> u64 {
    let bytes = bytes.get(index * 8..index * 8 + 8);
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_ne_bytes)
}

/// Returns the effect of a call that has returned. `result` is negative if the call failed.
pub(super) fn finish(
    follower: &mut Follower,
    tid: Tid,
    started: StartedCall,
    result: i64,
) -> Option<Operation> {
    if let StartedCall::Sync { file } = started {
        let succeeded = result >= 0;
        return Some(Operation::Sync { file, succeeded });
    }
    let result = usize::try_from(result).ok()?;
    match started {
        StartedCall::Sync { .. } => None,
        StartedCall::Open { flags } => {
            let fd = i32::try_from(result).unwrap_or(-1);
            let at = follower.watched(&follower::path_of(tid, fd).ok()?)?;
            let metadata = follower::metadata_of(tid, fd).ok()?;
            match follower.by_name(&at.entry) {
                _ if !metadata.is_file() => None,
                None => Some(follower.create(at.entry, NodeKind::File, &metadata)),
                Some(file) => {
                    (flags & libc::O_TRUNC != 0).then_some(Operation::Resize { file, size: 0 })
                }
            }
        }
        StartedCall::Create { at, kind } => {
            let metadata = fs::symlink_metadata(&at.path).ok()?;
            Some(follower.create(at.entry, kind, &metadata))
        }
        StartedCall::Allocate { file, fd } => {
            let size = follower::metadata_of(tid, fd).ok()?.size();
            Some(Operation::Resize { file, size })
        }
        StartedCall::Known(mut operation) => {
            match &mut operation {
                Operation::Write { bytes, .. } | Operation::Send { bytes, .. }
                    if result < bytes.len() =>
                {
                    *bytes = Arc::from(&bytes[..result]);
                }
                Operation::Rename { from, to, swap } => {
                    let (old, replaced) = (follower.by_name(from), follower.by_name(to));
                    follower.set(from, replaced.filter(|_| *swap));
                    follower.set(to, old);
                }
                Operation::Link { entry, file } => follower.set(entry, Some(*file)),
                Operation::Unlink { entry } => follower.set(entry, None),
                _ => {}
            }
            Some(operation)
        }
    }
}
