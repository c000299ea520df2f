//! State of a slot in the backend.

use socket2::Socket;

use crate::backend::SharedBytes;

/// The slot of a connection. It is small, because there may be a hundred thousand slots.
#[derive(Default)]
pub(super) struct RingSlot {
    /// Incremented on each close, to tell completions of a closed connection from its successor's.
    pub generation: u32,
    /// Index of the target address.
    pub target: u32,
    pub socket: Descriptor,
    pub connecting: bool,
    /// Whether a receive is armed.
    pub receiving: bool,
    /// Whether a watched send is in progress.
    pub sending: bool,
    /// The last request. The part that the socket has not accepted is sent from here.
    pub request: Option<SharedBytes>,
    /// Number of bytes that the socket has accepted. A send without completion accepted all bytes.
    pub sent: usize,
}

/// Location of a slot's socket.
#[derive(Default)]
pub(super) enum Descriptor {
    #[default]
    None,
    /// The ring's table, at the index of the slot.
    Direct,
    /// An ordinary descriptor, needed for options that must be set before connecting.
    Plain(Socket),
}
