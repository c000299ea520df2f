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
/// Maximum time to wait for a request head at shutdown, in steps: 1 s.
const MAX_WAIT_AT_SHUTDOWN: ClockSteps = 10;

/// Time since the worker started, in steps.
pub(crate) type ClockSteps = u64;

/// The progress of one connection.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    moved: Cell<ClockSteps>,
    /// Start of the request that is being received; `None` if all requests have been read.
    request_since: Cell<Option<ClockSteps>>,
    /// Whether the head of the request in progress is complete, or an HTTP/2 stream is open.
    has_head: Cell<bool>,
    /// Whether the send buffer is full.
    pub(crate) write_blocked: Cell<bool>,
    /// Whether the connection must end immediately.
    pub(crate) cut: Cell<bool>,
    /// Whether the connection lingers before it is closed. The client may still be sending, and
    /// must receive the response first.
    pub(crate) linger: Cell<bool>,
    /// Whether the connection ends after the response to the current request.
    pub(crate) is_last: Cell<bool>,
    waker: OnceCell<Waker>,
}

impl Pace {
    /// Records received bytes. The first byte starts a request.
    pub(crate) fn received(&self, now: ClockSteps) {
        self.moved.set(now);
        self.begin_request(now);
    }

    /// Records sent bytes.
    pub(crate) fn sent(&self, now: ClockSteps) {
        self.moved.set(now);
        self.write_blocked.set(false);
    }

    /// Records that the head of a request is complete. Its first byte may not have been recorded,
    /// because pipelined requests may arrive in a single read.
    pub(crate) fn received_head(&self, now: ClockSteps) {
        self.begin_request(now);
        self.has_head.set(true);
    }

    /// Records that the whole request has been read. [`Limits::request`] does not include the wait
    /// for the response.
    pub(crate) fn received_body(&self) {
        self.request_since.set(None);
    }

    /// Records that the current request has been answered.
    pub(crate) fn responded(&self) {
        self.request_since.set(None);
        self.has_head.set(false);
    }

    /// Records progress on an HTTP/2 connection with `streams` open streams. The limit on the time
    /// of a request applies to each stream, not to the connection.
    pub(crate) fn progressed(&self, streams: usize, now: ClockSteps) {
        self.moved.set(now);
        self.request_since.set(None);
        self.has_head.set(streams > 0);
    }

    fn begin_request(&self, now: ClockSteps) {
        self.request_since
            .set(self.request_since.get().or(Some(now)));
    }

    /// Returns the time at which the server began to wait for a request head, or `None` if it is
    /// not waiting. If the request has begun, this is the beginning of the request or of the
    /// shutdown, whichever is later.
    fn waiting_since(&self, shutdown: ClockSteps) -> Option<ClockSteps> {
        let begun = |since: ClockSteps| since.max(shutdown);
        let is_waiting = !self.has_head.get() && !self.write_blocked.get();
        is_waiting.then(|| self.request_since.get().map_or(self.moved.get(), begun))
    }

    /// Stores the waker of the connection's task. The waker stays valid for the life of the task.
    pub(crate) fn remember(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }

    /// Ends the connection immediately.
    fn cut_off(&self) {
        self.cut.set(true);
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    fn is_overdue(&self, now: ClockSteps, idle: ClockSteps, request: ClockSteps) -> bool {
        let is_older = |since: ClockSteps, limit| now.saturating_sub(since) > limit;
        let since = self.request_since.get();
        // The client cannot make progress while the server waits for a journal or store.
        let awaits_response = self.has_head.get() && !self.write_blocked.get();
        !awaits_response && is_older(self.moved.get(), idle)
            || since.is_some_and(|since| is_older(since, request))
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

    /// Cuts off connections that have waited for a request head for more than a second, and returns
    /// how many of them had begun a request. `shutdown` is the start of the shutdown.
    ///
    /// The request of a connection that was active a moment ago may be on its way. An immediate
    /// close would reset the connection.
    pub(crate) fn cut_off_waiting(&self, shutdown: ClockSteps) -> u64 {
        let mut cut = 0;
        for (_, pace) in self.connections.borrow().iter() {
            let since = pace.waiting_since(shutdown);
            let waited = since.map_or(0, |since| self.now.get().saturating_sub(since));
            if waited > MAX_WAIT_AT_SHUTDOWN && !pace.cut.get() {
                cut += u64::from(pace.request_since.get().is_some());
                pace.cut_off();
            }
        }
        cut
    }

    /// Cuts off all connections.
    pub(crate) fn cut_off_all(&self) {
        let connections = self.connections.borrow();
        connections.iter().for_each(|(_, pace)| pace.cut_off());
    }
}

/// Returns the number of whole clock steps in a duration.
pub(crate) fn steps(time: Duration) -> ClockSteps {
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
    fn limits_the_time_to_receive_a_request() {
        let limits = Limits {
            request: Duration::from_millis(500),
            ..Limits::default()
        };
        let register = Register::default();
        let (_, slow) = register.add();
        let (_, done) = register.add();
        let (_, waiting) = register.add();
        for pace in [&slow, &done, &waiting] {
            pace.received(register.now.get());
            pace.received_head(register.now.get());
        }
        done.responded();
        waiting.received_body();
        for step in 0..10 {
            register.step(Duration::from_millis(700 + step), &limits);
            slow.received(register.now.get());
        }
        assert!(
            slow.cut.get(),
            "receiving one byte at a time does not extend the timeout"
        );
        assert!(!done.cut.get());
        assert!(!waiting.cut.get(), "the server waits for a store");
    }

    #[test]
    fn shutdown_waits_a_second_for_request_heads() {
        let register = Register::default();
        let at = |tenths: u64| register.step(STEP * tenths as u32, &Limits::default());
        let idle = register.add().1;
        at(50);
        let [fresh, begun, served, blocked] = [(); 4].map(|()| register.add().1);
        let pace = |pace: &Pace| pace.cut.get();
        for pace in [&begun, &served] {
            pace.received(50);
        }
        served.received_head(50);
        blocked.write_blocked.set(true);
        at(55);
        assert_eq!(register.cut_off_waiting(55), 0);
        assert!(pace(&idle) && !pace(&fresh), "active in the last second");
        at(61);
        assert_eq!(register.cut_off_waiting(55), 0);
        assert!(pace(&fresh) && !pace(&begun), "a second after the shutdown");
        at(66);
        begun.received(66); // receiving one byte at a time does not extend the time
        assert_eq!(register.cut_off_waiting(55), 1);
        assert!(pace(&begun));
        at(500);
        assert_eq!(register.cut_off_waiting(55), 0);
        assert!(!served.cut.get() && !blocked.cut.get());
    }
}
