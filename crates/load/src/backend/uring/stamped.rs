//! Receives with kernel timestamps.

use std::ops::Range;
use std::time::Duration;

use io_uring::opcode;
use io_uring::squeue::Flags;
use io_uring::types::RecvMsgOut;

use super::Uring;
use super::tag::RingOperation;
use crate::backend::Slot;
use crate::backend::endpoint::ON;
use crate::backend::stamps::{self, Stamps};
use crate::clock::Ns;

/// State of receives with timestamps.
pub(super) struct Stamping {
    pub stamps: Stamps,
    /// Layout of a receive: the space for control data in addition to the received bytes.
    /// The kernel reads this header when a receive is submitted.
    pub message: Box<libc::msghdr>,
    /// Wall-clock time, read directly before the worker's clock timed the last batch.
    pub wall: Duration,
}

impl Stamping {
    fn new(stamps: Stamps) -> Self {
        // SAFETY: a zeroed msghdr is valid.
        let mut message: Box<libc::msghdr> = Box::new(unsafe { std::mem::zeroed() });
        message.msg_controllen = stamps::ROOM as _;
        Stamping {
            stamps,
            message,
            wall: stamps::wall(),
        }
    }
}

impl Uring {
    /// Enables kernel timestamps of responses if the kernel supports them.
    /// Since Linux 6.11, sockets in the ring's table support timestamps.
    #[must_use]
    pub fn stamped(mut self) -> Self {
        if self.plain || !self.plain_bound {
            self.stamping = Stamps::keep().map(Stamping::new);
        }
        self
    }

    /// Enables timestamps on the slot's socket, which is in the ring's table.
    /// If this fails, the slot's responses have no timestamps.
    pub(super) fn push_stamp(&mut self, slot: Slot) {
        let (on, length) = (&raw const ON, size_of::<libc::c_int>() as u32);
        let (level, option) = (libc::SOL_SOCKET as u32, libc::SO_TIMESTAMPNS as u32);
        self.push_on(slot, RingOperation::Other, Flags::SKIP_SUCCESS, |fd| {
            opcode::SetSockOpt::new(fd, level, option, on.cast(), length).build()
        });
    }

    /// Returns the range of the slot's bytes in a buffer that is filled up to `length`, and the
    /// timestamp of the last byte.
    /// Returns `None` if the buffer does not have the requested layout.
    pub(super) fn payload(
        &self,
        slot: Slot,
        id: u16,
        length: usize,
    ) -> Option<(Range<usize>, Option<Ns>)> {
        let target = self.slots[slot as usize].target as usize;
        let stamping = self.stamping.as_ref();
        let Some(stamping) = stamping.filter(|_| !self.endpoints[target].is_unix()) else {
            return Some((0..length, None));
        };
        let buffer = self.buffers.filled(id, length);
        let out = RecvMsgOut::parse(buffer, &stamping.message).ok()?;
        let stamp = stamps::stamp(out.control_data());
        let at = stamp.and_then(|stamp| stamps::moment(stamp, stamping.wall, self.taken));
        let bytes = buffer.len() - out.payload_data().len()..buffer.len();
        Some((bytes, at))
    }
}
