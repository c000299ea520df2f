//! Connects to a unix socket whose accept queue is full. TCP tries such a connect again by itself; of a unix socket the kernel says
//! EAGAIN to those who do not block, and tells nobody when there is room (`unix(7)`), so it is asked again now and then.

use std::collections::VecDeque;

use super::Slot;
use crate::clock::Ns;

/// How long until the queue is looked at again: a server that accepts frees many places in this time, and asking costs
/// one system call.
const AGAIN_NS: Ns = 1_000_000;

/// Those who wait, in order. At most one entry for each time that a slot is opened while the queue is full; entries of slots
/// that were closed go with the next look.
#[derive(Default)]
pub(super) struct FullQueue {
    waiting: VecDeque<(Slot, u32)>,
    again: Ns,
}

impl FullQueue {
    /// Has a slot, in its present generation, wait.
    pub fn join(&mut self, slot: Slot, generation: u32, now: Ns) {
        if self.waiting.is_empty() {
            self.again = now + AGAIN_NS;
        }
        self.waiting.push_back((slot, generation));
    }

    /// When to wake up at the latest.
    pub fn wake(&self, until: Ns) -> Ns {
        if self.waiting.is_empty() {
            until
        } else {
            until.min(self.again)
        }
    }

    /// Calls `attempt` for those who wait, in order, if it is time; true where it got an answer, false where the queue is
    /// still full, which it then is for the others too.
    pub fn look(&mut self, now: Ns, mut attempt: impl FnMut(Slot, u32) -> bool) {
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
    fn they_are_let_in_in_order_as_there_is_room() {
        let mut queue = FullQueue::default();
        assert_eq!(queue.wake(Ns::MAX), Ns::MAX);
        (0..3).for_each(|slot| queue.join(slot, 7, 0));
        assert_eq!(queue.wake(Ns::MAX), AGAIN_NS);
        assert_eq!(queue.wake(5), 5);
        let mut asked = Vec::new();
        let mut look = |now, room: usize| {
            asked.clear();
            queue.look(now, |slot, generation| {
                assert_eq!(generation, 7);
                asked.push(slot);
                asked.len() <= room
            });
            (asked.clone(), queue.wake(Ns::MAX))
        };
        assert_eq!(look(AGAIN_NS - 1, 9), (vec![], AGAIN_NS));
        assert_eq!(look(AGAIN_NS, 1), (vec![0, 1], 2 * AGAIN_NS));
        assert_eq!(look(2 * AGAIN_NS, 0), (vec![1], 3 * AGAIN_NS));
        assert_eq!(look(3 * AGAIN_NS, 2), (vec![1, 2], Ns::MAX));
    }
}
