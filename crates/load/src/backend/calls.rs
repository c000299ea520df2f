//! System calls that the backends need but `std` and `socket2` do not offer in a suitable form.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;

use rustix::thread::set_current_timer_slack;
use socket2::Socket;

use crate::libc_calls::result;

/// Defers the choice of a local port from `bind` to `connect` (Linux 4.2).
/// `connect` considers the whole four-tuple. Without this option, all source addresses would share
/// one port range.
pub(super) fn bind_address_no_port(socket: &Socket) -> io::Result<()> {
    turn_on(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT)
}

/// The value that setsockopt(2) expects to turn on a socket option.
pub(super) static ON: libc::c_int = 1;

/// Turns a socket option on.
pub(super) fn turn_on(socket: &Socket, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
    // SAFETY: the option takes an int that outlives the call.
    result(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const ON).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
        .into()
    })
}

/// Makes the calling thread's waits end on time instead of up to 50 µs late.
pub(super) fn fire_when_due() -> io::Result<()> {
    Ok(set_current_timer_slack(Some(NonZeroU64::MIN))?)
}
