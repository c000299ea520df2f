//! The source of requests: a schedule in the open model, free connections in the closed model.

use std::collections::VecDeque;

use floodmark_record::plan::Schedule;

use crate::clock::Ns;
use crate::mix::{Pick, Picks};
use crate::schedule::ArrivalSchedule;

/// Admission delay in ns above which a thread counts as stalled. The delay is then stored, so that
/// it counts as lateness. Shorter delays are normal for one loop iteration.
const STALL_NS: Ns = 100_000;

/// Maximum number of stalls stored at once. Only a thread that stalls constantly exceeds it.
/// Time lost in further stalls counts as waiting for a connection.
const MAX_STALLS: usize = 4096;

/// The source of one thread's requests in one phase.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "each thread has only one source")]
pub enum RequestSource {
    /// Each free connection sends the next request until the quota or the time is used up.
    Closed {
        /// Number of requests that may still start; `None` if only the duration limits the phase.
        left: Option<u64>,
        /// No request starts after this time. `None` if only a quota ends the phase.
        until: Option<Ns>,
        /// Selects the requests of the mix.
        picks: Picks,
    },
    /// Requests are due at scheduled times.
    Open(ArrivalQueue),
}

/// Arrivals in the open model: future arrivals, and due arrivals that wait for a connection.
///
/// Waiting arrivals take no memory, unless the thread has stalled. The head of the queue is a
/// second cursor over the same schedule and picks.
#[derive(Debug)]
pub struct ArrivalQueue {
    start: Ns,
    ahead: ArrivalSchedule,
    behind: ArrivalSchedule,
    /// The requests of future arrivals.
    pub picks_ahead: Picks,
    picks_behind: Picks,
    /// Number of waiting arrivals.
    pub waiting: u64,
    /// The earliest time at which the most recently admitted arrival could use a connection: its
    /// scheduled time, or its admission time if it was admitted late.
    pub newest_in: Ns,
    /// For each stall of this thread: the scheduled time and the admission time of the first
    /// delayed arrival.
    stalls: VecDeque<(Ns, Ns)>,
}

/// An arrival taken from the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuedArrival {
    /// The request to send.
    pub pick: Pick,
    /// Scheduled time.
    pub intended: Ns,
    /// Admission time. This time is later than `intended` if the thread stalled.
    pub let_in: Ns,
}

impl ArrivalQueue {
    /// Creates a queue for the arrivals in `schedule`. Their times are relative to `start`, and
    /// their requests come from `picks`.
    pub fn new(schedule: ArrivalSchedule, start: Ns, picks: Picks) -> Self {
        ArrivalQueue {
            start,
            behind: schedule.clone(),
            ahead: schedule,
            picks_behind: picks.clone(),
            picks_ahead: picks,
            waiting: 0,
            newest_in: 0,
            stalls: VecDeque::new(),
        }
    }

    /// Returns when the next arrival is due.
    pub fn next_due(&self) -> Option<Ns> {
        self.ahead.next.map(|at| self.start + at)
    }

    /// Admits the next arrival to the queue if it is due by `now`.
    #[inline]
    pub fn arrive(&mut self, now: Ns) -> Option<Pick> {
        let due = self.next_due().filter(|due| *due <= now)?;
        self.ahead.take();
        self.waiting += 1;
        self.newest_in = due;
        if now - due > STALL_NS {
            self.newest_in = now;
            let known = self.stalls.back().is_some_and(|(_, end)| *end == now);
            if !known && self.stalls.len() < MAX_STALLS {
                self.stalls.push_back((due, now));
            }
        }
        Some(self.picks_ahead.take())
    }

    /// Replaces the schedule by one that differs only after all admitted arrivals.
    pub fn change(&mut self, planned: &Schedule) {
        self.ahead.change(planned);
        self.behind.change(planned);
    }

    /// Takes the arrival that has been waiting longest.
    pub fn take(&mut self) -> Option<QueuedArrival> {
        if self.waiting == 0 {
            return None;
        }
        self.waiting -= 1;
        let intended = self.start + self.behind.take()?;
        let pick = self.picks_behind.take();
        while self.stalls.front().is_some_and(|(_, end)| *end < intended) {
            self.stalls.pop_front();
        }
        let let_in = match self.stalls.front() {
            Some((begin, end)) if *begin <= intended => *end,
            _ => intended,
        };
        Some(QueuedArrival {
            pick,
            intended,
            let_in,
        })
    }

    /// Keeps the first `keep` waiting arrivals and drops all later ones.
    /// Calls `count` with the number of arrivals dropped from each group.
    pub fn give_up_beyond(&mut self, keep: u64, count: impl FnMut(u32, u64)) {
        let given_up = self.waiting.saturating_sub(keep);
        self.waiting -= given_up;
        let mut picks = self.picks_behind.clone();
        picks.pass(keep.min(self.waiting), |_, _| {});
        picks.pass(given_up, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::alone;
    use crate::testing::open_plan;
    use floodmark_record::plan::Arrivals as Spacing;

    fn waiting() -> ArrivalQueue {
        let plan = open_plan(Spacing::Constant, 1000.0, Some(1.0), None);
        let schedule = ArrivalSchedule::new(&plan, alone()).unwrap();
        ArrivalQueue::new(schedule, 0, Picks::new(&plan, alone(), 1))
    }

    #[test]
    fn admits_arrivals_when_the_thread_polls() {
        const MS: Ns = 1_000_000;
        let mut waiting = waiting();
        let mut come = |at: Ns| while waiting.arrive(at).is_some() {};
        come(0);
        come(MS + 20_000);
        // The thread stalls from 1 to 5.5 ms, and again from 6 to 8.5 ms.
        come(5 * MS + 500_000);
        come(6 * MS);
        come(8 * MS + 500_000);
        let taken: Vec<_> = std::iter::from_fn(|| waiting.take())
            .map(|t| (t.intended, t.let_in))
            .collect();
        let late = |due: Ns, tenths: Ns| (due * MS, tenths * MS / 10);
        assert_eq!(
            taken,
            [
                late(0, 0),
                late(1, 10),
                late(2, 55),
                late(3, 55),
                late(4, 55),
                late(5, 55),
                late(6, 60),
                late(7, 85),
                late(8, 85),
            ]
        );
    }
}
