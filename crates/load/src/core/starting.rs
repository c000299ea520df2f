//! Starts requests and assigns them to connections.

use floodmark_record::plan::{CloseFirst, Schedule};

use super::{Action, Core};
use crate::arrivals::RequestSource;
use crate::backend::Slot;
use crate::clock::Ns;
use crate::exchange::{ExchangeIndex, ExchangeState};
use crate::kept_responses::NotOkBodies;
use crate::mix::Pick;
use crate::recorder::{BlockedBy, Moments};

/// Room for a request on a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// Time when the room became available.
    pub since: Ns,
    pub source: RoomSource,
}

/// Why there is room on a connection.
#[derive(Debug, Clone, Copy)]
pub(super) enum RoomSource {
    /// The connection was established. Its handshake started at `at`.
    Opened { at: Ns },
    /// A limit was reached before.
    Freed(BlockedBy),
}

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
            self.assign(slot, Moments::unblocked(pick, now), now);
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
                self.assign(slot, Moments::unblocked(taken.pick, taken.intended), now);
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

    /// Handles a connection that has room for a request.
    /// The connection takes the next request, or becomes idle if no request is due.
    pub(super) fn vacant(&mut self, slot: Slot, room: Room, now: Ns) {
        match self.next_new(Some(room), now) {
            Some(next) => self.assign(slot, next, now),
            None => self.rest(slot),
        }
    }

    /// Takes the next request that was never assigned to a connection, if any. `room` is the room
    /// that it waited for; `None` if there was room at its intended time.
    #[inline]
    pub(super) fn next_new(&mut self, room: Option<Room>, now: Ns) -> Option<Moments> {
        let RequestSource::Open(waiting) = &mut self.arrivals else {
            return Some(Moments::unblocked(self.claim(now)?, now));
        };
        let next = waiting.take()?;
        let mut moments = Moments::unblocked(next.pick, next.intended);
        if let Some(room) = room {
            // The time until admission always counts as lateness, even if the request then waits
            // for a connection.
            moments.free = room.since.max(next.let_in) - (next.let_in - next.intended);
            moments.blocked_by = self.blocked_by(room, &moments);
        }
        Some(moments)
    }

    /// Returns why a request waited for room. The request no longer counts as waiting.
    pub(super) fn blocked_by(&self, room: Room, moments: &Moments) -> BlockedBy {
        match room.source {
            RoomSource::Opened { at } => {
                // Until this time, the connection limit prevented a new connection.
                let limited_until = self.room_since.min(at).max(moments.intended);
                let limited = limited_until - moments.intended;
                if limited > moments.free.saturating_sub(limited_until) {
                    self.stream_limit()
                } else {
                    BlockedBy::Connecting
                }
            }
            RoomSource::Freed(limit) => {
                let further = match &self.arrivals {
                    RequestSource::Open(waiting) => waiting.waiting + self.returned(),
                    RequestSource::Closed { .. } => self.returned(),
                };
                // The request could have used a connection that is being opened.
                if self.open < self.cap || further < self.opening_unclaimed * self.streams() {
                    BlockedBy::Connecting
                } else {
                    limit
                }
            }
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
    fn assign(&mut self, slot: Slot, moments: Moments, now: Ns) {
        let exchange = &mut self.exchanges[slot as usize];
        exchange.moments = moments;
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
        exchange.deadline = now + self.timeout;
        self.record_sent(slot, now);
        was_sent
    }

    /// Records the time at which a request was passed to the kernel.
    #[inline]
    pub(super) fn record_sent(&mut self, index: ExchangeIndex, now: Ns) {
        let exchange = &mut self.exchanges[index as usize];
        let group = exchange.moments.pick.group;
        if exchange.retried.is_some() {
            exchange.moments.resend(now);
            self.recorder.resent(group, exchange.length);
        } else {
            exchange.moments.sent = now;
            self.recorder.sent(group, exchange.length);
        }
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
