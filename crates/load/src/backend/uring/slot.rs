//! State of a slot in the backend.

use socket2::Socket;

use crate::backend::SharedBytes;

/// The backend's state for one connection. It is small, because there may be 100,000 slots.
#[derive(Default)]
pub(super) struct RingSlot {
    /// Incremented on each close, to distinguish a closed connection's completions from its
    /// successor's.
    pub generation: u32,
    /// Index of the target address.
    pub target: u32,
    pub socket: Descriptor,
    pub connecting: bool,
    /// Whether a receive is armed.
    pub receiving: bool,
    /// Whether a watched send is in progress.
    pub sending: bool,
    /// The latest request. It contains the bytes that the socket has not accepted yet.
    pub request: Option<SharedBytes>,
    /// Number of request bytes that the socket has accepted. If a send caused no completion, the
    /// socket has accepted all bytes.
    pub sent: usize,
}

/// Location of a slot's socket.
#[derive(Default)]
pub(super) enum Descriptor {
    #[default]
    None,
    /// The socket is in the ring's table. Its index is the slot.
    Direct,
    /// The socket has an ordinary descriptor, because some options must be set before the connect.
    Plain(Socket),
}
