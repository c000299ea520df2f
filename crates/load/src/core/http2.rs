//! HTTP/2: connections with several exchanges in flight.
//!
//! The stream of a request determines its exchange, so the core finds the exchange of an event
//! without a lookup. A connection is in the list `idle` while it has room for a request.
//!
//! A request that the server did not process, or that can be retried after its connection failed,
//! joins the queue `returned` and keeps its intended time. This queue takes precedence over new
//! requests.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use floodmark_record::grpc::{GrpcStatus, ResponseStatus};
use floodmark_record::http2::{Http2Use, ServerSettings};
use floodmark_record::operation::OperationKind;
use floodmark_record::plan::{CloseFirst, Http2, Retry};
use floodmark_record::{Outcome, TimeKind};
use floodmark_wire::grpc::{GrpcFault, GrpcResponse, decode_message};
use floodmark_wire::h2::{Config, ConnectionError, ErrorCode, Event, EventSink, Unavailable};

use super::ending::Excerpt;
use super::starting::{Room, RoomSource};
use super::{Action, Core};
use crate::arrivals::RequestSource;
use crate::backend::{Completion, Slot};
use crate::clock::Ns;
use crate::connection::{ConnectionSlot, ConnectionState};
use crate::exchange::{Exchange, ExchangeIndex, ExchangeState};
use crate::failure;
use crate::http2::Http2Connection;
use crate::judge::{self, CheckedContent};
use crate::kept_responses::MAX_KEPT;
use crate::recorder::{BlockedBy, Moments};
use crate::request::Http2Requests;
use crate::request_log::LoggedOutcome;

/// Maximum number of times that a request is sent again because the server refused it, or shut the
/// connection down without processing any request.
const MAX_REFUSALS: u8 = 3;

/// Maximum number of times that a request returns because its connection ended before the request
/// was sent.
const MAX_RETURNS: u8 = 20;

/// State shared by all HTTP/2 connections of a thread.
pub(super) struct Multiplexing {
    config: Config,
    /// Whether connections send PING frames.
    pings: bool,
    /// Whether response fields are needed, for example for gRPC.
    reads_fields: bool,
    requests: Arc<Http2Requests>,
    /// Requests to send again, in the order in which they returned.
    returned: VecDeque<NextRequest>,
    /// The body of the request that is being started.
    scratch: Vec<u8>,
    /// Buffer for [`Responses::grpc_message`].
    grpc_message: Vec<u8>,
    /// Server settings, and counts of GOAWAY frames and unprocessed requests.
    pub(super) used: Http2Use,
}

/// A request that can be sent.
#[derive(Debug, Clone, Copy)]
struct NextRequest {
    moments: Moments,
    /// Why the previous attempt failed; `None` if the request was never sent.
    retried: Option<&'static str>,
    refusals: u8,
    /// Number of times that the request returned before it was sent.
    returns: u8,
}

impl NextRequest {
    /// Returns the request of an exchange.
    fn of(exchange: &Exchange) -> Self {
        NextRequest {
            moments: exchange.moments,
            retried: exchange.retried,
            refusals: exchange.refusals,
            returns: exchange.returns,
        }
    }

    /// Makes this the request of an exchange. It has not been sent yet.
    fn assign_to(self, exchange: &mut Exchange) {
        exchange.moments = self.moments;
        exchange.retried = self.retried;
        exchange.refusals = self.refusals;
        exchange.returns = self.returns;
    }
}

impl Multiplexing {
    /// Prepares connections that send `requests` and may need response fields.
    pub fn new(settings: &Http2, requests: Arc<Http2Requests>, reads_fields: bool) -> Self {
        let config = Config {
            max_streams: settings.streams,
            stream_window: settings.window_bytes,
            connection_window: settings.connection_window_bytes(),
            header_table: settings.table_bytes,
            ..Config::default()
        };
        Multiplexing {
            config,
            pings: settings.ping,
            reads_fields,
            requests,
            returned: VecDeque::new(),
            scratch: Vec::new(),
            grpc_message: Vec::with_capacity(MAX_KEPT),
            used: Http2Use::default(),
        }
    }

    /// Returns the binary logarithm of the number of exchanges per connection. The session never
    /// has two open streams whose halved identifiers are equal modulo the number of exchanges.
    pub fn exchange_bits(&self) -> u32 {
        let exchanges = (2 * self.config.max_streams).next_power_of_two();
        exchanges.trailing_zeros()
    }
}

impl Core {
    /// Returns whether the core speaks HTTP/2. [`Action::Send`] then sends the output of a
    /// connection.
    #[inline]
    pub fn is_http2(&self) -> bool {
        self.http2.is_some()
    }

    /// Sets the first stream identifier of connections that are opened later.
    #[cfg(test)]
    pub(super) fn set_first_stream(&mut self, first: u32) {
        if let Some(http2) = &mut self.http2 {
            http2.config.first_stream = first;
        }
    }

    /// Returns the number of requests that are waiting to be sent again.
    pub(super) fn returned(&self) -> u64 {
        let http2 = self.http2.as_ref();
        http2.map_or(0, |http2| http2.returned.len() as u64)
    }

    /// Returns the bytes to send on a connection.
    pub fn output(&self, slot: Slot) -> &[u8] {
        let http2 = self.connections[slot as usize].http2.as_ref();
        http2.map_or(&[], |http2| http2.session.output())
    }

    /// Returns the bytes to send on a connection that is about to be closed: none if they contain the
    /// head of a request, which then counts as unsent.
    pub fn last_output(&self, slot: Slot) -> &[u8] {
        let http2 = self.connections[slot as usize].http2.as_ref();
        let http2 = http2.filter(|http2| !http2.has_heads());
        http2.map_or(&[], |http2| http2.session.output())
    }

    /// Records that the backend has the output of a connection. The output may then grow again.
    pub fn handed_over(&mut self, slot: Slot, now: Ns) {
        let connection = &mut self.connections[slot as usize];
        let Some(http2) = &mut connection.http2 else {
            return;
        };
        let length = http2.session.output().len();
        let requests = http2.hand_over();
        let exchanges = requests.map(|index| &self.exchanges[index as usize]);
        // After GOAWAY, the output may contain a request that has returned to the queue.
        let in_flight = exchanges.filter(|exchange| exchange.state == ExchangeState::InFlight);
        let of_requests: usize = in_flight.map(|exchange| exchange.length).sum();
        self.recorder.sent_bytes(length - of_requests);
        if connection.state != ConnectionState::Established {
            // The output ended with a GOAWAY.
            return;
        }
        // Add heads before the rest of the bodies, which may fill the output.
        if http2.is_listed != http2.has_room() {
            let source = RoomSource::Freed(BlockedBy::OwnLimit);
            self.fill(slot, Room { since: now, source }, now);
        }
        let connection = &mut self.connections[slot as usize];
        let is_established = connection.state == ConnectionState::Established;
        if let Some(http2) = connection.http2.as_mut().filter(|_| is_established) {
            let recorder = &mut self.recorder;
            http2.push_bodies(now, |group, ns| {
                recorder.time_of(group, TimeKind::Window, ns);
            });
            self.settle(slot, now);
        }
    }

    /// Drops the session of a connection that the backend is about to close. Until then, its output
    /// can be sent.
    pub fn drop_session(&mut self, slot: Slot) {
        self.connections[slot as usize].http2 = None;
    }

    /// Stores the time at which the backend passed the latest output of a connection to the kernel.
    pub(super) fn sent_output(&mut self, slot: Slot, now: Ns) {
        let next = |core: &mut Self| core.connections[slot as usize].http2.as_mut()?.next_sent();
        while let Some(index) = next(self) {
            self.mark_sent(index, now);
        }
        if let Some(http2) = &mut self.connections[slot as usize].http2 {
            http2.ping.mark_sent(now);
        }
    }

    /// Records that a request was passed to the kernel, unless this is already known.
    fn mark_sent(&mut self, index: ExchangeIndex, now: Ns) {
        let exchange = &mut self.exchanges[index as usize];
        if exchange.state != ExchangeState::InFlight || exchange.moments.sent != 0 {
            return;
        }
        exchange.deadline = now + self.timeout;
        // Exchanges on other connections may have been sent earlier, but launched later.
        self.pressing.remove(&mut self.exchanges, index);
        self.pressing.push_back(&mut self.exchanges, index);
        self.record_sent(index, now);
    }

    /// Handles a completion.
    pub(super) fn on_http2(&mut self, completion: Completion<'_>, now: Ns) {
        match completion {
            Completion::Reached { slot, at } => self.reached(slot, at),
            Completion::Connected { slot, at, .. } => self.connected(slot, at, false, now),
            Completion::ConnectFailed { slot, error } => {
                self.connect_failed(slot, failure::connect(&error), now);
            }
            Completion::Received { slot, data, at, .. } => {
                self.received_frames(slot, data, at.unwrap_or(now).min(now), now);
            }
            Completion::Ended { slot } => {
                self.sent_output(slot, now);
                self.disconnected(slot, failure::CLOSED_EARLY, now);
            }
            Completion::Failed { slot, error } => {
                self.sent_output(slot, now);
                self.disconnected(slot, failure::broken(&error).0, now);
            }
        }
    }

    /// Starts the session of a connection that was just established.
    pub(super) fn begin_session(&mut self, slot: Slot, room: Room, now: Ns) {
        let first = self.first_of(slot);
        let Some(all) = &self.http2 else {
            return;
        };
        let heads = Arc::clone(&all.requests.heads);
        // Some servers close connections that exceed the stream limit before their SETTINGS arrive.
        let known = all.used.settings.and_then(|settings| settings.max_streams);
        let mut config = all.config;
        if let Some(known) = known {
            config.streams_before_settings = config.streams_before_settings.min(known);
        }
        let connection = Box::new(Http2Connection::new(&config, heads, all.pings, now));
        self.connections[slot as usize].http2 = Some(connection);
        if self.exchanges[first as usize].state == ExchangeState::Waiting {
            self.wait_is_over(first, room);
            let exchange = &mut self.exchanges[first as usize];
            exchange.state = ExchangeState::Ended;
            let next = NextRequest::of(exchange);
            self.carried -= 1;
            self.start(slot, next, now);
        } else {
            self.opening_unclaimed -= 1;
        }
        if self.preparing {
            self.settle(slot, now);
        } else {
            self.fill(slot, room, now);
        }
    }

    /// Uses connections that have room, and opens connections up to the limit, in the closed model.
    pub(super) fn start_streams(&mut self, now: Ns) {
        self.serve_room(now);
        while self.open < self.cap && self.open_next(now) {}
    }

    /// Assigns waiting requests to connections that have room. Opens more connections within the
    /// limit, if necessary, in the open model.
    pub(super) fn serve_streams(&mut self, now: Ns) {
        self.serve_room(now);
        let streams = self.streams();
        while let RequestSource::Open(waiting) = &self.arrivals {
            let needed = (waiting.waiting + self.returned()).div_ceil(streams);
            if self.opening_unclaimed >= needed || self.open >= self.cap || self.opens_left == 0 {
                return;
            }
            let late = match waiting.waiting {
                0 => 0,
                _ => now - waiting.newest_in.max(self.room_since).min(now),
            };
            self.opens_left -= 1;
            self.open_unclaimed(now, late);
        }
    }

    /// Takes the first request that waits to be sent again, if more requests wait than the next
    /// `opening` requests on new connections. Returns its times, and why it waits.
    pub(super) fn take_returned(
        &mut self,
        opening: u64,
    ) -> Option<(Moments, Option<&'static str>)> {
        let waiting = match &self.arrivals {
            RequestSource::Open(waiting) => waiting.waiting,
            RequestSource::Closed { .. } => 0,
        };
        let http2 = self.http2.as_mut()?;
        if http2.returned.len() as u64 + waiting <= opening {
            return None;
        }
        let next = http2.returned.pop_front()?;
        Some((next.moments, next.retried))
    }

    /// Opens connections for requests that wait to be sent again, in the closed model.
    pub(super) fn open_for_returned(&mut self, now: Ns) {
        let is_closed = matches!(self.arrivals, RequestSource::Closed { .. });
        while is_closed && self.returned() > 0 && self.open < self.cap && self.opens_left > 0 {
            self.opens_left -= 1;
            self.open_next(now);
        }
    }

    /// Starts requests on connections that have room, in turn.
    pub(super) fn serve_room(&mut self, now: Ns) {
        while let Some(slot) = self.idle.front() {
            let Some(next) = self.next_request(None, now) else {
                return;
            };
            self.start(slot, next, now);
            self.unlist(slot);
            self.settle(slot, now);
        }
    }

    /// Returns the number of requests that a new connection can take.
    pub(super) fn streams(&self) -> u64 {
        let http2 = self.http2.as_ref();
        let streams = http2.map_or(1, |http2| u64::from(http2.config.max_streams));
        self.uses.map_or(streams, |uses| uses.min(streams))
    }

    /// Opens a connection for the next request. Returns whether there was one.
    pub(super) fn open_next(&mut self, now: Ns) -> bool {
        let Some(next) = self.next_request(None, now) else {
            return false;
        };
        let slot = self.slot();
        let first = self.first_of(slot) as usize;
        next.assign_to(&mut self.exchanges[first]);
        self.carry(slot, now, 0);
        true
    }

    /// Returns the next request, if any. `room` is the room that it waited for; `None` if there was
    /// room at its intended time.
    fn next_request(&mut self, room: Option<Room>, now: Ns) -> Option<NextRequest> {
        let Some(mut next) = self.http2.as_mut()?.returned.pop_front() else {
            return Some(NextRequest {
                moments: self.next_new(room, now)?,
                retried: None,
                refusals: 0,
                returns: 0,
            });
        };
        if next.retried.is_none() {
            // The request was never sent, so it still waits for room.
            let source = RoomSource::Freed(self.stream_limit());
            let room = room.unwrap_or(Room { since: now, source });
            next.moments.free = next.moments.free.max(room.since);
            next.moments.blocked_by = self.blocked_by(room, &next.moments);
        }
        Some(next)
    }

    /// Returns which stream limit applies to a connection with the server's latest limit.
    pub(super) fn stream_limit(&self) -> BlockedBy {
        let settings = self.http2.as_ref().and_then(|http2| http2.used.settings);
        self.limit_of(settings.and_then(|settings| settings.max_streams))
    }

    /// Returns which stream limit applies to a connection with the server's limit `max_streams`.
    fn limit_of(&self, max_streams: Option<u32>) -> BlockedBy {
        let planned = self.http2.as_ref().map(|http2| http2.config.max_streams);
        if max_streams
            .zip(planned)
            .is_some_and(|(max, planned)| max < planned)
        {
            BlockedBy::ServerLimit
        } else {
            BlockedBy::OwnLimit
        }
    }

    /// Returns whether another request can be started on a connection.
    pub(super) fn has_room(&self, slot: Slot) -> bool {
        let http2 = self.connections[slot as usize].http2.as_ref();
        http2.is_some_and(|http2| {
            http2.has_room() && self.uses.is_none_or(|uses| http2.started < uses)
        })
    }

    /// Starts waiting requests on a connection until it has no room.
    fn fill(&mut self, slot: Slot, room: Room, now: Ns) {
        while self.has_room(slot) {
            let Some(next) = self.next_request(Some(room), now) else {
                break;
            };
            self.start(slot, next, now);
        }
        self.settle(slot, now);
    }

    /// Starts a request on an established connection.
    fn start(&mut self, slot: Slot, next: NextRequest, now: Ns) {
        let first = self.first_of(slot);
        let mask = (1 << self.exchange_bits) - 1;
        let (Some(all), Some(http2)) =
            (&mut self.http2, &mut self.connections[slot as usize].http2)
        else {
            return;
        };
        let before = http2.session.output().len();
        let pick = next.moments.pick;
        let started = (all.requests).start(pick, &mut http2.session, &mut all.scratch);
        let (stream, body) = match started {
            Ok(started) => started,
            Err(reason) => {
                // The connection seemed to have room. Without a GOAWAY, no stream identifier is left.
                http2.is_draining |= reason == Unavailable::Closing;
                all.returned.push_front(next);
                return;
            }
        };
        let index = first + ((stream / 2) & mask);
        http2.started(index, (stream, pick.group), &body, now);
        all.used.used_streams = all.used.used_streams.max(http2.session.open_streams());
        let exchange = &mut self.exchanges[index as usize];
        next.assign_to(exchange);
        exchange.stream = stream;
        exchange.status = 0;
        exchange.grpc = GrpcResponse::default();
        exchange.received = 0;
        exchange.keeps_body = false;
        exchange.body = Vec::new();
        exchange.length = http2.session.output().len() - before;
        self.launch(index, now);
    }

    /// Updates the list of connections that have room, and flushes the output. Closes a connection
    /// that has no exchange left and starts no more.
    fn settle(&mut self, slot: Slot, now: Ns) {
        let has_room = self.has_room(slot);
        let connection = &mut self.connections[slot as usize];
        let Some(http2) = &mut connection.http2 else {
            return;
        };
        let is_used_up = self.uses.is_some_and(|uses| http2.started >= uses);
        if (http2.is_draining || is_used_up) && http2.session.open_streams() == 0 {
            let how = match self.close_first {
                CloseFirst::Reset => CloseFirst::Reset,
                CloseFirst::Client | CloseFirst::Server => CloseFirst::Client,
            };
            self.unlist(slot);
            self.shut(slot, how, now);
            return self.refill(now);
        }
        let is_unused = http2.session.open_streams() == 0;
        let is_starved = !has_room && is_unused;
        connection.rested |= is_unused;
        if http2.has_heads() {
            http2.ping.start(&mut http2.session, now);
        }
        if (has_room, is_starved) != (http2.is_listed, http2.is_starved) {
            self.unlist(slot);
            self.enlist(slot, has_room, is_starved, now);
        }
        self.flush(slot);
    }

    /// Adds a connection to the list of connections that have room, or to the list of connections
    /// to close.
    fn enlist(&mut self, slot: Slot, has_room: bool, is_starved: bool, now: Ns) {
        let connection = &mut self.connections[slot as usize];
        let Some(http2) = &mut connection.http2 else {
            return;
        };
        http2.is_listed = has_room;
        http2.is_starved = is_starved;
        if has_room {
            self.idle.push_back(&mut self.connections, slot);
        } else if is_starved {
            connection.deadline = now + self.timeout;
            self.closing.push_back(&mut self.connections, slot);
        }
    }

    /// Removes a connection from the list that contains it, if any.
    pub(super) fn unlist(&mut self, slot: Slot) {
        let Some(http2) = &mut self.connections[slot as usize].http2 else {
            return;
        };
        if std::mem::take(&mut http2.is_listed) {
            self.idle.remove(&mut self.connections, slot);
        } else if std::mem::take(&mut http2.is_starved) {
            self.closing.remove(&mut self.connections, slot);
        }
    }

    /// Closes a connection that, for the duration of the timeout, has had neither room nor an
    /// exchange in flight. Otherwise the server could make requests wait forever.
    pub(super) fn close_starved(&mut self, slot: Slot, now: Ns) {
        let http2 = self.connections[slot as usize].http2.as_ref();
        let name = match http2.map(|http2| http2.session.stream_limit()) {
            Some(0) => failure::NO_STREAMS,
            _ => failure::NOT_READ,
        };
        self.recorder.error(name);
        self.recorder.error_unawaited(name);
        self.unlist(slot);
        self.shut(slot, CloseFirst::Client, now);
        self.refill(now);
    }

    /// Asks the backend to send the output, if there is any.
    fn flush(&mut self, slot: Slot) {
        if let Some(http2) = &mut self.connections[slot as usize].http2
            && !http2.session.output().is_empty()
            && !std::mem::replace(&mut http2.is_flush_due, true)
        {
            self.actions.push(Action::Send { slot });
        }
    }

    fn received_frames(&mut self, slot: Slot, data: &[u8], at: Ns, now: Ns) {
        let connection = &mut self.connections[slot as usize];
        let (Some(all), Some(mut http2)) = (&mut self.http2, connection.http2.take()) else {
            return;
        };
        let reads_fields = all.reads_fields;
        let grpc_message = std::mem::take(&mut all.grpc_message);
        http2.renew(now);
        let limit = if http2.has_settings {
            self.limit_of(Some(http2.session.stream_limit()))
        } else {
            self.stream_limit()
        };
        let mut responses = Responses {
            last_stream: http2.session.last_stream(),
            reads_fields,
            grpc_message,
            core: self,
            slot,
            at,
            now,
            body_bytes: 0,
            has_settings: false,
            has_response: false,
            pong: None,
            guesses_streams: false,
        };
        let mut fed = http2.session.feed(data, &mut responses);
        if responses.guesses_streams {
            fed = fed.and(Err(ConnectionError::IdleStream));
        }
        let (body_bytes, pong) = (responses.body_bytes, responses.pong);
        http2.is_draining |= responses.last_stream.is_some();
        http2.ping.has_response |= responses.has_response;
        let (has_settings, grpc_message) = (responses.has_settings, responses.grpc_message);
        if let Some(all) = &mut self.http2 {
            all.grpc_message = grpc_message;
            all.grpc_message.clear();
            if has_settings {
                let peer = http2.session.peer();
                all.used.settings = Some(ServerSettings {
                    max_streams: peer.max_streams,
                    window_bytes: peer.stream_window,
                    table_bytes: peer.header_table,
                    frame_bytes: peer.max_frame,
                });
                http2.has_settings = true;
            }
        }
        let recorder = &mut self.recorder;
        recorder.received(http2.group, data.len() - body_bytes);
        if let Some(ns) = pong.and_then(|payload| http2.ping.answered(payload, at)) {
            recorder.time(TimeKind::Ping, ns);
        }
        http2.push_bodies(now, |group, ns| {
            recorder.time_of(group, TimeKind::Window, ns)
        });
        self.connections[slot as usize].http2 = Some(http2);
        match fed {
            Ok(()) => {
                let source = RoomSource::Freed(limit);
                self.fill(slot, Room { since: now, source }, now);
            }
            Err(error) => self.violated(slot, error, now),
        }
    }

    /// Ends a connection on which the server violated the protocol.
    fn violated(&mut self, slot: Slot, error: ConnectionError, now: Ns) {
        self.sent_output(slot, now);
        let is_other_protocol =
            matches!(error, ConnectionError::Http1 | ConnectionError::NoSettings);
        self.not_http += u64::from(is_other_protocol);
        if !self.has_exchange(slot) {
            self.recorder.error(error.name());
        }
        for index in self.exchanges_of(slot) {
            if !self.is_in_flight(index) {
                continue;
            }
            if self.exchanges[index as usize].moments.sent == 0 {
                self.give_back(index, error.name(), 0, now);
                continue;
            }
            self.recorder.error(error.name());
            self.fail_exchange(index, Outcome::Malformed, now);
        }
        // The output may end with a GOAWAY.
        self.flush(slot);
        self.unlist(slot);
        self.shut(slot, CloseFirst::Client, now);
        self.refill(now);
    }

    /// Handles the end of a connection. Each request without a response is sent again once, unless
    /// it could take effect twice (RFC 9113, section 8.7).
    pub(super) fn disconnected(&mut self, slot: Slot, name: &'static str, now: Ns) {
        let connection = &self.connections[slot as usize];
        if connection.state != ConnectionState::Established {
            return;
        }
        let was_kept = connection.used > 0 || connection.rested;
        for index in self.exchanges_of(slot) {
            if !self.is_in_flight(index) {
                continue;
            }
            let exchange = &self.exchanges[index as usize];
            let judge = &self.judges[exchange.moments.pick.group as usize];
            let has_begun = exchange.moments.first != 0;
            let is_repeatable = self.retry == Retry::Idempotent
                && judge.is_idempotent
                && !judge.is_checked_write()
                && exchange.retried.is_none()
                && was_kept
                && !has_begun;
            if is_repeatable || exchange.moments.sent == 0 {
                self.give_back(index, name, 0, now);
                continue;
            }
            self.recorder.error(name);
            let outcome = if has_begun {
                Outcome::Malformed
            } else {
                Outcome::Reset
            };
            self.fail_exchange(index, outcome, now);
        }
        self.unlist(slot);
        self.shut(slot, CloseFirst::Client, now);
        self.refill(now);
    }

    /// Returns the exchanges of a connection.
    pub(super) fn exchanges_of(&self, slot: Slot) -> Range<ExchangeIndex> {
        let first = self.first_of(slot);
        first..first + (1 << self.exchange_bits)
    }

    pub(super) fn is_in_flight(&self, index: ExchangeIndex) -> bool {
        self.exchanges[index as usize].state == ExchangeState::InFlight
    }

    /// Returns whether a connection has an exchange in flight.
    pub(super) fn has_exchange(&self, slot: Slot) -> bool {
        self.exchanges_of(slot)
            .any(|index| self.is_in_flight(index))
    }

    /// Ends an exchange and adds its request to the requests to send again, because the request was
    /// not processed or may be repeated. `why` is the reason.
    fn give_back(&mut self, index: ExchangeIndex, why: &'static str, refusals: u8, now: Ns) {
        let exchange = &mut self.exchanges[index as usize];
        exchange.body = Vec::new();
        let was_sent = exchange.moments.sent != 0;
        let mut next = NextRequest::of(exchange);
        next.refusals = next.refusals.saturating_add(refusals);
        next.moments.unsend();
        if was_sent {
            next.retried = Some(why);
        } else {
            next.returns += 1;
        }
        if next.returns <= MAX_RETURNS {
            self.end_exchange(index);
            if let Some(http2) = &mut self.http2 {
                http2.returned.push_back(next);
            }
            return;
        }
        self.recorder.error(why);
        if next.retried.is_some() {
            return self.fail_exchange(index, Outcome::Reset, now);
        }
        let moments = next.moments;
        (self.recorder).connect_failed(moments.pick.group, moments.intended, now);
        let slot = self.slot_of(index);
        if let Some(log) = &mut self.request_log {
            let exchange = &self.exchanges[index as usize];
            let connection = &self.connections[slot as usize];
            log.add(
                exchange,
                connection,
                slot,
                now,
                None,
                LoggedOutcome::ConnectFailed,
            );
        }
        self.end_exchange(index);
    }

    /// Returns whether an overdue request has not been sent because the server has not read earlier
    /// output for the duration of the timeout.
    pub(super) fn is_stalled(&mut self, index: ExchangeIndex, now: Ns) -> bool {
        let slot = self.slot_of(index) as usize;
        let is_unsent = self.exchanges[index as usize].moments.sent == 0;
        let http2 = self.connections[slot].http2.as_mut();
        let http2 = http2.filter(|http2| is_unsent && http2.is_flush_due);
        http2.is_some_and(|http2| now - *http2.stalled.get_or_insert(now) >= self.timeout)
    }

    /// Ends a request that was sent and has timed out. The connection remains open.
    pub(super) fn cancel(&mut self, index: ExchangeIndex, now: Ns) {
        let slot = self.slot_of(index);
        let stream = self.exchanges[index as usize].stream;
        let mut limit = BlockedBy::OwnLimit;
        if let Some(http2) = &mut self.connections[slot as usize].http2 {
            let recorder = &mut self.recorder;
            http2.cancel(stream, now, |group, ns| {
                recorder.time_of(group, TimeKind::Window, ns);
            });
            let max_streams = http2.session.stream_limit();
            limit = self.limit_of(Some(max_streams));
        }
        self.fail_exchange(index, Outcome::TimedOut, now);
        let source = RoomSource::Freed(limit);
        self.fill(slot, Room { since: now, source }, now);
    }

    /// Closes the connections whose exchanges were abandoned, and ends the requests that are waiting
    /// to be sent again, so that the counts add up.
    pub(super) fn abandon_sessions(&mut self, now: Ns) {
        for slot in 0..self.connections.len() as Slot {
            let connection = &self.connections[slot as usize];
            let http2 = connection.http2.as_ref();
            let is_open = connection.state == ConnectionState::Established;
            if is_open && http2.is_some_and(|http2| http2.session.open_streams() > 0) {
                self.unlist(slot);
                self.shut(slot, CloseFirst::Client, now);
            }
        }
        while let Some(next) = self.http2.as_mut().and_then(|all| all.returned.pop_front()) {
            let moments = &next.moments;
            if next.retried.is_none() {
                self.recorder.unsent(moments.pick.group, 1);
                continue;
            }
            self.recorder.in_flight_at_end(moments, now);
            // The request has no connection.
            let mut connection = ConnectionSlot::default();
            if self.judges[moments.pick.group as usize].is_checked_write() {
                let content = CheckedContent::Operation(OperationKind::Unknown, None);
                self.responses.add(content, moments, &mut connection, now);
            }
            if let Some(log) = &mut self.request_log {
                let exchange = Exchange {
                    moments: next.moments,
                    ..Exchange::default()
                };
                let outcome = LoggedOutcome::InFlightAtEnd;
                log.add(&exchange, &connection, 0, now, None, outcome);
            }
        }
    }
}

/// Passes the events of a connection's session to the core.
struct Responses<'a> {
    core: &'a mut Core,
    slot: Slot,
    /// Time at which the bytes arrived.
    at: Ns,
    now: Ns,
    /// Number of body bytes so far.
    body_bytes: usize,
    has_settings: bool,
    /// Highest stream that the server may still process after it sent GOAWAY.
    last_stream: Option<u32>,
    /// Whether a part of a response arrived.
    has_response: bool,
    /// Payload of the latest answer to a PING.
    pong: Option<[u8; 8]>,
    /// Whether the server responded on a stream whose request has not been sent yet.
    guesses_streams: bool,
    reads_fields: bool,
    /// Decoded `grpc-message` of the section that is being read, at most [`MAX_KEPT`] bytes.
    grpc_message: Vec<u8>,
}

impl Responses<'_> {
    /// Returns the exchange of a stream. Returns `None` if it is no longer in flight.
    fn exchange(&self, stream: u32) -> Option<ExchangeIndex> {
        let mask = (1 << self.core.exchange_bits) - 1;
        let index = self.core.first_of(self.slot) + ((stream / 2) & mask);
        let exchange = &self.core.exchanges[index as usize];
        let is_it = exchange.state == ExchangeState::InFlight && exchange.stream == stream;
        is_it.then_some(index)
    }

    /// Returns the time at which the bytes arrived, or now if the wall clock, on which that time is
    /// based, was changed.
    fn not_before(&self, time: Ns) -> Ns {
        if self.at < time { self.now } else { self.at }
    }

    fn head(&mut self, index: ExchangeIndex, status: u16) {
        let first = self.not_before(self.core.exchanges[index as usize].moments.sent);
        let exchange = &mut self.core.exchanges[index as usize];
        let judge = &self.core.judges[exchange.moments.pick.group as usize];
        exchange.moments.first = first;
        exchange.status = status;
        exchange.keeps_body = !judge.needs_body()
            && !judge.is_ok_status(status)
            && self.core.not_ok_responses.wants(status.into());
    }

    fn data(&mut self, index: ExchangeIndex, bytes: &[u8]) {
        let core = &mut *self.core;
        let exchange = &mut core.exchanges[index as usize];
        let group = exchange.moments.pick.group;
        self.body_bytes += bytes.len();
        core.recorder.received(group, bytes.len());
        if core.request_log.is_some() {
            exchange.received += bytes.len() as u64;
        }
        let judge = &core.judges[group as usize];
        if judge.is_grpc() {
            exchange.grpc.data(bytes);
        }
        let limit = if judge.needs_body() {
            judge::LONGEST_BODY + 1
        } else if exchange.keeps_body {
            MAX_KEPT
        } else {
            return;
        };
        let room = limit.saturating_sub(exchange.body.len());
        exchange
            .body
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn complete(&mut self, index: ExchangeIndex) {
        let exchange = &self.core.exchanges[index as usize];
        let judge = &self.core.judges[exchange.moments.pick.group as usize];
        let has_body = exchange.keeps_body || judge.needs_body();
        let at = self.not_before(exchange.moments.first);
        let http = exchange.status;
        let connection = &mut self.core.connections[self.slot as usize];
        if std::mem::take(&mut connection.is_silent) {
            self.core.recorder.silent -= 1;
        }
        // Other responses, such as those from a proxy, have no gRPC status.
        let grpc = match (judge.is_grpc() && http == 200).then(|| exchange.grpc.finish()) {
            None => None,
            Some(Ok(code)) => Some(GrpcStatus::from_code(code)),
            Some(Err(fault)) => return self.reject_call(index, fault),
        };
        let excerpt = match grpc {
            Some(_) => Excerpt::Message(&self.grpc_message),
            None if has_body => Excerpt::Body,
            None => Excerpt::Unknown,
        };
        let status = ResponseStatus { http, grpc };
        self.core.responded(index, status, excerpt, at, self.now);
    }

    /// Ends a gRPC call whose response is malformed.
    fn reject_call(&mut self, index: ExchangeIndex, fault: GrpcFault) {
        self.core.recorder.error(fault.name());
        self.core.fail_exchange(index, Outcome::Malformed, self.now);
    }

    fn count_go_away(&mut self, code: ErrorCode) {
        let Some(all) = &mut self.core.http2 else {
            return;
        };
        all.used.go_aways += 1;
        if code != ErrorCode::NO_ERROR {
            let name = code.name().unwrap_or("unknown").to_owned();
            *all.used.go_away_errors.entry(name).or_default() += 1;
        }
    }

    /// Handles a request that the server did not process: sends it again, or rejects it after too
    /// many refusals.
    fn unprocessed(&mut self, index: ExchangeIndex, why: &'static str, refusals: u8) {
        let exchange = &self.core.exchanges[index as usize];
        let is_refused_often = exchange.refusals + refusals > MAX_REFUSALS;
        let was_sent = exchange.moments.sent != 0;
        if was_sent && let Some(all) = &mut self.core.http2 {
            all.used.unprocessed += 1;
        }
        if was_sent && (self.core.retry == Retry::Never || is_refused_often) {
            self.core.recorder.error(why);
            self.core.fail_exchange(index, Outcome::Rejected, self.now);
        } else {
            self.core.give_back(index, why, refusals, self.now);
        }
    }
}

impl EventSink for Responses<'_> {
    fn reads_fields(&self) -> bool {
        self.reads_fields
    }

    fn field(&mut self, stream: u32, name: &[u8], value: &[u8]) {
        let is_status = name == b"grpc-status";
        if !is_status && name != b"grpc-message" {
            return;
        }
        let Some(index) = self.exchange(stream) else {
            return;
        };
        if is_status {
            self.core.exchanges[index as usize].grpc.status(value);
        } else {
            self.grpc_message.clear();
            decode_message(value, MAX_KEPT, &mut self.grpc_message);
        }
    }

    fn event(&mut self, event: Event<'_>) {
        let stream = match event {
            Event::Head { stream, .. }
            | Event::Data { stream, .. }
            | Event::Trailers { stream }
            | Event::Reset { stream, .. }
            | Event::Refused { stream }
            | Event::Malformed { stream, .. } => stream,
            Event::Settings => {
                self.has_settings = true;
                return;
            }
            Event::GoAway { last, code } => {
                self.count_go_away(code);
                if self.last_stream.replace(last) == Some(last) {
                    return;
                }
                // Count a GOAWAY before the first request as a refusal, so that retries end.
                let refusals = u8::from(last == 0);
                for index in self.core.exchanges_of(self.slot) {
                    let stream = self.core.exchanges[index as usize].stream;
                    if self.core.is_in_flight(index) && stream > last {
                        self.unprocessed(index, failure::GO_AWAY, refusals);
                    }
                }
                return;
            }
            Event::Pong(payload) => {
                self.pong = Some(payload);
                return;
            }
            Event::WindowUpdate { .. } => return,
        };
        let Some(index) = self.exchange(stream) else {
            return;
        };
        if self.core.exchanges[index as usize].moments.sent == 0 {
            self.guesses_streams = true;
            return;
        }
        match event {
            Event::Head { status, end, .. } => {
                self.has_response = true;
                self.head(index, status);
                if end {
                    self.complete(index);
                } else {
                    // Only trailers, or a head without a body, contain the gRPC status.
                    self.core.exchanges[index as usize].grpc = GrpcResponse::default();
                }
            }
            Event::Data { bytes, end, .. } => {
                self.has_response = true;
                self.data(index, bytes);
                if end {
                    self.complete(index);
                }
            }
            Event::Trailers { .. } => self.complete(index),
            Event::Refused { .. } => self.unprocessed(index, failure::STREAM_REFUSED, 1),
            Event::Reset { code, .. } => {
                self.core.recorder.error(failure::stream_reset(code));
                self.core.fail_exchange(index, Outcome::Reset, self.now);
            }
            Event::Malformed { reason, .. } => {
                self.core.recorder.error(reason.name());
                self.core.fail_exchange(index, Outcome::Malformed, self.now);
            }
            Event::Settings
            | Event::GoAway { .. }
            | Event::Pong(_)
            | Event::WindowUpdate { .. } => {}
        }
        self.grpc_message.clear();
    }
}
