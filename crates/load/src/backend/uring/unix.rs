//! Unix sockets are connected by plain calls: that takes no time, and a full accept queue would else hold a worker thread of the
//! kernel for each connection. What follows goes through the ring as with every socket.

use std::io;

use socket2::{Socket, Type};

use super::slot::Descriptor;
use super::{Early, Uring};
use crate::backend::Slot;

impl Uring {
    /// Connects a slot to the unix socket that is its target.
    pub(super) fn open_unix(&mut self, slot: Slot) {
        let entry = &self.slots[slot as usize];
        let (generation, target) = (entry.generation, entry.target as usize);
        let endpoint = &self.endpoints[target];
        // Blocking from when it stands, so that the ring waits for it.
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

    /// Tries those again that found the accept queue full.
    pub(super) fn try_again(&mut self) {
        let mut queue = std::mem::take(&mut self.full_queue);
        queue.look(self.clock.now(), |slot, generation| {
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
                self.tell_early(slot, Early::Connected(at));
            }
            Err(error) => {
                entry.socket = Descriptor::None;
                self.tell_early(slot, Early::ConnectFailed(error));
            }
        }
    }
}
