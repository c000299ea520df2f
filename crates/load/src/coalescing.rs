//! When a busy thread takes several answers at a time.
//!
//! A thread that is close to its limit and asks the kernel after every answer pays a whole turn for each. Answers wait for such
//! a thread anyhow. Taken several at a time they cost less CPU each: what adaptive interrupt coalescing does in network
//! drivers.
//!
//! With a fresh connection for each request, "connected" is waited for like an answer.
//!
//! It is done in the closed model only, and only by a thread that is busy for most of its time. An answer waits for others at most
//! an eighth of the mean response time, and that wait is part of its response and service times. For how long a thread did
//! so is in the record.

use crate::clock::Ns;

/// How often a thread looks at how busy it is.
const EVERY: Ns = 10_000_000;

/// Share of a CPU from which on a thread coalesces: below it there is no need.
const BUSY: f64 = 0.75;

/// Share below which it no longer does; lower, since coalescing itself makes a thread less busy.
const AT_EASE: f64 = 0.5;

/// Answers that are waited for: most of what a turn costs is shared by then.
const MOST: u64 = 64;

/// Part of the requests in flight that may wait at most, so that the server does not run out of them.
const PART_IN_FLIGHT: u64 = 2;

/// Part of the mean response time that an answer may wait.
const PART_OF_RESPONSE: u64 = 8;

/// The longest that an answer may wait.
const LONGEST: Ns = 1_000_000;

/// How answers are taken together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// How many are waited for.
    pub most: usize,
    /// For how long at most, ns.
    pub hold: Ns,
}

/// What a thread has done up to a moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    /// The moment.
    pub at: Ns,
    /// CPU of the thread so far, ns.
    pub cpu: Ns,
    /// Pieces of answers received so far.
    pub received: u64,
}

/// One thread's coalescing in one phase.
#[derive(Debug)]
pub struct Coalescing {
    last: Work,
    batch: Option<Batch>,
    total: Ns,
}

impl Coalescing {
    /// None yet, of a thread that had done `work` by then.
    #[must_use]
    pub fn new(work: Work) -> Self {
        Coalescing {
            last: work,
            batch: None,
            total: 0,
        }
    }

    /// Whether it is time to [`Coalescing::look`] again.
    #[inline]
    #[must_use]
    pub fn due(&self, now: Ns) -> bool {
        now >= self.last.at + EVERY
    }

    /// Looks at what was done since the last time, and says how answers are to be taken from now on. By Little's law the mean response
    /// time is the number of requests in flight divided by the rate of answers.
    pub fn look(&mut self, work: Work, in_flight: u64) -> Option<Batch> {
        let wall = work.at.saturating_sub(self.last.at);
        let cpu = work.cpu.saturating_sub(self.last.cpu);
        let received = work.received - self.last.received;
        self.last = work;
        if self.batch.is_some() {
            self.total += wall;
        }
        let enough = if self.batch.is_some() { AT_EASE } else { BUSY };
        let most = MOST.min(in_flight / PART_IN_FLIGHT);
        self.batch = (cpu as f64 >= enough * wall as f64 && most > 1 && received > 0).then(|| {
            let response = in_flight.saturating_mul(wall) / received;
            Batch {
                most: most as usize,
                hold: (response / PART_OF_RESPONSE).min(LONGEST),
            }
        });
        self.batch
    }

    /// For how long answers were taken together up to `now`, ns.
    #[must_use]
    pub fn total(&self, now: Ns) -> Ns {
        match self.batch {
            Some(_) => self.total + now.saturating_sub(self.last.at),
            None => self.total,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Ns = 1_000_000;

    /// After `ms` milliseconds, of which the thread was on a CPU for `cpu_ms`.
    fn work(ms: u64, cpu_ms: u64, received: u64) -> Work {
        Work {
            at: ms * MS,
            cpu: cpu_ms * MS,
            received,
        }
    }

    #[test]
    fn a_thread_at_ease_takes_each_answer_at_once() {
        let mut coalescing = Coalescing::new(Work::default());
        assert!(!coalescing.due(9 * MS));
        assert!(coalescing.due(10 * MS));
        assert_eq!(coalescing.look(work(10, 7, 1000), 100), None);
        assert_eq!(coalescing.total(15 * MS), 0);
    }

    #[test]
    fn a_busy_thread_takes_several_and_stops_when_there_is_little_to_do() {
        let mut coalescing = Coalescing::new(Work::default());
        // A hundred in flight and 100,000/s: 1 ms each.
        let batch = Batch {
            most: 50,
            hold: MS / 8,
        };
        assert_eq!(coalescing.look(work(10, 9, 1000), 100), Some(batch));
        assert_eq!(coalescing.look(work(20, 15, 2000), 100), Some(batch));
        assert_eq!(coalescing.total(25 * MS), 15 * MS);
        assert_eq!(coalescing.look(work(30, 18, 3000), 100), None);
        assert_eq!(coalescing.total(99 * MS), 20 * MS);
    }

    #[test]
    fn the_server_keeps_half_of_the_requests_and_no_answer_waits_long() {
        let look = |received, in_flight| {
            Coalescing::new(Work::default()).look(work(10, 10, received), in_flight)
        };
        assert_eq!(look(1000, 40).map(|batch| batch.most), Some(20));
        assert_eq!(look(1000, 10_000).map(|batch| batch.most), Some(64));
        assert_eq!(look(1000, 3), None);
        assert_eq!(look(0, 100), None);
        assert_eq!(look(1, 10_000).map(|batch| batch.hold), Some(MS));
    }
}
