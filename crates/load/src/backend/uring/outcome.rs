//! What a completion means.

use std::io;
use std::ops::Range;

use io_uring::cqueue;

use super::Uring;
use super::slot::Descriptor;
use super::tag::{Op, parts};
use crate::backend::Slot;
use crate::clock::Ns;

/// What a completion means to the engine.
pub(super) enum Found {
    /// It is of a connection that has been closed, or there is nothing to tell.
    Nothing,
    Connected(Slot),
    ConnectFailed(Slot, io::Error),
    /// Bytes in the buffer of that number, and when the kernel had them.
    Received(Slot, u16, Range<usize>, Option<Ns>),
    Ended(Slot),
    Failed(Slot, io::Error),
}

impl Uring {
    pub(super) fn look(&mut self, completion: &cqueue::Entry) -> Found {
        let data = completion.user_data();
        let (op, slot, generation) = parts(data);
        let current = |entry: &&mut super::Entry| entry.generation == generation;
        let Some(entry) = self.slots.get_mut(slot as usize).filter(current) else {
            if op == Op::Send {
                self.cancelled.retain(|(send, _)| *send != data);
            }
            self.give_back(cqueue::buffer_select(completion.flags()));
            return Found::Nothing;
        };
        let result = completion.result();
        let error = || io::Error::from_raw_os_error(-result);
        match op {
            Op::Socket => {
                // The connect behind it finds no socket; this is the reason, and comes first.
                entry.socket = Descriptor::None;
                entry.connecting = false;
                Found::ConnectFailed(slot, error())
            }
            Op::Bind => {
                // The connect behind it is cancelled without a word.
                entry.connecting = false;
                Found::ConnectFailed(slot, error())
            }
            Op::Connect => {
                entry.connecting = false;
                if result < 0 {
                    return Found::ConnectFailed(slot, error());
                }
                self.push_receive(slot);
                Found::Connected(slot)
            }
            Op::Send => self.sent(slot, result),
            Op::Receive => self.received(slot, completion),
            Op::Other => Found::Nothing,
        }
    }

    /// The end of a send that was watched, or of one that the socket did not take whole.
    fn sent(&mut self, slot: Slot, result: i32) -> Found {
        let entry = &mut self.slots[slot as usize];
        entry.sending = false;
        match result {
            n if n >= 0 => entry.sent += n as usize,
            n if n == -libc::EAGAIN => {}
            n => return Found::Failed(slot, io::Error::from_raw_os_error(-n)),
        }
        if entry.request.as_ref().is_some_and(|r| entry.sent < r.len()) {
            self.push_send(slot, true);
        }
        Found::Nothing
    }

    fn received(&mut self, slot: Slot, completion: &cqueue::Entry) -> Found {
        let buffer = cqueue::buffer_select(completion.flags());
        let armed = cqueue::more(completion.flags());
        self.slots[slot as usize].receiving = armed;
        match (completion.result(), buffer) {
            (n, Some(id)) if n > 0 => {
                let Some((bytes, at)) = self.payload(slot, id, n as usize) else {
                    self.give_back(buffer);
                    return Found::Failed(slot, io::ErrorKind::InvalidData.into());
                };
                if bytes.is_empty() {
                    self.give_back(buffer);
                    return Found::Ended(slot);
                }
                if !armed {
                    self.push_receive(slot);
                }
                Found::Received(slot, id, bytes, at)
            }
            (0, buffer) => {
                self.give_back(buffer);
                Found::Ended(slot)
            }
            // All buffers are filled; they are given back before the kernel sees this.
            (n, _) if n == -libc::ENOBUFS => {
                self.push_receive(slot);
                Found::Nothing
            }
            (n, _) => Found::Failed(slot, io::Error::from_raw_os_error(-n)),
        }
    }
}
