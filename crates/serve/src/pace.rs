//! What is known of a connection's progress, and a coarse clock that costs the hot path nothing.
//!
//! Each worker reads the time once a step and scans a tenth of its connections, so that a scan of 100,000 idle
//! connections never holds up an answer for long. A timer per connection would cost each request two updates of it.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use crate::settings::Limits;

/// One step of the coarse clock.
pub(crate) const STEP: Duration = Duration::from_millis(100);
/// Steps in which every connection is looked at once.
const STEPS_PER_SCAN: usize = 10;

/// Steps since the worker began.
type Steps = u64;

/// The progress of one connection. Lives on its worker's thread.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    moved: Cell<Steps>,
    request_since: Cell<Option<Steps>>,
    write_blocked: Cell<bool>,
    cut: Cell<bool>,
    linger: Cell<bool>,
    waker: OnceCell<Waker>,
}

impl Pace {
    /// Bytes came in; a request is open from its first byte on.
    pub(crate) fn received(&self, now: Steps) {
        self.moved.set(now);
        self.begin(now);
    }

    /// Bytes went out.
    pub(crate) fn sent(&self, now: Steps) {
        self.moved.set(now);
        self.write_blocked.set(false);
    }

    /// The socket takes no more for now.
    pub(crate) fn blocked(&self) {
        self.write_blocked.set(true);
    }

    /// A request is open, since its first byte where that was seen (pipelined ones come in one read).
    pub(crate) fn begin(&self, now: Steps) {
        if self.request_since.get().is_none() {
            self.request_since.set(Some(now));
        }
    }

    /// The answer is made.
    pub(crate) fn answered(&self) {
        self.request_since.set(None);
    }

    /// Whether a request or its answer is on its way.
    pub(crate) fn is_busy(&self) -> bool {
        self.request_since.get().is_some() || self.write_blocked.get()
    }

    /// Whether the connection is to end at once.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.get()
    }

    /// The client may still be sending what will not be read: it must get its answer before the connection goes.
    pub(crate) fn set_linger(&self) {
        self.linger.set(true);
    }

    /// See [`Pace::set_linger`].
    pub(crate) fn lingers(&self) -> bool {
        self.linger.get()
    }

    /// Remembers whom to wake; a task's waker stays good for its whole life.
    pub(crate) fn remember(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }

    /// Has the connection's task look again.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    fn cut_off(&self) {
        self.cut.set(true);
        self.wake();
    }

    fn is_overdue(&self, now: Steps, idle: Steps, request: Steps) -> bool {
        now.saturating_sub(self.moved.get()) > idle
            || self
                .request_since
                .get()
                .is_some_and(|since| now.saturating_sub(since) > request)
    }
}

/// The connections of one worker, bounded by the limit of connections.
#[derive(Debug, Default)]
pub(crate) struct Register {
    now: Cell<Steps>,
    scanned: Cell<usize>,
    slots: RefCell<Vec<Option<Rc<Pace>>>>,
    free: RefCell<Vec<usize>>,
}

impl Register {
    /// The coarse time.
    pub(crate) fn now(&self) -> Steps {
        self.now.get()
    }

    /// Adds a connection; the number is its place.
    pub(crate) fn add(&self) -> (usize, Rc<Pace>) {
        let pace = Rc::new(Pace::default());
        pace.moved.set(self.now());
        let mut slots = self.slots.borrow_mut();
        let place = match self.free.borrow_mut().pop() {
            Some(place) => {
                slots[place] = Some(Rc::clone(&pace));
                place
            }
            None => {
                slots.push(Some(Rc::clone(&pace)));
                slots.len() - 1
            }
        };
        (place, pace)
    }

    /// Forgets a connection.
    pub(crate) fn remove(&self, place: usize) {
        self.slots.borrow_mut()[place] = None;
        self.free.borrow_mut().push(place);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.borrow().len() - self.free.borrow().len()
    }

    /// Sets the clock and cuts off what is overdue in the next tenth of the connections.
    pub(crate) fn step(&self, elapsed: Duration, limits: &Limits) {
        let now = steps(elapsed);
        self.now.set(now);
        // One more, as a time taken from the coarse clock may be a whole step old.
        let idle = steps(limits.idle) + 1;
        let request = steps(limits.request) + 1;
        let slots = self.slots.borrow();
        let from = self.scanned.get().min(slots.len());
        let to = slots.len().min(from + slots.len().div_ceil(STEPS_PER_SCAN));
        for pace in slots[from..to].iter().flatten() {
            if pace.is_overdue(now, idle, request) {
                pace.cut_off();
            }
        }
        self.scanned.set(if to == slots.len() { 0 } else { to });
    }

    /// Has every connection look again at whether the server is closing.
    pub(crate) fn wake_all(&self) {
        self.slots.borrow().iter().flatten().for_each(|p| p.wake());
    }

    /// Ends every connection at once.
    pub(crate) fn cut_all(&self) {
        self.slots
            .borrow()
            .iter()
            .flatten()
            .for_each(|p| p.cut_off());
    }
}

fn steps(time: Duration) -> Steps {
    u64::try_from(time.as_millis() / STEP.as_millis()).unwrap_or(u64::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_and_counted() {
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
    fn every_connection_is_scanned_within_ten_steps() {
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
            paces.iter().all(|p| !p.is_cut()),
            "within a second and a step"
        );
        for step in 0..10 {
            register.step(Duration::from_millis(1200 + step), &limits);
        }
        assert!(paces.iter().all(|p| p.is_cut()));
    }

    #[test]
    fn an_open_request_has_its_own_limit_and_an_answer_ends_it() {
        let limits = Limits {
            request: Duration::from_millis(500),
            ..Limits::default()
        };
        let register = Register::default();
        let (_, slow) = register.add();
        let (_, done) = register.add();
        for pace in [&slow, &done] {
            pace.received(register.now());
            assert!(pace.is_busy());
        }
        done.answered();
        for step in 0..10 {
            register.step(Duration::from_millis(700 + step), &limits);
            slow.received(register.now());
        }
        assert!(slow.is_cut(), "a byte now and then does not help");
        assert!(!done.is_cut());
    }
}
