//! Kernel timestamps for received data (SO_TIMESTAMPNS, socket(7)).
//!
//! The kernel timestamps a segment when it arrives. Service times thus exclude the client's delay
//! until the thread gets a CPU and reads the response.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::time::{Duration, SystemTime};

use socket2::{Domain, Socket, Type};

use super::endpoint::turn_on;
use crate::clock::Ns;

/// Size in bytes of the control message that contains a timestamp.
// SAFETY: only computes a length.
pub(super) const ROOM: usize =
    unsafe { libc::CMSG_SPACE(size_of::<libc::timespec>() as u32) } as usize;

/// Offset of a control message's data.
// SAFETY: only computes a length.
const DATA: usize = unsafe { libc::CMSG_LEN(0) } as usize;

/// Keeps kernel timestamps enabled until this value is dropped.
pub(super) struct Stamps {
    /// The kernel enables timestamps when the first socket requests them, and disables them when
    /// the last such socket is closed. Each change patches kernel code.
    /// This socket keeps timestamps enabled between connections.
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

    /// Enables timestamps on a socket. If this fails, responses are timed when they are read.
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
/// Read `wall` before `seen`. If the thread is preempted in between, the result is too late, but
/// never too early.
/// Returns `None` for a timestamp in the future, for example after the wall clock was set back.
#[inline]
pub(super) fn moment(stamp: Duration, wall: Duration, seen: Ns) -> Option<Ns> {
    let age = wall.checked_sub(stamp)?;
    seen.checked_sub(u64::try_from(age.as_nanos()).ok()?)
}

/// Returns the timestamp from the control messages of a receive.
/// Returns `None` if the first control message is missing or has another type.
pub(super) fn stamp(control: &[u8]) -> Option<Duration> {
    let data = control.get(DATA..DATA + size_of::<libc::timespec>())?;
    // SAFETY: the header and the timestamp consist of plain integers, for which any bytes are
    // valid. The slice is long enough for both.
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

/// Receives the available bytes into `buffer`. Returns their number and the last byte's timestamp.
/// The number is 0 at the end of the stream.
pub(super) fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<(usize, Option<Duration>)> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // This array has the alignment that control messages need.
    let mut control = [0u64; ROOM.div_ceil(8)];
    // SAFETY: a zeroed msghdr is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = ROOM as _;
    // SAFETY: the message points to memory that outlives the call and has the given sizes.
    let n = unsafe { libc::recvmsg(fd, &raw mut message, 0) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    let filled = (message.msg_controllen as usize).min(ROOM);
    // SAFETY: the array consists of at least ROOM initialized bytes.
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
