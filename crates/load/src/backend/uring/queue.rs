//! What is put into the submission queue, and when it goes to the kernel.

use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

use io_uring::opcode;
use io_uring::squeue::{self, Flags};
use io_uring::types::{DestinationSlot, Fd, Fixed, SubmitArgs, Timespec};

use super::Uring;
use super::buffers::GROUP;
use super::slot::{Descriptor, Target};
use super::stamped::Stamping;
use super::tag::{Op, user_data};
use crate::backend::{Bytes, Slot};
use crate::clock::Ns;

/// A request up to this size goes into an empty socket buffer in one write (the smallest default of
/// `net.ipv4.tcp_wmem`).
pub(super) const AT_ONCE: usize = 16 * 1024;

/// An address of no family: connecting a TCP socket to it dissolves its connection, by RST where the peer still counts on it.
static NOWHERE: libc::sockaddr = libc::sockaddr {
    sa_family: libc::AF_UNSPEC as libc::sa_family_t,
    sa_data: [0; 14],
};

impl Uring {
    pub(super) fn push(&mut self, entry: &squeue::Entry) {
        self.push_chain(std::slice::from_ref(entry));
    }

    /// Pushes entries that are submitted together: a chain ends where a submission does.
    pub(super) fn push_chain(&mut self, entries: &[squeue::Entry]) {
        // SAFETY: what entries point to lives until the kernel is through with it: addresses for good, as long as the
        // ring or as `Addresses` says, requests as `Uring::hold` and `Uring::cancelled` say.
        let mut pushed = unsafe { self.ring.submission().push_multiple(entries) };
        if pushed.is_err() {
            self.enter();
            // SAFETY: as above.
            pushed = unsafe { self.ring.submission().push_multiple(entries) };
        }
        if pushed.is_err() {
            // The kernel takes nothing, though the queue is several times as long as what is held back.
            self.failed
                .get_or_insert(io::Error::from_raw_os_error(libc::EBUSY));
        }
    }

    /// Submits what is in the queue without waiting.
    pub(super) fn enter(&mut self) {
        // A receive that found no buffer may be among what is submitted.
        self.buffers.publish();
        match self.ring.submit() {
            Err(error) if !passing(&error) => {
                self.failed.get_or_insert(error);
            }
            _ => self.submitted(),
        }
    }

    /// Submits what is in the queue and waits for `n` completions, `most` ns at most.
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

    /// What the kernel has taken no longer needs the requests that were replaced.
    pub(super) fn submitted(&mut self) {
        if !self.retired.is_empty() && self.ring.submission().is_empty() {
            self.retired.clear();
        }
    }

    /// Pushes what `make` makes of the slot's descriptor.
    pub(super) fn push_on(
        &mut self,
        slot: Slot,
        op: Op,
        flags: Flags,
        make: impl Fn(Target) -> squeue::Entry,
    ) {
        let entry = &self.slots[slot as usize];
        let target = match &entry.socket {
            Descriptor::None => return,
            Descriptor::Direct => Target::Direct(Fixed(slot)),
            Descriptor::Plain(socket) => Target::Plain(Fd(socket.as_raw_fd())),
        };
        let data = user_data(op, slot, entry.generation);
        self.push(&make(target).flags(flags).user_data(data));
    }

    /// A socket in the ring's table.
    ///
    /// The connect that follows is not linked to it. The kernel makes a socket before it looks at the next entry, so a link would only
    /// cost another pass; and where a submission ends within a chain, the rest finds no socket (EBADF).
    pub(super) fn push_socket(&mut self, slot: Slot) {
        let Ok(place) = DestinationSlot::try_from_slot_target(slot) else {
            // No table is that long: the connect fails for want of a socket.
            return;
        };
        let data = user_data(Op::Socket, slot, self.slots[slot as usize].generation);
        let target = self.slots[slot as usize].target as usize;
        let domain = self.endpoints[target].domain;
        let socket = opcode::Socket::new(domain.into(), libc::SOCK_STREAM, 0)
            .file_index(Some(place))
            .build();
        self.push(&socket.flags(Flags::SKIP_SUCCESS).user_data(data));
    }

    pub(super) fn push_connect(&mut self, slot: Slot) {
        let target = &self.endpoints[self.slots[slot as usize].target as usize].address;
        let (address, length) = (target.as_ptr().cast(), target.len());
        self.push_on(slot, Op::Connect, Flags::empty(), |target| match target {
            Target::Direct(fd) => opcode::Connect::new(fd, address, length).build(),
            Target::Plain(fd) => opcode::Connect::new(fd, address, length).build(),
        });
    }

    /// Has the slot's connection cut by RST. What SO_LINGER does on close, in a form that a socket in the ring's table takes too.
    pub(super) fn push_disconnect(&mut self, slot: Slot) {
        let (address, length) = (&raw const NOWHERE, size_of::<libc::sockaddr>() as u32);
        self.push_on(
            slot,
            Op::Other,
            Flags::SKIP_SUCCESS,
            |target| match target {
                Target::Direct(fd) => opcode::Connect::new(fd, address, length).build(),
                Target::Plain(fd) => opcode::Connect::new(fd, address, length).build(),
            },
        );
    }

    /// Arms the slot's receive: a multishot one, except on a unix socket. There one misses an end
    /// that comes right behind data, until a fix of March 2026 (liburing issue 1549), so that each is armed for once.
    pub(super) fn push_receive(&mut self, slot: Slot) {
        let entry = &mut self.slots[slot as usize];
        entry.receiving = true;
        if self.endpoints[entry.target as usize].is_unix() {
            // As long as a buffer of the group is.
            let (buffer, length) = (std::ptr::null_mut(), 0);
            self.push_on(
                slot,
                Op::Receive,
                Flags::BUFFER_SELECT,
                |target| match target {
                    Target::Direct(fd) => opcode::Recv::new(fd, buffer, length)
                        .buf_group(GROUP)
                        .build(),
                    Target::Plain(fd) => opcode::Recv::new(fd, buffer, length)
                        .buf_group(GROUP)
                        .build(),
                },
            );
            return;
        }
        if let Some(message) = self.stamping.as_ref().map(Stamping::message) {
            self.push_on(slot, Op::Receive, Flags::empty(), |target| match target {
                Target::Direct(fd) => opcode::RecvMsgMulti::new(fd, message, GROUP).build(),
                Target::Plain(fd) => opcode::RecvMsgMulti::new(fd, message, GROUP).build(),
            });
            return;
        }
        self.push_on(slot, Op::Receive, Flags::empty(), |target| match target {
            Target::Direct(fd) => opcode::RecvMulti::new(fd, GROUP).build(),
            Target::Plain(fd) => opcode::RecvMulti::new(fd, GROUP).build(),
        });
    }

    /// Sends what is left of the slot's request. `watched`, it goes on by itself until all is written, and the end is told. Else
    /// the kernel takes what fits at once and tells only if that was not all, so that it never reads the bytes after
    /// the submission.
    pub(super) fn push_send(&mut self, slot: Slot, watched: bool) {
        let entry = &mut self.slots[slot as usize];
        let Some(rest) = entry.request.as_deref().and_then(|r| r.get(entry.sent..)) else {
            return;
        };
        // Of more than 4 GiB the rest follows after the completion.
        let (start, length) = (rest.as_ptr(), u32::try_from(rest.len()).unwrap_or(u32::MAX));
        entry.sending = watched;
        let whole = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let (flags, how) = if watched {
            (Flags::empty(), whole)
        } else {
            (Flags::SKIP_SUCCESS, whole | libc::MSG_DONTWAIT)
        };
        self.push_on(slot, Op::Send, flags, |target| match target {
            Target::Direct(fd) => opcode::Send::new(fd, start, length).flags(how).build(),
            Target::Plain(fd) => opcode::Send::new(fd, start, length).flags(how).build(),
        });
    }

    /// Makes `bytes` the slot's request. The one before may still be in the queue, so it is kept until that is submitted: at most
    /// one for each entry of the queue.
    pub(super) fn hold(&mut self, slot: Slot, bytes: &Bytes) {
        let entry = &mut self.slots[slot as usize];
        entry.sent = 0;
        let same = |held: &Bytes| Rc::ptr_eq(held, bytes);
        if !entry.request.as_ref().is_some_and(same)
            && let Some(old) = entry.request.replace(Rc::clone(bytes))
        {
            self.retired.push(old);
        }
    }
}

/// Endings of an enter call that are no failure: the time is up, a signal came, completions must be taken first.
pub(super) fn passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)
    )
}
