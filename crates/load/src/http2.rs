//! The engine's state for an HTTP/2 connection: its session, and what waits to be sent.

use std::collections::VecDeque;
use std::sync::Arc;

use floodmark_wire::h2::{Config, ErrorCode, MAX_OUTPUT_BYTES, RequestHeads, Session};

use crate::clock::{NS_PER_S, Ns};
use crate::exchange::ExchangeIndex;
use crate::request::StartedBody;

/// Interval at which the limit on frames without effect is renewed, in ns.
const RENEWAL_NS: Ns = NS_PER_S;

/// Minimum time between two PING frames on a connection, in ns.
const PING_NS: Ns = NS_PER_S;

/// State of an established HTTP/2 connection.
#[derive(Debug)]
pub struct Http2Connection {
    pub session: Session,
    /// Number of requests that were started on the connection.
    pub started: u64,
    /// Group of the latest request. Received bytes other than response bodies count towards it.
    pub group: u32,
    /// Whether the connection starts no more requests, because the server sent GOAWAY or no stream
    /// identifier is left.
    pub is_draining: bool,
    /// Whether the connection is in the list of connections that have room.
    pub is_listed: bool,
    /// Whether the connection is in the list of connections to close, because it has neither room
    /// nor an open stream.
    pub is_starved: bool,
    /// Whether the backend has been asked to send the output.
    pub is_flush_due: bool,
    /// Time at which a request became overdue because the backend did not take the output.
    pub stalled: Option<Ns>,
    /// Exchanges whose send time is unknown, in the order of their requests.
    unsent: VecDeque<ExchangeIndex>,
    /// Number of exchanges at the front of `unsent` whose request head the backend has.
    handed_over: usize,
    /// Bodies that are not completely in the output yet.
    bodies: VecDeque<UnsentBody>,
    /// Whether the server's SETTINGS have arrived.
    pub has_settings: bool,
    pub ping: Ping,
    renewed: Ns,
}

/// Measures the round-trip time of a connection with PING frames: at most one per second, and only
/// while requests are in flight and responses arrive. Servers may close idle connections that send
/// PING frames.
#[derive(Debug)]
pub struct Ping {
    state: PingState,
    /// Time at which the next PING is due; `Ns::MAX` if the connection sends none.
    due: Ns,
    /// Whether any part of a response has arrived since the last PING.
    pub has_response: bool,
}

#[derive(Debug, Clone, Copy)]
enum PingState {
    /// No answer is expected.
    Idle,
    /// The PING with this payload is in the output.
    InOutput(u64),
    /// The backend has the PING with this payload.
    HandedOver(u64),
    /// The PING with this payload was sent at this time.
    Sent(u64, Ns),
}

impl Ping {
    /// Returns the state of a new connection.
    fn new(is_used: bool, now: Ns) -> Self {
        Ping {
            state: PingState::Idle,
            due: if is_used { now + PING_NS } else { Ns::MAX },
            has_response: false,
        }
    }

    /// Adds a PING to the output of a connection with open streams, if it is due.
    #[inline]
    pub fn start(&mut self, session: &mut Session, now: Ns) {
        if now >= self.due && self.has_response && matches!(self.state, PingState::Idle) {
            session.ping(now.to_be_bytes());
            self.state = PingState::InOutput(now);
            self.due = now + PING_NS;
            self.has_response = false;
        }
    }

    fn hand_over(&mut self) {
        if let PingState::InOutput(payload) = self.state {
            self.state = PingState::HandedOver(payload);
        }
    }

    /// Stores the time at which the backend passed the latest output to the kernel.
    pub fn mark_sent(&mut self, now: Ns) {
        if let PingState::HandedOver(payload) = self.state {
            self.state = PingState::Sent(payload, now);
        }
    }

    /// Takes an answer that arrived at `at`. Returns the round-trip time, unless the answer does not
    /// belong to the latest PING.
    pub fn answered(&mut self, payload: [u8; 8], at: Ns) -> Option<Ns> {
        match self.state {
            PingState::Sent(expected, sent) if payload == expected.to_be_bytes() => {
                self.state = PingState::Idle;
                Some(at.saturating_sub(sent))
            }
            _ => None,
        }
    }
}

#[derive(Debug)]
struct UnsentBody {
    stream: u32,
    /// Group of the request.
    group: u32,
    /// Time at which the server's credit ran out; `None` if the next byte has credit.
    starved_since: Option<Ns>,
    /// Earlier time without credit, in ns.
    starved: Ns,
    bytes: BodyBytes,
    /// Number of body bytes appended to the output so far.
    done: usize,
}

#[derive(Debug)]
enum BodyBytes {
    Shared(Arc<Vec<u8>>),
    Own(Vec<u8>),
}

impl UnsentBody {
    /// Appends as much of the body to the output as possible. Returns whether all of it was
    /// appended, or the stream is closed.
    fn push(&mut self, session: &mut Session) -> bool {
        let bytes = match &self.bytes {
            BodyBytes::Shared(bytes) => bytes,
            BodyBytes::Own(bytes) => bytes,
        };
        let Some(n) = session.send_body(self.stream, &bytes[self.done..], true) else {
            return true;
        };
        self.done += n;
        self.done == bytes.len()
    }

    /// Updates the time without credit.
    fn update_starved(&mut self, session: &mut Session, now: Ns) {
        if session.send_credit(self.stream) == Some(0) {
            self.starved_since.get_or_insert(now);
        } else {
            self.end_starved(now);
        }
    }

    /// Ends the current time without credit, and returns the total.
    fn end_starved(&mut self, now: Ns) -> Ns {
        self.starved += self.starved_since.take().map_or(0, |since| now - since);
        self.starved
    }
}

impl Http2Connection {
    /// Returns a new connection's state. Its output starts with the preface. `pings` says whether
    /// it sends PING frames.
    pub fn new(config: &Config, heads: Arc<RequestHeads>, pings: bool, now: Ns) -> Self {
        let streams = config.max_streams as usize;
        Http2Connection {
            session: Session::new(config, heads),
            started: 0,
            group: 0,
            is_draining: false,
            is_listed: false,
            is_starved: false,
            is_flush_due: false,
            stalled: None,
            unsent: VecDeque::with_capacity(streams),
            handed_over: 0,
            bodies: VecDeque::new(),
            has_settings: false,
            ping: Ping::new(pings, now),
            renewed: now,
        }
    }

    /// Returns whether another request can be started.
    pub fn has_room(&self) -> bool {
        !self.is_draining
            && self.session.open_streams() < self.session.stream_limit()
            && self.session.output().len() < MAX_OUTPUT_BYTES
    }

    /// Records a started request, and appends as much of its body as possible to the output.
    ///
    /// Without the server's SETTINGS, the body waits: some servers reduce the window of a stream
    /// with their first SETTINGS, and grant no credit for bytes that were sent earlier.
    pub fn started(
        &mut self,
        index: ExchangeIndex,
        (stream, group): (u32, u32),
        body: &StartedBody<'_>,
        now: Ns,
    ) {
        self.started += 1;
        self.group = group;
        self.unsent.push_back(index);
        let bytes = body.bytes();
        if bytes.is_empty() {
            return;
        }
        let can_send = self.has_settings && self.bodies.is_empty();
        let sent = can_send.then(|| self.session.send_body(stream, bytes, true));
        let done = sent.flatten().unwrap_or(0);
        if done < bytes.len() {
            let bytes = match body {
                StartedBody::Fixed(bytes) => BodyBytes::Shared(Arc::clone(bytes)),
                StartedBody::Rendered(bytes) => BodyBytes::Own(bytes.to_vec()),
            };
            let mut body = UnsentBody {
                stream,
                group,
                starved_since: None,
                starved: 0,
                bytes,
                done,
            };
            if self.has_settings {
                body.update_starved(&mut self.session, now);
            }
            self.bodies.push_back(body);
        }
    }

    /// Appends as much of the waiting bodies to the output as flow control and `MAX_OUTPUT_BYTES`
    /// allow. Calls `starved` with the group and the time without credit of each body that no longer
    /// waits.
    pub fn push_bodies(&mut self, now: Ns, starved: impl FnMut(u32, Ns)) {
        if !self.has_settings {
            return;
        }
        let session = &mut self.session;
        let is_done = |body: &mut UnsentBody| {
            let is_done = body.push(session);
            if !is_done {
                body.update_starved(session, now);
            }
            is_done
        };
        end_bodies(&mut self.bodies, is_done, now, starved);
    }

    /// Ends a stream whose request has timed out, and drops the rest of its body. Calls `starved`
    /// with the body's group and its time without credit.
    pub fn cancel(&mut self, stream: u32, now: Ns, starved: impl FnMut(u32, Ns)) {
        self.session.reset(stream, ErrorCode::CANCEL);
        let is_of_stream = |body: &mut UnsentBody| body.stream == stream;
        end_bodies(&mut self.bodies, is_of_stream, now, starved);
    }

    /// Drops all waiting bodies before the connection closes. Calls `starved` with the group and
    /// the time without credit of each body.
    pub fn drop_bodies(&mut self, now: Ns, starved: impl FnMut(u32, Ns)) {
        end_bodies(&mut self.bodies, |_| true, now, starved);
    }

    /// Records that the backend has the output, and empties it. Returns the exchanges whose heads it
    /// contains.
    pub fn hand_over(&mut self) -> impl Iterator<Item = ExchangeIndex> {
        let length = self.session.output().len();
        self.session.sent(length);
        self.is_flush_due = false;
        self.stalled = None;
        self.ping.hand_over();
        let before = std::mem::replace(&mut self.handed_over, self.unsent.len());
        self.unsent.range(before..).copied()
    }

    /// Returns whether the output contains the head of a request.
    pub fn has_heads(&self) -> bool {
        self.unsent.len() > self.handed_over
    }

    /// Removes and returns the next exchange whose request the backend has, but whose send time is
    /// unknown.
    pub fn next_sent(&mut self) -> Option<ExchangeIndex> {
        self.handed_over = self.handed_over.checked_sub(1)?;
        self.unsent.pop_front()
    }

    /// Once a second, renews the limit on frames that have no effect.
    pub fn renew(&mut self, now: Ns) {
        if now >= self.renewed + RENEWAL_NS {
            self.session.renew_idle_frames();
            self.renewed = now;
        }
    }
}

/// Removes the bodies for which `is_done` is true. Calls `starved` with the group and the time without
/// credit of each of them that waited for credit.
fn end_bodies(
    bodies: &mut VecDeque<UnsentBody>,
    mut is_done: impl FnMut(&mut UnsentBody) -> bool,
    now: Ns,
    mut starved: impl FnMut(u32, Ns),
) {
    bodies.retain_mut(|body| {
        let is_done = is_done(body);
        if is_done {
            let ns = body.end_starved(now);
            if ns > 0 {
                starved(body.group, ns);
            }
        }
        !is_done
    });
}
