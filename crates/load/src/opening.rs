//! How far the threads are with opening connections before the clock starts.

use floodmark_record::events::Connecting;
use floodmark_record::plan::Plan;

use crate::core::ready_connections;
use crate::worker::cap;

/// What the threads have said.
#[derive(Debug)]
pub struct Opening {
    of: u64,
    threads: Vec<(u64, u64)>,
    /// Who has spoken since the last event.
    spoken: Vec<bool>,
}

impl Opening {
    /// `threads` threads that open a plan's connections ahead.
    #[must_use]
    pub fn new(plan: &Plan, threads: u32) -> Self {
        let of = |thread| ready_connections(plan, threads, cap(plan, thread, threads)) as u64;
        Opening {
            of: (0..threads).map(of).sum(),
            threads: vec![(0, 0); threads as usize],
            spoken: vec![false; threads as usize],
        }
    }

    /// Takes in how many of a thread's connections stand and how many could not be opened. An event follows when a thread speaks
    /// again, so there is one for each round.
    pub fn take(&mut self, thread: u32, (standing, failed): (u64, u64)) -> Option<Connecting> {
        let thread = thread as usize;
        let again = std::mem::replace(&mut self.spoken[thread], true);
        let event = again.then(|| self.event());
        if again {
            self.spoken.fill(false);
            self.spoken[thread] = true;
        }
        self.threads[thread] = (standing, failed);
        event
    }

    fn event(&self) -> Connecting {
        let sum = |of: fn(&(u64, u64)) -> u64| self.threads.iter().map(of).sum();
        Connecting {
            standing: sum(|counts| counts.0),
            failed: sum(|counts| counts.1),
            of: self.of,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{closed_plan, open_plan};
    use floodmark_record::plan::{Arrivals, ConnectionUse};

    #[test]
    fn one_event_for_each_round() {
        let mut opening = Opening::new(&closed_plan(1000, 1), 2);
        assert_eq!(opening.take(0, (100, 0)), None);
        assert_eq!(opening.take(1, (90, 3)), None);
        let first = opening.take(1, (200, 4)).unwrap();
        assert_eq!((first.standing, first.failed, first.of), (190, 3, 1000));
        assert_eq!(opening.take(0, (220, 0)), None);
        // A thread that has opened all is silent.
        assert_eq!(opening.take(0, (500, 0)).unwrap().standing, 420);
    }

    #[test]
    fn only_connections_that_are_opened_ahead_are_awaited() {
        let open = |rate| open_plan(Arrivals::Constant, rate, Some(1.0), None);
        for (plan, expected) in [
            (closed_plan(1001, 1), 1001),
            (open(1000.0), 4),
            (open(10_000.0), 20),
            (
                Plan {
                    hold: true,
                    ..open(1000.0)
                },
                1000,
            ),
            (
                Plan {
                    connection_use: ConnectionUse::Fresh,
                    ..closed_plan(10, 1)
                },
                0,
            ),
        ] {
            assert_eq!(Opening::new(&plan, 4).of, expected, "{plan:?}");
        }
    }
}
