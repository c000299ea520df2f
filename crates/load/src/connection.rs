//! One connection as the engine sees it: a state, the request it carries, and the reader of its answers.

use floodmark_wire::Reader;

use crate::clock::Ns;
use crate::linked::{Link, Linked};
use crate::recorder::Moments;

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    /// Nothing; its slot is free.
    #[default]
    Closed,
    /// Its handshake is under way.
    Connecting,
    /// It stands and has no request.
    Idle,
    /// Its request has been sent and has no whole answer.
    Busy,
    /// Its last answer has come; the server is to close.
    Closing,
    /// No connection could be opened; it waits before it tries again (closed model).
    Paused,
}

/// A connection's slot. Small, since there may be a hundred thousand.
#[derive(Debug)]
pub struct Connection {
    /// What it is doing.
    pub state: State,
    /// Which of the target's addresses it goes to.
    pub target: u32,
    /// Whether the request in `moments` was given to this connection before it stood.
    pub carries: bool,
    /// Whether that request has been sent before, on a connection that the server had closed.
    pub retried: bool,
    /// Whether the request asked the server to close.
    pub last: bool,
    /// Length of the request, bytes.
    pub length: usize,
    /// Requests answered since it was opened.
    pub used: u64,
    /// Whether it has stood without a request since it was opened.
    pub rested: bool,
    /// Start of the handshake.
    pub opening: Ns,
    /// When TCP stood, where a TLS handshake follows.
    pub reached: Option<Ns>,
    /// How much later than it could have been the handshake was started.
    pub opened_late: Ns,
    /// When it is given up: the timeout after its handshake began or its request was sent.
    pub gives_up: Ns,
    /// The request's moments.
    pub moments: Moments,
    /// Reads answers.
    pub reader: Reader,
    /// The part of a body that came with earlier reads, where bodies are kept.
    pub body: Vec<u8>,
    /// The last number it was answered (`--check`).
    pub last_number: Option<u64>,
    link: Link,
}

impl Connection {
    /// A free slot.
    #[must_use]
    pub fn new() -> Self {
        Connection {
            state: State::Closed,
            target: 0,
            carries: false,
            retried: false,
            last: false,
            length: 0,
            used: 0,
            rested: false,
            opening: 0,
            reached: None,
            opened_late: 0,
            gives_up: 0,
            moments: Moments::default(),
            reader: Reader::new(),
            body: Vec::new(),
            last_number: None,
            link: Link::default(),
        }
    }
}

impl Default for Connection {
    fn default() -> Self {
        Self::new()
    }
}

impl Linked for Connection {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}
