//! Interprets completions of the ring.

use std::io;
use std::ops::Range;

use floodmark_record::plan::CloseFirst;
use io_uring::cqueue;

use super::tag::{RingOperation, parts};
use super::{Descriptor, Uring};
use crate::backend::{Completion, IoBackend, Slot};
use crate::clock::Ns;

/// Meaning of a completion for the engine.
pub(super) enum RingEvent {
    /// The completion belongs to a closed connection, or there is nothing to report.
    Nothing,
    /// Bytes were received: slot, buffer id, range within the buffer, and the kernel's timestamp.
    Received(Slot, u16, Range<usize>, Option<Ns>),
    Other(Completion<'static>),
}

impl Uring {
    pub(super) fn interpret(&mut self, completion: &cqueue::Entry) -> RingEvent {
        let data = completion.user_data();
        let (op, slot, generation) = parts(data);
        let current = |entry: &&mut super::RingSlot| entry.generation == generation;
        let Some(entry) = self.slots.get_mut(slot as usize).filter(current) else {
            if op == RingOperation::Send {
                self.cancelled.retain(|(send, _)| *send != data);
            }
            self.give_back(cqueue::buffer_select(completion.flags()));
            return RingEvent::Nothing;
        };
        let result = completion.result();
        let error = || io::Error::from_raw_os_error(-result);
        match op {
            RingOperation::Socket => {
                // The connect that follows also fails, because there is no socket. Report only the
                // socket's error, which is the cause.
                entry.socket = Descriptor::None;
                self.connect_failed(slot, error())
            }
            // The kernel cancels the connect that follows, and reports no completion for it.
            RingOperation::Bind => self.connect_failed(slot, error()),
            RingOperation::Connect if result < 0 => self.connect_failed(slot, error()),
            RingOperation::Connect => {
                entry.connecting = false;
                self.push_receive(slot);
                let (at, sent) = (self.taken, false);
                RingEvent::Other(Completion::Connected { slot, at, sent })
            }
            RingOperation::Send => self.sent(slot, result),
            RingOperation::Receive => self.received(slot, completion),
            RingOperation::Other => RingEvent::Nothing,
        }
    }

    fn connect_failed(&mut self, slot: Slot, error: io::Error) -> RingEvent {
        self.slots[slot as usize].connecting = false;
        self.close(slot, CloseFirst::Client);
        RingEvent::Other(Completion::ConnectFailed { slot, error })
    }

    /// Handles the end of a watched send, or of a send that the socket did not accept completely.
    fn sent(&mut self, slot: Slot, result: i32) -> RingEvent {
        let entry = &mut self.slots[slot as usize];
        entry.sending = false;
        match result {
            n if n >= 0 => entry.sent += n as usize,
            n if n == -libc::EAGAIN => {}
            n => return failed(slot, -n),
        }
        if entry.request.as_ref().is_some_and(|r| entry.sent < r.len()) {
            self.push_send(slot, true);
        }
        RingEvent::Nothing
    }

    fn received(&mut self, slot: Slot, completion: &cqueue::Entry) -> RingEvent {
        let buffer = cqueue::buffer_select(completion.flags());
        let armed = cqueue::more(completion.flags());
        self.slots[slot as usize].receiving = armed;
        match (completion.result(), buffer) {
            (n, Some(id)) if n > 0 => {
                let Some((bytes, at)) = self.payload(slot, id, n as usize) else {
                    self.give_back(buffer);
                    return failed(slot, libc::EBADMSG);
                };
                if bytes.is_empty() {
                    self.give_back(buffer);
                    return RingEvent::Other(Completion::Ended { slot });
                }
                if !armed {
                    self.push_receive(slot);
                }
                RingEvent::Received(slot, id, bytes, at)
            }
            (0, buffer) => {
                self.give_back(buffer);
                RingEvent::Other(Completion::Ended { slot })
            }
            // All buffers are in use. The buffers are returned before the kernel handles the new
            // receive.
            (n, _) if n == -libc::ENOBUFS => {
                self.push_receive(slot);
                RingEvent::Nothing
            }
            (n, _) => failed(slot, -n),
        }
    }
}

fn failed(slot: Slot, errno: i32) -> RingEvent {
    let error = io::Error::from_raw_os_error(errno);
    RingEvent::Other(Completion::Failed { slot, error })
}
