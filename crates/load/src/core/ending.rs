//! Reads and classifies responses. Ends requests that get no complete response, and closes
//! connections.

use floodmark_record::grpc::ResponseStatus;
use floodmark_record::operation::OperationKind;
use floodmark_record::plan::{CloseFirst, Retry};
use floodmark_record::reason::COMPRESSED_BODY;
use floodmark_record::{Outcome, TimeKind};
use floodmark_wire::{ReadError, Reader};

use super::starting::{Room, RoomSource};
use super::{Action, Core};
use crate::arrivals::RequestSource;
use crate::backend::Slot;
use crate::clock::Ns;
use crate::connection::ConnectionState;
use crate::exchange::{ExchangeIndex, ExchangeState};
use crate::failure;
use crate::judge;
use crate::judge::CheckedContent;
use crate::kept_responses::{MAX_KEPT, NotOkBodies, body_in};
use crate::recorder::BlockedBy;
use crate::request_log::LoggedOutcome;

/// Maximum time, in ns, to wait for the server to close a connection after the last response.
/// Servers that close connections at all do so within milliseconds, unless they are overloaded. If
/// the server does not close the first connection in this time, the client closes later connections
/// at once, as a client must after `Connection: close` (RFC 9112, section 9.6).
const CLOSE_GRACE: Ns = 200_000_000;

/// A TLS handshake that is unfinished at the end of the run counts as failed if it is at least this
/// old, in ns.
const LONG_HANDSHAKE: Ns = 1_000_000_000;

/// Text to keep from a response that is not ok.
#[derive(Debug, Clone, Copy)]
pub(super) enum Excerpt<'a> {
    /// The body, which was collected.
    Body,
    /// The body in a complete response (HTTP/1.1).
    Response(&'a [u8]),
    /// The value of `grpc-message`.
    Message(&'a [u8]),
    /// Unknown, because an earlier read returned the start of the body.
    Unknown,
}

impl Core {
    pub(super) fn received(
        &mut self,
        slot: Slot,
        data: &[u8],
        at: Option<Ns>,
        is_sending: bool,
        now: Ns,
    ) {
        let connection = &mut self.connections[slot as usize];
        let exchange = &mut self.exchanges[slot as usize];
        let group = exchange.moments.pick.group;
        // If the timestamp is outside `sent..=now`, the wall clock has been changed. Use `now`
        // instead.
        let sent = exchange.moments.sent;
        let at = at.filter(|at| (sent..=now).contains(at)).unwrap_or(now);
        self.recorder.received(group, data.len());
        if exchange.state != ExchangeState::InFlight {
            return self.received_unexpectedly(slot, now);
        }
        let starts = !connection.reader.started();
        if starts {
            exchange.moments.first = at;
            exchange.keeps_body = false;
            exchange.received = 0;
        }
        if self.request_log.is_some() {
            exchange.received += data.len() as u64;
        }
        let judge = &self.judges[group as usize];
        let needs_body = judge.needs_body();
        let wants_body = |not_ok_responses: &NotOkBodies, reader: &Reader| {
            let wants =
                |status: u16| !judge.is_ok_status(status) && not_ok_responses.wants(status.into());
            !needs_body && reader.status().is_some_and(wants)
        };
        let collects = needs_body || exchange.keeps_body;
        let fed = if collects {
            self.body.clear();
            let fed = connection.reader.feed(data, &mut self.body);
            // If a body arrives in one piece, it is judged in place. Other bodies are collected
            // first.
            if !exchange.body.is_empty() || !matches!(&fed, Ok(fed) if fed.response.is_some()) {
                let limit = if needs_body {
                    judge::LONGEST_BODY + 1
                } else {
                    MAX_KEPT
                };
                let room = limit.saturating_sub(exchange.body.len());
                let piece = &self.body[..self.body.len().min(room)];
                exchange.body.extend_from_slice(piece);
            }
            fed
        } else {
            connection.reader.feed(data, &mut ())
        };
        match fed {
            Err(error) => self.malformed(slot, error.name(), now),
            Ok(fed) => {
                let Some(response) = fed.response else {
                    if starts && wants_body(&self.not_ok_responses, &connection.reader) {
                        exchange.keeps_body = true;
                        exchange.body = body_in(data, judge.to_head);
                    }
                    return;
                };
                let is_out_of_step = fed.consumed < data.len();
                let excerpt = match (collects, starts) {
                    (true, _) => Excerpt::Body,
                    (false, true) => Excerpt::Response(data),
                    (false, false) => Excerpt::Unknown,
                };
                self.responded(slot, response.status.into(), excerpt, at, now);
                if is_sending {
                    // The server responded before it read the whole request. Close the connection,
                    // because the unsent rest would delay the next request (RFC 9112, section 9.5).
                    self.shut(slot, CloseFirst::Client, now);
                    return self.refill(now);
                }
                if !is_out_of_step {
                    return self.go_on(slot, response.keep_alive, now);
                }
                // The response still counts, as it would if the extra bytes had arrived in a later
                // segment.
                let error = if response.keep_alive {
                    ReadError::Unsolicited
                } else {
                    ReadError::DataAfterClose
                };
                self.recorder.error(error.name());
                self.shut(slot, CloseFirst::Client, now);
                self.refill(now);
            }
        }
    }

    /// Handles bytes that arrive while no response is expected.
    fn received_unexpectedly(&mut self, slot: Slot, now: Ns) {
        match self.connections[slot as usize].state {
            ConnectionState::Closing => {
                self.recorder.error(ReadError::DataAfterClose.name());
                self.close(slot, now);
            }
            ConnectionState::Established => {
                self.recorder.error(ReadError::Unsolicited.name());
                self.idle.remove(&mut self.connections, slot);
                self.shut(slot, CloseFirst::Client, now);
            }
            ConnectionState::Closed | ConnectionState::Connecting | ConnectionState::Paused => {}
        }
    }

    /// Counts a response that the server completed by closing the connection.
    pub(super) fn completed_by_close(&mut self, slot: Slot, status: u16, now: Ns) {
        self.body.clear();
        let exchange = &self.exchanges[slot as usize];
        let group = exchange.moments.pick.group;
        let collects = exchange.keeps_body || self.judges[group as usize].needs_body();
        let excerpt = if collects {
            Excerpt::Body
        } else {
            Excerpt::Unknown
        };
        self.responded(slot, status.into(), excerpt, now, now);
    }

    /// Classifies and counts a complete response that arrived at `at`.
    pub(super) fn responded(
        &mut self,
        index: ExchangeIndex,
        status: ResponseStatus,
        excerpt: Excerpt<'_>,
        at: Ns,
        now: Ns,
    ) {
        let slot = self.slot_of(index);
        let connection = &mut self.connections[slot as usize];
        let exchange = &mut self.exchanges[index as usize];
        let body = if exchange.body.is_empty() {
            &self.body
        } else {
            &exchange.body
        };
        let judge = &self.judges[exchange.moments.pick.group as usize];
        let (outcome, content) = judge.outcome(status, body);
        self.recorder
            .responded(&exchange.moments, at, status, outcome);
        if let Some(log) = &mut self.request_log {
            let outcome = LoggedOutcome::Sent(outcome);
            log.add(exchange, connection, slot, at, Some(status), outcome);
        }
        if outcome != Outcome::Ok && self.not_ok_responses.wants(status) {
            match excerpt {
                Excerpt::Body => self.not_ok_responses.keep(status, body),
                Excerpt::Response(data) => self
                    .not_ok_responses
                    .keep(status, &body_in(data, judge.to_head)),
                Excerpt::Message(message) => self.not_ok_responses.keep(status, message),
                Excerpt::Unknown => {}
            }
        }
        if outcome == Outcome::Wrong && judge.is_compressed(body) {
            self.recorder.error(COMPRESSED_BODY);
        }
        if let Some(lacking) = judge.wants() {
            // A response with status 2xx or 3xx that lacks the required content is not ok.
            if (200..400).contains(&status.http) && outcome == Outcome::Wrong {
                self.recorder.error(lacking);
            }
            if let Some(content) = content {
                self.responses
                    .add(content, &exchange.moments, connection, now);
            }
        }
        connection.used += 1;
        // An ended exchange keeps no body.
        exchange.body = Vec::new();
        self.last_life = now;
        self.refused_since = None;
        self.last_response = Some(now);
        self.end_exchange(index);
    }

    /// Ends an exchange in flight.
    pub(super) fn end_exchange(&mut self, index: ExchangeIndex) {
        self.exchanges[index as usize].state = ExchangeState::Ended;
        self.in_flight -= 1;
        self.pressing.remove(&mut self.exchanges, index);
    }

    /// Decides whether a connection is reused or closed after a response.
    fn go_on(&mut self, slot: Slot, keep_alive: bool, now: Ns) {
        let connection = &mut self.connections[slot as usize];
        let used_up = self.uses.is_some_and(|n| connection.used >= n);
        // The plan may require the server to close first. The client then waits up to the timeout.
        let required = self.uses.is_some() && self.close_first == CloseFirst::Server;
        if used_up && !required {
            self.shut(slot, self.close_first, now);
            self.refill(now);
        } else if !keep_alive && !required && self.server_closes == Some(false) {
            self.shut(slot, CloseFirst::Client, now);
            self.refill(now);
        } else if used_up || !keep_alive {
            connection.state = ConnectionState::Closing;
            let grace = if required { Ns::MAX } else { CLOSE_GRACE };
            connection.deadline = now + grace.min(self.timeout);
            self.closing.push_back(&mut self.connections, slot);
        } else {
            let source = RoomSource::Freed(BlockedBy::OwnLimit);
            self.vacant(slot, Room { since: now, source }, now);
        }
    }

    /// Abandons all requests in flight, so that the counts add up. A request whose connection has
    /// not been reported was not sent.
    pub fn abandon(&mut self, now: Ns) {
        if let RequestSource::Open(waiting) = &mut self.arrivals {
            let recorder = &mut self.recorder;
            waiting.give_up_beyond(0, |group, n| recorder.unsent(group, n));
        }
        let lost = self.ahead.held.lost;
        for index in 0..self.exchanges.len() as ExchangeIndex {
            let slot = self.slot_of(index);
            let exchange = &mut self.exchanges[index as usize];
            let connection = &self.connections[slot as usize];
            let group = exchange.moments.pick.group;
            match exchange.state {
                ExchangeState::InFlight => {
                    if exchange.moments.sent == 0 && exchange.retried.is_none() {
                        // The request is still in the output of an HTTP/2 connection.
                        self.recorder.unsent(group, 1);
                    } else {
                        self.recorder.in_flight_at_end(&exchange.moments, now);
                        if let Some(log) = &mut self.request_log {
                            let outcome = LoggedOutcome::InFlightAtEnd;
                            log.add(exchange, connection, slot, now, None, outcome);
                        }
                        self.count_silent(slot);
                        self.keep_unknown(index, now);
                    }
                    self.end_exchange(index);
                    if self.http2.is_some() {
                        continue;
                    }
                }
                ExchangeState::Waiting => {
                    exchange.state = ExchangeState::Ended;
                    let handshake = connection.reached.map(|since| now.saturating_sub(since));
                    let error = match handshake {
                        Some(LONG_HANDSHAKE..) => Some(failure::HANDSHAKE_TIMED_OUT),
                        _ if self.ever_connected => None,
                        // All earlier connections failed, most of them for this reason.
                        _ => {
                            let failed = self.recorder.unawaited.iter().max_by_key(|(_, n)| **n);
                            failed.map(|(name, _)| *name)
                        }
                    };
                    let outcome = if exchange.retried.is_some() {
                        self.recorder.in_flight_at_end(&exchange.moments, now);
                        Some(LoggedOutcome::InFlightAtEnd)
                    } else if let Some(error) = error {
                        self.recorder.error(error);
                        let intended = exchange.moments.intended;
                        self.recorder.connect_failed(group, intended, now);
                        Some(LoggedOutcome::ConnectFailed)
                    } else {
                        self.recorder.unsent(group, 1);
                        None
                    };
                    if let Some((log, outcome)) = self.request_log.as_mut().zip(outcome) {
                        log.add(exchange, connection, slot, now, None, outcome);
                    }
                    let is_retry = exchange.retried.is_some();
                    self.targets.given_up(connection.target);
                    if is_retry {
                        self.keep_unknown(index, now);
                    }
                    self.carried -= 1;
                    self.connecting.remove(&mut self.connections, slot);
                }
                ExchangeState::Ended => continue,
            }
            self.shut(slot, CloseFirst::Client, now);
        }
        self.abandon_sessions(now);
        // Connections that floodmark closes do not count as lost.
        self.ahead.held.lost = lost;
    }

    /// Handles the end of the peer's stream. `was_sent` is whether the request had been passed to
    /// the kernel.
    pub(super) fn ended(&mut self, slot: Slot, was_sent: bool, now: Ns) {
        let connection = &mut self.connections[slot as usize];
        let state = self.exchanges[slot as usize].state;
        match connection.state {
            ConnectionState::Established if state == ExchangeState::InFlight => {
                match connection.reader.end() {
                    Ok(Some(response)) => {
                        self.completed_by_close(slot, response.status, now);
                        self.shut(slot, CloseFirst::Client, now);
                        self.refill(now);
                    }
                    Ok(None) => self.lost(slot, was_sent, failure::CLOSED_EARLY, now),
                    Err(error) => self.malformed(slot, error.name(), now),
                }
            }
            ConnectionState::Closing => {
                self.server_closes = Some(true);
                self.close(slot, now);
            }
            ConnectionState::Established => {
                self.idle.remove(&mut self.connections, slot);
                self.shut(slot, CloseFirst::Client, now);
            }
            ConnectionState::Closed | ConnectionState::Connecting | ConnectionState::Paused => {}
        }
    }

    /// Handles a broken connection. `was_sent` is whether the request had been passed to the
    /// kernel.
    pub(super) fn broken(
        &mut self,
        slot: Slot,
        was_sent: bool,
        (name, garbled): (&'static str, bool),
        now: Ns,
    ) {
        if self.exchanges[slot as usize].state != ExchangeState::InFlight {
            self.ended(slot, was_sent, now);
        } else if garbled || self.connections[slot as usize].reader.started() {
            self.malformed(slot, name, now);
        } else {
            self.lost(slot, was_sent, name, now);
        }
    }

    /// Handles a connection that ended before the first byte of a response.
    /// If the connection was established before the request was assigned, the server may have
    /// closed it because it was idle. The request is then retried once, unless it could take effect
    /// twice (RFC 9110, section 9.2.2).
    fn lost(&mut self, slot: Slot, was_sent: bool, name: &'static str, now: Ns) {
        let connection = &self.connections[slot as usize];
        let exchange = &mut self.exchanges[slot as usize];
        let judge = &self.judges[exchange.moments.pick.group as usize];
        let is_repeatable = self.retry == Retry::Idempotent
            && (judge.is_idempotent || !was_sent)
            && !judge.is_checked_write();
        if (connection.used > 0 || connection.rested) && exchange.retried.is_none() && is_repeatable
        {
            exchange.retried = Some(name);
            exchange.moments.unsend();
            self.end_exchange(slot);
            self.gone(now);
            self.actions.push(Action::Close {
                slot,
                how: CloseFirst::Client,
            });
            self.carry(slot, now, 0);
            return;
        }
        self.fail(slot, name, Outcome::Reset, now);
    }

    pub(super) fn malformed(&mut self, slot: Slot, mut name: &'static str, now: Ns) {
        // After a response on this connection, the server speaks HTTP, but is out of step.
        if ReadError::named(name).is_some_and(ReadError::is_other_protocol) {
            if self.connections[slot as usize].used > 0 {
                name = ReadError::Unsolicited.name();
            } else {
                self.not_http += 1;
            }
        }
        self.fail(slot, name, Outcome::Malformed, now);
    }

    fn fail(&mut self, slot: Slot, name: &'static str, outcome: Outcome, now: Ns) {
        self.recorder.error(name);
        self.end_request(slot, outcome, now);
    }

    /// Ends a sent request without a complete response, and closes its HTTP/1.1 connection.
    fn end_request(&mut self, slot: Slot, outcome: Outcome, now: Ns) {
        self.fail_exchange(slot, outcome, now);
        self.shut(slot, CloseFirst::Client, now);
        self.refill(now);
    }

    /// Ends an exchange without a complete response.
    pub(super) fn fail_exchange(&mut self, index: ExchangeIndex, outcome: Outcome, now: Ns) {
        let slot = self.slot_of(index);
        let connection = &self.connections[slot as usize];
        let exchange = &self.exchanges[index as usize];
        self.recorder.failed(&exchange.moments, now, outcome);
        if let Some(log) = &mut self.request_log {
            let outcome = LoggedOutcome::Sent(outcome);
            log.add(exchange, connection, slot, now, None, outcome);
        }
        if outcome == Outcome::TimedOut {
            self.count_silent(slot);
        }
        self.keep_unknown(index, now);
        self.exchanges[index as usize].body = Vec::new();
        self.end_exchange(index);
    }

    /// Counts a connection that has not received a response.
    fn count_silent(&mut self, slot: Slot) {
        let connection = &mut self.connections[slot as usize];
        if connection.used == 0 && !std::mem::replace(&mut connection.is_silent, true) {
            self.recorder.silent += 1;
        }
    }

    /// Keeps a write that ends without a response, if a check covers it.
    pub(super) fn keep_unknown(&mut self, index: ExchangeIndex, now: Ns) {
        let slot = self.slot_of(index);
        let moments = &self.exchanges[index as usize].moments;
        if !self.judges[moments.pick.group as usize].is_checked_write() {
            return;
        }
        let content = CheckedContent::Operation(OperationKind::Unknown, None);
        let connection = &mut self.connections[slot as usize];
        self.responses.add(content, moments, connection, now);
    }

    /// Handles a request whose deadline has passed. Ends the request if it was sent; otherwise,
    /// extends the deadline.
    pub(super) fn time_out(&mut self, index: ExchangeIndex, now: Ns) {
        if self.is_stalled(index, now) {
            return self.disconnected(self.slot_of(index), failure::NOT_READ, now);
        }
        let exchange = &mut self.exchanges[index as usize];
        if exchange.moments.sent == 0 {
            // The backend has not submitted the request, so no response is possible. The timeout
            // starts when the request is submitted.
            exchange.deadline = now + self.timeout;
            self.pressing.remove(&mut self.exchanges, index);
            self.pressing.push_back(&mut self.exchanges, index);
            return;
        }
        if self.http2.is_some() {
            return self.cancel(index, now);
        }
        let slot = index;
        let connection = &self.connections[slot as usize];
        if connection.reader.ends_with_connection() {
            self.recorder.error(ReadError::UnknownLength.name());
        }
        self.end_request(slot, Outcome::TimedOut, now);
    }

    /// Closes a connection that the server should have closed, and reuses its slot.
    pub(super) fn close(&mut self, slot: Slot, now: Ns) {
        self.closing.remove(&mut self.connections, slot);
        self.shut(slot, CloseFirst::Client, now);
        self.refill(now);
    }

    /// Closes a connection, which must not be in any list.
    pub(super) fn shut(&mut self, slot: Slot, how: CloseFirst, now: Ns) {
        if self.connections[slot as usize].state != ConnectionState::Connecting {
            self.gone(now);
        }
        if let Some(http2) = &mut self.connections[slot as usize].http2 {
            let recorder = &mut self.recorder;
            http2.drop_bodies(now, |group, ns| {
                recorder.time_of(group, TimeKind::Window, ns);
            });
        }
        self.actions.push(Action::Close { slot, how });
        self.release(slot, now);
    }
}
