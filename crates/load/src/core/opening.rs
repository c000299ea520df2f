//! Opens connections, and handles connect failures.

use floodmark_record::plan::{CloseFirst, Plan};
use floodmark_record::{Outcome, TimeKind};

use super::{Action, Core, connection_uses};
use crate::arrivals::RequestSource;
use crate::backend::Slot;
use crate::clock::Ns;
use crate::connection::{ConnectionSlot, ConnectionState};
use crate::failure::ConnectFailure;
use crate::mix::Pick;
use crate::outgoing::Due;
use crate::recorder::Moments;

/// Time in ns for which a slot pauses after a failed connect.
/// The pause is too short for users to notice, but long enough to keep the client from spinning if
/// the server is unreachable.
pub(super) const PAUSE_NS: Ns = 10_000_000;

/// Time in ns after which the server is considered unreachable, if all connects are refused, no
/// connection exists and no response arrives throughout this time.
pub(super) const GONE_NS: Ns = 2_000_000_000;

/// Time in ns after which a server that was never reached is considered unreachable.
pub(super) const NEVER_THERE_NS: Ns = 300_000_000;

/// Lookahead in seconds. Connections for the arrivals expected in this time are opened in
/// advance.
const READY_FOR_S: f64 = 0.002;

/// Maximum number of connections that the open model opens in advance, so that no accept queue
/// overflows.
const READY_AT_MOST: f64 = 100.0;

/// Returns the number of connections that each of `threads` threads opens before the clock starts.
/// A thread has at most `cap` connections.
#[must_use]
pub fn ready_connections(plan: &Plan, threads: u32, cap: usize) -> usize {
    // A fresh connection is opened together with its request.
    if connection_uses(plan) == Some(1) {
        return 0;
    }
    let Some(rate) = plan.rate_per_s().filter(|_| !plan.hold()) else {
        return cap;
    };
    let ready = (rate / f64::from(threads) * READY_FOR_S).ceil();
    cap.min(ready.clamp(1.0, READY_AT_MOST) as usize)
}

impl Core {
    /// Returns the request that the slot sends with its handshake or afterwards.
    #[must_use]
    pub fn due(&self, slot: Slot) -> Due {
        let connection = &self.connections[slot as usize];
        Due {
            pick: connection.moments.pick,
            last: connection.last,
        }
    }

    /// Stores the length of the slot's request before it is sent.
    #[inline]
    pub fn has_length(&mut self, slot: Slot, bytes: usize) {
        self.connections[slot as usize].length = bytes;
    }

    fn slot(&mut self) -> Slot {
        self.open += 1;
        self.free.pop().unwrap_or_else(|| {
            self.connections.push(ConnectionSlot::default());
            (self.connections.len() - 1) as Slot
        })
    }

    pub(super) fn release(&mut self, slot: Slot, now: Ns) {
        if self.open == self.cap {
            self.room_since = now;
        }
        let connection = &mut self.connections[slot as usize];
        connection.state = ConnectionState::Closed;
        connection.body = Vec::new();
        self.open -= 1;
        self.free.push(slot);
    }

    /// Opens a connection that has no assigned request yet. When the connection is ready, it serves
    /// the request that has been waiting longest.
    /// `late` is floodmark's delay in opening the connection, in ns.
    pub(super) fn open_unclaimed(&mut self, now: Ns, late: Ns) {
        let slot = self.slot();
        self.opening_unclaimed += 1;
        self.start_opening(slot, now, late, false);
    }

    /// Opens a connection for the next request of the closed model.
    pub(super) fn open_claimed(&mut self, now: Ns) -> bool {
        let Some(pick) = self.claim(now) else {
            return false;
        };
        self.open_for((pick, now), 0, now);
        true
    }

    /// Opens a connection for a request. `late` is floodmark's delay in opening it, in ns.
    pub(super) fn open_for(&mut self, (pick, intended): (Pick, Ns), late: Ns, now: Ns) {
        let slot = self.slot();
        let connection = &mut self.connections[slot as usize];
        connection.moments = Moments {
            pick,
            intended,
            free: intended,
            ..Moments::default()
        };
        connection.retried = None;
        self.carry(slot, now, late);
    }

    /// Opens the slot's connection for the request in the slot's `moments`.
    pub(super) fn carry(&mut self, slot: Slot, now: Ns, late: Ns) {
        let last = self.close_first == CloseFirst::Server && self.uses == Some(1);
        self.connections[slot as usize].last = last;
        self.carried += 1;
        self.start_opening(slot, now, late, true);
    }

    fn start_opening(&mut self, slot: Slot, now: Ns, late: Ns, carries: bool) {
        let route = self.targets.take();
        let connection = &mut self.connections[slot as usize];
        connection.state = ConnectionState::Connecting;
        connection.target = route.target;
        connection.carries = carries;
        connection.used = 0;
        connection.rested = false;
        connection.last_number = None;
        connection.opening = now;
        connection.reached = None;
        connection.opened_late = late;
        connection.deadline = now + self.timeout;
        connection.reader = floodmark_wire::Reader::new();
        connection.body = Vec::new();
        self.pressing.push_back(&mut self.connections, slot);
        self.actions.push(Action::Open {
            slot,
            route,
            first: carries,
        });
    }

    /// Records that the TCP connection is established and that a TLS handshake follows.
    pub(super) fn reached(&mut self, slot: Slot, at: Ns) {
        let connection = &mut self.connections[slot as usize];
        if connection.state != ConnectionState::Connecting {
            return;
        }
        connection.reached = Some(at);
        let took = at.saturating_sub(connection.opening);
        self.recorder.time(TimeKind::Connect, took);
    }

    pub(super) fn connected(&mut self, slot: Slot, at: Ns, sent: bool, now: Ns) {
        let connection = &mut self.connections[slot as usize];
        if connection.state != ConnectionState::Connecting {
            return;
        }
        self.targets.reached(connection.target);
        self.ever_connected = true;
        self.last_life = now;
        self.refused_since = None;
        let over = connection.reached.unwrap_or(at);
        self.ahead.pace.ended(connection.opening, over);
        let (kind, since) = match connection.reached {
            Some(reached) => (TimeKind::Handshake, reached),
            None => (TimeKind::Connect, connection.opening),
        };
        self.recorder.time(kind, at.saturating_sub(since));
        self.recorder.connected();
        let free = at.saturating_sub(connection.opened_late);
        connection.moments.free = free;
        let carries = std::mem::replace(&mut connection.carries, false);
        self.pressing.remove(&mut self.connections, slot);
        self.count_opened();
        if carries {
            self.carried -= 1;
            self.dispatch(slot, now);
            if sent {
                self.sent(slot, at);
            } else {
                self.actions.push(Action::Send { slot });
            }
            return;
        }
        self.opening_unclaimed -= 1;
        if self.preparing {
            self.rest(slot);
        } else {
            self.vacant(slot, free, now);
        }
    }

    pub(super) fn connect_failed(&mut self, slot: Slot, failure: ConnectFailure, now: Ns) {
        let connection = &mut self.connections[slot as usize];
        if connection.state != ConnectionState::Connecting {
            return;
        }
        if self.targets.failed(connection.target, failure) {
            // The request now waits for a connection to another address.
            let (late, carries) = (connection.opened_late, connection.carries);
            self.pressing.remove(&mut self.connections, slot);
            return self.start_opening(slot, now, late, carries);
        }
        let (moments, opening) = (connection.moments, connection.opening);
        let carried = std::mem::replace(&mut connection.carries, false);
        let retried = connection.retried;
        self.recorder.error(failure.name);
        self.ahead.pace.ended(opening, now);
        self.count_unopened(failure.name, opening, now);
        self.pressing.remove(&mut self.connections, slot);
        if carried {
            self.carried -= 1;
            if let Some(broken) = retried {
                self.recorder.failed(&moments, now, Outcome::Reset);
                self.recorder.error(broken);
                self.recorder.error_unawaited(failure.name);
            } else {
                let group = moments.pick.group;
                self.recorder.connect_failed(group, moments.intended, now);
            }
        } else {
            self.opening_unclaimed -= 1;
            // The arrival for which the connection was opened also fails, unless another connection
            // has taken the arrival.
            if let RequestSource::Open(waiting) = &mut self.arrivals
                && waiting.waiting > self.opening_unclaimed
                && let Some(taken) = waiting.take()
            {
                let group = taken.pick.group;
                self.recorder.connect_failed(group, taken.intended, now);
            } else {
                self.recorder.error_unawaited(failure.name);
            }
        }
        let closed_model = matches!(self.arrivals, RequestSource::Closed { .. });
        if closed_model && !self.preparing && !self.winding_up {
            let connection = &mut self.connections[slot as usize];
            connection.state = ConnectionState::Paused;
            connection.deadline = now + PAUSE_NS;
            self.paused.push_back(&mut self.connections, slot);
        } else {
            self.release(slot, now);
        }
        if failure.by_server {
            self.refused(opening, now);
        }
    }

    /// Records that the server refused a connection attempt. `opening` is the start of the attempt.
    fn refused(&mut self, opening: Ns, now: Ns) {
        let since = *self
            .refused_since
            .get_or_insert(opening.max(self.last_life));
        let patience = if self.ever_connected {
            GONE_NS
        } else {
            NEVER_THERE_NS
        };
        let outlasts = self.outlasts_server && self.ever_connected;
        if !outlasts && self.recorder.open == 0 && now.saturating_sub(since) >= patience {
            self.gone = true;
        }
    }
}
