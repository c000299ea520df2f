//! A journal in Cassandra.
//!
//! ```text
//! owner     name ─► epoch, bucket                         (one row)
//! batches   bucket ─► epoch, total, is_sealed, snapshot   (once per bucket)
//!                     first ─► records                    (one row per batch)
//! ```
//!
//! A bucket is a partition of bounded size. It starts with a snapshot of the state, so recovery
//! reads only the last bucket, and the journal deletes earlier buckets as a whole.
//!
//! Each server that opens the journal takes a new epoch. It is greater than the previous one. Half of
//! it is random, because Cassandra can lose an epoch. Every batch is written by a lightweight
//! transaction on the condition that the bucket still has the server's epoch. A server that opens
//! the journal first writes its epoch to the last bucket, and then reads the bucket. From then on, no
//! write of the previous server is applied, even if it was sent long before. The previous server
//! learns from its next write that it is superseded, and does not acknowledge that write.
//!
//! A superseded server could still create the next bucket and continue there. To prevent this, every
//! server must seal its current bucket before it creates the next one. A server that opens the
//! journal and finds the last bucket sealed takes the next one as well, or creates it.
//!
//! Writing a batch has a second condition: the number of records so far. If Cassandra loses
//! acknowledged batches, the next write is therefore not applied, and the journal fails.
//!
//! Repeating a statement is safe: `docs/decisions/0033-cassandra-journal.md`. If the outcome of a
//! statement is unknown, the journal retries it for 3 s after the first failure, and then fails.

mod address;
mod recovery;
mod session;
mod store;
mod tables;

pub use address::CassandraAddress;
pub(crate) use recovery::open;
pub(crate) use session::cassandra_fix;
pub(crate) use store::MAX_BATCH;
