//! Progress while connections are opened before the clock starts.

use floodmark_record::events::Connecting;
use floodmark_record::plan::Plan;
use floodmark_record::worker_input::AgentShare;

use crate::core::ready_connections;
use crate::indices::ThreadShare;
use crate::worker::cap;

/// The progress that the threads have reported.
#[derive(Debug)]
pub struct Opening {
    of: u64,
    threads: Vec<(u64, u64)>,
    /// Whether each thread has reported since the last event.
    reported: Vec<bool>,
}

impl Opening {
    /// Creates the progress for an agent's `threads` threads, which open a plan's connections in
    /// advance.
    #[must_use]
    pub fn new(plan: &Plan, threads: u32, agent: AgentShare) -> Self {
        let of = |thread| {
            let share = ThreadShare {
                thread,
                threads,
                agent,
            };
            ready_connections(plan, share.overall().1, cap(plan, share)) as u64
        };
        Opening {
            of: (0..threads).map(of).sum(),
            threads: vec![(0, 0); threads as usize],
            reported: vec![false; threads as usize],
        }
    }

    /// Records how many connections a thread has opened and failed to open.
    /// Returns an event when a thread reports for the second time since the last event.
    pub fn take(&mut self, thread: u32, (standing, failed): (u64, u64)) -> Option<Connecting> {
        let thread = thread as usize;
        let again = std::mem::replace(&mut self.reported[thread], true);
        let event = again.then(|| self.event());
        if again {
            self.reported.fill(false);
            self.reported[thread] = true;
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
    use crate::testing::{closed_plan, held_plan, open_plan};
    use floodmark_record::plan::{Arrivals, ConnectionUse};

    #[test]
    fn reports_once_per_round() {
        let mut opening = Opening::new(&closed_plan(1000, 1), 2, AgentShare::WHOLE);
        assert_eq!(opening.take(0, (100, 0)), None);
        assert_eq!(opening.take(1, (90, 3)), None);
        let first = opening.take(1, (200, 4)).unwrap();
        assert_eq!((first.standing, first.failed, first.of), (190, 3, 1000));
        assert_eq!(opening.take(0, (220, 0)), None);
        // A thread that has opened all its connections stops reporting.
        assert_eq!(opening.take(0, (500, 0)).unwrap().standing, 420);
    }

    #[test]
    fn awaits_only_connections_opened_ahead() {
        let open = |rate| open_plan(Arrivals::Constant, rate, Some(1.0), None);
        for (plan, expected) in [
            (closed_plan(1001, 1), 1001),
            (open(1000.0), 4),
            (open(10_000.0), 20),
            (held_plan(open(1000.0)), 1000),
            (
                Plan {
                    connection_use: ConnectionUse::Fresh,
                    ..closed_plan(10, 1)
                },
                0,
            ),
        ] {
            assert_eq!(
                Opening::new(&plan, 4, AgentShare::WHOLE).of,
                expected,
                "{plan:?}"
            );
        }
    }
}
