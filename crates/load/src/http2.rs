//! The engine's state for an HTTP/2 connection: its session, and what waits to be sent.

use std::collections::VecDeque;
use std::sync::Arc;

use floodmark_wire::h2::{Config, ErrorCode, MAX_OUTPUT_BYTES, RequestHeads, Session};

use crate::clock::{NS_PER_S, Ns};
use crate::exchange::ExchangeIndex;
use crate::request::StartedBody;

/// Interval at which the limit on frames without effect is renewed, in ns.
const RENEWAL_NS: Ns = NS_PER_S;

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
    has_settings: bool,
    renewed: Ns,
}

#[derive(Debug)]
struct UnsentBody {
    stream: u32,
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
}

impl Http2Connection {
    /// Returns the state of a new connection. Its output starts with the preface.
    pub fn new(config: &Config, heads: Arc<RequestHeads>, now: Ns) -> Self {
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
    pub fn started(&mut self, index: ExchangeIndex, stream: u32, body: &StartedBody<'_>) {
        self.started += 1;
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
            self.bodies.push_back(UnsentBody {
                stream,
                bytes,
                done,
            });
        }
    }

    /// Records that the server's SETTINGS have arrived.
    pub fn take_settings(&mut self) {
        self.has_settings = true;
    }

    /// Appends as much of the waiting bodies to the output as flow control and `MAX_OUTPUT_BYTES`
    /// allow.
    pub fn push_bodies(&mut self) {
        if !self.has_settings {
            return;
        }
        let session = &mut self.session;
        self.bodies.retain_mut(|body| !body.push(session));
    }

    /// Ends a stream whose request has timed out, and drops the rest of its body.
    pub fn cancel(&mut self, stream: u32) {
        self.session.reset(stream, ErrorCode::CANCEL);
        self.bodies.retain(|body| body.stream != stream);
    }

    /// Records that the backend has the output, and empties it. Returns the exchanges whose heads it
    /// contains.
    pub fn hand_over(&mut self) -> impl Iterator<Item = ExchangeIndex> {
        let length = self.session.output().len();
        self.session.sent(length);
        self.is_flush_due = false;
        self.stalled = None;
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
