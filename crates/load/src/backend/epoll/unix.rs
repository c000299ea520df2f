//! Retries for unix sockets that do not accept a connection immediately.

use super::{Completion, Epoll, refused_for_now};

impl Epoll {
    /// Retries connects that failed because the unix socket's accept queue was full.
    pub(super) fn try_again(&mut self) {
        let mut queue = std::mem::take(&mut self.full_queue);
        queue.retry(self.clock.now(), |slot, generation| {
            let entry = &self.slots[slot as usize];
            let Some(socket) = entry
                .socket
                .as_ref()
                .filter(|_| entry.generation == generation)
            else {
                return true;
            };
            let established = match socket.connect(&self.endpoints[entry.target as usize].address) {
                Err(e) if refused_for_now(&e) => return false,
                Err(e) => Err(e),
                Ok(()) => self.register(slot),
            };
            if let Err(error) = established {
                self.slots[slot as usize].socket = None;
                self.report_early(Completion::ConnectFailed { slot, error });
                return true;
            }
            let sent = self.slots[slot as usize].pending.is_some();
            self.connected(slot, self.clock.now(), sent);
            if let Err(error) = self.slots[slot as usize].push_pending() {
                self.report_early(Completion::Failed { slot, error });
            }
            true
        });
        self.full_queue = queue;
    }
}
