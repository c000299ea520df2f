//! State of a slot in the backend.

use socket2::Socket;

use crate::backend::SharedBytes;

/// A connection's slot. Small, since there may be a hundred thousand.
#[derive(Default)]
pub(super) struct RingSlot {
    /// Incremented on each close, to distinguish completions of a closed connection from its
    /// successor's.
    pub generation: u32,
    /// Index of the target address.
    pub target: u32,
    pub socket: Descriptor,
    pub connecting: bool,
    /// A receive is armed.
    pub receiving: bool,
    /// A watched send is in progress.
    pub sending: bool,
    /// The last request; the part that the socket has not accepted is sent from here.
    pub request: Option<SharedBytes>,
    /// Bytes of the request known to be accepted; a send without completion accepted all of them.
    pub sent: usize,
}

/// Where a slot's socket is.
#[derive(Default)]
pub(super) enum Descriptor {
    #[default]
    None,
    /// In the ring's table, at the slot's number.
    Direct,
    /// An ordinary descriptor, for options that must be set before connecting.
    Plain(Socket),
}
