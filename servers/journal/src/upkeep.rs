//! The upkeep thread. It writes snapshots, removes old segments and prepares new ones, so that the
//! journal thread never waits for these steps.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use crate::error::JournalError;
use crate::folder::{JournalFolder, remove};
use crate::queue::{FailOnPanic, JournalQueue};
use crate::segment::Segment;
use crate::snapshot::StateSnapshot;

/// A request for the next segment.
pub(crate) struct SegmentRequest {
    /// Snapshot at the start of the current segment, unless it is already written.
    pub(crate) snapshot: Option<StateSnapshot>,
    /// Sequence number of the current segment.
    pub(crate) current: u64,
}

/// The upkeep of a folder.
pub(crate) struct Upkeep {
    pub(crate) folder: Arc<JournalFolder>,
    /// Size of a segment, in bytes.
    pub(crate) segment_bytes: u64,
    /// Size of a record, in bytes.
    pub(crate) record_bytes: u32,
    /// The requests. At most one is waiting.
    pub(crate) requests: Receiver<SegmentRequest>,
    /// The prepared segments. At most one is waiting.
    pub(crate) prepared: Sender<Segment>,
}

impl Upkeep {
    /// Removes segments left by earlier runs, and then handles requests until the journal thread
    /// ends. `current` is the first segment that recovery needs. Any error makes the journal fail.
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
            snapshot.write(&self.folder)?;
        }
        // The snapshot replaces all earlier segments.
        let reused = self.remove_old(request.current)?;
        Segment::create(
            &self.folder,
            (request.current + 1, self.segment_bytes),
            self.record_bytes,
            reused.as_deref(),
        )
    }

    /// Removes all segments before `current` except the last, which can be reused. Returns that
    /// segment's path.
    fn remove_old(&self, current: u64) -> Result<Option<PathBuf>, JournalError> {
        let mut old = self.folder.segments()?;
        old.retain(|(sequence, _)| *sequence < current);
        let last = old.pop().map(|(_, path)| path);
        for (_, path) in &old {
            remove(path)?;
        }
        Ok(last)
    }
}
