//! Starts requests and assigns them to connections.

use floodmark_record::plan::{CloseFirst, Schedule};

use super::{Action, Core};
use crate::arrivals::{QueuedArrival, RequestSource};
use crate::backend::Slot;
use crate::clock::Ns;
use crate::exchange::{ExchangeIndex, ExchangeState};
use crate::kept_responses::NotOkBodies;
use crate::mix::Pick;
use crate::recorder::Moments;

impl Core {
    /// Starts a phase.
    pub fn begin(&mut self, arrivals: RequestSource, now: Ns) {
        self.end_preparing(now);
        self.winding_up = false;
        self.not_ok_responses = NotOkBodies::default();
        self.arrivals = arrivals;
        self.last_life = now;
        if matches!(self.arrivals, RequestSource::Closed { .. }) {
            self.start_closed(now);
        } else {
            self.turn(now);
        }
    }

    /// Continues the closed model after [`Core::wind_up`]. All requests start before `until`.
    pub fn resume(&mut self, until: Ns, now: Ns) {
        if let RequestSource::Closed {
            left, until: end, ..
        } = &mut self.arrivals
        {
            (*left, *end) = (None, Some(until));
            self.winding_up = false;
            self.last_life = now;
            self.start_closed(now);
        }
    }

    /// Replaces the schedule of the open model by one that differs only after all admitted arrivals.
    pub fn change_schedule(&mut self, planned: &Schedule) {
        if let RequestSource::Open(waiting) = &mut self.arrivals {
            waiting.change(planned);
        }
    }

    /// Uses each idle connection, and opens connections up to the limit.
    fn start_closed(&mut self, now: Ns) {
        if self.http2.is_some() {
            return self.start_streams(now);
        }
        while let Some(slot) = self.idle.front() {
            let Some(pick) = self.claim(now) else {
                break;
            };
            self.idle.remove(&mut self.connections, slot);
            self.assign(slot, (pick, now), now, now);
        }
        while self.open < self.cap && self.open_claimed(now) {}
    }

    /// Admits due arrivals to the queue, and assigns connections to them.
    #[inline]
    pub fn arrive(&mut self, now: Ns) {
        while let RequestSource::Open(waiting) = &mut self.arrivals
            && let Some(pick) = waiting.arrive(now)
        {
            self.recorder.intended(pick.group, 1);
            self.serve_waiting(now);
        }
    }

    /// Assigns idle connections to waiting requests. If necessary, opens more connections within
    /// the limit.
    pub(super) fn serve_waiting(&mut self, now: Ns) {
        if self.http2.is_some() {
            return self.serve_streams(now);
        }
        while let RequestSource::Open(waiting) = &mut self.arrivals {
            if waiting.waiting == 0 {
                return;
            }
            if self.uses == Some(1) {
                if self.open >= self.cap || self.opens_left == 0 {
                    return;
                }
                self.opens_left -= 1;
                let Some(taken) = waiting.take() else {
                    return;
                };
                let late = now - taken.intended.max(self.room_since);
                self.open_for((taken.pick, taken.intended), late, now);
            } else if let Some(slot) = self.idle.front() {
                let Some(taken) = waiting.take() else {
                    return;
                };
                self.idle.remove(&mut self.connections, slot);
                self.assign(slot, (taken.pick, taken.intended), taken.intended, now);
            } else {
                if self.opening_unclaimed >= waiting.waiting
                    || self.open >= self.cap
                    || self.opens_left == 0
                {
                    return;
                }
                self.opens_left -= 1;
                let late = now - waiting.newest_in.max(self.room_since);
                self.open_unclaimed(now, late);
            }
        }
    }

    /// Handles a connection that has been available since `free`.
    /// The connection takes the next request, or becomes idle if no request is due.
    pub(super) fn vacant(&mut self, slot: Slot, free: Ns, now: Ns) {
        let next = match &mut self.arrivals {
            RequestSource::Open(waiting) => waiting.take(),
            RequestSource::Closed { .. } => self.claim(now).map(|pick| QueuedArrival {
                pick,
                intended: now,
                let_in: now,
            }),
        };
        match next {
            Some(next) => {
                // The time until admission always counts as lateness, even if the request then
                // waits for a connection.
                let free = free.max(next.let_in) - (next.let_in - next.intended);
                self.assign(slot, (next.pick, next.intended), free, now);
            }
            None => self.rest(slot),
        }
    }

    /// Adds a connection to the idle connections.
    /// The most recently used connection is reused first, but held connections are used in turn.
    pub(super) fn rest(&mut self, slot: Slot) {
        self.connections[slot as usize].rested = true;
        if self.ahead.hold {
            self.idle.push_back(&mut self.connections, slot);
        } else {
            self.idle.push_front(&mut self.connections, slot);
        }
    }

    /// Assigns a request to an established connection, which must not be in any list.
    #[inline]
    fn assign(&mut self, slot: Slot, (pick, intended): (Pick, Ns), free: Ns, now: Ns) {
        let exchange = &mut self.exchanges[slot as usize];
        exchange.moments = Moments {
            pick,
            intended,
            free,
            ..Moments::default()
        };
        exchange.retried = None;
        exchange.last = self.close_first == CloseFirst::Server
            && (self.uses).is_some_and(|n| self.connections[slot as usize].used + 1 >= n);
        self.dispatch(slot, now);
        self.actions.push(Action::Send { slot });
    }

    /// Marks the request of an HTTP/1.1 connection as in flight.
    pub(super) fn dispatch(&mut self, slot: Slot, now: Ns) {
        let group = self.exchanges[slot as usize].moments.pick.group;
        let judge = &self.judges[group as usize];
        let connection = &mut self.connections[slot as usize];
        connection.reader.expect_response(judge.to_head);
        self.launch(slot, now);
    }

    /// Marks an exchange as in flight.
    #[inline]
    pub(super) fn launch(&mut self, index: ExchangeIndex, now: Ns) {
        let exchange = &mut self.exchanges[index as usize];
        exchange.state = ExchangeState::InFlight;
        // Set a provisional deadline until the send time is known. Otherwise the exchange would keep
        // an earlier deadline.
        exchange.deadline = now + self.timeout;
        self.in_flight += 1;
        self.pressing.push_back(&mut self.exchanges, index);
    }

    /// Stores the time at which the slot's request was passed to the kernel. Returns whether this
    /// time was already known.
    /// Does nothing if this time is already known or the request has ended.
    #[inline]
    pub fn sent(&mut self, slot: Slot, now: Ns) -> bool {
        if self.http2.is_some() {
            self.sent_output(slot, now);
            return true;
        }
        let exchange = &mut self.exchanges[slot as usize];
        let was_sent = exchange.moments.sent != 0;
        if exchange.state != ExchangeState::InFlight || was_sent {
            return was_sent;
        }
        exchange.moments.sent = now;
        exchange.deadline = now + self.timeout;
        if exchange.retried.is_some() {
            let group = exchange.moments.pick.group;
            self.recorder.resent(group, exchange.length);
        } else {
            self.recorder.sent(&exchange.moments, exchange.length);
        }
        was_sent
    }

    /// In the closed model, claims the next request, if any.
    pub(super) fn claim(&mut self, now: Ns) -> Option<Pick> {
        let RequestSource::Closed { left, until, picks } = &mut self.arrivals else {
            return None;
        };
        if until.is_some_and(|until| now >= until) {
            return None;
        }
        match left {
            Some(0) => return None,
            Some(n) => *n -= 1,
            None => {}
        }
        let pick = picks.take();
        self.recorder.intended(pick.group, 1);
        Some(pick)
    }

    /// Reuses a free slot. In the closed model, opens the next connection. In the open model,
    /// serves waiting requests.
    pub(super) fn refill(&mut self, now: Ns) {
        match self.arrivals {
            RequestSource::Closed { .. } => {
                if self.http2.is_some() {
                    // Requests that returned need not wait for a new connection.
                    self.serve_room(now);
                }
                if self.open < self.cap {
                    match self.http2 {
                        None => self.open_claimed(now),
                        Some(_) => self.open_next(now),
                    };
                }
            }
            RequestSource::Open(_) => self.serve_waiting(now),
        }
    }
}
