//! A journal in Cassandra.
//!
//! ```text
//! owner     name ─► epoch, bucket                         (one row)
//! batches   bucket ─► epoch, total, is_sealed, snapshot   (once per bucket)
//!                     first ─► records                    (one row per batch)
//! ```
//!
//! A bucket is a partition of limited size. It starts with a snapshot of the state, so recovery
//! needs only the last bucket. The journal deletes earlier buckets.
//!
//! Each server that opens the journal takes a new epoch, greater than the previous one. The low 32
//! bits are random, so two servers do not take the same epoch even if Cassandra loses the epoch of
//! the first server. A server writes its epoch to the last bucket, and only then reads the bucket.
//! A lightweight transaction writes each batch on the condition that the bucket still has the
//! server's epoch. After a takeover, Cassandra therefore applies no more writes from the previous
//! server, not even delayed ones. The previous server learns from its next write that it has been
//! superseded, and does not acknowledge that write.
//!
//! A superseded server must not create the next bucket and continue there. Each server therefore
//! seals its current bucket before it creates the next one. Sealing has the same condition as
//! writing a batch. A server that opens the journal and finds the last bucket sealed also takes the
//! next one, or creates it.
//!
//! Writing a batch has a second condition: the bucket's `total` must be the number of records that
//! the server expects. If Cassandra has lost acknowledged batches, the next write is therefore not
//! applied, and the journal fails.
//!
//! Retrying a statement is safe (see `docs/decisions/0033-cassandra-journal.md`). After a temporary
//! error, such as a timeout, an open journal retries the statement for 3 s before it fails.

mod session;
mod store;
mod tables;

pub use session::CassandraAddress;
pub(crate) use session::cassandra_fix;
pub(crate) use store::{MAX_BATCH, open};
