//! A backend that a test controls directly.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;

use floodmark_load::backend::epoll::Epoll;
use floodmark_load::backend::uring::Uring;
use floodmark_load::backend::{Completion, IoBackend, Route, SharedBytes, Slot};
use floodmark_load::clock::{Clock, Ns};
use floodmark_record::plan::{self, Address, CloseFirst};

/// Maximum time in ms to wait for an expected event, far longer than the event takes.
pub const LONG: u64 = 30_000;

/// A completion that owns its bytes.
#[derive(Debug, PartialEq)]
pub enum Seen {
    Connected(Slot),
    ConnectFailed(Slot, Option<i32>),
    Received(Slot, Vec<u8>),
    Ended(Slot),
    Failed(Slot, Option<i32>),
}

impl Seen {
    pub fn slot(&self) -> Slot {
        match self {
            Seen::Connected(slot)
            | Seen::ConnectFailed(slot, _)
            | Seen::Received(slot, _)
            | Seen::Ended(slot)
            | Seen::Failed(slot, _) => *slot,
        }
    }
}

/// A backend with a minimal substitute for the engine.
/// The driver sends the first request if the backend did not send it with the handshake.
pub struct Driver {
    pub clock: Clock,
    pub backend: Box<dyn IoBackend>,
    /// Timestamp of the last received bytes.
    pub stamp: Option<Ns>,
    firsts: HashMap<Slot, SharedBytes>,
}

impl Driver {
    pub fn new(backend: plan::Backend, target: impl Into<Address>) -> Self {
        let target = target.into();
        match backend {
            plan::Backend::Epoll => {
                Self::with(|clock| Box::new(Epoll::new(clock, &[target], false).unwrap()))
            }
            plan::Backend::Uring => Self::uring(target, 16, 0),
        }
    }

    /// Creates an io_uring backend for `most` connections with requests of at most `longest` bytes.
    pub fn uring(target: impl Into<Address>, most: usize, longest: usize) -> Self {
        let target = target.into();
        Self::with(|clock| Box::new(Uring::new(clock, &[target], most, longest).unwrap()))
    }

    /// Creates a backend with kernel timestamps, for requests of at most `longest` bytes.
    pub fn stamped(backend: plan::Backend, target: SocketAddr, longest: usize) -> Self {
        let target = target.into();
        Self::with(|clock| match backend {
            plan::Backend::Epoll => Box::new(Epoll::new(clock, &[target], true).unwrap()),
            plan::Backend::Uring => {
                Box::new(Uring::new(clock, &[target], 16, longest).unwrap().stamped())
            }
        })
    }

    fn with(make: impl FnOnce(Clock) -> Box<dyn IoBackend>) -> Self {
        let clock = Clock::start();
        Driver {
            clock,
            backend: make(clock),
            stamp: None,
            firsts: HashMap::new(),
        }
    }

    pub fn open(&mut self, slot: Slot, first: Option<&[u8]>) {
        let first: Option<SharedBytes> = first.map(|bytes| Rc::new(bytes.to_vec().into()));
        self.backend.open(slot, Route::default(), first.as_ref());
        self.firsts.remove(&slot);
        if let Some(first) = first {
            self.firsts.insert(slot, first);
        }
    }

    pub fn send(&mut self, slot: Slot, bytes: &[u8]) {
        self.backend.send(slot, &Rc::new(bytes.to_vec().into()));
    }

    /// Closes the slot's connection, and submits the close. Ignores all events.
    pub fn close(&mut self, slot: Slot, how: CloseFirst) {
        self.backend.close(slot, how);
        self.backend.wait(self.clock.now()).unwrap();
        while self.next().is_some() {}
    }

    pub fn next(&mut self) -> Option<Seen> {
        let (seen, sent) = match self.backend.next()? {
            Completion::Reached { .. } => return self.next(),
            Completion::Connected { slot, sent, .. } => (Seen::Connected(slot), Some(sent)),
            Completion::ConnectFailed { slot, error } => {
                (Seen::ConnectFailed(slot, error.raw_os_error()), None)
            }
            Completion::Received { slot, data, at, .. } => {
                self.stamp = at;
                (Seen::Received(slot, data.to_vec()), None)
            }
            Completion::Ended { slot } => (Seen::Ended(slot), None),
            Completion::Failed { slot, error } => (Seen::Failed(slot, error.raw_os_error()), None),
        };
        if let Some(sent) = sent {
            let first = self.firsts.remove(&seen.slot());
            assert!(first.is_some() || !sent, "sent without a request");
            if let Some(first) = first.filter(|_| !sent) {
                self.backend.send(seen.slot(), &first);
            }
        }
        Some(seen)
    }

    /// Waits for at most `ms` milliseconds. Returns the events up to the first event that satisfies
    /// `last`.
    pub fn until(&mut self, ms: u64, mut last: impl FnMut(&Seen) -> bool) -> Vec<Seen> {
        let end = self.clock.now() + ms * 1_000_000;
        let mut all = Vec::new();
        loop {
            // Read the remaining events from the last wait, because the backend drops these events
            // when it waits again.
            while let Some(seen) = self.next() {
                all.push(seen);
                if last(all.last().unwrap()) {
                    return all;
                }
            }
            if self.clock.now() >= end {
                return all;
            }
            self.backend.wait(end).unwrap();
        }
    }

    /// Waits for at most `ms` milliseconds. Returns the events up to the `n`th event that satisfies
    /// `counts`.
    pub fn until_nth(&mut self, n: usize, ms: u64, counts: impl Fn(&Seen) -> bool) -> Vec<Seen> {
        let mut left = n;
        self.until(ms, |seen| {
            left -= usize::from(counts(seen));
            left == 0
        })
    }
}

pub fn connected(seen: &Seen) -> bool {
    matches!(seen, Seen::Connected(_))
}

pub fn ended(seen: &Seen) -> bool {
    matches!(seen, Seen::Ended(_) | Seen::Failed(..))
}

/// Returns the received bytes.
pub fn bytes(all: &[Seen]) -> Vec<u8> {
    let parts = all.iter().filter_map(|seen| match seen {
        Seen::Received(_, data) => Some(data.as_slice()),
        _ => None,
    });
    parts.collect::<Vec<_>>().concat()
}

/// Checks that `body` arrives completely at a [slow reader](super::server::read_slowly), whether it
/// is sent with the handshake or afterwards.
pub fn arrives_whole(backend: plan::Backend, target: impl Into<Address>, body: &[u8]) {
    let target = target.into();
    for carried in [true, false] {
        let mut driver = Driver::new(backend, target.clone());
        driver.open(0, carried.then_some(body));
        assert_eq!(driver.until(LONG, connected), [Seen::Connected(0)]);
        if !carried {
            driver.send(0, body);
        }
        assert_eq!(bytes(&driver.until(LONG, ended)), b"whole");
    }
}
