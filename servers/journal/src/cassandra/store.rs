//! Stores batches in Cassandra.

use super::tables::JournalTables;
use crate::JournalState;
use crate::error::JournalError;
use crate::format::{BATCH_HEADER, write_header};
use crate::snapshot::StateSnapshot;
use crate::writer::BatchStore;

/// Maximum length of a batch, in bytes. Cassandra rejects writes larger than half a commit log
/// segment.
pub(crate) const MAX_BATCH: usize = 256 << 10;
/// Maximum total length of the batches in a bucket, in bytes. Recovery reads the batches in one
/// response.
const BUCKET_BYTES: usize = 4 << 20;
/// Maximum number of batches in a bucket.
const BUCKET_BATCHES: usize = 4096;

/// Stores batches in the last bucket, one write at a time.
pub(crate) struct CassandraStore<S> {
    pub(super) tables: JournalTables,
    /// The server's own epoch.
    pub(super) epoch: i64,
    pub(super) bucket: CurrentBucket,
    /// State after all durable records.
    pub(super) state: S,
    /// Number of durable records.
    pub(super) records: u64,
}

/// The bucket to which batches are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CurrentBucket {
    pub(super) number: i64,
    pub(super) batches: usize,
    /// Total length of the batches, in bytes.
    pub(super) bytes: usize,
}

impl CurrentBucket {
    pub(super) fn empty(number: i64) -> Self {
        CurrentBucket {
            number,
            batches: 0,
            bytes: 0,
        }
    }

    fn has_room(&self, length: usize) -> bool {
        self.batches < BUCKET_BATCHES && self.bytes + length <= BUCKET_BYTES
    }
}

impl<S: JournalState> CassandraStore<S> {
    /// Returns the number of durable records.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Seals the current bucket, creates the next one, and deletes the sealed bucket.
    fn switch(&mut self) -> Result<(), JournalError> {
        let (current, next) = (self.bucket.number, self.bucket.number + 1);
        let snapshot = snapshot_of(&self.state, self.records, next).encode();
        self.tables.seal(current, self.epoch)?;
        let snapshot = (snapshot.as_slice(), self.records as i64);
        self.tables.create_own_bucket(next, self.epoch, snapshot)?;
        self.tables.advance(self.epoch, next)?;
        self.tables.delete(current)?;
        self.bucket = CurrentBucket::empty(next);
        Ok(())
    }
}

impl<S: JournalState> BatchStore for CassandraStore<S> {
    fn store(&mut self, batch: &mut Vec<u8>) -> Result<(), JournalError> {
        if !self.bucket.has_room(batch.len()) {
            self.switch()?;
        }
        let number = self.bucket.number;
        write_header(batch, self.records, number as u64);
        let records = &batch[BATCH_HEADER..];
        let total = self.records + (records.len() / S::RECORD_BYTES) as u64;
        let numbers = (self.records as i64, total as i64);
        self.tables.store((number, self.epoch), numbers, batch)?;
        self.bucket.batches += 1;
        self.bucket.bytes += batch.len();
        self.state.apply(records);
        self.records = total;
        Ok(())
    }
}

/// Returns the snapshot at the start of a bucket.
pub(super) fn snapshot_of<S: JournalState>(state: &S, records: u64, bucket: i64) -> StateSnapshot {
    StateSnapshot {
        record_bytes: S::RECORD_BYTES as u32,
        records,
        segment: bucket as u64,
        state: state.snapshot(),
    }
}
