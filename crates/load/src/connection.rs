//! The engine's view of a connection: its state and its response reader.

use floodmark_wire::Reader;

use crate::clock::Ns;
use crate::http2::Http2Connection;
use crate::list::{Link, ListItem};

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConnectionState {
    /// The slot has no connection.
    #[default]
    Closed,
    /// The handshake is in progress.
    Connecting,
    /// The connection is established. It is idle or has an exchange in flight.
    Established,
    /// The last response is complete, and the server is expected to close the connection.
    Closing,
    /// The connect failed, and the slot waits before the next attempt (closed model only).
    Paused,
}

/// The engine's state for one connection. It is small, because there may be 100,000 slots.
#[derive(Debug, Default)]
pub struct ConnectionSlot {
    /// State of the connection.
    pub state: ConnectionState,
    /// Index of the target address.
    pub target: u32,
    /// Number of responses received since the connection was opened.
    pub used: u64,
    /// Whether the connection counts as one that never received a response.
    pub is_silent: bool,
    /// Whether the connection has been idle at any time since it was opened.
    pub rested: bool,
    /// Time at which the handshake started.
    pub opening: Ns,
    /// Time at which the TCP connection was established, if a TLS handshake follows.
    pub reached: Option<Ns>,
    /// Delay in ns that floodmark caused before the handshake.
    pub opened_late: Ns,
    /// The end of the handshake's timeout, of the pause, or of the wait for the server to close the
    /// connection or to allow a stream.
    pub deadline: Ns,
    /// Reader of the responses (HTTP/1.1).
    pub reader: Reader,
    /// State of an established HTTP/2 connection.
    pub http2: Option<Box<Http2Connection>>,
    /// The number in the last response on this connection (`--check`).
    pub last_number: Option<u64>,
    /// Position in the list that contains the connection, if any.
    pub link: Link,
}

impl ListItem for ConnectionSlot {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    fn deadline(&self) -> Ns {
        self.deadline
    }
}
