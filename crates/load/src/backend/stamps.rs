//! Kernel timestamps of received data (SO_TIMESTAMPNS, socket(7)).
//!
//! The kernel stamps a segment on arrival. The time until the thread gets a CPU and reads the
//! response belongs to the client, so it is excluded.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::time::{Duration, SystemTime};

use socket2::{Domain, Socket, Type};

use super::calls::turn_on;
use crate::clock::Ns;

/// Size in bytes of a timestamp among the control messages of a receive.
// SAFETY: only computes a length.
pub(super) const ROOM: usize =
    unsafe { libc::CMSG_SPACE(size_of::<libc::timespec>() as u32) } as usize;

/// Offset of a control message's data.
// SAFETY: only computes a length.
const DATA: usize = unsafe { libc::CMSG_LEN(0) } as usize;

/// Keeps kernel timestamps enabled until it is dropped.
pub(super) struct Stamps {
    /// The kernel enables timestamps with the first socket that requests them, and disables them
    /// with the last one. It does so by patching its own code.
    /// This socket prevents a change between any two connections.
    _first: Socket,
}

impl Stamps {
    /// Enables timestamps. Returns `None` if the kernel refuses.
    pub fn keep() -> Option<Stamps> {
        let first = Socket::new(Domain::IPV4, Type::DGRAM, None).ok()?;
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        first.bind(&anywhere.into()).ok()?;
        turn_on(&first, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS).ok()?;
        Some(Stamps { _first: first })
    }

    /// Enables timestamps on a socket. On failure, its responses are timed when they are read.
    pub fn ask(&self, socket: &Socket) {
        let _ = turn_on(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS);
    }
}

/// Returns the wall-clock time since the Unix epoch, on the same clock as kernel timestamps.
#[inline]
pub(super) fn wall() -> Duration {
    let since_epoch = SystemTime::UNIX_EPOCH.elapsed();
    since_epoch.unwrap_or_default()
}

/// Converts a timestamp to the worker's clock by its age, which is the same on both clocks.
/// Read `wall` before `seen`: if the thread loses its CPU in between, the result is too late, but
/// never too early.
/// Returns `None` for a timestamp in the future, for example after the wall clock was set back.
#[inline]
pub(super) fn moment(stamp: Duration, wall: Duration, seen: Ns) -> Option<Ns> {
    let age = wall.checked_sub(stamp)?;
    seen.checked_sub(u64::try_from(age.as_nanos()).ok()?)
}

/// Returns the timestamp among the control messages of a receive.
/// `None` if the first control message is missing or of another type.
pub(super) fn stamp(control: &[u8]) -> Option<Duration> {
    let data = control.get(DATA..DATA + size_of::<libc::timespec>())?;
    // SAFETY: header and timestamp are plain numbers, for which any bytes are valid. The slice is
    // long enough for both.
    let (header, stamp) = unsafe {
        (
            control.as_ptr().cast::<libc::cmsghdr>().read_unaligned(),
            data.as_ptr().cast::<libc::timespec>().read_unaligned(),
        )
    };
    let stamped =
        header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_TIMESTAMPNS;
    let seconds = u64::try_from(stamp.tv_sec).ok().filter(|_| stamped)?;
    Some(Duration::new(seconds, u32::try_from(stamp.tv_nsec).ok()?))
}

/// Receives available bytes into `buffer`, with the timestamp of the last byte.
/// Returns 0 bytes at the end of the stream.
pub(super) fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<(usize, Option<Duration>)> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // This array is aligned like control messages.
    let mut control = [0u64; ROOM.div_ceil(8)];
    // SAFETY: a zeroed msghdr is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = ROOM as _;
    // SAFETY: the message's pointers refer to memory that outlives the call and has the given
    // sizes.
    let n = unsafe { libc::recvmsg(fd, &raw mut message, 0) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    let filled = (message.msg_controllen as usize).min(ROOM);
    // SAFETY: the array's bytes are initialized, and there are at least ROOM of them.
    let control = unsafe { std::slice::from_raw_parts(control.as_ptr().cast::<u8>(), filled) };
    Ok((n, stamp(control)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, ns: u32) -> Duration {
        Duration::new(seconds, ns)
    }

    #[test]
    fn converts_wall_clock_stamps_by_age() {
        assert_eq!(moment(at(9, 999_999_990), at(10, 5), 1_000), Some(985));
        assert_eq!(moment(at(10, 5), at(10, 5), 1_000), Some(1_000));
    }

    #[test]
    fn ignores_stamps_of_an_adjusted_clock() {
        assert_eq!(moment(at(10, 6), at(10, 5), 1_000), None);
        assert_eq!(moment(at(3, 0), at(10, 5), 1_000), None);
        assert_eq!(moment(at(0, 0), at(u64::MAX, 0), 1_000), None);
    }

    #[test]
    fn ignores_other_control_messages() {
        assert!(stamp(&[]).is_none());
        assert!(stamp(&[0; ROOM]).is_none());
        assert!(stamp(&[0; 7]).is_none());
    }
}
