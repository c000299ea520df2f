//! Durable journal of small fixed-size records, with group commit.
//!
//! A [`Journal`] stores records in the order in which they were appended. Records that arrive while
//! a write is in flight join the next write, so the number of disk writes does not grow with the
//! number of clients. A record is durable once [`Progress::durable`] has reached its number:
//!
//! ```text
//! append ──► queue ──► journal thread: write, fdatasync ──► progress ──► listeners
//!                        │ segment is half full
//!                        ▼
//!                      upkeep thread: snapshot, reuse old segments, prepare the next segment
//! ```
//!
//! The journal folds all durable records into a [`JournalState`]. Snapshots of this state keep
//! recovery short and make old segments unnecessary.
//!
//! After a failed or short write, or a failed sync, the journal fails permanently. It never repeats
//! a sync: the kernel may have dropped the data, but a second sync would still succeed
//! (<https://wiki.postgresql.org/wiki/Fsync_Errors>).
//!
//! A journal can also be stored in Cassandra (`cassandra/`). Such a journal has no upkeep thread.
//!
//! Start with `journal.rs`, then read `writer.rs` (the two threads), `format.rs` (the bytes on
//! disk) and `recovery.rs`.
//!
//! Invariant: this crate knows neither HTTP nor the meaning of a record.

mod cassandra;
mod directory;
mod error;
mod format;
mod journal;
mod queue;
mod recovery;
mod segment;
mod writer;

pub use cassandra::CassandraAddress;
pub use error::{AppendError, JournalError};
pub use journal::{Journal, JournalOptions};
pub use queue::Progress;

/// State that a journal's records are folded into.
pub trait JournalState: Clone + Send + 'static {
    /// Size of a record, in bytes. At least 1.
    const RECORD_BYTES: usize;

    /// Folds whole records into the state, in order. The length of `records` is a multiple of
    /// [`Self::RECORD_BYTES`].
    fn apply(&mut self, records: &[u8]);

    /// Returns the state as bytes for a snapshot, at most 1 MiB.
    fn snapshot(&self) -> Vec<u8>;

    /// Reads a state back from the bytes of a snapshot. Returns `None` if the bytes are not a
    /// snapshot of this state.
    fn restore(bytes: &[u8]) -> Option<Self>;
}
