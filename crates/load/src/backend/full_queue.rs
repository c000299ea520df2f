//! Connects to a unix socket whose accept queue is full.
//!
//! For TCP, the kernel retries such a connect. For a non-blocking unix socket, the kernel returns
//! EAGAIN and never reports that the queue has space (`unix(7)`), so the backend retries
//! periodically.

use std::collections::VecDeque;

use super::Slot;
use crate::clock::Ns;

/// Retry interval in ns. In this time, a working server accepts many connections from its queue. A
/// retry costs one system call.
const AGAIN_NS: Ns = 1_000_000;

/// The waiting slots in order. Each attempt to open a connection adds at most one entry.
/// The next retry removes the entries of closed slots.
#[derive(Default)]
pub(super) struct FullQueue {
    waiting: VecDeque<(Slot, u32)>,
    again: Ns,
}

impl FullQueue {
    /// Adds a slot with its current generation.
    pub fn join(&mut self, slot: Slot, generation: u32, now: Ns) {
        if self.waiting.is_empty() {
            self.again = now + AGAIN_NS;
        }
        self.waiting.push_back((slot, generation));
    }

    /// Returns the time at which a wait must end: `until`, or the next retry if it is earlier.
    pub fn wake(&self, until: Ns) -> Ns {
        if self.waiting.is_empty() {
            until
        } else {
            until.min(self.again)
        }
    }

    /// Calls `attempt` for the waiting slots in order, if a retry is due.
    /// If `attempt` returns false, the accept queue is still full and the remaining slots keep
    /// waiting.
    pub fn retry(&mut self, now: Ns, mut attempt: impl FnMut(Slot, u32) -> bool) {
        if self.waiting.is_empty() || now < self.again {
            return;
        }
        while let Some((slot, generation)) = self.waiting.front().copied() {
            if !attempt(slot, generation) {
                self.again = now + AGAIN_NS;
                return;
            }
            self.waiting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_waiting_slots_in_order() {
        let mut queue = FullQueue::default();
        assert_eq!(queue.wake(Ns::MAX), Ns::MAX);
        (0..3).for_each(|slot| queue.join(slot, 7, 0));
        assert_eq!(queue.wake(Ns::MAX), AGAIN_NS);
        assert_eq!(queue.wake(5), 5);
        let mut asked = Vec::new();
        let mut retry = |now, room: usize| {
            asked.clear();
            queue.retry(now, |slot, generation| {
                assert_eq!(generation, 7);
                asked.push(slot);
                asked.len() <= room
            });
            (asked.clone(), queue.wake(Ns::MAX))
        };
        assert_eq!(retry(AGAIN_NS - 1, 9), (vec![], AGAIN_NS));
        assert_eq!(retry(AGAIN_NS, 1), (vec![0, 1], 2 * AGAIN_NS));
        assert_eq!(retry(2 * AGAIN_NS, 0), (vec![1], 3 * AGAIN_NS));
        assert_eq!(retry(3 * AGAIN_NS, 2), (vec![1, 2], Ns::MAX));
    }
}
