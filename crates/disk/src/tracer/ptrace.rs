//! The ptrace requests that the tracer needs, and functions that change the system call of a
//! stopped thread.
//!
//! `nix` has a safe interface to ptrace, but its `waitpid` fails for real-time signals, which C
//! libraries and Java virtual machines use internally.

use std::{io, mem, ptr};

/// Process or thread ID.
pub(super) type Tid = libc::pid_t;

/// Why a traced thread stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The seccomp filter reported a call, which has not run yet.
    Entry,
    /// A call has returned.
    Exit,
    /// Another ptrace event, such as a new thread.
    Event,
    /// A signal that is about to be delivered.
    Signal(i32),
}

/// A change in the state of a traced thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The thread stopped.
    Stopped(Tid, Stopped),
    /// The thread or process ended with this wait status.
    Ended(Tid, i32),
}

/// A system call as it was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RawCall {
    pub number: i64,
    pub arguments: [u64; 6],
}

/// Makes the parent the tracer of this process. Async-signal-safe.
pub(super) fn trace_me() -> io::Result<()> {
    // SAFETY: PTRACE_TRACEME ignores the other arguments.
    check(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) })
}

/// Follows all threads and children, and kills them if the tracer ends.
pub(super) fn set_options(tid: Tid) -> io::Result<()> {
    let options = libc::PTRACE_O_EXITKILL
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEVFORK;
    // SAFETY: the request takes no pointer. `options` is passed by value.
    check(unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, tid, 0, libc::c_long::from(options)) })
}

/// Lets a stopped thread continue, and delivers `signal` unless it is 0. With `stop_at_exit`, the
/// thread stops again when its current system call returns. A thread that has been killed is
/// ignored.
pub(super) fn resume(tid: Tid, signal: i32, stop_at_exit: bool) -> io::Result<()> {
    let request = if stop_at_exit {
        libc::PTRACE_SYSCALL
    } else {
        libc::PTRACE_CONT
    };
    // SAFETY: both requests take a signal number and no pointer.
    let result = check(unsafe { libc::ptrace(request, tid, 0, libc::c_long::from(signal)) });
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        result => result,
    }
}

/// Waits for a change in the state of any thread that the calling thread traces. Returns `None` if
/// there are no such threads left.
pub(super) fn wait() -> io::Result<Option<Change>> {
    loop {
        let mut status = 0;
        let flags = libc::__WALL | libc::__WNOTHREAD;
        // SAFETY: the call writes only to `status`.
        let tid = unsafe { libc::waitpid(-1, &raw mut status, flags) };
        if tid > 0 {
            return Ok(Some(change(tid, status)));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ECHILD) => return Ok(None),
            Some(libc::EINTR) => {}
            _ => return Err(error),
        }
    }
}

fn change(tid: Tid, status: i32) -> Change {
    if !libc::WIFSTOPPED(status) {
        return Change::Ended(tid, status);
    }
    let signal = libc::WSTOPSIG(status);
    let stopped = match status >> 16 {
        libc::PTRACE_EVENT_SECCOMP => Stopped::Entry,
        0 if signal == libc::SIGTRAP | 0x80 => Stopped::Exit,
        0 => Stopped::Signal(signal),
        _ => Stopped::Event,
    };
    Change::Stopped(tid, stopped)
}

fn syscall_info(tid: Tid) -> io::Result<libc::ptrace_syscall_info> {
    // SAFETY: the structure consists of integers, for which zero is valid.
    let mut info: libc::ptrace_syscall_info = unsafe { mem::zeroed() };
    let size = size_of::<libc::ptrace_syscall_info>();
    // SAFETY: the kernel writes at most `size` bytes to `info`.
    check(unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, tid, size, &raw mut info) })?;
    Ok(info)
}

/// Returns the call that a thread is about to make. The thread must be stopped at an entry.
pub(super) fn requested_call(tid: Tid) -> io::Result<RawCall> {
    let info = syscall_info(tid)?;
    if info.op != libc::PTRACE_SYSCALL_INFO_SECCOMP {
        return Err(io::Error::from_raw_os_error(libc::EIO));
    }
    // SAFETY: `op` says which field of the union the kernel has written.
    let call = unsafe { info.u.seccomp };
    Ok(RawCall {
        number: call.nr.cast_signed(),
        arguments: call.args,
    })
}

/// Returns the result of the call that a thread has just made: a negative error number on failure.
/// The thread must be stopped at an exit.
pub(super) fn call_result(tid: Tid) -> io::Result<i64> {
    let info = syscall_info(tid)?;
    if info.op != libc::PTRACE_SYSCALL_INFO_EXIT {
        return Err(io::Error::from_raw_os_error(libc::EIO));
    }
    // SAFETY: `op` says which field of the union the kernel has written.
    Ok(unsafe { info.u.exit.sval })
}

/// Reads memory of a traced thread. Returns fewer bytes if the rest is not mapped.
pub(super) fn read_memory(tid: Tid, address: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: length,
    };
    let remote = libc::iovec {
        iov_base: ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(usize::MAX)),
        iov_len: length,
    };
    // SAFETY: the kernel writes at most `length` bytes to `bytes`, which has that length. The
    // kernel checks the remote address.
    let read = unsafe { libc::process_vm_readv(tid, &raw const local, 1, &raw const remote, 1, 0) };
    let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    bytes.truncate(read);
    Ok(bytes)
}

fn check(result: libc::c_long) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("floodmark-disk supports x86-64 and aarch64");

/// `NT_PRSTATUS` in elf.h: the general-purpose registers.
const GENERAL: usize = 1;

/// `NT_ARM_SYSTEM_CALL` in elf.h: the number of the system call.
#[cfg(target_arch = "aarch64")]
const SYSTEM_CALL: usize = 0x404;

fn transfer<T>(request: libc::c_uint, tid: Tid, set: usize, value: *mut T) -> io::Result<()> {
    let mut vector = libc::iovec {
        iov_base: value.cast(),
        iov_len: size_of::<T>(),
    };
    // SAFETY: the kernel reads or writes at most `iov_len` bytes at `value`, which points to a `T`.
    check(unsafe { libc::ptrace(request, tid, set, &raw mut vector) })
}

fn change_registers(tid: Tid, change: impl FnOnce(&mut libc::user_regs_struct)) -> io::Result<()> {
    // SAFETY: the registers are integers, for which zero is valid.
    let mut registers: libc::user_regs_struct = unsafe { mem::zeroed() };
    transfer(libc::PTRACE_GETREGSET, tid, GENERAL, &raw mut registers)?;
    change(&mut registers);
    transfer(libc::PTRACE_SETREGSET, tid, GENERAL, &raw mut registers)
}

/// Makes the kernel skip the system call. The thread must be stopped at the entry to the call.
pub(super) fn skip_call(tid: Tid) -> io::Result<()> {
    #[cfg(target_arch = "x86_64")]
    return change_registers(tid, |registers| registers.orig_rax = u64::MAX);
    #[cfg(target_arch = "aarch64")]
    {
        let mut none = -1_i32;
        transfer(libc::PTRACE_SETREGSET, tid, SYSTEM_CALL, &raw mut none)
    }
}

/// Sets the third argument of the system call. The thread must be stopped at the entry to the
/// call.
pub(super) fn set_third_argument(tid: Tid, value: u64) -> io::Result<()> {
    change_registers(tid, |registers| {
        #[cfg(target_arch = "x86_64")]
        (registers.rdx = value);
        #[cfg(target_arch = "aarch64")]
        (registers.regs[2] = value);
    })
}

/// Sets the result of the system call. The thread must be stopped at the exit from the call.
pub(super) fn set_result(tid: Tid, value: i64) -> io::Result<()> {
    change_registers(tid, |registers| {
        #[cfg(target_arch = "x86_64")]
        (registers.rax = value.cast_unsigned());
        #[cfg(target_arch = "aarch64")]
        (registers.regs[0] = value.cast_unsigned());
    })
}
