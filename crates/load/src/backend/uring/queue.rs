//! Adds entries to the submission queue, and submits them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

use io_uring::squeue::{self, Flags};
use io_uring::types::{DestinationSlot, Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode};
use socket2::SockAddr;

use super::buffers::GROUP;
use super::{Descriptor, ENTRIES, Uring};
use crate::backend::endpoint::ON;
use crate::backend::{SharedBytes, Slot};
use crate::clock::Ns;

/// Maximum size in bytes of a request that fits into an empty socket buffer in one write.
/// This is the lowest default size in `net.ipv4.tcp_wmem`.
pub(super) const AT_ONCE: usize = 16 * 1024;

/// An address without a family. Connecting a TCP socket to this address disconnects the socket, and
/// sends RST if the peer still uses the connection.
static NOWHERE: libc::sockaddr = libc::sockaddr {
    sa_family: libc::AF_UNSPEC as libc::sa_family_t,
    sa_data: [0; 14],
};

impl Uring {
    pub(super) fn push(&mut self, entry: &squeue::Entry) {
        self.push_chain(std::slice::from_ref(entry));
    }

    /// Pushes an entry that causes a completion only if it fails.
    pub(super) fn push_quiet(&mut self, entry: squeue::Entry, data: u64) {
        self.push(&entry.flags(Flags::SKIP_SUCCESS).user_data(data));
    }

    /// Pushes entries that must be submitted together. The end of a submission also ends a chain.
    pub(super) fn push_chain(&mut self, entries: &[squeue::Entry]) {
        // SAFETY: all memory that the entries refer to lives until the kernel has finished with it.
        // Addresses live as long as the ring or as documented at `Addresses`. Requests live as
        // documented at `Uring::hold` and `Uring::cancelled`.
        let mut pushed = unsafe { self.ring.submission().push_multiple(entries) };
        if pushed.is_err() {
            self.enter();
            // SAFETY: as above.
            pushed = unsafe { self.ring.submission().push_multiple(entries) };
        }
        if pushed.is_err() {
            // The kernel accepts no entries, although the queue has room for several times the
            // number of delayed commands.
            self.failed
                .get_or_insert(io::Error::from_raw_os_error(libc::EBUSY));
        }
    }

    /// Submits the queue without waiting.
    pub(super) fn enter(&mut self) {
        // The queue may contain the retry of a receive that found no free buffer.
        self.buffers.publish();
        match self.ring.submit() {
            Err(error) if !passing(&error) => {
                self.failed.get_or_insert(error);
            }
            _ => self.submitted(),
        }
    }

    /// Submits the queue and waits for `n` completions, for at most `most` ns.
    pub(super) fn submit_and_wait(&mut self, n: usize, most: Ns) -> io::Result<()> {
        let timeout = Timespec::from(Duration::from_nanos(most));
        let args = SubmitArgs::new().timespec(&timeout);
        match self.ring.submitter().submit_with_args(n, &args) {
            Err(error) if !passing(&error) => Err(error),
            _ => {
                self.submitted();
                Ok(())
            }
        }
    }

    /// Drops replaced requests. The kernel does not need these requests after a submission.
    pub(super) fn submitted(&mut self) {
        if !self.retired.is_empty() && self.ring.submission().is_empty() {
            self.retired.clear();
        }
    }

    /// Pushes the entry that `make` builds for the slot's descriptor.
    pub(super) fn push_on(
        &mut self,
        slot: Slot,
        op: RingOperation,
        flags: Flags,
        make: impl FnOnce(Fd) -> squeue::Entry,
    ) {
        let entry = &self.slots[slot as usize];
        let (fd, place) = match &entry.socket {
            Descriptor::None => return,
            Descriptor::Direct => (Fd(slot.cast_signed()), Flags::FIXED_FILE),
            Descriptor::Plain(socket) => (Fd(socket.as_raw_fd()), Flags::empty()),
        };
        let data = user_data(op, slot, entry.generation);
        self.push(&make(fd).flags(flags | place).user_data(data));
    }

    /// Creates a socket in the ring's table.
    ///
    /// The connect that follows is not linked to this entry, because the kernel creates a socket
    /// before it handles the next entry. A link would only add overhead.
    /// If a submission ended within such a chain, the remaining entries would find no socket
    /// (EBADF).
    pub(super) fn push_socket(&mut self, slot: Slot) {
        let Ok(place) = DestinationSlot::try_from_slot_target(slot) else {
            // No table is long enough. The connect that follows fails, because there is no socket.
            return;
        };
        let data = user_data(
            RingOperation::Socket,
            slot,
            self.slots[slot as usize].generation,
        );
        let target = self.slots[slot as usize].target as usize;
        let domain = self.endpoints[target].domain();
        let socket = opcode::Socket::new(domain.into(), libc::SOCK_STREAM, 0)
            .file_index(Some(place))
            .build();
        self.push_quiet(socket, data);
    }

    pub(super) fn push_connect(&mut self, slot: Slot) {
        let target = &self.endpoints[self.slots[slot as usize].target as usize];
        let (address, length) = (target.as_ptr().cast(), target.len());
        self.push_on(slot, RingOperation::Connect, Flags::empty(), |fd| {
            opcode::Connect::new(fd, address, length).build()
        });
    }

    /// Binds the slot's socket, which is in the ring's table, to `source`, and connects it.
    ///
    /// The socket option, the bind and the connect form a chain, which is submitted as a whole. If
    /// the bind fails, the kernel cancels the connect. Without a chain, the connect would use a
    /// source address that the kernel chooses. If an operation in the chain fails, only that
    /// operation is reported.
    /// [`Uring::push_socket`] explains why the chain does not include the socket's creation.
    pub(super) fn push_connect_from(&mut self, slot: Slot, source: IpAddr) {
        let generation = self.slots[slot as usize].generation;
        let data = |op| user_data(op, slot, generation);
        let before = |entry: squeue::Entry| {
            let flags = Flags::IO_LINK | Flags::SKIP_SUCCESS;
            entry.flags(flags).user_data(data(RingOperation::Bind))
        };
        let socket = Fixed(slot);
        let (option, length) = (&raw const ON, size_of::<libc::c_int>() as u32);
        let port_later = opcode::SetSockOpt::new(
            socket,
            libc::IPPROTO_IP as u32,
            libc::IP_BIND_ADDRESS_NO_PORT as u32,
            option.cast(),
            length,
        );
        let from = self.addresses.hold(source);
        let bind = opcode::Bind::new(socket, from.as_ptr().cast(), from.len());
        let to = &self.endpoints[self.slots[slot as usize].target as usize];
        let connect = opcode::Connect::new(socket, to.as_ptr().cast(), to.len());
        let chain = [
            before(port_later.build()),
            before(bind.build()),
            connect.build().user_data(data(RingOperation::Connect)),
        ];
        self.push_chain(&chain);
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

    /// Ends the slot's connection with RST, as a close with SO_LINGER would.
    /// Unlike SO_LINGER, this method also works for sockets in the ring's table.
    pub(super) fn push_disconnect(&mut self, slot: Slot) {
        let (address, length) = (&raw const NOWHERE, size_of::<libc::sockaddr>() as u32);
        self.push_on(slot, RingOperation::Other, Flags::SKIP_SUCCESS, |fd| {
            opcode::Connect::new(fd, address, length).build()
        });
    }

    /// Arms the slot's receive. The receive is multishot, except on a unix socket.
    /// On a unix socket, a multishot receive can miss the end of the stream directly after data,
    /// unless the kernel has a fix from March 2026 (liburing issue 1549).
    pub(super) fn push_receive(&mut self, slot: Slot) {
        let entry = &mut self.slots[slot as usize];
        entry.receiving = true;
        let is_unix = self.endpoints[entry.target as usize].is_unix();
        let message = self.stamping.as_ref().map(|s| &raw const *s.message);
        let flags = if is_unix {
            Flags::BUFFER_SELECT
        } else {
            Flags::empty()
        };
        self.push_on(slot, RingOperation::Receive, flags, |fd| match message {
            // The kernel uses the size of the group's buffers instead of this length.
            _ if is_unix => opcode::Recv::new(fd, std::ptr::null_mut(), 0)
                .buf_group(GROUP)
                .build(),
            Some(message) => opcode::RecvMsgMulti::new(fd, message, GROUP).build(),
            None => opcode::RecvMulti::new(fd, GROUP).build(),
        });
    }

    /// Sends the rest of the slot's request.
    ///
    /// If `watched`, the kernel continues until all bytes are written, and then reports a
    /// completion.
    /// Otherwise the kernel accepts the bytes that fit immediately, and does not access the request
    /// after the submission. It reports a completion only if some bytes did not fit.
    pub(super) fn push_send(&mut self, slot: Slot, watched: bool) {
        let entry = &mut self.slots[slot as usize];
        let Some(rest) = entry.request.as_deref().and_then(|r| r.get(entry.sent..)) else {
            return;
        };
        // Bytes beyond 4 GiB are sent after this send's completion.
        let (start, length) = (rest.as_ptr(), u32::try_from(rest.len()).unwrap_or(u32::MAX));
        entry.sending = watched;
        entry.round = self.rounds;
        let whole = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let (flags, how) = if watched {
            (Flags::empty(), whole)
        } else {
            (Flags::SKIP_SUCCESS, whole | libc::MSG_DONTWAIT)
        };
        self.push_on(slot, RingOperation::Send, flags, |fd| {
            opcode::Send::new(fd, start, length).flags(how).build()
        });
    }

    /// Stores `bytes` as the slot's request.
    /// The previous request may still be in the queue, so it is kept until it is submitted. At most
    /// one such request exists per queue entry.
    pub(super) fn hold(&mut self, slot: Slot, bytes: &SharedBytes) {
        let entry = &mut self.slots[slot as usize];
        entry.sent = 0;
        let same = |held: &SharedBytes| Rc::ptr_eq(held, bytes);
        if !entry.request.as_ref().is_some_and(same)
            && let Some(old) = entry.request.replace(Rc::clone(bytes))
        {
            self.retired.push(old);
        }
    }
}

/// Returns whether the error of an enter call is harmless: the time is up, a signal arrived, or
/// completions must be read first.
pub(super) fn passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)
    )
}

/// The operation that a completion reports. The user data of a completion identifies the operation
/// and the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum RingOperation {
    Socket = 1,
    Connect = 2,
    Send = 3,
    Receive = 4,
    /// Close, cancel, or another operation whose result is ignored.
    Other = 5,
    /// Sets the socket option for the bind, or binds the socket to its source address.
    Bind = 6,
}

const OP_SHIFT: u32 = 61;
const GENERATION_SHIFT: u32 = 32;
const GENERATION_MASK: u32 = (1 << (OP_SHIFT - GENERATION_SHIFT)) - 1;

/// Encodes the operation in the top bits, followed by the slot's generation and the slot's index.
pub(super) fn user_data(op: RingOperation, slot: Slot, generation: u32) -> u64 {
    (op as u64) << OP_SHIFT
        | u64::from(generation & GENERATION_MASK) << GENERATION_SHIFT
        | u64::from(slot)
}

/// Decodes the value of [`user_data`].
pub(super) fn parts(user_data: u64) -> (RingOperation, Slot, u32) {
    let op = match user_data >> OP_SHIFT {
        1 => RingOperation::Socket,
        2 => RingOperation::Connect,
        3 => RingOperation::Send,
        4 => RingOperation::Receive,
        6 => RingOperation::Bind,
        _ => RingOperation::Other,
    };
    let generation = (user_data >> GENERATION_SHIFT) as u32 & GENERATION_MASK;
    (op, user_data as Slot, generation)
}

/// Returns the next generation. Generations repeat after a slot has been closed 2²⁹ times.
pub(super) fn next_generation(generation: u32) -> u32 {
    generation.wrapping_add(1) & GENERATION_MASK
}

/// Source addresses that queued bind operations refer to.
/// The kernel copies an address when the bind is submitted, so the list needs no more entries than
/// the submission queue.
pub(super) struct Addresses {
    held: Box<[SockAddr]>,
    next: usize,
}

impl Addresses {
    pub(super) fn new() -> Self {
        let none = SockAddr::from(SocketAddr::from(([0, 0, 0, 0], 0)));
        Addresses {
            held: vec![none; ENTRIES as usize].into_boxed_slice(),
            next: 0,
        }
    }

    /// Stores an address in memory that does not change while the bind may still be in the queue.
    fn hold(&mut self, source: IpAddr) -> &SockAddr {
        self.next = (self.next + 1) % self.held.len();
        let held = &mut self.held[self.next];
        *held = SocketAddr::new(source, 0).into();
        held
    }
}

/// Returns whether sockets in the ring's table can be bound.
pub(super) fn can_bind(ring: &IoUring) -> bool {
    let mut probe = Probe::new();
    // Bind is the newest of the required operations. A kernel without bind may also lack the
    // command for socket options.
    ring.submitter().register_probe(&mut probe).is_ok() && probe.is_supported(opcode::Bind::CODE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_parts_and_wraps_generations() {
        for op in [
            RingOperation::Socket,
            RingOperation::Connect,
            RingOperation::Send,
            RingOperation::Receive,
            RingOperation::Other,
            RingOperation::Bind,
        ] {
            for (slot, generation) in [(0, 0), (Slot::MAX, 0), (7, GENERATION_MASK)] {
                assert_eq!(
                    parts(user_data(op, slot, generation)),
                    (op, slot, generation)
                );
            }
        }
        assert_eq!(next_generation(GENERATION_MASK), 0);
    }
}
