//! The load engine without I/O: a state machine between the schedule, `wire` and the backend. It
//! turns completions into actions, and receives the current time as an argument.
//!
//! ```text
//! arrivals ──► starting ──► opening ──► (backend) ──► ending ──► starting …
//!              assigns      connects,                 reads responses,
//!              requests to  handles                   ends requests and
//!              connections  failures                  connections
//! ```
//!
//! A connection carries exchanges: requests with their responses. The indices of its exchanges are
//! a fixed range, whose length is a power of two. The core can therefore convert between connection
//! and exchange indices, and starts an exchange without allocating memory.
//!
//! An HTTP/1.1 connection has one exchange at a time. The exchange has the same index (slot) as its
//! connection, and the next exchange replaces it. `http2` contains what differs in HTTP/2.

mod ending;
mod http2;
mod opening;
mod starting;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use floodmark_record::WorkerEnd;
use floodmark_record::events::EndReason;
use floodmark_record::plan::{CloseFirst, ConnectionUse, Plan, Retry};

use crate::arrivals::RequestSource;
use crate::backend::{Completion, Route, Slot};
use crate::clock::Ns;
use crate::connection::{ConnectionSlot, ConnectionState};
use crate::exchange::{Exchange, ExchangeIndex};
use crate::failure;
use crate::judge::Judge;
use crate::kept_responses::{KeptResponses, NotOkBodies};
use crate::list::List;
use crate::mix::Picks;
use crate::recorder::Recorder;
use crate::request::PlanRequests;
use crate::request_log::RequestLog;
use crate::schedule::ThreadShare;
use crate::targets::Targets;

use self::http2::Multiplexing;
use self::opening::Ahead;
pub use self::opening::ready_connections;

/// Maximum number of connections opened per iteration.
/// Opening a connection costs several times as much as a request. This limit makes a late thread
/// catch up on its existing connections, instead of overloading itself and the server with new
/// connections.
const OPENS_PER_TURN: u32 = 8;

/// Number of invalid responses after which the run ends, if no response was valid.
const NOT_HTTP: u64 = 20;

/// A command to the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Open a connection. If `first`, send the request as part of the connect.
    Open {
        /// The connection.
        slot: Slot,
        /// Target and source address.
        route: Route,
        /// Whether the request is sent as part of the connect.
        first: bool,
    },
    /// Send the request of the slot; with HTTP/2, the output of the connection.
    Send {
        /// The connection.
        slot: Slot,
    },
    /// Close the connection.
    Close {
        /// The connection.
        slot: Slot,
        /// The role that closes first, or a reset.
        how: CloseFirst,
    },
}

/// State of one load thread.
pub struct Core {
    /// Pending commands. The caller empties the list after each call.
    pub actions: Vec<Action>,
    /// Counts and times.
    pub recorder: Recorder,
    /// Responses kept for a check.
    pub responses: KeptResponses,
    /// Bodies of responses that are not ok.
    pub not_ok_responses: NotOkBodies,
    /// The target's addresses and their state.
    pub targets: Targets,
    /// Log of individual requests; `None` without one.
    pub request_log: Option<RequestLog>,
    connections: Vec<ConnectionSlot>,
    /// The exchanges of each connection, in the order of the connections.
    exchanges: Vec<Exchange>,
    /// Binary logarithm of the number of exchanges per connection.
    exchange_bits: u32,
    /// State of HTTP/2; `None` with HTTP/1.1.
    http2: Option<Box<Multiplexing>>,
    free: Vec<Slot>,
    /// Established connections that have room for an exchange.
    idle: List<ConnectionSlot>,
    /// Connections whose handshake is in progress, ordered by deadline. All handshakes have the
    /// same timeout, so new ones are appended.
    connecting: List<ConnectionSlot>,
    /// Exchanges in flight, ordered by deadline.
    pressing: List<Exchange>,
    /// Slots that pause before their next connection attempt, ordered by the end of the pause.
    paused: List<ConnectionSlot>,
    /// Connections that the server should close, in the order of their deadlines. With HTTP/2,
    /// connections that have neither room nor an exchange in flight.
    closing: List<ConnectionSlot>,
    arrivals: RequestSource,
    /// One judge per request of the mix.
    judges: Vec<Judge>,
    cap: usize,
    /// Number of requests that a connection serves; `None` if the number is unlimited.
    uses: Option<u64>,
    close_first: CloseFirst,
    retry: Retry,
    /// Whether the server closes a connection after a response that ends it. `None` until it has
    /// closed one in time or failed to.
    server_closes: Option<bool>,
    timeout: Ns,
    /// Number of connections whose handshake is in progress and that have no assigned request.
    opening_unclaimed: u64,
    opens_left: u32,
    ahead: Ahead,
    /// Number of slots in use, including paused slots.
    open: usize,
    /// The time at which a slot last became free.
    room_since: Ns,
    in_flight: u64,
    /// Number of requests assigned to connections whose handshake is in progress.
    carried: u64,
    preparing: bool,
    winding_up: bool,
    ever_connected: bool,
    last_life: Ns,
    /// Time of the last response.
    pub last_response: Option<Ns>,
    /// The time at which the server started to refuse all connections.
    refused_since: Option<Ns>,
    /// Whether the run continues while a server that was reached before refuses all connections.
    pub outlasts_server: bool,
    gone: bool,
    not_http: u64,
    /// Body bytes from the current piece of a response.
    body: Vec<u8>,
}

/// Returns the number of requests that a connection serves; `None` if the number is unlimited.
fn connection_uses(plan: &Plan) -> Option<u64> {
    match plan.connection_use {
        ConnectionUse::Kept => None,
        ConnectionUse::Fresh => Some(1),
        ConnectionUse::PerConnection(n) => Some(n.max(1)),
    }
}

impl Core {
    /// Creates the state of a thread.
    pub fn new(
        plan: &Plan,
        share: ThreadShare,
        recorder: Recorder,
        requests: &PlanRequests,
    ) -> Self {
        let (thread, threads) = share.overall();
        let judges = Judge::of_plan(plan);
        let http2 = match requests {
            PlanRequests::Http1(_) => None,
            PlanRequests::Http2(settings, requests) => {
                let reads_fields = judges.iter().any(Judge::is_grpc);
                let requests = Arc::clone(requests);
                Some(Box::new(Multiplexing::new(
                    settings,
                    requests,
                    reads_fields,
                )))
            }
        };
        Core {
            actions: Vec::with_capacity(64),
            recorder,
            responses: KeptResponses::of_plan(plan),
            not_ok_responses: NotOkBodies::default(),
            targets: Targets::new(plan, thread, threads),
            request_log: None,
            connections: Vec::new(),
            exchanges: Vec::new(),
            exchange_bits: http2.as_ref().map_or(0, |http2| http2.exchange_bits()),
            http2,
            free: Vec::new(),
            idle: List::default(),
            connecting: List::default(),
            pressing: List::default(),
            paused: List::default(),
            closing: List::default(),
            arrivals: RequestSource::Closed {
                left: Some(0),
                until: None,
                picks: Picks::new(plan, share, 1),
            },
            judges,
            cap: share.connections(plan),
            uses: connection_uses(plan),
            close_first: plan.close_first,
            retry: plan.retry,
            server_closes: None,
            timeout: (plan.timeout.as_nanos() as Ns).max(1),
            opening_unclaimed: 0,
            opens_left: OPENS_PER_TURN,
            ahead: Ahead::new(plan, share),
            open: 0,
            room_since: 0,
            in_flight: 0,
            carried: 0,
            preparing: false,
            winding_up: false,
            ever_connected: false,
            last_life: 0,
            last_response: None,
            refused_since: None,
            outlasts_server: false,
            gone: false,
            not_http: 0,
            body: Vec::new(),
        }
    }

    /// Returns the number of requests that are in flight, waiting for their connection's handshake,
    /// or waiting to be sent again.
    #[inline]
    pub fn under_way(&self) -> u64 {
        self.in_flight + self.carried + self.returned()
    }

    /// Returns the connection of an exchange.
    #[inline]
    fn slot_of(&self, index: ExchangeIndex) -> Slot {
        index >> self.exchange_bits
    }

    /// Returns the first exchange of a connection. With HTTP/1.1, it is the only one.
    #[inline]
    fn first_of(&self, slot: Slot) -> ExchangeIndex {
        slot << self.exchange_bits
    }

    /// Returns whether a busy thread may handle responses in batches.
    /// Only the closed model allows batches, because its responses wait for the busy thread anyway.
    pub fn coalescible(&self) -> bool {
        // A batch is a number of receive completions, each of which can contain many responses of
        // HTTP/2.
        matches!(self.arrivals, RequestSource::Closed { .. }) && self.http2.is_none()
    }

    /// Handles all events that depend only on time: arrivals, pauses, timeouts and the next row.
    /// A request whose connection has not been reported was not sent, so it may time out and go to
    /// another address.
    pub fn turn(&mut self, now: Ns) {
        self.recorder.tick(now);
        self.opens_left = OPENS_PER_TURN;
        self.arrive(now);
        self.serve_waiting(now);
        self.open_for_returned(now);
        self.open_ahead(now);
        while let Some(slot) = self.paused.overdue(&self.connections, now) {
            self.paused.remove(&mut self.connections, slot);
            self.release(slot, now);
            self.refill(now);
        }
        while let Some(slot) = self.connecting.overdue(&self.connections, now) {
            self.connect_timed_out(slot, now);
        }
        while let Some(index) = self.pressing.overdue(&self.exchanges, now) {
            self.time_out(index, now);
        }
        while let Some(slot) = self.closing.overdue(&self.connections, now) {
            if self.http2.is_some() {
                self.close_starved(slot, now);
                continue;
            }
            self.recorder.error(failure::NOT_CLOSED);
            self.server_closes.get_or_insert(false);
            self.close(slot, now);
        }
    }

    /// Returns the time by which [`Core::turn`] must be called next, as far as is known now.
    pub fn next_turn(&mut self) -> Ns {
        if let RequestSource::Open(waiting) = &self.arrivals
            && self.opens_left == 0
            && waiting.waiting > self.opening_unclaimed * self.streams()
            && self.open < self.cap
        {
            return 0;
        }
        self.recorder
            .part_end
            .min(self.next_arrival())
            .min(self.next_ahead())
            .min(self.connecting.first_deadline(&self.connections))
            .min(self.pressing.first_deadline(&self.exchanges))
            .min(self.paused.first_deadline(&self.connections))
            .min(self.closing.first_deadline(&self.connections))
    }

    /// Returns when the next arrival is due; `Ns::MAX` in the closed model.
    #[inline]
    pub fn next_arrival(&mut self) -> Ns {
        match &mut self.arrivals {
            RequestSource::Open(waiting) => waiting.next_due().unwrap_or(Ns::MAX),
            RequestSource::Closed { .. } => Ns::MAX,
        }
    }

    /// Handles a completion.
    /// If the backend has not submitted the connection's request yet, the completion ends the
    /// request, which then counts as sent.
    #[inline]
    pub fn on(&mut self, completion: Completion<'_>, now: Ns) {
        if self.http2.is_some() {
            return self.on_http2(completion, now);
        }
        match completion {
            Completion::Received {
                slot,
                data,
                at,
                is_sending,
            } => {
                self.sent(slot, now);
                self.received(slot, data, at, is_sending, now);
            }
            Completion::Connected { slot, at, sent } => self.connected(slot, at, sent, now),
            Completion::Reached { slot, at } => self.reached(slot, at),
            Completion::Ended { slot } => {
                let was_sent = self.sent(slot, now);
                self.ended(slot, was_sent, now);
            }
            Completion::Failed { slot, error } => {
                let was_sent = self.sent(slot, now);
                self.broken(slot, was_sent, failure::broken(&error), now);
            }
            Completion::ConnectFailed { slot, error } => {
                self.connect_failed(slot, failure::connect(&error), now);
            }
        }
    }

    /// Ends the sending window. No further requests are started.
    pub fn wind_up(&mut self) {
        self.winding_up = true;
        let opening = self.opening_unclaimed * self.streams();
        match &mut self.arrivals {
            RequestSource::Closed { left, until, .. } => {
                *left = Some(0);
                *until = None;
            }
            RequestSource::Open(waiting) => {
                let recorder = &mut self.recorder;
                waiting.give_up_beyond(opening, |group, n| {
                    recorder.unsent(group, n);
                });
            }
        }
    }

    /// Returns whether all requests have been started and have an outcome.
    pub fn finished(&mut self) -> bool {
        self.under_way() == 0 && self.exhausted()
    }

    /// Returns whether the closed model has started all requests that its number of requests
    /// allows.
    pub fn has_used_quota(&self) -> bool {
        matches!(self.arrivals, RequestSource::Closed { left: Some(0), .. })
    }

    fn exhausted(&mut self) -> bool {
        match &mut self.arrivals {
            RequestSource::Closed { left, .. } => *left == Some(0),
            RequestSource::Open(waiting) => waiting.waiting == 0 && waiting.next_due().is_none(),
        }
    }

    /// Returns the reason to end the run early, if any.
    pub fn hopeless(&self) -> Option<EndReason> {
        if self.gone {
            Some(EndReason::ServerGone)
        } else if self.not_http >= NOT_HTTP && self.last_response.is_none() {
            Some(EndReason::NotHttp)
        } else {
            None
        }
    }

    /// Returns the end reason for a run that [`Core::hopeless`] did not end early: `Completed`,
    /// unless the server is unreachable or sent only invalid responses.
    pub fn completed(&self) -> EndReason {
        let standing = |c: &ConnectionSlot| {
            matches!(
                c.state,
                ConnectionState::Established | ConnectionState::Closing
            )
        };
        if self.refused_since.is_some() && !self.connections.iter().any(standing) {
            EndReason::ServerGone
        } else if self.not_http > 0 && self.last_response.is_none() {
            EndReason::NotHttp
        } else {
            EndReason::Completed
        }
    }

    /// Returns this thread's totals for the worker's final event.
    pub fn end(&self) -> WorkerEnd {
        let counts = |by_name: &BTreeMap<&'static str, u64>| {
            let owned = by_name.iter().map(|(name, n)| ((*name).to_owned(), *n));
            owned.collect()
        };
        WorkerEnd {
            connects: self.recorder.total_connects,
            peak_connections: self.recorder.peak_open,
            silent_connections: self.recorder.silent,
            held: self.held().cloned(),
            errors: counts(&self.recorder.errors),
            not_ok_responses: self.not_ok_responses.responses(),
            unawaited: counts(&self.recorder.unawaited),
            addresses: self.targets.uses(),
            out_of_order: self.responses.out_of_order,
            offenders: self.responses.offenders.clone(),
            scored: self.responses.scored(),
            http2: self.http2.as_ref().map(|http2| http2.used.clone()),
            ..WorkerEnd::default()
        }
    }

    /// Returns a request number greater than any used so far.
    pub fn next_number(&self) -> u64 {
        match &self.arrivals {
            RequestSource::Closed { picks, .. } => picks.next_number,
            RequestSource::Open(waiting) => waiting.picks_ahead.next_number,
        }
    }
}
