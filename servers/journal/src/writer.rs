//! The journal thread. It writes batches durably, one after the other.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use crate::JournalState;
use crate::error::JournalError;
use crate::format::BATCH_HEADER;
use crate::queue::{FailOnPanic, JournalQueue, empty_batch};
use crate::segment::Segment;
use crate::snapshot::StateSnapshot;
use crate::upkeep::SegmentRequest;

/// Stores batches.
pub(crate) trait BatchStore: Send + 'static {
    /// Stores a batch durably. `batch` starts with room for its header.
    fn store(&mut self, batch: &mut Vec<u8>) -> Result<(), JournalError>;
}

/// Stores nothing. The records survive neither a crash nor a restart.
pub(crate) struct MemoryStore;

impl BatchStore for MemoryStore {
    fn store(&mut self, _: &mut Vec<u8>) -> Result<(), JournalError> {
        Ok(())
    }
}

/// Stores batches in segments.
pub(crate) struct SegmentStore<S> {
    /// State after all durable records.
    pub(crate) state: S,
    /// Number of durable records.
    pub(crate) records: u64,
    /// The current segment.
    pub(crate) segment: Segment,
    /// Requests to the upkeep thread.
    pub(crate) requests: Sender<SegmentRequest>,
    /// The request for the next segment, or `None` once it has been sent.
    pub(crate) next: Option<SegmentRequest>,
    /// Segments from the upkeep thread.
    pub(crate) prepared: Receiver<Segment>,
}

impl<S: JournalState> BatchStore for SegmentStore<S> {
    fn store(&mut self, batch: &mut Vec<u8>) -> Result<(), JournalError> {
        let length = batch.len();
        if !self.segment.has_room(length) {
            self.switch()?;
        }
        self.segment.append(batch, self.records)?;
        let records = &batch[BATCH_HEADER..length];
        self.state.apply(records);
        self.records += (records.len() / S::RECORD_BYTES) as u64;
        if self.segment.is_half_full() {
            self.request_next()
        } else {
            Ok(())
        }
    }
}

impl<S: JournalState> SegmentStore<S> {
    /// Requests the next segment unless it has already been requested.
    fn request_next(&mut self) -> Result<(), JournalError> {
        let sent = self.next.take().map(|next| self.requests.send(next));
        sent.transpose()
            .map(drop)
            .map_err(|_| JournalError::Panicked)
    }

    /// Continues in the next segment. Waits if the upkeep thread has not prepared it yet.
    fn switch(&mut self) -> Result<(), JournalError> {
        self.request_next()?;
        // The upkeep thread ends early only after it has recorded its own failure.
        let next = self.prepared.recv();
        self.segment = next.map_err(|_| JournalError::Panicked)?;
        let current = self.segment.sequence();
        let snapshot = StateSnapshot {
            record_bytes: S::RECORD_BYTES as u32,
            records: self.records,
            segment: current,
            state: self.state.snapshot(),
        };
        self.next = Some(SegmentRequest {
            snapshot: Some(snapshot),
            current,
        });
        Ok(())
    }
}

/// Stores batches until the journal is closed or fails.
pub(crate) fn run(queue: Arc<JournalQueue>, mut store: impl BatchStore) {
    let _guard = FailOnPanic(Arc::clone(&queue));
    let mut batch = empty_batch();
    while let Some(last) = queue.take(&mut batch) {
        match store.store(&mut batch) {
            Ok(()) => queue.advance(last),
            Err(error) => return queue.fail(error),
        }
    }
}
