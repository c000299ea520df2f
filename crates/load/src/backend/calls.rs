//! System calls of a backend that `std` and `socket2` do not offer in the required form.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;

use rustix::thread::set_current_timer_slack;
use socket2::Socket;

/// Defers the choice of a local port from bind to connect (Linux 4.2).
/// Connect considers the whole four-tuple. A bind without this option would make all source
/// addresses share one port range.
pub(super) fn bind_address_no_port(socket: &Socket) -> io::Result<()> {
    turn_on(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT)
}

/// Value that turns on a socket option, in the form that setsockopt(2) expects.
pub(super) static ON: libc::c_int = 1;

/// Turns a socket option on.
pub(super) fn turn_on(socket: &Socket, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
    // SAFETY: the option takes an int that outlives the call.
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

/// Makes waits of the calling thread end on time instead of up to 50 µs late.
pub(super) fn fire_when_due() -> io::Result<()> {
    Ok(set_current_timer_slack(Some(NonZeroU64::MIN))?)
}
