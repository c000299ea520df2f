//! The two threads of a journal. The journal thread writes batches durably, one after another.
//! The upkeep thread writes snapshots, removes old segments and prepares new ones, so that the
//! journal thread rarely waits for these steps.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use crate::JournalState;
use crate::directory::{JournalDirectory, remove};
use crate::error::JournalError;
use crate::format::BATCH_HEADER;
use crate::queue::{FailOnPanic, JournalQueue, empty_batch};
use crate::recovery::StateSnapshot;
use crate::segment::Segment;

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

/// A request for the next segment.
pub(crate) struct SegmentRequest {
    /// Snapshot of the state at the start of the current segment, or `None` if the snapshot has
    /// already been written.
    pub(crate) snapshot: Option<StateSnapshot>,
    /// Sequence number of the current segment.
    pub(crate) current: u64,
}

/// Data of the upkeep thread.
pub(crate) struct Upkeep {
    pub(crate) directory: Arc<JournalDirectory>,
    /// Size of a segment, in bytes.
    pub(crate) segment_bytes: u64,
    /// Size of a record, in bytes.
    pub(crate) record_bytes: u32,
    /// Requests from the journal thread. At most one is pending at a time.
    pub(crate) requests: Receiver<SegmentRequest>,
    /// Prepared segments for the journal thread. At most one is pending at a time.
    pub(crate) prepared: Sender<Segment>,
}

impl Upkeep {
    /// Removes segments left by earlier processes, and then handles requests until the journal
    /// thread ends. `current` is the first segment that recovery needs. Any error makes the journal
    /// fail.
    pub(crate) fn run(self, current: u64, queue: Arc<JournalQueue>) {
        let _guard = FailOnPanic(Arc::clone(&queue));
        if let Err(error) = self.remove_old(current) {
            return queue.fail(error);
        }
        for request in &self.requests {
            let segment = match self.handle(&request) {
                Ok(segment) => segment,
                Err(error) => return queue.fail(error),
            };
            // An error means that the journal thread has ended.
            if self.prepared.send(segment).is_err() {
                return;
            }
        }
    }

    fn handle(&self, request: &SegmentRequest) -> Result<Segment, JournalError> {
        if let Some(snapshot) = &request.snapshot {
            snapshot.write(&self.directory)?;
        }
        // The snapshot replaces all earlier segments.
        let reused = self.remove_old(request.current)?;
        Segment::create(
            &self.directory,
            (request.current + 1, self.segment_bytes),
            self.record_bytes,
            reused.as_deref(),
        )
    }

    /// Removes all segments before `current` except the last of them. Returns the path of the
    /// remaining segment, which can be reused.
    fn remove_old(&self, current: u64) -> Result<Option<PathBuf>, JournalError> {
        let mut old = self.directory.segments()?;
        old.retain(|(sequence, _)| *sequence < current);
        let last = old.pop().map(|(_, path)| path);
        for (_, path) in &old {
            remove(path)?;
        }
        Ok(last)
    }
}
