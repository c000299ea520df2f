//! What the engine asks of an I/O backend, shaped like completions: requests for connecting, sending and
//! closing go in, what became of them comes out. io_uring has it so; epoll imitates it.
//!
//! The engine never touches a socket, a backend never looks at bytes.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;

use floodmark_record::plan::CloseFirst;
use floodmark_record::tls::TlsUse;

use crate::clock::Ns;
use crate::coalescing::Batch;

mod calls;
mod endpoint;
pub mod epoll;
mod full_queue;
mod stamps;
pub mod uring;

/// A request's bytes, held by whoever may still need them. A buffer that nobody else holds is written anew.
pub type Bytes = Rc<Vec<u8>>;

/// Index of a connection within its load thread.
pub type Slot = u32;

/// Where a connection goes, and from where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Route {
    /// Index of the address among those that the backend was made for.
    pub target: u32,
    /// Source address; the kernel chooses where there is none.
    pub source: Option<IpAddr>,
}

/// What became of something that was asked for, or what the peer did.
#[derive(Debug)]
pub enum Completion<'a> {
    /// TCP stands since `at`, and a TLS handshake has begun: [`Completion::Connected`] or [`Completion::ConnectFailed`] will tell
    /// what becomes of it.
    Reached {
        /// Which.
        slot: Slot,
        /// When it was seen to stand.
        at: Ns,
    },
    /// The connection stands since `at`; `sent` when the first request went out with it.
    Connected {
        /// Which.
        slot: Slot,
        /// When it was seen to stand.
        at: Ns,
        /// Whether the bytes given to [`Backend::open`] are on their way.
        sent: bool,
    },
    /// The connection could not be opened; the slot is closed.
    ConnectFailed {
        /// Which.
        slot: Slot,
        /// Why.
        error: io::Error,
    },
    /// Bytes came.
    Received {
        /// Which.
        slot: Slot,
        /// The bytes.
        data: &'a [u8],
        /// When the kernel had the last of them, where it was asked to stamp them.
        at: Option<Ns>,
    },
    /// The peer will send no more; the slot is still to be closed.
    Ended {
        /// Which.
        slot: Slot,
    },
    /// The connection broke; the slot is still to be closed.
    Failed {
        /// Which.
        slot: Slot,
        /// Why.
        error: io::Error,
    },
}

/// A way of doing I/O for one load thread.
///
/// After [`Backend::close`] nothing more is reported of the slot until it is opened again.
pub trait Backend {
    /// Begins to connect. With `first`, a backend that can look at the clock right then sends those bytes as soon as the
    /// connection stands, and says so ([`Completion::Connected`]); else sending is up to the caller.
    fn open(&mut self, slot: Slot, route: Route, first: Option<&Bytes>);

    /// Sends bytes, at once where the socket takes them; the rest follows by itself. A backend that holds back sends them when it
    /// is next asked to [`Backend::submit`] or to wait.
    fn send(&mut self, slot: Slot, bytes: &Bytes);

    /// How many things it was asked for and has not yet handed to the kernel; none where nothing is ever held back.
    fn held(&mut self) -> Option<usize> {
        None
    }

    /// Hands over what is held back. Waiting does so too.
    fn submit(&mut self) {}

    /// Closes; `Reset` sends RST in place of FIN.
    fn close(&mut self, slot: Slot, how: CloseFirst);

    /// Waits until something has happened or `until` has passed, whichever is first.
    ///
    /// # Errors
    /// When the kernel refuses to wait; the run cannot go on.
    fn wait(&mut self, until: Ns) -> io::Result<()>;

    /// From now on waits until a batch has come, as far as that does not take too long; without one, for the first thing that happens.
    /// Says whether it does so: a backend that cannot goes on as before.
    fn coalesce(&mut self, _batch: Option<Batch>) -> bool {
        false
    }

    /// The next thing that has happened; none when [`Backend::wait`] is due again.
    fn next(&mut self) -> Option<Completion<'_>>;

    /// When that which [`Backend::next`] tells next was seen to have happened, where all of it was seen at once; none where it is
    /// seen only by asking.
    fn seen(&self) -> Option<Ns> {
        None
    }

    /// What TLS has taken and given so far; none where it is not used.
    fn tls(&self) -> Option<TlsUse> {
        None
    }
}
