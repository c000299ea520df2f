//! System calls that `rustix` lacks. The I/O backends define their own system calls in their
//! modules.

use std::io;
use std::mem::MaybeUninit;

use crate::clock::{NS_PER_S, Ns};

/// Returns the calling thread's CPU time so far in ns (`CLOCK_THREAD_CPUTIME_ID`).
pub(crate) fn thread_cpu() -> Ns {
    read_clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the time of the host's monotonic clock in ns (`CLOCK_MONOTONIC`). Other processes on the
/// host read the same clock.
pub(crate) fn monotonic_ns() -> Ns {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// Reads a clock.
///
/// This function does not use `rustix`, which reads clocks from the vDSO and crashes if valgrind
/// hides the vDSO.
fn read_clock(clock: libc::clockid_t) -> Ns {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes to a timespec that outlives the call. If the call fails, the
    // timespec stays zero.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as Ns * NS_PER_S + time.tv_nsec as Ns
}

/// Returns the resources used by the process or the calling thread (`getrusage(2)`).
pub(crate) fn resource_usage(who: libc::c_int) -> libc::rusage {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes to a zeroed rusage of the right size. If the call fails, all fields
    // stay zero, which is a valid value.
    unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        usage.assume_init()
    }
}

/// Returns the scheduling attributes of the calling thread (`sched_getattr(2)`).
///
/// # Errors
/// The kernel refuses.
pub(crate) fn scheduling() -> io::Result<libc::sched_attr> {
    let mut attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel writes at most `size` bytes to a sched_attr that outlives the call. Thread
    // id 0 is the calling thread.
    let done = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            0,
            &raw mut attributes,
            attributes.size,
            0,
        )
    };
    result(done).map(|()| attributes)
}

/// Sets the scheduling attributes of the calling thread (`sched_setattr(2)`).
///
/// # Errors
/// The kernel refuses.
pub(crate) fn set_scheduling(attributes: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: the kernel reads a sched_attr that outlives the call and contains its own size.
    // Thread id 0 is the calling thread.
    result(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attributes, 0) })
}

/// Returns the error of a system call whose result is negative.
pub(crate) fn result(done: libc::c_long) -> io::Result<()> {
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
