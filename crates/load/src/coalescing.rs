//! Response coalescing: a busy thread handles several responses per system call.
//!
//! If a thread near its CPU limit polls the kernel after every response, it needs a full loop
//! iteration per response, although other responses are already waiting. Handling several responses
//! at once takes less CPU time per response. Adaptive interrupt coalescing in network drivers works
//! in the same way.
//!
//! If each request uses a fresh connection, batches also include completed connects.
//!
//! Coalescing is used only in the closed model, and only on a thread that is busy most of the time.
//! A response waits for at most an eighth of the mean response time. Both the response time and
//! the service time include this wait. The record contains the time that each thread spent
//! coalescing.

use crate::clock::Ns;

/// Interval in ns at which a thread checks its CPU usage.
const CHECK_INTERVAL_NS: Ns = 10_000_000;

/// CPU share above which a thread starts to coalesce.
const START_CPU_SHARE: f64 = 0.75;

/// CPU share below which a thread stops coalescing.
/// This share is lower than [`START_CPU_SHARE`], because coalescing reduces the thread's CPU usage.
const STOP_CPU_SHARE: f64 = 0.5;

/// Maximum number of responses per batch. Larger batches save hardly any more CPU time.
const MAX_BATCH: u64 = 64;

/// Limits a batch to the number of requests in flight divided by this value.
/// This limit ensures that the server does not run out of requests.
const IN_FLIGHT_DIVISOR: u64 = 2;

/// Limits a response's wait to the mean response time divided by this value.
const RESPONSE_TIME_DIVISOR: u64 = 8;

/// Maximum time in ns for which a response may wait.
const MAX_WAIT_NS: Ns = 1_000_000;

/// Limits of one batch of responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Number of responses to wait for.
    pub most: usize,
    /// Maximum wait in ns.
    pub hold: Ns,
}

/// The CPU time and the receive completions of a thread up to a point in time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ThreadWork {
    /// The point in time, on the worker's clock.
    pub at: Ns,
    /// CPU time of the thread so far in ns.
    pub cpu: Ns,
    /// Number of receive completions so far.
    pub received: u64,
}

/// The coalescing state of one thread in one phase.
#[derive(Debug)]
pub(crate) struct Coalescing {
    last: ThreadWork,
    batch: Option<Batch>,
    total: Ns,
}

impl Coalescing {
    /// Creates the state for a thread that has done `work` and is not coalescing yet.
    pub fn new(work: ThreadWork) -> Self {
        Coalescing {
            last: work,
            batch: None,
            total: 0,
        }
    }

    /// Returns whether [`Coalescing::update`] is due.
    #[inline]
    pub fn due(&self, now: Ns) -> bool {
        now >= self.last.at + CHECK_INTERVAL_NS
    }

    /// Evaluates the work since the last call. Returns the limits for the next batches, or `None`
    /// if the thread should not coalesce.
    /// By Little's law, the mean response time is the number of requests in flight divided by the
    /// response rate.
    pub fn update(&mut self, work: ThreadWork, in_flight: u64) -> Option<Batch> {
        let wall = work.at.saturating_sub(self.last.at);
        let cpu = work.cpu.saturating_sub(self.last.cpu);
        let received = work.received - self.last.received;
        self.last = work;
        if self.batch.is_some() {
            self.total += wall;
        }
        let enough = match self.batch {
            Some(_) => STOP_CPU_SHARE,
            None => START_CPU_SHARE,
        };
        let most = MAX_BATCH.min(in_flight / IN_FLIGHT_DIVISOR);
        self.batch = (cpu as f64 >= enough * wall as f64 && most > 1 && received > 0).then(|| {
            let response = in_flight.saturating_mul(wall) / received;
            Batch {
                most: most as usize,
                hold: (response / RESPONSE_TIME_DIVISOR).min(MAX_WAIT_NS),
            }
        });
        self.batch
    }

    /// Returns the total time spent coalescing up to `now`, in ns.
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

    /// Returns the work after `ms` milliseconds, during which the thread used `cpu_ms` milliseconds
    /// of CPU time.
    fn work(ms: u64, cpu_ms: u64, received: u64) -> ThreadWork {
        ThreadWork {
            at: ms * MS,
            cpu: cpu_ms * MS,
            received,
        }
    }

    #[test]
    fn an_idle_thread_handles_each_response_immediately() {
        let mut coalescing = Coalescing::new(ThreadWork::default());
        assert!(!coalescing.due(9 * MS));
        assert!(coalescing.due(10 * MS));
        assert_eq!(coalescing.update(work(10, 7, 1000), 100), None);
        assert_eq!(coalescing.total(15 * MS), 0);
    }

    #[test]
    fn a_busy_thread_batches_responses_until_it_is_idle() {
        let mut coalescing = Coalescing::new(ThreadWork::default());
        // With 100 requests in flight at 100,000/s, each request takes 1 ms.
        let batch = Batch {
            most: 50,
            hold: MS / 8,
        };
        assert_eq!(coalescing.update(work(10, 9, 1000), 100), Some(batch));
        assert_eq!(coalescing.update(work(20, 15, 2000), 100), Some(batch));
        assert_eq!(coalescing.total(25 * MS), 15 * MS);
        assert_eq!(coalescing.update(work(30, 18, 3000), 100), None);
        assert_eq!(coalescing.total(99 * MS), 20 * MS);
    }

    #[test]
    fn batches_leave_half_of_the_requests_to_the_server() {
        let look = |received, in_flight| {
            Coalescing::new(ThreadWork::default()).update(work(10, 10, received), in_flight)
        };
        assert_eq!(look(1000, 40).map(|batch| batch.most), Some(20));
        assert_eq!(look(1000, 10_000).map(|batch| batch.most), Some(64));
        assert_eq!(look(1000, 3), None);
        assert_eq!(look(0, 100), None);
        assert_eq!(look(1, 10_000).map(|batch| batch.hold), Some(MS));
    }
}
