//! A connection as the engine sees it: its state, its request and its response reader.

use floodmark_wire::Reader;

use crate::clock::Ns;
use crate::linked::{Link, Linked};
use crate::recorder::Moments;

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConnectionState {
    /// Closed; its slot is free.
    #[default]
    Closed,
    /// Its handshake is in progress.
    Connecting,
    /// Established, without a request.
    Idle,
    /// Its request was sent, and the response is incomplete.
    Busy,
    /// Its last response is complete; the server is expected to close.
    Closing,
    /// Connecting failed; it waits before the next attempt (closed model).
    Paused,
}

/// The slot of a connection. Small, since there may be a hundred thousand.
#[derive(Debug)]
pub struct ConnectionSlot {
    /// Its state.
    pub state: ConnectionState,
    /// Index of the target address.
    pub target: u32,
    /// Whether the request in `moments` was assigned before the connection was established.
    pub carries: bool,
    /// Whether that request was sent before, on a connection that the server had closed.
    pub retried: bool,
    /// Whether the request asked the server to close.
    pub last: bool,
    /// Length of the request, bytes.
    pub length: usize,
    /// Responses received since it was opened.
    pub used: u64,
    /// Whether it has been idle since it was opened.
    pub rested: bool,
    /// Start of the handshake.
    pub opening: Ns,
    /// Time of the TCP connection, if a TLS handshake follows.
    pub reached: Option<Ns>,
    /// Delay of the handshake's start caused by us.
    pub opened_late: Ns,
    /// Deadline: the timeout after the start of the handshake or the sending of the request.
    pub deadline: Ns,
    /// The request's timestamps.
    pub moments: Moments,
    /// The response reader.
    pub reader: Reader,
    /// The part of a body from earlier reads, if bodies are kept.
    pub body: Vec<u8>,
    /// The last number it received (`--check`).
    pub last_number: Option<u64>,
    link: Link,
}

impl ConnectionSlot {
    /// Creates a free slot.
    #[must_use]
    pub fn new() -> Self {
        ConnectionSlot {
            state: ConnectionState::Closed,
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
            deadline: 0,
            moments: Moments::default(),
            reader: Reader::new(),
            body: Vec::new(),
            last_number: None,
            link: Link::default(),
        }
    }
}

impl Default for ConnectionSlot {
    fn default() -> Self {
        Self::new()
    }
}

impl Linked for ConnectionSlot {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}
