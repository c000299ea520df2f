//! Takes over a journal, reads it back and stores batches.

use std::hash::{BuildHasher, Hasher, RandomState};

use super::session::{CassandraAddress, ConditionalResult, JournalSession};
use super::tables::{BucketContent, JournalTables, MISSING, OwnerRow};
use crate::JournalState;
use crate::error::JournalError;
use crate::format::{BATCH_HEADER, BatchView, SegmentHeader, write_header};
use crate::recovery::StateSnapshot;
use crate::writer::BatchStore;

/// Number of the first bucket.
const FIRST_BUCKET: i64 = 1;
/// Maximum number of attempts to take over the journal while other servers do the same.
const MAX_CLAIMS: usize = 10;

/// Opens the journal. Servers that opened the journal before can no longer write to it.
pub(crate) fn open<S: JournalState>(
    address: &CassandraAddress,
    empty: S,
) -> Result<(CassandraStore<S>, S), JournalError> {
    let tables = JournalTables::open(JournalSession::connect(address)?)?;
    let mut store = recover(tables, empty)?;
    store.tables.session.serve();
    let state = store.state.clone();
    Ok((store, state))
}

fn recover<S: JournalState>(
    mut tables: JournalTables,
    empty: S,
) -> Result<CassandraStore<S>, JournalError> {
    let owner = claim(&mut tables, &empty)?;
    let epoch = owner.epoch;
    let mut bucket = owner.bucket;
    let mut before: Option<RecoveredBucket<S>> = None;
    loop {
        match tables.fence(bucket, epoch)? {
            ConditionalResult::Applied => {}
            // This server already owns the bucket: the previous iteration created it.
            ConditionalResult::Refused(Some(found)) if found == epoch => {}
            ConditionalResult::Refused(Some(_)) => return Err(tables.superseded()),
            ConditionalResult::Refused(None) => {
                // The previous server sealed the preceding bucket, but did not create this one.
                let Some(before) = &before else {
                    return Err(tables.damaged(bucket, MISSING));
                };
                let snapshot = snapshot_of(&before.state, before.records, bucket).encode();
                let snapshot = (snapshot.as_slice(), before.records as i64);
                tables.create_bucket(bucket, epoch, snapshot)?;
                // Take the bucket even if this call did not create it: the previous server may have
                // created it in the meantime.
                continue;
            }
        }
        let content = tables.read_bucket(bucket, epoch)?;
        let snapshot = StateSnapshot::decode(&content.head.snapshot);
        let snapshot = snapshot.map_err(|fault| tables.snapshot_fault(bucket, fault))?;
        let read = RecoveredBucket::read(&content, &snapshot, bucket, before.as_ref());
        let read: RecoveredBucket<S> = read.map_err(|what| tables.damaged(bucket, what))?;
        if !content.head.is_sealed {
            if bucket > owner.bucket {
                tables.advance(epoch, bucket)?;
            }
            delete_before(&mut tables, owner.bucket - 1, bucket)?;
            return Ok(CassandraStore {
                tables,
                epoch,
                bucket: read.bucket,
                state: read.state,
                records: read.records,
            });
        }
        before = Some(read);
        bucket += 1;
    }
}

/// Takes a new epoch. For a new journal, first creates the first bucket and the owner.
fn claim<S: JournalState>(tables: &mut JournalTables, empty: &S) -> Result<OwnerRow, JournalError> {
    for _ in 0..MAX_CLAIMS {
        let Some(owner) = tables.read_owner()? else {
            // Read the owner again, because another server may have created it in the meantime.
            if let Some(bucket) = find_used_bucket(tables, empty)?
                && tables.read_owner()?.is_none()
            {
                return Err(tables.damaged(bucket, "its owner is missing"));
            }
            tables.create_owner(OwnerRow {
                epoch: 0,
                bucket: FIRST_BUCKET,
            })?;
            continue;
        };
        // The keys of a `RandomState` are random.
        let random = RandomState::new().build_hasher().finish() as u32;
        let Some(epoch) = next_epoch(owner.epoch, random) else {
            return Err(tables.damaged(owner.bucket, "its owner's epoch is too large"));
        };
        if tables.claim(owner.epoch, epoch)? == ConditionalResult::Applied {
            // The previous server cannot change the owner from now on.
            return match tables.read_owner()? {
                Some(owner) if owner.epoch == epoch => Ok(owner),
                _ => Err(tables.superseded()),
            };
        }
    }
    Err(tables.superseded())
}

/// Returns a bucket that proves that the journal had an owner. If no bucket proves it, creates the
/// first bucket, unless a killed server has already created it.
fn find_used_bucket<S: JournalState>(
    tables: &mut JournalTables,
    empty: &S,
) -> Result<Option<i64>, JournalError> {
    let mut buckets = tables.read_buckets()?.into_iter();
    if let Some(later) = buckets.find(|bucket| *bucket != FIRST_BUCKET) {
        return Ok(Some(later));
    }
    let snapshot = snapshot_of(empty, 0, FIRST_BUCKET).encode();
    let created = tables.create_bucket(FIRST_BUCKET, 0, (&snapshot, 0))?;
    // Only a server that has read the owner sets an epoch other than 0.
    let is_used = matches!(created, ConditionalResult::Refused(found) if found != Some(0));
    Ok(is_used.then_some(FIRST_BUCKET))
}

/// Returns an epoch greater than `previous`: a generation in the high 32 bits, and a random number
/// in the low 32 bits. If Cassandra loses a running server's epoch, the next server gets the same
/// generation but a different epoch. Returns `None` after the last generation.
fn next_epoch(previous: i64, random: u32) -> Option<i64> {
    let generation = i32::try_from((previous >> 32) + 1).ok()?;
    Some((i64::from(generation) << 32) | i64::from(random))
}

/// Deletes the buckets from `first` to the one before `bucket`. The previous server may have been
/// killed before it deleted them.
fn delete_before(tables: &mut JournalTables, first: i64, bucket: i64) -> Result<(), JournalError> {
    (first.max(FIRST_BUCKET)..bucket).try_for_each(|old| tables.delete(old))
}

/// The state after all records of a bucket.
#[derive(Debug)]
struct RecoveredBucket<S> {
    state: S,
    records: u64,
    bucket: CurrentBucket,
}

impl<S: JournalState> RecoveredBucket<S> {
    /// Decodes a bucket. `before` is the previous bucket, if it was read.
    fn read(
        content: &BucketContent,
        snapshot: &StateSnapshot,
        bucket: i64,
        before: Option<&Self>,
    ) -> Result<Self, &'static str> {
        if snapshot.record_bytes as usize != S::RECORD_BYTES {
            return Err("its records have another size, so they belong to another workload");
        }
        if snapshot.segment != bucket as u64
            || before.is_some_and(|before| before.records != snapshot.records)
        {
            return Err("its snapshot does not continue the previous bucket");
        }
        let state = S::restore(&snapshot.state);
        let mut read = RecoveredBucket {
            state: state.ok_or("its snapshot is invalid")?,
            records: snapshot.records,
            bucket: CurrentBucket::empty(bucket),
        };
        let header = SegmentHeader {
            record_bytes: snapshot.record_bytes,
            sequence: snapshot.segment,
            salt: snapshot.segment,
        };
        for (first, bytes) in &content.batches {
            let batch = BatchView::read(bytes, &header);
            let batch = batch.filter(|batch| batch.records.len() + BATCH_HEADER == bytes.len());
            let batch = batch.ok_or("a batch is invalid")?;
            if batch.first != read.records || *first != read.records as i64 {
                return Err("a batch is missing");
            }
            read.state.apply(batch.records);
            read.records += (batch.records.len() / S::RECORD_BYTES) as u64;
            read.bucket.batches += 1;
            read.bucket.bytes += bytes.len();
        }
        if content.head.total != read.records as i64 {
            return Err("its last batch is missing");
        }
        Ok(read)
    }
}

/// Maximum length of a batch, in bytes. Cassandra rejects writes larger than half a commit log
/// segment.
pub(crate) const MAX_BATCH: usize = 256 << 10;
/// Maximum total length of the batches in a bucket, in bytes. Recovery reads all of them in one
/// response.
const BUCKET_BYTES: usize = 4 << 20;
/// Maximum number of batches in a bucket.
const BUCKET_BATCHES: usize = 4096;

/// Stores batches in the last bucket, one write at a time.
pub(crate) struct CassandraStore<S> {
    pub(super) tables: JournalTables,
    /// The server's own epoch.
    pub(super) epoch: i64,
    bucket: CurrentBucket,
    /// State after all durable records.
    pub(super) state: S,
    /// Number of durable records.
    pub(super) records: u64,
}

/// The bucket to which batches are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CurrentBucket {
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

/// Creates the snapshot with which a bucket starts.
pub(super) fn snapshot_of<S: JournalState>(state: &S, records: u64, bucket: i64) -> StateSnapshot {
    StateSnapshot {
        record_bytes: S::RECORD_BYTES as u32,
        records,
        segment: bucket as u64,
        state: state.snapshot(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_increase_and_differ_within_a_generation() {
        for previous in [0, 1, 2, 1 << 32, (1 << 33) - 1, i64::MAX - (1 << 32)] {
            let first = next_epoch(previous, 0).unwrap();
            let last = next_epoch(previous, u32::MAX).unwrap();
            assert!(previous < first, "{previous} {first}");
            assert_eq!(last - first, i64::from(u32::MAX));
        }
        assert_eq!(next_epoch(i64::MAX - i64::from(u32::MAX), 0), None);
        assert_eq!(next_epoch(i64::MAX, 0), None);
    }
}
