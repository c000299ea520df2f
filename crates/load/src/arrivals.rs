//! Where requests come from: a schedule (open model) or free connections (closed model).

use std::collections::VecDeque;

use crate::clock::Ns;
use crate::mix::{Pick, Picks};
use crate::schedule::Schedule;

/// An arrival that is let in later than this after its time was kept waiting by us, and that is remembered; less is
/// what a turn of the loop takes.
const LATE_NS: Ns = 100_000;

/// Standstills remembered at once. More of them while arrivals from before the first still wait would need a
/// thread that stands still all the time; later ones then count as waiting for a connection.
const STANDSTILLS: usize = 4096;

/// Source of requests of one thread in one phase.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a thread has one")]
pub enum Arrivals {
    /// A connection sends when it is free, until the quota or the time is used up.
    Closed {
        /// Requests still to be begun; none where time decides.
        left: Option<u64>,
        /// Nothing is begun from then on, where time decides.
        until: Option<Ns>,
        /// Which requests they are.
        picks: Picks,
    },
    /// Requests are due at scheduled times.
    Open(Waiting),
}

/// Arrivals of the open model: those ahead, and those that are due and wait for a connection, in order.
///
/// The wait needs no memory but for our own standstills: its head is a second cursor on the same schedule and on the picks that go
/// with it.
#[derive(Debug)]
pub struct Waiting {
    start: Ns,
    ahead: Schedule,
    behind: Schedule,
    picks_ahead: Picks,
    picks_behind: Picks,
    waiting: u64,
    newest_in: Ns,
    /// When arrivals were due that were let in late, and when they were: first due, let in.
    standstills: VecDeque<(Ns, Ns)>,
}

/// An arrival that is taken out of the wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Which request it is.
    pub pick: Pick,
    /// When it was due.
    pub intended: Ns,
    /// When it was let in: later than it was due where the thread stood still.
    pub let_in: Ns,
}

impl Waiting {
    /// The arrivals of `schedule`, counted from `start`, and the requests that they are.
    #[must_use]
    pub fn new(schedule: Schedule, start: Ns, picks: Picks) -> Self {
        Waiting {
            start,
            behind: schedule.clone(),
            ahead: schedule,
            picks_behind: picks.clone(),
            picks_ahead: picks,
            waiting: 0,
            newest_in: 0,
            standstills: VecDeque::new(),
        }
    }

    /// When the next arrival is due.
    pub fn next_due(&self) -> Option<Ns> {
        self.ahead.peek().map(|at| self.start + at)
    }

    /// Moves an arrival that is due by `now` to those that wait, if there is one.
    #[inline]
    pub fn arrive(&mut self, now: Ns) -> Option<Pick> {
        let due = self.next_due().filter(|due| *due <= now)?;
        self.ahead.take();
        self.waiting += 1;
        self.newest_in = due;
        if now - due > LATE_NS {
            self.newest_in = now;
            let known = self.standstills.back().is_some_and(|(_, end)| *end == now);
            if !known && self.standstills.len() < STANDSTILLS {
                self.standstills.push_back((due, now));
            }
        }
        Some(self.picks_ahead.take())
    }

    /// Since when the latest arrival has been able to have a connection: when it was due, or let in if that was late.
    #[must_use]
    pub fn newest_in(&self) -> Ns {
        self.newest_in
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Takes the one that waits longest.
    pub fn take(&mut self) -> Option<Taken> {
        if self.waiting == 0 {
            return None;
        }
        self.waiting -= 1;
        let intended = self.start + self.behind.take()?;
        let pick = self.picks_behind.take();
        while self
            .standstills
            .front()
            .is_some_and(|(_, end)| *end < intended)
        {
            self.standstills.pop_front();
        }
        let let_in = match self.standstills.front() {
            Some((begin, end)) if *begin <= intended => *end,
            _ => intended,
        };
        Some(Taken {
            pick,
            intended,
            let_in,
        })
    }

    /// Gives up all that wait beyond the first `keep`, which can only be the latest, telling how many of each group they are.
    pub fn give_up_beyond(&mut self, keep: u64, tell: impl FnMut(u32, u64)) {
        let given_up = self.waiting.saturating_sub(keep);
        self.waiting -= given_up;
        let mut picks = self.picks_behind.clone();
        picks.pass(keep.min(self.waiting), |_, _| {});
        picks.pass(given_up, tell);
    }

    /// A request number above all that have arrived.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.picks_ahead.next_number()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::open_plan;
    use floodmark_record::plan::Arrivals as Spacing;

    fn waiting() -> Waiting {
        let plan = open_plan(Spacing::Constant, 1000.0, Some(1.0), None);
        let schedule = Schedule::new(&plan, plan.duration_s, 0, 1).unwrap();
        Waiting::new(schedule, 0, Picks::new(&plan, (0, 1), 1))
    }

    #[test]
    fn an_arrival_is_let_in_when_we_come_to_it() {
        const MS: Ns = 1_000_000;
        let mut waiting = waiting();
        let mut come = |at: Ns| while waiting.arrive(at).is_some() {};
        come(0);
        come(MS + 20_000);
        // The thread stands still from 1 to 5.5 ms and from 6 to 8.5 ms.
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
