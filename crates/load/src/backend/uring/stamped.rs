//! Receives that bring the kernel's stamps with them.

use std::ops::Range;

use io_uring::opcode;
use io_uring::squeue::Flags;
use io_uring::types::RecvMsgOut;

use super::Uring;
use super::slot::Target;
use super::tag::Op;
use crate::backend::Slot;
use crate::backend::calls::ON;
use crate::backend::stamps::{self, Stamps};
use crate::clock::Ns;

/// What stamped receives need.
pub(super) struct Stamping {
    pub stamps: Stamps,
    /// What a receive has room for besides the bytes; the kernel reads it when a receive is submitted.
    message: Box<libc::msghdr>,
    /// The wall clock right before the last batch was timed by our own.
    wall: libc::timespec,
}

impl Stamping {
    fn new(stamps: Stamps) -> Self {
        // SAFETY: a msghdr of zeroes is valid.
        let mut message: Box<libc::msghdr> = Box::new(unsafe { std::mem::zeroed() });
        message.msg_controllen = stamps::ROOM as _;
        Stamping {
            stamps,
            message,
            wall: stamps::wall(),
        }
    }

    pub fn message(&self) -> *const libc::msghdr {
        &raw const *self.message
    }

    /// Looks at the wall clock, right before a batch is timed.
    pub fn look(&mut self) {
        self.wall = stamps::wall();
    }
}

impl Uring {
    /// Has answers timed by the kernel's stamps from now on, where it gives them. Sockets in the ring's table can be asked for
    /// them where they can be bound (Linux 6.11).
    #[must_use]
    pub fn stamped(mut self) -> Self {
        if self.plain || !self.plain_bound {
            self.stamping = Stamps::keep().map(Stamping::new);
        }
        self
    }

    /// Asks the slot's socket, which is in the table, for stamps. Where that fails there are none, and nothing else.
    pub(super) fn push_stamp(&mut self, slot: Slot) {
        let (on, length) = (&raw const ON, size_of::<libc::c_int>() as u32);
        let (level, option) = (libc::SOL_SOCKET as u32, libc::SO_TIMESTAMPNS as u32);
        self.push_on(
            slot,
            Op::Other,
            Flags::SKIP_SUCCESS,
            |target| match target {
                Target::Direct(fd) => {
                    opcode::SetSockOpt::new(fd, level, option, on.cast(), length).build()
                }
                Target::Plain(fd) => {
                    opcode::SetSockOpt::new(fd, level, option, on.cast(), length).build()
                }
            },
        );
    }

    /// Where the slot's bytes lie in a buffer that the kernel has filled up to `length`, and when it had the last of them.
    /// None of one that is not laid out as asked for.
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
