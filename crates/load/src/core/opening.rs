//! Opens connections when a request needs one, in advance, or to hold them open (`--hold`). Handles
//! connect failures.

use floodmark_record::events::HeldConnections;
use floodmark_record::plan::{CloseFirst, Plan};
use floodmark_record::{Outcome, TimeKind};

use super::starting::{Room, RoomSource};
use super::{Action, Core, connection_uses};
use crate::arrivals::RequestSource;
use crate::backend::Slot;
use crate::clock::{NS_PER_S, Ns};
use crate::connection::{ConnectionSlot, ConnectionState};
use crate::exchange::{Exchange, ExchangeIndex, ExchangeState};
use crate::failure::{self, ConnectFailure};
use crate::mix::Pick;
use crate::outgoing::Due;
use crate::recorder::Moments;
use crate::request_log::LoggedOutcome;
use crate::schedule::ThreadShare;

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

/// Returns the number of connections that a thread opens before the clock starts.
pub fn ready_connections(plan: &Plan, share: ThreadShare) -> usize {
    // A fresh connection is opened together with its request.
    if connection_uses(plan) == Some(1) {
        return 0;
    }
    let cap = share.connections(plan);
    let Some(rate) = plan.rate_per_s().filter(|_| !plan.hold()) else {
        return cap;
    };
    let ready = (rate / f64::from(share.overall().1) * READY_FOR_S).ceil();
    cap.min(ready.clamp(1.0, READY_AT_MOST) as usize)
}

impl Core {
    /// Returns the request that the slot sends with its handshake or afterwards.
    pub fn due(&self, slot: Slot) -> Due {
        let exchange = &self.exchanges[slot as usize];
        Due {
            pick: exchange.moments.pick,
            last: exchange.last,
        }
    }

    /// Stores the length of the slot's request before it is sent.
    #[inline]
    pub fn has_length(&mut self, slot: Slot, bytes: usize) {
        self.exchanges[slot as usize].length = bytes;
    }

    pub(super) fn slot(&mut self) -> Slot {
        self.open += 1;
        self.free.pop().unwrap_or_else(|| {
            self.connections.push(ConnectionSlot::default());
            let exchanges = self.connections.len() << self.exchange_bits;
            self.exchanges.resize_with(exchanges, Exchange::default);
            (self.connections.len() - 1) as Slot
        })
    }

    pub(super) fn release(&mut self, slot: Slot, now: Ns) {
        if self.open == self.cap {
            self.room_since = now;
        }
        let connection = &mut self.connections[slot as usize];
        connection.state = ConnectionState::Closed;
        // Ended exchanges of HTTP/2 keep no body.
        let first = self.first_of(slot) as usize;
        self.exchanges[first].body = Vec::new();
        self.open -= 1;
        self.free.push(slot);
    }

    /// Opens a connection that has no assigned request yet. When the connection is ready, it serves
    /// the request that has been waiting longest.
    /// `late` is floodmark's delay in opening the connection, in ns.
    pub(super) fn open_unclaimed(&mut self, now: Ns, late: Ns) {
        let slot = self.slot();
        self.opening_unclaimed += 1;
        self.start_opening(slot, now, late);
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
        let exchange = &mut self.exchanges[slot as usize];
        exchange.moments = Moments::unblocked(pick, intended);
        exchange.retried = None;
        self.carry(slot, now, late);
    }

    /// Opens the slot's connection for the request of the slot's exchange.
    pub(super) fn carry(&mut self, slot: Slot, now: Ns, late: Ns) {
        let first = self.first_of(slot) as usize;
        let exchange = &mut self.exchanges[first];
        exchange.state = ExchangeState::Waiting;
        exchange.last = self.close_first == CloseFirst::Server && self.uses == Some(1);
        self.carried += 1;
        self.start_opening(slot, now, late);
    }

    fn start_opening(&mut self, slot: Slot, now: Ns, late: Ns) {
        let route = self.targets.take();
        let connection = &mut self.connections[slot as usize];
        connection.state = ConnectionState::Connecting;
        connection.target = route.target;
        connection.used = 0;
        connection.is_silent = false;
        connection.rested = false;
        connection.last_number = None;
        connection.opening = now;
        connection.reached = None;
        connection.opened_late = late;
        connection.deadline = now + self.timeout;
        connection.reader = floodmark_wire::Reader::new();
        self.connecting.push_back(&mut self.connections, slot);
        let exchange = &self.exchanges[self.first_of(slot) as usize];
        self.actions.push(Action::Open {
            slot,
            route,
            first: exchange.state == ExchangeState::Waiting && self.http2.is_none(),
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
        let room = Room {
            since: at.saturating_sub(connection.opened_late),
            source: RoomSource::Opened {
                at: connection.opening,
            },
        };
        connection.state = ConnectionState::Established;
        self.connecting.remove(&mut self.connections, slot);
        self.count_opened();
        if self.http2.is_some() {
            return self.begin_session(slot, room, now);
        }
        if self.exchanges[slot as usize].state == ExchangeState::Waiting {
            self.wait_is_over(slot, room);
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
            self.vacant(slot, room, now);
        }
    }

    /// Stores how long the request of an exchange waited for a connection. If the request is sent
    /// again, this is part of the time since its previous send.
    pub(super) fn wait_is_over(&mut self, index: ExchangeIndex, room: Room) {
        let exchange = &self.exchanges[index as usize];
        if exchange.retried.is_none() {
            let mut moments = exchange.moments;
            moments.free = room.since;
            moments.blocked_by = self.blocked_by(room, &moments);
            self.exchanges[index as usize].moments = moments;
        }
    }

    pub(super) fn connect_timed_out(&mut self, slot: Slot, now: Ns) {
        let name = match self.connections[slot as usize].reached {
            Some(_) => failure::HANDSHAKE_TIMED_OUT,
            None => failure::CONNECT_TIMED_OUT,
        };
        let how = CloseFirst::Client;
        self.actions.push(Action::Close { slot, how });
        self.connect_failed(slot, ConnectFailure::by_server(name), now);
    }

    pub(super) fn connect_failed(&mut self, slot: Slot, failure: ConnectFailure, now: Ns) {
        let connection = &mut self.connections[slot as usize];
        if connection.state != ConnectionState::Connecting {
            return;
        }
        if self.targets.failed(connection.target, failure) {
            // The request now waits for a connection to another address.
            let late = connection.opened_late;
            self.connecting.remove(&mut self.connections, slot);
            return self.start_opening(slot, now, late);
        }
        let opening = connection.opening;
        let first = self.first_of(slot) as usize;
        let exchange = &mut self.exchanges[first];
        let (moments, retried) = (exchange.moments, exchange.retried);
        let waited = std::mem::take(&mut exchange.state) == ExchangeState::Waiting;
        self.recorder.error(failure.name);
        self.ahead.pace.ended(opening, now);
        self.count_unopened(failure.name, opening, now);
        self.connecting.remove(&mut self.connections, slot);
        let mut failed = None;
        let opening = self.opening_unclaimed.saturating_sub(1) * self.streams();
        let assigned = if waited {
            self.carried -= 1;
            Some((moments, retried))
        } else {
            self.opening_unclaimed -= 1;
            self.take_returned(opening)
        };
        if let Some((moments, retried)) = assigned {
            self.exchanges[first].moments = moments;
            if let Some(broken) = retried {
                failed = Some(LoggedOutcome::Sent(Outcome::Reset));
                self.recorder.failed(&moments, now, Outcome::Reset);
                self.recorder.error(broken);
                self.recorder.error_unawaited(failure.name);
                self.keep_unknown(first as ExchangeIndex, now);
            } else {
                let group = moments.pick.group;
                failed = Some(LoggedOutcome::ConnectFailed);
                self.recorder.connect_failed(group, moments.intended, now);
            }
        } else {
            // The arrival for which the connection was opened also fails, unless another connection
            // has taken the arrival.
            if let RequestSource::Open(waiting) = &mut self.arrivals
                && waiting.waiting > opening
                && let Some(taken) = waiting.take()
            {
                let group = taken.pick.group;
                failed = Some(LoggedOutcome::ConnectFailed);
                self.exchanges[first].moments = Moments {
                    pick: taken.pick,
                    intended: taken.intended,
                    ..Moments::default()
                };
                self.recorder.connect_failed(group, taken.intended, now);
            } else {
                self.recorder.error_unawaited(failure.name);
            }
        }
        if let Some((log, outcome)) = self.request_log.as_mut().zip(failed) {
            let exchange = &self.exchanges[first];
            let connection = &self.connections[slot as usize];
            log.add(exchange, connection, slot, now, None, outcome);
        }
        let closed_model = matches!(self.arrivals, RequestSource::Closed { .. });
        if closed_model && !self.preparing && !self.winding_up {
            let connection = &mut self.connections[slot as usize];
            connection.state = ConnectionState::Paused;
            connection.deadline = now + PAUSE_NS;
            self.paused.push_back(&mut self.connections, slot);
        } else {
            self.release(slot, now);
            if self.returned() > 0 {
                self.refill(now);
            }
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

/// Connections opened in advance.
#[derive(Debug)]
pub(super) struct Ahead {
    pub(super) pace: OpeningPace,
    threads: u32,
    /// Number of connections that remain to be opened before the clock starts.
    left: usize,
    began: Ns,
    /// Whether all connections stay open throughout the run.
    pub(super) hold: bool,
    pub(super) held: HeldConnections,
}

impl Ahead {
    pub(super) fn new(plan: &Plan, share: ThreadShare) -> Self {
        let (_, threads) = share.overall();
        Ahead {
            pace: OpeningPace::new(threads),
            threads,
            left: ready_connections(plan, share),
            began: 0,
            // Connections with a limited number of requests cannot be held.
            hold: plan.hold() && connection_uses(plan).is_none(),
            held: HeldConnections::default(),
        }
    }
}

impl Core {
    /// Starts opening kept connections before the clock starts, so that no figure includes their
    /// setup. Each connection is attempted only once.
    ///
    /// Opens all connections in the closed model and with `--hold`. Otherwise, opens only the
    /// connections that the first arrivals need.
    pub fn prepare(&mut self, now: Ns) {
        self.preparing = true;
        self.last_life = now;
        self.ahead.began = now;
        self.open_ahead(now);
    }

    /// Returns whether the preparation has finished.
    pub fn prepared(&self) -> bool {
        self.ahead.left == 0 && self.opening_unclaimed == 0
    }

    /// Returns the statistics of held connections; `None` if no connections are held.
    pub fn held(&self) -> Option<&HeldConnections> {
        self.ahead.hold.then_some(&self.ahead.held)
    }

    /// Returns the number of open connections, and the number of connections that failed to open in
    /// advance.
    pub fn standing(&self) -> (u64, u64) {
        (self.recorder.open, self.ahead.held.failed)
    }

    /// Ends the preparation.
    pub(super) fn end_preparing(&mut self, now: Ns) {
        if std::mem::take(&mut self.preparing) {
            self.ahead.held.standing = self.recorder.open;
            self.ahead.held.opening_ns = now.saturating_sub(self.ahead.began);
            self.ahead.pace = OpeningPace::new(self.ahead.threads);
            self.ahead.left = 0;
        }
    }

    /// Returns the number of connections that remain to be opened in advance.
    fn missing(&self) -> usize {
        if self.preparing {
            self.ahead.left
        } else if self.ahead.hold && !self.winding_up {
            self.cap - self.open
        } else {
            0
        }
    }

    /// Opens connections in advance, as fast as the pace allows.
    pub(super) fn open_ahead(&mut self, now: Ns) {
        while self.missing() > 0
            && (self.preparing || self.opens_left > 0)
            && self.ahead.pace.take(self.opening_unclaimed, now)
        {
            if self.preparing {
                self.ahead.left -= 1;
            } else {
                self.opens_left -= 1;
            }
            self.open_unclaimed(now, 0);
        }
    }

    /// Returns when the next connection may be opened in advance.
    pub(super) fn next_ahead(&self) -> Ns {
        let next = (self.missing() > 0).then(|| self.ahead.pace.next(self.opening_unclaimed));
        next.flatten().unwrap_or(Ns::MAX)
    }

    /// Records an opened connection.
    pub(super) fn count_opened(&mut self) {
        self.ahead.pace.stood();
        self.ahead.held.reopened += u64::from(!self.preparing);
    }

    /// Records that a connection attempt failed with the error `name`. `began` is the start of the
    /// attempt.
    /// Before the clock starts, the failure is only counted, because each connection is attempted
    /// once. Afterwards, the failure causes a pause.
    pub(super) fn count_unopened(&mut self, name: &'static str, began: Ns, now: Ns) {
        if !self.preparing {
            self.ahead.pace.failed(began, now);
        } else {
            self.ahead.held.failed += 1;
            *self.ahead.held.reasons.entry(name.to_owned()).or_default() += 1;
        }
    }

    /// Records the end of an established connection.
    /// As long as the connection existed, the server counted as reachable, even if it refused other
    /// connections.
    pub(super) fn gone(&mut self, now: Ns) {
        self.recorder.disconnected();
        self.refused_since = self.refused_since.map(|since| since.max(now));
        self.ahead.held.lost += u64::from(!self.preparing);
    }
}

/// Maximum number of connections opened per second across all threads.
/// Even a single-threaded server can accept connections faster than this.
const PER_S: u64 = 10_000;

/// Maximum burst of connections after a pause, across all threads.
/// This number is less than 128, the length of the shortest common accept queue.
const AT_ONCE: u64 = 100;

/// Maximum number of concurrent handshakes across all threads.
/// This also limits how many handshakes are retried together if the accept queue is full.
const UNDER_WAY: u64 = 500;

/// Minimum number of connections opened per second across all threads, regardless of drops.
const LEAST_PER_S: u64 = 100;

/// A handshake that takes at least this long, in ns, is considered to have been dropped. Linux
/// retries a dropped handshake after 1 s (RFC 6298, section 2).
const DROPPED_NS: Ns = 900_000_000;

/// The first and the longest pause, in ns, after a failed connection attempt. Each pause is twice
/// as long as the previous one, up to the longest.
const RESTS: (Ns, Ns) = (10_000_000, NS_PER_S);

/// Limits one thread to its share of the total pace at which connections are opened (leaky bucket).
///
/// A server accepts a limited number of connections at a time. Further connections wait in its
/// accept queue. If the queue is full, Linux drops handshakes, and retries all of them together a
/// second later. Therefore, connections are opened evenly, a few at a time, and more slowly after a
/// drop.
#[derive(Debug)]
pub struct OpeningPace {
    /// Time between connections.
    gap: Ns,
    longest_gap: Ns,
    /// Maximum time in ns by which a connection may be opened before `due`.
    ahead: Ns,
    /// Time at which the next connection is due if connections are opened evenly.
    due: Ns,
    under_way: u64,
    slowed: Ns,
    /// End of the pause after a failure. `None` if no connection has failed since the last success.
    rests_until: Option<Ns>,
    /// Length of the next pause.
    rest: Ns,
}

impl OpeningPace {
    /// Creates the pace for one of `threads` threads.
    pub fn new(threads: u32) -> Self {
        let threads = u64::from(threads.max(1));
        let gap = threads * NS_PER_S / PER_S;
        OpeningPace {
            gap,
            longest_gap: threads * NS_PER_S / LEAST_PER_S,
            ahead: gap * (AT_ONCE / threads).saturating_sub(1),
            due: 0,
            under_way: (UNDER_WAY / threads).max(1),
            slowed: 0,
            rests_until: None,
            rest: RESTS.0,
        }
    }

    /// Returns when the next connection may be opened while `under_way` handshakes are in progress.
    /// Returns `None` if one of these handshakes must end first.
    pub fn next(&self, under_way: u64) -> Option<Ns> {
        let most = self.rests_until.map_or(self.under_way, |_| 1);
        let at = self.due.saturating_sub(self.ahead);
        (under_way < most).then(|| at.max(self.rests_until.unwrap_or(0)))
    }

    /// Claims permission to open one connection now. Returns whether permission was granted.
    pub fn take(&mut self, under_way: u64, now: Ns) -> bool {
        let may = self.next(under_way).is_some_and(|at| at <= now);
        if may {
            self.due = self.due.max(now) + self.gap;
        }
        may
    }

    /// Records that a handshake ended at `at`. `began` is the start of the handshake.
    /// A dropped handshake halves the pace, unless the handshake started before the previous
    /// reduction.
    pub fn ended(&mut self, began: Ns, at: Ns) {
        if at.saturating_sub(began) >= DROPPED_NS && began >= self.slowed {
            self.gap = (self.gap * 2).min(self.longest_gap);
            self.ahead = 0;
            self.slowed = at;
        }
    }

    /// Records that a connection attempt failed at `at`. `began` is the start of the attempt.
    /// The failure has no effect if the attempt started before the end of the last pause.
    pub fn failed(&mut self, began: Ns, at: Ns) {
        if self.rests_until.is_none_or(|until| began >= until) {
            self.rests_until = Some(at + self.rest);
            self.rest = (self.rest * 2).min(RESTS.1);
        }
    }

    /// Records a successful connection.
    pub fn stood(&mut self) {
        self.rests_until = None;
        self.rest = RESTS.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Ns = 1_000_000;

    /// Opens connections from `start` on, as fast as the pace allows. Returns the number of
    /// connections opened within `time`.
    fn opened(pace: &mut OpeningPace, start: Ns, time: Ns) -> u64 {
        (0..time / 10_000)
            .map(|step| {
                let now = start + step * 10_000;
                (0..1000).take_while(|_| pace.take(0, now)).count() as u64
            })
            .sum()
    }

    #[test]
    fn allows_a_burst_of_100_and_then_an_even_rate() {
        let mut pace = OpeningPace::new(1);
        assert_eq!(opened(&mut pace, NS_PER_S, 10_000), 100);
        let more = opened(&mut pace, NS_PER_S + 10_000, 1000 * MS);
        assert!(more.abs_diff(10_000) <= 1, "{more}");
    }

    #[test]
    fn limits_handshakes_in_progress() {
        let mut pace = OpeningPace::new(1);
        assert!(pace.take(499, NS_PER_S));
        assert!(!pace.take(500, 2 * NS_PER_S));
        assert_eq!(pace.next(500), None);
    }

    #[test]
    fn halves_the_pace_once_per_round_of_drops() {
        let mut pace = OpeningPace::new(1);
        for began in 0..100 {
            pace.ended(began * MS, (began + 1000) * MS);
        }
        let slower = opened(&mut pace, 2000 * MS, 1000 * MS);
        assert!(slower.abs_diff(5_000) <= 1, "{slower}");
        // The pace never falls below 100 per second, no matter how many handshakes are dropped.
        for round in 2..20 {
            pace.ended(round * 2000 * MS, (round + 1) * 2000 * MS);
        }
        let least = opened(&mut pace, 50_000 * MS, 1000 * MS);
        assert!(least.abs_diff(100) <= 1, "{least}");
    }

    #[test]
    fn backs_off_after_failures_until_one_connects() {
        let mut pace = OpeningPace::new(1);
        let mut at = NS_PER_S;
        for rest in [10, 20, 40, 80, 160, 320, 640, 1000, 1000] {
            assert!(pace.take(0, at));
            let began = at;
            pace.failed(began, at + MS);
            // This attempt was in progress at the same time, so its failure has no effect.
            pace.failed(began, at + 2 * MS);
            at += MS + rest * MS;
            assert_eq!(pace.next(0), Some(at), "{rest}");
            assert_eq!(pace.next(1), None);
        }
        pace.stood();
        assert_eq!(opened(&mut pace, at, 10_000), 100);
        pace.failed(at, at);
        assert_eq!(pace.next(0), Some(at + 10 * MS));
    }

    proptest! {
        #[test]
        fn threads_share_the_pace(threads in 1u32..200) {
            let all: u64 = (0..threads)
                .map(|_| opened(&mut OpeningPace::new(threads), NS_PER_S, 100 * MS))
                .sum();
            prop_assert!(all <= 1_100 + u64::from(threads), "{}", all);
        }
    }
}
