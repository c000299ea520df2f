//! System calls that the standard library lacks: clocks, kernel timestamps, limits, priorities.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, setpriority_process};
use rustix::thread::{CpuSet, clock_nanosleep_absolute, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Returns the time of CLOCK_MONOTONIC in ns. All logged times use this clock.
pub fn monotonic_ns() -> u64 {
    clock_ns(ClockId::Monotonic) as u64
}

fn clock_ns(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Sleeps until the given time on the clock of [`monotonic_ns`].
pub fn sleep_until(until_ns: u64) {
    let until = timespec(until_ns);
    while clock_nanosleep_absolute(ClockId::Monotonic, &until) == Err(Errno::INTR) {}
}

/// Converts a time in ns to a timespec.
pub fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    }
}

/// Enables the kernel's receive timestamps on a socket (socket(7), SO_TIMESTAMPNS). Sockets that a
/// listener accepts inherit the option.
///
/// # Errors
/// The kernel does not support the option.
pub fn stamp_arrivals(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option's value is an int that outlives the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
}

/// Reads once and returns the number of bytes. If the kernel set a timestamp, also returns the time
/// when the kernel received the last byte, on the clock of [`monotonic_ns`].
///
/// # Errors
/// The system call recvmsg(2) fails.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // Space for a control message that contains a timespec, with the required alignment.
    let mut control = [0u64; 8];
    // SAFETY: a zeroed msghdr is valid. The pointers have the given sizes and outlive the call. The
    // C library's macros read control messages only within the bytes that the kernel filled.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        let n = libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0);
        let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let stamped = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_TIMESTAMPNS;
        if !stamped {
            return Ok((n, None));
        }
        let data = libc::CMSG_DATA(header).cast::<libc::timespec>();
        let stamp = data.read_unaligned();
        // The timestamp is a wall-clock time. The age of a timestamp is the same on both clocks.
        let stamp_ns = stamp.tv_sec * 1_000_000_000 + stamp.tv_nsec;
        let age_ns = clock_ns(ClockId::Realtime) - stamp_ns;
        Ok((n, monotonic_ns().checked_add_signed(-age_ns)))
    }
}

/// Returns the time in ns for which this thread has waited for a CPU, or 0 if the kernel does not
/// count the time.
pub fn run_delay_ns() -> u64 {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let second = line.split_whitespace().nth(1);
    second.and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Stops processes for the given time. Returns the actual time in µs.
///
/// # Errors
/// A process has ended or belongs to another user.
pub fn pause(pids: &[u32], length: Duration) -> io::Result<f64> {
    let signal = |signal| {
        let mut pids = pids.iter();
        pids.try_for_each(|pid| -> io::Result<()> {
            let pid = Pid::from_raw(pid.cast_signed()).ok_or(Errno::SRCH)?;
            Ok(kill_process(pid, signal)?)
        })
    };
    let begin = Instant::now();
    signal(Signal::STOP)?;
    std::thread::sleep(length);
    signal(Signal::CONT)?;
    Ok(begin.elapsed().as_secs_f64() * 1e6)
}

/// Sets this process's nice value and restricts the process to one CPU. May be called between fork
/// and exec.
///
/// # Errors
/// The CPU does not exist or is not allowed.
pub fn confine(cpu: usize, nice: i32) -> io::Result<()> {
    setpriority_process(None, nice)?;
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Lets all threads of another process run on the CPUs of this process. Existing child processes of
/// that process keep their CPU affinity.
///
/// # Errors
/// The process has ended or belongs to another user.
pub fn release(pid: u32) -> io::Result<()> {
    let cpus = sched_getaffinity(None)?;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let id = thread?.file_name().to_str().and_then(|id| id.parse().ok());
        match sched_setaffinity(id.and_then(Pid::from_raw), &cpus) {
            // The thread has ended since it was listed.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Sets the policy SCHED_IDLE: this thread runs only on otherwise idle CPUs (sched(7)).
///
/// # Errors
/// The kernel rejects the policy.
pub fn lowest_priority() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 means this thread; the parameters outlive the call.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
