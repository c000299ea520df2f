//! A connection of the engine: its state, its request and its response reader.

use floodmark_wire::Reader;

use crate::clock::Ns;
use crate::linked::{Link, Linked};
use crate::recorder::Moments;

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConnectionState {
    /// The slot has no connection.
    #[default]
    Closed,
    /// The handshake is in progress.
    Connecting,
    /// The connection is established and has no request.
    Idle,
    /// The request was sent, and the response is incomplete.
    Busy,
    /// The last response is complete, and the server is expected to close the connection.
    Closing,
    /// The connect failed. The slot waits before the next attempt (closed model).
    Paused,
}

/// The slot of a connection. It is small, because there may be a hundred thousand slots.
#[derive(Debug, Default)]
pub struct ConnectionSlot {
    /// State of the connection.
    pub state: ConnectionState,
    /// Index of the target address.
    pub target: u32,
    /// Whether the request in `moments` was assigned before the connection was established.
    pub carries: bool,
    /// Whether the request was sent before, on a connection that the server had closed.
    pub retried: bool,
    /// Whether the request asked the server to close the connection.
    pub last: bool,
    /// Length of the request in bytes.
    pub length: usize,
    /// Number of responses received since the connection was opened.
    pub used: u64,
    /// Whether the connection has been idle since it was opened.
    pub rested: bool,
    /// Time at which the handshake started.
    pub opening: Ns,
    /// Time at which TCP was connected, if a TLS handshake follows.
    pub reached: Option<Ns>,
    /// Delay in ns that floodmark added before the handshake.
    pub opened_late: Ns,
    /// Deadline: the timeout after the start of the handshake or after sending the request.
    pub deadline: Ns,
    /// Timestamps of the request.
    pub moments: Moments,
    /// Reader of the response.
    pub reader: Reader,
    /// Part of a body from earlier reads, if bodies are kept.
    pub body: Vec<u8>,
    /// Number in the last response on the connection (`--check`).
    pub last_number: Option<u64>,
    link: Link,
}

impl Linked for ConnectionSlot {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}
