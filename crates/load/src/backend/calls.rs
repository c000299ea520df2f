//! The system calls of a backend that neither `std` nor `socket2` has as they are needed here.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use socket2::Socket;

use crate::clock::Ns;

/// Leaves the choice of a local port to connect, where the whole four-tuple counts: without it a bind to
/// each source address would use up the port range of all of them together (Linux 4.2).
pub(super) fn bind_address_no_port(socket: &Socket) -> io::Result<()> {
    turn_on(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT)
}

/// An option's value that turns it on, as setsockopt(2) takes it.
pub(super) static ON: libc::c_int = 1;

/// Turns an option of a socket on.
pub(super) fn turn_on(socket: &Socket, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
    // SAFETY: the option takes an int, which outlives the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const ON).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Lets this thread's waits end when they are due, not up to 50 µs later.
pub(super) fn fire_when_due() -> io::Result<()> {
    // SAFETY: the option takes a number and no pointer.
    let done = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Has `epoll` tell of every change of a socket, edge-triggered, under `token`.
pub(super) fn register(epoll: &OwnedFd, fd: RawFd, token: u64) -> io::Result<()> {
    let mut event = libc::epoll_event {
        events: (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET) as u32,
        u64: token,
    };
    // SAFETY: both descriptors are open and the event outlives the call.
    let done =
        unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Sends what the socket takes of `bytes`; how much that was.
pub(super) fn send_some(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: pointer and length are of one live slice.
    let n = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Receives what has come, as far as `buffer` reaches; 0 at the end.
pub(super) fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: pointer and length are of one live, writable slice.
    let n = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// A new epoll descriptor.
pub(super) fn new_epoll() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked before it is owned.
    let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just made and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Fills `events` with what has happened, after at most `wait` ns; a signal ends it early.
pub(super) fn wait_events(
    epoll: &OwnedFd,
    events: &mut Vec<libc::epoll_event>,
    wait: Ns,
) -> io::Result<()> {
    events.clear();
    let timeout = libc::timespec {
        tv_sec: (wait / 1_000_000_000) as libc::time_t,
        tv_nsec: (wait % 1_000_000_000) as libc::c_long,
    };
    let spare: &mut [MaybeUninit<libc::epoll_event>] = events.spare_capacity_mut();
    let room = spare.len();
    // SAFETY: the kernel writes at most `room` entries into the vector's spare capacity of that size.
    let n = unsafe {
        libc::epoll_pwait2(
            epoll.as_raw_fd(),
            spare.as_mut_ptr().cast(),
            room as libc::c_int,
            &raw const timeout,
            std::ptr::null(),
        )
    };
    match usize::try_from(n) {
        // SAFETY: the kernel has filled the first `n` entries.
        Ok(n) => unsafe { events.set_len(n) },
        Err(_) => {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
    Ok(())
}
