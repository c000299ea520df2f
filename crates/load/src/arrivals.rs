//! Where requests come from: a schedule (open model) or free connections (closed model).

use crate::clock::Ns;
use crate::schedule::Schedule;

/// Source of requests of one thread in one phase.
#[derive(Debug)]
pub enum Arrivals {
    /// A connection sends when it is free, until the quota or the time is used up.
    Closed {
        /// Requests still to be begun; none where time decides.
        left: Option<u64>,
        /// Nothing is begun from then on, where time decides.
        until: Option<Ns>,
    },
    /// Requests are due at scheduled times.
    Open(Waiting),
}

/// Arrivals of the open model: those ahead, and those that are due and wait for a connection, in order.
///
/// The wait needs no memory: its head is a second cursor on the same schedule.
#[derive(Debug)]
pub struct Waiting {
    start: Ns,
    ahead: Schedule,
    behind: Schedule,
    waiting: u64,
    newest: Ns,
}

impl Waiting {
    /// The arrivals of `schedule`, counted from `start`.
    #[must_use]
    pub fn new(schedule: Schedule, start: Ns) -> Self {
        Waiting {
            start,
            behind: schedule.clone(),
            ahead: schedule,
            waiting: 0,
            newest: 0,
        }
    }

    /// When the next arrival is due.
    pub fn next_due(&mut self) -> Option<Ns> {
        self.ahead.peek().map(|at| self.start + at)
    }

    /// Moves an arrival that is due by `now` to those that wait, if there is one.
    #[inline]
    pub fn arrive(&mut self, now: Ns) -> bool {
        let Some(due) = self.next_due().filter(|due| *due <= now) else {
            return false;
        };
        self.ahead.take();
        self.waiting += 1;
        self.newest = due;
        true
    }

    /// When the latest arrival was due.
    #[must_use]
    pub fn newest_due(&self) -> Ns {
        self.newest
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Takes the one that waits longest: its intended time.
    pub fn take(&mut self) -> Option<Ns> {
        if self.waiting == 0 {
            return None;
        }
        self.waiting -= 1;
        self.behind.take().map(|at| self.start + at)
    }

    /// Gives up all that wait beyond the first `keep`, which can only be the latest; returns how many.
    pub fn give_up_beyond(&mut self, keep: u64) -> u64 {
        let given_up = self.waiting.saturating_sub(keep);
        self.waiting -= given_up;
        given_up
    }
}
