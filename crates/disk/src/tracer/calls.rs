//! The system calls that the tracer follows, and the seccomp filter that reports them.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

use super::ptrace::RawCall;

/// A path argument: a folder's file descriptor or `AT_FDCWD`, and the address of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PathArgument {
    pub folder: i32,
    pub address: u64,
}

/// A call with decoded arguments. Addresses refer to the memory of the traced process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestedCall {
    Open {
        path: PathArgument,
        flags: u64,
    },
    /// openat2, whose flags are in memory.
    OpenHow {
        path: PathArgument,
        how: u64,
    },
    Write {
        fd: i32,
        buffer: u64,
        length: u64,
        offset: Option<u64>,
    },
    WriteVector {
        fd: i32,
        vector: u64,
        count: u64,
        offset: Option<u64>,
        flags: u64,
    },
    Send {
        fd: i32,
        buffer: u64,
        length: u64,
    },
    SendMessage {
        fd: i32,
        message: u64,
    },
    Resize {
        fd: i32,
        size: u64,
    },
    ResizePath {
        path: PathArgument,
        size: u64,
    },
    Allocate {
        fd: i32,
        mode: u64,
    },
    Sync {
        fd: i32,
    },
    /// sync, or syncfs with an open file of the file system.
    SyncAll {
        fd: Option<i32>,
    },
    Rename {
        from: PathArgument,
        to: PathArgument,
        flags: u64,
    },
    Link {
        from: PathArgument,
        to: PathArgument,
    },
    Unlink {
        path: PathArgument,
    },
    MakeFolder {
        path: PathArgument,
    },
    MakeLink {
        target: u64,
        path: PathArgument,
    },
    /// A mapping that is shared and writable.
    Map {
        fd: i32,
    },
    /// A call that copies data to a file within the kernel.
    Copy {
        fd: i32,
        name: &'static str,
    },
}

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

/// Flags of open calls that can change a folder or file. All other open calls run at full speed.
const CHANGING: [libc::c_int; 3] = [libc::O_CREAT, libc::O_TRUNC, TEMPORARY];

/// The bit of `O_TMPFILE` that is not `O_DIRECTORY`.
pub(super) const TEMPORARY: libc::c_int = libc::O_TMPFILE & !libc::O_DIRECTORY;

/// Returns the program that stops the traced process at each followed call, and the program that
/// denies io_uring and asynchronous I/O with ENOSYS, because the tracer does not see their writes.
pub(super) fn filters() -> Result<[BpfProgram; 2], BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in ALWAYS.iter().chain(OLDER) {
        rules.insert(*call, Vec::new());
    }
    let opens = |argument| CHANGING.map(|flag| rule(&[(argument, bits(flag))]));
    rules.insert(
        libc::SYS_openat,
        opens(2).into_iter().collect::<Result<_, _>>()?,
    );
    #[cfg(target_arch = "x86_64")]
    rules.insert(
        libc::SYS_open,
        opens(1).into_iter().collect::<Result<_, _>>()?,
    );
    let map = [(2, bits(libc::PROT_WRITE)), (3, bits(libc::MAP_SHARED))];
    rules.insert(libc::SYS_mmap, vec![rule(&map)?]);
    let clones = [libc::FICLONE, libc::FICLONERANGE];
    let clones = clones.map(|request| rule(&[(1, (SeccompCmpOp::Eq, request))]));
    rules.insert(
        libc::SYS_ioctl,
        clones.into_iter().collect::<Result<_, _>>()?,
    );
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

/// Decodes a call. Returns `None` for a call that the tracer does not follow.
pub(super) fn decode(call: RawCall) -> Option<RequestedCall> {
    let [a, b, c, d, e, f] = call.arguments;
    let fd = |argument: u64| argument as u32 as i32;
    let at = |folder: u64, address: u64| PathArgument {
        folder: fd(folder),
        address,
    };
    let here = |address: u64| PathArgument {
        folder: libc::AT_FDCWD,
        address,
    };
    #[cfg(target_arch = "x86_64")]
    if let Some(older) = decode_older(call, here) {
        return Some(older);
    }
    Some(match call.number {
        libc::SYS_openat => RequestedCall::Open {
            path: at(a, b),
            flags: c,
        },
        libc::SYS_openat2 => RequestedCall::OpenHow {
            path: at(a, b),
            how: c,
        },
        libc::SYS_write => RequestedCall::Write {
            fd: fd(a),
            buffer: b,
            length: c,
            offset: None,
        },
        libc::SYS_pwrite64 => RequestedCall::Write {
            fd: fd(a),
            buffer: b,
            length: c,
            offset: Some(d),
        },
        libc::SYS_writev => RequestedCall::WriteVector {
            fd: fd(a),
            vector: b,
            count: c,
            offset: None,
            flags: 0,
        },
        libc::SYS_pwritev => RequestedCall::WriteVector {
            fd: fd(a),
            vector: b,
            count: c,
            offset: Some(d),
            flags: 0,
        },
        libc::SYS_pwritev2 => RequestedCall::WriteVector {
            fd: fd(a),
            vector: b,
            count: c,
            // -1 stands for the file's position.
            offset: (d != u64::MAX).then_some(d),
            flags: f,
        },
        libc::SYS_sendto => RequestedCall::Send {
            fd: fd(a),
            buffer: b,
            length: c,
        },
        libc::SYS_sendmsg => RequestedCall::SendMessage {
            fd: fd(a),
            message: b,
        },
        libc::SYS_ftruncate => RequestedCall::Resize { fd: fd(a), size: b },
        libc::SYS_truncate => RequestedCall::ResizePath {
            path: here(a),
            size: b,
        },
        libc::SYS_fallocate => RequestedCall::Allocate { fd: fd(a), mode: b },
        libc::SYS_fsync | libc::SYS_fdatasync => RequestedCall::Sync { fd: fd(a) },
        libc::SYS_sync => RequestedCall::SyncAll { fd: None },
        libc::SYS_syncfs => RequestedCall::SyncAll { fd: Some(fd(a)) },
        libc::SYS_renameat => RequestedCall::Rename {
            from: at(a, b),
            to: at(c, d),
            flags: 0,
        },
        libc::SYS_renameat2 => RequestedCall::Rename {
            from: at(a, b),
            to: at(c, d),
            flags: e,
        },
        libc::SYS_linkat => RequestedCall::Link {
            from: at(a, b),
            to: at(c, d),
        },
        libc::SYS_unlinkat => RequestedCall::Unlink { path: at(a, b) },
        libc::SYS_symlinkat => RequestedCall::MakeLink {
            target: a,
            path: at(b, c),
        },
        libc::SYS_mkdirat => RequestedCall::MakeFolder { path: at(a, b) },
        libc::SYS_mmap => RequestedCall::Map { fd: fd(e) },
        libc::SYS_copy_file_range => RequestedCall::Copy {
            fd: fd(c),
            name: "copy_file_range",
        },
        libc::SYS_splice => RequestedCall::Copy {
            fd: fd(c),
            name: "splice",
        },
        libc::SYS_sendfile => RequestedCall::Copy {
            fd: fd(a),
            name: "sendfile",
        },
        libc::SYS_ioctl => RequestedCall::Copy {
            fd: fd(a),
            name: "ioctl(FICLONE)",
        },
        _ => return None,
    })
}

#[cfg(target_arch = "x86_64")]
fn decode_older(call: RawCall, here: impl Fn(u64) -> PathArgument) -> Option<RequestedCall> {
    let [a, b, ..] = call.arguments;
    let created = (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC).cast_unsigned();
    Some(match call.number {
        libc::SYS_open => RequestedCall::Open {
            path: here(a),
            flags: b,
        },
        libc::SYS_creat => RequestedCall::Open {
            path: here(a),
            flags: created.into(),
        },
        libc::SYS_rename => RequestedCall::Rename {
            from: here(a),
            to: here(b),
            flags: 0,
        },
        libc::SYS_link => RequestedCall::Link {
            from: here(a),
            to: here(b),
        },
        libc::SYS_unlink | libc::SYS_rmdir => RequestedCall::Unlink { path: here(a) },
        libc::SYS_symlink => RequestedCall::MakeLink {
            target: a,
            path: here(b),
        },
        libc::SYS_mkdir => RequestedCall::MakeFolder { path: here(a) },
        _ => return None,
    })
}
