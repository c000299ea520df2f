//! What the backend knows of a slot.

use io_uring::types::{Fd, Fixed};
use socket2::Socket;

use crate::backend::Bytes;

/// A connection's slot. Small, since there may be a hundred thousand.
#[derive(Default)]
pub(super) struct Entry {
    /// Raised on each close, so that a completion of a closed connection is told from its successor's.
    pub generation: u32,
    /// Index of the address it goes to.
    pub target: u32,
    pub socket: Descriptor,
    pub connecting: bool,
    /// A receive is armed.
    pub receiving: bool,
    /// A send is under way whose end will be told.
    pub sending: bool,
    /// The request sent last: whatever of it the socket did not take is sent from here.
    pub request: Option<Bytes>,
    /// How much of the request is known to be with the socket; a send that leaves no completion took it all.
    pub sent: usize,
}

/// Where a slot's socket is.
#[derive(Default)]
pub(super) enum Descriptor {
    #[default]
    None,
    /// In the ring's table, at the slot's number.
    Direct,
    /// An ordinary one: where something must be set before connecting.
    Plain(Socket),
}

/// A slot's descriptor as submissions take it.
#[derive(Clone, Copy)]
pub(super) enum Target {
    Direct(Fixed),
    Plain(Fd),
}
