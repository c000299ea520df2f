//! The completion-based interface between the engine and the I/O backends.
//!
//! The engine issues commands to connect, send and close. A backend returns their results. io_uring
//! works in this way, and the epoll backend imitates it.
//!
//! The engine never uses a socket, and a backend never interprets bytes.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use floodmark_record::plan::CloseFirst;
use floodmark_record::tls::TlsUse;

use crate::clock::Ns;
use crate::coalescing::Batch;

mod endpoint;
pub mod epoll;
mod stamps;
pub mod uring;

/// The bytes of a request, shared by all components of a load thread that may still need them.
/// A buffer is reused when it has no other owners.
pub type SharedBytes = Rc<RequestBytes>;

/// The bytes of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum RequestBytes {
    /// Bytes that all load threads share.
    Fixed(Arc<Vec<u8>>),
    /// Bytes that were rendered for one request.
    Rendered(Vec<u8>),
}

impl Deref for RequestBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            RequestBytes::Fixed(bytes) => bytes,
            RequestBytes::Rendered(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for RequestBytes {
    fn from(bytes: Vec<u8>) -> Self {
        RequestBytes::Rendered(bytes)
    }
}

/// Index of a connection within its load thread.
pub type Slot = u32;

/// Target and source of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Route {
    /// Index of the target among the backend's addresses.
    pub target: u32,
    /// Source address. `None` lets the kernel choose the address.
    pub source: Option<IpAddr>,
}

/// The result of a command, or an event that the peer caused.
#[derive(Debug)]
pub enum Completion<'a> {
    /// The TCP connection was established at `at`, and the TLS handshake has started.
    /// [`Completion::Connected`] or [`Completion::ConnectFailed`] follows.
    Reached {
        /// The connection.
        slot: Slot,
        /// Time at which the backend observed the connection.
        at: Ns,
    },
    /// The connection was established at `at`.
    Connected {
        /// The connection.
        slot: Slot,
        /// Time at which the backend observed the connection, before it sent any bytes.
        at: Ns,
        /// Whether the bytes passed to [`IoBackend::open`] have been sent.
        sent: bool,
    },
    /// The connect failed, and the slot is closed.
    ConnectFailed {
        /// The connection.
        slot: Slot,
        /// The error.
        error: io::Error,
    },
    /// Bytes arrived.
    Received {
        /// The connection.
        slot: Slot,
        /// The bytes.
        data: &'a [u8],
        /// Kernel timestamp of the last byte, if timestamps are enabled.
        at: Option<Ns>,
        /// Whether part of the request is still unsent.
        is_sending: bool,
    },
    /// The peer has closed its side. The slot must still be closed.
    Ended {
        /// The connection.
        slot: Slot,
    },
    /// The connection broke. The slot must still be closed.
    Failed {
        /// The connection.
        slot: Slot,
        /// The error.
        error: io::Error,
    },
}

impl Completion<'_> {
    /// Returns the connection.
    #[inline]
    #[must_use]
    pub fn slot(&self) -> Slot {
        match self {
            Completion::Reached { slot, .. }
            | Completion::Connected { slot, .. }
            | Completion::ConnectFailed { slot, .. }
            | Completion::Received { slot, .. }
            | Completion::Ended { slot }
            | Completion::Failed { slot, .. } => *slot,
        }
    }
}

/// Completions that a backend reports before its next wait, at most two per open slot.
/// Each entry contains its slot's generation.
#[derive(Debug, Default)]
struct EarlyCompletions(VecDeque<(u32, Completion<'static>)>);

impl EarlyCompletions {
    #[inline]
    fn push(&mut self, generation: u32, completion: Completion<'static>) {
        self.0.push_back((generation, completion));
    }

    /// Takes the first completion whose slot has not been closed since the completion was queued.
    #[inline]
    fn take(&mut self, generation: impl Fn(Slot) -> u32) -> Option<Completion<'static>> {
        while let Some((of, completion)) = self.0.pop_front() {
            if generation(completion.slot()) == of {
                return Some(completion);
            }
        }
        None
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// I/O of one load thread.
///
/// A closed slot causes no completions until it is opened again.
pub trait IoBackend {
    /// Starts to connect.
    ///
    /// A backend that can observe the send time sends `first` as soon as the connection is
    /// established. It reports this in [`Completion::Connected`] before the next wait. With other
    /// backends, the caller sends these bytes.
    fn open(&mut self, slot: Slot, route: Route, first: Option<&SharedBytes>);

    /// Sends as many bytes as the socket accepts immediately, and the rest later.
    /// A backend that delays commands sends at the next [`IoBackend::submit`] or wait.
    fn send(&mut self, slot: Slot, bytes: &SharedBytes);

    /// Returns whether bytes from an earlier [`IoBackend::send`] may be unsent. The caller must then
    /// wait before it sends more bytes on the connection.
    fn is_sending(&self, slot: Slot) -> bool;

    /// Returns whether [`IoBackend::is_sending`] may change at the next wait although no event
    /// occurs, because a successful send causes none.
    fn is_unconfirmed(&self, _slot: Slot) -> bool {
        false
    }

    /// Returns the number of delayed commands; `None` if the backend never delays commands.
    fn held(&mut self) -> Option<usize> {
        None
    }

    /// Submits delayed commands. A wait also submits them.
    fn submit(&mut self) {}

    /// Closes a connection. `Reset` sends RST instead of FIN.
    fn close(&mut self, slot: Slot, how: CloseFirst);

    /// Waits until an event occurs or the time `until` is reached.
    ///
    /// # Errors
    /// Returns the error of the system call. The run cannot continue.
    fn wait(&mut self, until: Ns) -> io::Result<()>;

    /// Makes later waits collect a batch of completions within the batch's time limit.
    /// Without a batch, waits return at the first event.
    /// Returns whether the backend supports batches.
    fn coalesce(&mut self, _batch: Option<Batch>) -> bool {
        false
    }

    /// Returns the next event; `None` if [`IoBackend::wait`] must be called.
    fn next(&mut self) -> Option<Completion<'_>>;

    /// Returns the time at which all events of the last wait were observed.
    /// Returns `None` if the backend observes events one at a time, as it reads them.
    fn seen(&self) -> Option<Ns> {
        None
    }

    /// Returns the TLS statistics so far; `None` without TLS.
    fn tls(&self) -> Option<TlsUse> {
        None
    }
}
