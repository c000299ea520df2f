//! Unix sockets that do not take a connect at once.

use std::os::fd::AsRawFd;

use super::{Early, Epoll, push_pending, refused_for_now};
use crate::backend::calls::register;

impl Epoll {
    /// Tries those again that found a unix socket's accept queue full.
    pub(super) fn try_again(&mut self) {
        let mut queue = std::mem::take(&mut self.full_queue);
        queue.look(self.clock.now(), |slot, generation| {
            let entry = &mut self.slots[slot as usize];
            let Some(socket) = entry
                .socket
                .as_ref()
                .filter(|_| entry.generation == generation)
            else {
                return true;
            };
            let fd = socket.as_raw_fd();
            let token = u64::from(generation) << 32 | u64::from(slot);
            let stands = match socket.connect(&self.endpoints[entry.target as usize].address) {
                Err(e) if refused_for_now(&e) => return false,
                Err(e) => Err(e),
                Ok(()) => register(&self.epoll, fd, token),
            };
            if let Err(error) = stands {
                entry.socket = None;
                self.early.push_back(Early::ConnectFailed {
                    slot,
                    generation,
                    error,
                });
                return true;
            }
            entry.connecting = false;
            let (at, sent) = (self.clock.now(), entry.pending.is_some());
            self.early.push_back(Early::Connected {
                slot,
                generation,
                at,
                sent,
            });
            if let Err(error) = push_pending(fd, &mut entry.pending) {
                self.early.push_back(Early::Failed {
                    slot,
                    generation,
                    error,
                });
            }
            true
        });
        self.full_queue = queue;
    }
}
