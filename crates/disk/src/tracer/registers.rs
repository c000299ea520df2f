//! Changes to the system call of a stopped thread, for injected faults.

use std::io;
use std::mem::MaybeUninit;

use super::ptrace::Tid;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("floodmark-disk supports x86-64 and aarch64");

/// `NT_PRSTATUS` in elf.h: the general registers.
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
    match unsafe { libc::ptrace(request, tid, set, &raw mut vector) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn change_registers(tid: Tid, change: impl FnOnce(&mut libc::user_regs_struct)) -> io::Result<()> {
    let mut registers = MaybeUninit::<libc::user_regs_struct>::zeroed();
    transfer(libc::PTRACE_GETREGSET, tid, GENERAL, registers.as_mut_ptr())?;
    // SAFETY: the registers are integers, which were initialized with zeros.
    let mut registers = unsafe { registers.assume_init() };
    change(&mut registers);
    transfer(libc::PTRACE_SETREGSET, tid, GENERAL, &raw mut registers)
}

/// Lets the kernel skip the call. The thread must be stopped at the entry.
pub(super) fn skip_call(tid: Tid) -> io::Result<()> {
    #[cfg(target_arch = "x86_64")]
    return change_registers(tid, |registers| registers.orig_rax = u64::MAX);
    #[cfg(target_arch = "aarch64")]
    {
        let mut none = -1_i32;
        transfer(libc::PTRACE_SETREGSET, tid, SYSTEM_CALL, &raw mut none)
    }
}

/// Sets the third argument of the call. The thread must be stopped at the entry.
pub(super) fn set_third_argument(tid: Tid, value: u64) -> io::Result<()> {
    change_registers(tid, |registers| {
        #[cfg(target_arch = "x86_64")]
        (registers.rdx = value);
        #[cfg(target_arch = "aarch64")]
        (registers.regs[2] = value);
    })
}

/// Sets the result of the call. The thread must be stopped at the exit.
pub(super) fn set_result(tid: Tid, value: i64) -> io::Result<()> {
    change_registers(tid, |registers| {
        #[cfg(target_arch = "x86_64")]
        (registers.rax = value.cast_unsigned());
        #[cfg(target_arch = "aarch64")]
        (registers.regs[0] = value.cast_unsigned());
    })
}
