//! A journal in Cassandra.
//!
//! ```text
//! owner     name ─► epoch, bucket                         (one row)
//! batches   bucket ─► epoch, total, is_sealed, snapshot   (once per bucket)
//!                     first ─► records                    (one row per batch)
//! ```
//!
//! A bucket is a partition of bounded size. It starts with a snapshot of the state, so recovery
//! reads the last bucket, and the journal deletes each earlier bucket as a whole.
//!
//! Each server that opens the journal takes a new epoch. Every write to a bucket is a lightweight
//! transaction on the condition that the bucket still has the server's epoch. A server that opens
//! the journal first writes its epoch to the last bucket, and reads it afterwards. Later writes of
//! the previous server are therefore not applied, even if they were sent long before, and the
//! previous server learns that it is superseded before it could acknowledge them.
//!
//! The previous server could still continue in a new bucket. So it must seal the current bucket
//! before it creates the next one. A server that opens the journal and finds a sealed bucket also
//! takes, or creates, the next one.
//!
//! The second condition is the number of records so far. If Cassandra loses acknowledged batches,
//! the next write is therefore not applied, and the journal fails.
//!
//! Repeating a statement changes nothing: `docs/decisions/0033-cassandra-journal.md`. If the
//! outcome of a statement is unknown, the journal therefore repeats it for a few seconds, and then
//! fails.

mod address;
mod recovery;
mod session;
mod store;
mod tables;

pub use address::CassandraAddress;
pub(crate) use recovery::open;
pub(crate) use session::cassandra_fix;
pub(crate) use store::MAX_BATCH;
