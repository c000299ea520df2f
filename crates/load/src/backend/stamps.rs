//! When the kernel had what was received, by its own stamps (SO_TIMESTAMPNS, socket(7)).
//!
//! A segment is stamped as it comes in. Neither the time until the thread gets a CPU nor that until it comes to this answer is in
//! it: those are the client's and no part of what the server took.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;

use socket2::{Domain, Socket, Type};

use super::calls::turn_on;
use crate::clock::Ns;

/// Bytes that a stamp takes among the control messages of a receive.
// SAFETY: only works out a length.
pub(super) const ROOM: usize =
    unsafe { libc::CMSG_SPACE(size_of::<libc::timespec>() as u32) } as usize;

/// Where a control message's data begins.
// SAFETY: only works out a length.
const DATA: usize = unsafe { libc::CMSG_LEN(0) } as usize;

/// Stamping is on in the kernel for as long as this lives.
pub(super) struct Stamps {
    /// The kernel turns stamping on with the first socket that asks for it and off with the last, by changing its own code. Between two
    /// connections it would do so again and again.
    _asking: Socket,
}

impl Stamps {
    /// Turns stamping on; none where the kernel refuses.
    pub fn keep() -> Option<Stamps> {
        let asking = Socket::new(Domain::IPV4, Type::DGRAM, None).ok()?;
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        asking.bind(&anywhere.into()).ok()?;
        turn_on(&asking, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS).ok()?;
        Some(Stamps { _asking: asking })
    }

    /// Has what this socket receives stamped. Where that is refused, its answers are timed when they are seen.
    pub fn ask(&self, socket: &Socket) {
        let _ = turn_on(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS);
    }
}

/// The wall clock, which stamps are of.
pub(super) fn wall() -> libc::timespec {
    let mut now = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the kernel writes into a timespec that outlives the call; all-zero is a valid value should it not.
    unsafe {
        libc::clock_gettime(libc::CLOCK_REALTIME, now.as_mut_ptr());
        now.assume_init()
    }
}

/// The moment of a stamp on our own clock: its age is the same on either. `wall` is to be looked at before `seen`: where the thread loses
/// its CPU in between, the moment comes out later than it was and never earlier. None for a stamp from the future, as when the wall
/// clock was set back in between.
pub(super) fn moment(stamp: libc::timespec, wall: libc::timespec, seen: Ns) -> Option<Ns> {
    let seconds = wall.tv_sec.checked_sub(stamp.tv_sec)?;
    let age = seconds
        .checked_mul(1_000_000_000)?
        .checked_add(wall.tv_nsec - stamp.tv_nsec)?;
    seen.checked_sub(u64::try_from(age).ok()?)
}

/// The stamp among the control messages of a receive; none where there is another one or none.
pub(super) fn stamp(control: &[u8]) -> Option<libc::timespec> {
    let data = control.get(DATA..DATA + size_of::<libc::timespec>())?;
    // SAFETY: both are plain numbers, for which any bytes are a valid value, and the slice reaches to the end of the second.
    let (header, stamp) = unsafe {
        (
            control.as_ptr().cast::<libc::cmsghdr>().read_unaligned(),
            data.as_ptr().cast::<libc::timespec>().read_unaligned(),
        )
    };
    let stamped =
        header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_TIMESTAMPNS;
    stamped.then_some(stamp)
}

/// Receives what has come, as far as `buffer` reaches, with the stamp of the last of it; 0 bytes at the end.
pub(super) fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<(usize, Option<libc::timespec>)> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // Aligned as control messages are.
    let mut control = [0u64; ROOM.div_ceil(8)];
    // SAFETY: a msghdr of zeroes is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = ROOM as _;
    // SAFETY: the message's pointers are to memory of our own that outlives the call and has the sizes given.
    let n = unsafe { libc::recvmsg(fd, &raw mut message, 0) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    let filled = (message.msg_controllen as usize).min(ROOM);
    // SAFETY: the array's bytes are initialised and at least ROOM.
    let control = unsafe { std::slice::from_raw_parts(control.as_ptr().cast::<u8>(), filled) };
    Ok((n, stamp(control)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tv_sec: i64, tv_nsec: i64) -> libc::timespec {
        libc::timespec { tv_sec, tv_nsec }
    }

    #[test]
    fn a_stamp_is_as_old_on_our_clock_as_on_the_wall() {
        assert_eq!(moment(at(9, 999_999_990), at(10, 5), 1_000), Some(985));
        assert_eq!(moment(at(10, 5), at(10, 5), 1_000), Some(1_000));
    }

    #[test]
    fn stamps_of_a_clock_that_was_set_are_left_out() {
        assert_eq!(moment(at(10, 6), at(10, 5), 1_000), None);
        assert_eq!(moment(at(3, 0), at(10, 5), 1_000), None);
        assert_eq!(moment(at(i64::MIN, 0), at(i64::MAX, 0), 1_000), None);
    }

    #[test]
    fn other_control_messages_are_no_stamp() {
        assert!(stamp(&[]).is_none());
        assert!(stamp(&[0; ROOM]).is_none());
        assert!(stamp(&[0; 7]).is_none());
    }
}
