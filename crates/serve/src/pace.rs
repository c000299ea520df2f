//! Connection timeouts, based on a coarse clock. Reading the clock needs no system call.
//!
//! Once per step, each worker reads the time and scans a tenth of its connections. Scanning 100,000
//! idle connections therefore never delays a response for long. A timer per connection would need
//! two updates per request.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use slab::Slab;

use crate::settings::Limits;

/// Resolution of the coarse clock.
pub(crate) const STEP: Duration = Duration::from_millis(100);
/// Number of steps in which all connections are scanned once.
const STEPS_PER_SCAN: usize = 10;

/// Time since the worker started, in steps.
type ClockSteps = u64;

/// The progress of one connection.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    moved: Cell<ClockSteps>,
    /// Start of the request in progress; `None` if every request got its response.
    pub(crate) request_since: Cell<Option<ClockSteps>>,
    /// Whether the send buffer is full.
    pub(crate) write_blocked: Cell<bool>,
    /// Whether the connection must end immediately.
    pub(crate) cut: Cell<bool>,
    /// Whether the connection lingers before it is closed. The client may still be sending, and
    /// must receive the response first.
    pub(crate) linger: Cell<bool>,
    waker: OnceCell<Waker>,
}

impl Pace {
    /// Records received bytes. The first byte starts a request.
    pub(crate) fn received(&self, now: ClockSteps) {
        self.moved.set(now);
        self.begin(now);
    }

    /// Records sent bytes.
    pub(crate) fn sent(&self, now: ClockSteps) {
        self.moved.set(now);
        self.write_blocked.set(false);
    }

    /// Records the start of a request, unless the request's first byte has already been recorded.
    /// Pipelined requests may arrive in a single read.
    pub(crate) fn begin(&self, now: ClockSteps) {
        self.request_since
            .set(self.request_since.get().or(Some(now)));
    }

    /// Returns whether a request or response is in progress.
    pub(crate) fn is_busy(&self) -> bool {
        self.request_since.get().is_some() || self.write_blocked.get()
    }

    /// Stores the waker of the connection's task. The waker stays valid for the life of the task.
    pub(crate) fn remember(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }

    /// Wakes the connection's task, which then checks for shutdown.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    /// Ends the connection immediately.
    pub(crate) fn cut_off(&self) {
        self.cut.set(true);
        self.wake();
    }

    fn is_overdue(&self, now: ClockSteps, idle: ClockSteps, request: ClockSteps) -> bool {
        let is_older = |since: ClockSteps, limit| now.saturating_sub(since) > limit;
        let since = self.request_since.get();
        is_older(self.moved.get(), idle) || since.is_some_and(|since| is_older(since, request))
    }
}

/// The connections of one worker. Their number is bounded by the connection limit.
#[derive(Debug, Default)]
pub(crate) struct Register {
    /// The coarse time.
    pub(crate) now: Cell<ClockSteps>,
    scanned: Cell<usize>,
    connections: RefCell<Slab<Rc<Pace>>>,
}

impl Register {
    /// Adds a connection and returns its index.
    pub(crate) fn add(&self) -> (usize, Rc<Pace>) {
        let pace = Rc::new(Pace::default());
        pace.moved.set(self.now.get());
        let slot = self.connections.borrow_mut().insert(Rc::clone(&pace));
        (slot, pace)
    }

    /// Removes a connection.
    pub(crate) fn remove(&self, slot: usize) {
        self.connections.borrow_mut().remove(slot);
    }

    /// Returns the number of connections.
    pub(crate) fn len(&self) -> usize {
        self.connections.borrow().len()
    }

    /// Advances the clock, and cuts off overdue connections in the next tenth of the register.
    pub(crate) fn step(&self, elapsed: Duration, limits: &Limits) {
        let now = steps(elapsed);
        self.now.set(now);
        // Add a step, because the coarse clock may be one step late.
        let idle = steps(limits.idle) + 1;
        let request = steps(limits.request) + 1;
        let connections = self.connections.borrow();
        let slots = connections.capacity();
        let from = self.scanned.get().min(slots);
        let to = slots.min(from + slots.div_ceil(STEPS_PER_SCAN));
        for pace in (from..to).filter_map(|slot| connections.get(slot)) {
            if pace.is_overdue(now, idle, request) {
                pace.cut_off();
            }
        }
        self.scanned.set(if to == slots { 0 } else { to });
    }

    /// Performs an action on every connection.
    pub(crate) fn for_each(&self, action: fn(&Pace)) {
        let connections = self.connections.borrow();
        connections.iter().for_each(|(_, pace)| action(pace));
    }
}

fn steps(time: Duration) -> ClockSteps {
    u64::try_from(time.as_millis() / STEP.as_millis()).unwrap_or(u64::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reuses_and_counts_slots() {
        let register = Register::default();
        let (first, _) = register.add();
        let (second, _) = register.add();
        assert_ne!(first, second);
        register.remove(first);
        assert_eq!(register.len(), 1);
        assert_eq!(register.add().0, first);
        assert_eq!(register.len(), 2);
    }

    #[test]
    fn scans_every_connection_within_ten_steps() {
        let limits = Limits {
            idle: Duration::from_secs(1),
            ..Limits::default()
        };
        let register = Register::default();
        let paces: Vec<_> = (0..1234).map(|_| register.add().1).collect();
        for step in 0..10 {
            register.step(Duration::from_millis(1100 + step), &limits);
        }
        assert!(
            paces.iter().all(|p| !p.cut.get()),
            "not cut until one step after the limit"
        );
        for step in 0..10 {
            register.step(Duration::from_millis(1200 + step), &limits);
        }
        assert!(paces.iter().all(|p| p.cut.get()));
    }

    #[test]
    fn limits_the_time_of_a_request_until_its_response() {
        let limits = Limits {
            request: Duration::from_millis(500),
            ..Limits::default()
        };
        let register = Register::default();
        let (_, slow) = register.add();
        let (_, done) = register.add();
        for pace in [&slow, &done] {
            pace.received(register.now.get());
            assert!(pace.is_busy());
        }
        done.request_since.set(None);
        for step in 0..10 {
            register.step(Duration::from_millis(700 + step), &limits);
            slow.received(register.now.get());
        }
        assert!(
            slow.cut.get(),
            "receiving one byte at a time does not extend the timeout"
        );
        assert!(!done.cut.get());
    }
}
