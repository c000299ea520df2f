//! The system calls that the standard library does not have: the clock, epoll, timer slack, limits, signals.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// CLOCK_MONOTONIC in ns: the clock that every time of a log is read from.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec of our own that outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Writes out what waits in memory for the disks (`sync(2)`).
pub fn write_out() {
    // SAFETY: it takes nothing, gives nothing and cannot fail.
    unsafe { libc::sync() };
}

/// Sleeps until the given time of [`monotonic_ns`].
pub fn sleep_until(until_ns: u64) {
    let until = timespec(until_ns);
    // SAFETY: the pointer is to a timespec of our own that outlives the call; no remainder is asked for.
    while unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const until,
            std::ptr::null_mut(),
        )
    } == libc::EINTR
    {}
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

/// Has the kernel stamp what a socket receives, and what the sockets receive that it accepts (socket(7), SO_TIMESTAMPNS).
///
/// # Errors
/// The kernel refuses it.
pub fn stamp_arrivals(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option takes an int, which outlives the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
    .map(|_| ())
}

/// Reads once; also tells when the kernel got the last of it, in the time of [`monotonic_ns`], where it stamped it.
///
/// # Errors
/// Those of recvmsg(2).
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // Room for one control message with a timespec, aligned as control messages are.
    let mut control = [0u64; 8];
    // SAFETY: a msghdr of zeroes is valid; its pointers are to memory of our own that outlives the call and have its
    // sizes; control messages are walked by the C library's own macros within what the kernel says it filled.
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
        let stamp = libc::CMSG_DATA(header)
            .cast::<libc::timespec>()
            .read_unaligned();
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now);
        // The stamp is of the wall clock; its age is the same on both.
        let age_ns = (now.tv_sec - stamp.tv_sec) * 1_000_000_000 + (now.tv_nsec - stamp.tv_nsec);
        Ok((n, monotonic_ns().checked_add_signed(-age_ns)))
    }
}

/// Lets this thread's timers fire when they are due, not up to 50 µs later (prctl(2), PR_SET_TIMERSLACK).
pub fn finest_timer_slack() {
    // SAFETY: takes no pointers and only changes this thread's slack, to 1 ns.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}

/// How long this thread has been ready to run and waited for a CPU, ns; 0 where the kernel does not count it.
#[must_use]
pub fn run_delay_ns() -> u64 {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let second = line.split_whitespace().nth(1);
    second.and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Raises the limit on open files as far as allowed; a limit that cannot be raised stays.
pub fn raise_open_files() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to an rlimit of our own that outlives the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the same, read only.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}

/// Sends a signal to one process.
///
/// # Errors
/// The process is gone or not ours.
pub fn signal(pid: u32, signal: i32) -> io::Result<()> {
    // SAFETY: kill(2) takes plain numbers; a pid above 0 names one process.
    check(unsafe { libc::kill(pid.cast_signed(), signal) }).map(|_| ())
}

/// Gives this process a lower priority and one CPU; meant to be called between fork and exec.
///
/// # Errors
/// The CPU does not exist or is not allowed.
pub fn confine(cpu: usize, nice: i32) -> io::Result<()> {
    // SAFETY: setpriority takes plain numbers and concerns only this process; cpu_set_t is plain old data
    // for which all zeroes is the empty set, and the size given is its own.
    unsafe {
        check(libc::setpriority(libc::PRIO_PROCESS, 0, nice))?;
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        check(libc::sched_setaffinity(
            0,
            size_of::<libc::cpu_set_t>(),
            &raw const set,
        ))?;
    }
    Ok(())
}

/// Lets this thread run only when nothing else wants its CPU (sched(7), SCHED_IDLE).
///
/// # Errors
/// The kernel refuses it.
pub fn lowest_priority() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 means this thread; the parameters outlive the call.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) })
        .map(|_| ())
}

/// An epoll instance, level-triggered.
#[derive(Debug)]
pub struct Poller {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
}

/// Events taken in one turn; more stay for the next one.
const EVENTS_PER_TURN: usize = 512;

impl Poller {
    /// A new one.
    ///
    /// # Errors
    /// No file descriptor left.
    pub fn new() -> io::Result<Poller> {
        // SAFETY: takes a flag and returns a new descriptor, which nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) };
        let events = vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_PER_TURN];
        Ok(Poller { fd, events })
    }

    /// Watches a descriptor for input; it is forgotten when it is closed.
    ///
    /// # Errors
    /// Of epoll_ctl(2).
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, libc::EPOLLIN)
    }

    /// Watches it also for room to write, or no longer.
    ///
    /// # Errors
    /// Of epoll_ctl(2).
    pub fn watch_writing(&self, fd: BorrowedFd<'_>, token: u64, on: bool) -> io::Result<()> {
        let interest = libc::EPOLLIN | if on { libc::EPOLLOUT } else { 0 };
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest)
    }

    fn control(&self, op: i32, fd: BorrowedFd<'_>, token: u64, interest: i32) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: interest as u32,
            u64: token,
        };
        // SAFETY: both descriptors are borrowed and so open; the event outlives the call.
        check(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), op, fd.as_raw_fd(), &raw mut event) })
            .map(|_| ())
    }

    /// Waits at most `timeout_ns` and returns how many events there are; an interrupted wait has none.
    ///
    /// # Errors
    /// Of epoll_pwait2(2), which Linux has since 5.11.
    pub fn wait(&mut self, timeout_ns: u64) -> io::Result<usize> {
        let timeout = timespec(timeout_ns);
        // SAFETY: the buffer holds EVENTS_PER_TURN events, the timeout is the kernel's 64-bit timespec on
        // every 64-bit target, and no signal mask is given. Through syscall(2) because glibc has the
        // function only since 2.35.
        let n = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                self.events.as_mut_ptr(),
                EVENTS_PER_TURN as libc::c_int,
                &raw const timeout,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        if n >= 0 {
            return Ok(n as usize);
        }
        match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::Interrupted => Ok(0),
            e => Err(e),
        }
    }

    /// The `i`-th event of the last wait: its token, and whether there is room to write.
    #[must_use]
    pub fn event(&self, i: usize) -> (u64, bool) {
        let event = self.events[i];
        (event.u64, event.events & libc::EPOLLOUT as u32 != 0)
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}
