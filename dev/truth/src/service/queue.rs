//! FIFO queues, with pauses.

use serde::{Deserialize, Serialize};

use crate::choice::exponential_ns;

/// Pauses at exponentially distributed intervals. A pause that begins while requests are queued
/// waits in the queue like a request, as a garbage collection waits for a safe point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pauses {
    /// Mean time between the beginnings of two pauses, in milliseconds.
    pub mean_gap_ms: f64,
    /// Length of each pause, in microseconds.
    pub length_us: f64,
}

/// A FIFO queue in front of identical servers.
#[derive(Debug, Clone)]
pub struct FifoQueue {
    /// Time when each server becomes free.
    free_ns: Vec<u64>,
}

impl FifoQueue {
    pub fn new(servers: u32) -> FifoQueue {
        FifoQueue {
            free_ns: vec![0; servers as usize],
        }
    }

    /// Adds a job, and returns the time when it is complete. Jobs are added in order of arrival.
    pub fn complete_ns(&mut self, now_ns: u64, takes_ns: u64) -> u64 {
        let Some(next) = self.free_ns.iter_mut().min() else {
            return now_ns;
        };
        *next = now_ns.max(*next) + takes_ns;
        *next
    }
}

/// The pauses of a queue with one server.
#[derive(Debug, Clone)]
pub struct PauseClock {
    pauses: Pauses,
    seed: u64,
    begun: u64,
    next_ns: Option<u64>,
}

impl PauseClock {
    pub fn new(pauses: Pauses, seed: u64) -> PauseClock {
        PauseClock {
            pauses,
            seed,
            begun: 0,
            next_ns: None,
        }
    }

    /// Adds all pauses that begin until `now_ns` to the queue. The first call starts the clock.
    pub fn advance(&mut self, now_ns: u64, queue: &mut FifoQueue) {
        let length_ns = (self.pauses.length_us * 1e3) as u64;
        let mean_ns = self.pauses.mean_gap_ms * 1e6;
        let mut next_ns = self
            .next_ns
            .unwrap_or_else(|| now_ns + exponential_ns(self.seed, 0, mean_ns));
        while next_ns <= now_ns {
            queue.complete_ns(next_ns, length_ns);
            self.begun += 1;
            next_ns += exponential_ns(self.seed, self.begun, mean_ns);
        }
        self.next_ns = Some(next_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_wait_for_the_first_free_server() {
        let mut one = FifoQueue::new(1);
        assert_eq!([0, 1, 100].map(|at| one.complete_ns(at, 10)), [10, 20, 110]);
        let mut two = FifoQueue::new(2);
        let takes = [(0, 30), (0, 10), (1, 10), (2, 10)];
        let complete = takes.map(|(at, takes)| two.complete_ns(at, takes));
        assert_eq!(complete, [30, 10, 20, 30]);
    }

    #[test]
    fn pauses_take_their_share_of_the_time() {
        let pauses = Pauses {
            mean_gap_ms: 10.0,
            length_us: 2_000.0,
        };
        let (mut clock, mut queue) = (PauseClock::new(pauses, 1), FifoQueue::new(1));
        let second = 1_000_000_000;
        let waits = (0..100_000u64).filter(|i| {
            let now = i * second / 1_000;
            clock.advance(now, &mut queue);
            queue.complete_ns(now, 0) > now
        });
        // A pause occupies 20 % of the time, and 10,000 pauses have a standard deviation of 1 %.
        let share = waits.count() as f64 / 100_000.0;
        assert!((share - 0.2).abs() < 0.01, "{share}");
    }
}
