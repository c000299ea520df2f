//! Connects unix sockets with ordinary system calls.
//!
//! These calls never block. If the accept queue is full, a connect in the ring would occupy one
//! kernel worker thread per connection. All other operations use the ring, as for TCP sockets.

use std::io;

use socket2::{Socket, Type};

use super::{Descriptor, Uring};
use crate::backend::{Completion, Slot};

impl Uring {
    /// Connects the slot to its target, which is a unix socket.
    pub(super) fn open_unix(&mut self, slot: Slot) {
        let entry = &self.slots[slot as usize];
        let (generation, target) = (entry.generation, entry.target as usize);
        let endpoint = &self.endpoints[target];
        // After the connect, the socket is made blocking, so that the ring waits for its data.
        let made = endpoint.socket(Type::STREAM.nonblocking(), false, None);
        let connected = made.and_then(|socket| {
            let connected = socket.connect(&endpoint.address);
            self.slots[slot as usize].socket = Descriptor::Plain(socket);
            connected
        });
        match connected {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.full_queue.join(slot, generation, self.clock.now());
            }
            connected => self.connected_unix(slot, connected),
        }
    }

    /// Retries connects that failed because the accept queue was full.
    pub(super) fn try_again(&mut self) {
        let mut queue = std::mem::take(&mut self.full_queue);
        queue.retry(self.clock.now(), |slot, generation| {
            let entry = &self.slots[slot as usize];
            let Descriptor::Plain(socket) = &entry.socket else {
                return true;
            };
            if entry.generation != generation {
                return true;
            }
            match socket.connect(&self.endpoints[entry.target as usize].address) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
                connected => {
                    self.connected_unix(slot, connected);
                    true
                }
            }
        });
        self.full_queue = queue;
    }

    fn connected_unix(&mut self, slot: Slot, connected: io::Result<()>) {
        let entry = &mut self.slots[slot as usize];
        let blocking = |descriptor: &Descriptor| match descriptor {
            Descriptor::Plain(socket) => Socket::set_nonblocking(socket, false),
            Descriptor::Direct | Descriptor::None => Ok(()),
        };
        match connected.and_then(|()| blocking(&entry.socket)) {
            Ok(()) => {
                self.push_receive(slot);
                let at = self.clock.now();
                let sent = false;
                self.report_early(Completion::Connected { slot, at, sent });
            }
            Err(error) => {
                entry.socket = Descriptor::None;
                self.report_early(Completion::ConnectFailed { slot, error });
            }
        }
    }
}
