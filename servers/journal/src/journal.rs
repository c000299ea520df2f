//! A journal and its threads.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use crate::JournalState;
use crate::cassandra::{self, CassandraAddress};
use crate::directory::JournalDirectory;
use crate::error::{AppendError, JournalError};
use crate::format::BLOCK;
use crate::queue::{JournalQueue, Progress};
use crate::recovery::recover;
use crate::writer::{self, MemoryStore, SegmentRequest, SegmentStore, Upkeep};

/// Maximum size, in bytes, of a segment created at startup. The segment is small because startup
/// waits until it is filled with zeros and synced.
const MAX_FIRST_SEGMENT: u64 = 8 << 20;

/// Sizes of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalOptions {
    /// Size of a segment, in bytes. Rounded up to a multiple of 4 KiB, and to at least 16 KiB. A
    /// segment created at startup is no larger than 8 MiB. The journal keeps up to three segments.
    /// Default: 32 MiB.
    pub segment_bytes: u64,
    /// Maximum total size, in bytes, of the records that are waiting for the next write. Values
    /// above 8 MiB, or above the size of a segment, have no effect. Default: 4 MiB.
    pub queue_bytes: usize,
}

impl Default for JournalOptions {
    fn default() -> Self {
        JournalOptions {
            segment_bytes: 32 << 20,
            queue_bytes: 4 << 20,
        }
    }
}

/// An open journal. Dropping it stores all queued records.
pub struct Journal {
    queue: Arc<JournalQueue>,
    threads: Vec<JoinHandle<()>>,
    /// The directory, which stays locked until both threads have ended, even after a failure.
    directory: Option<Arc<JournalDirectory>>,
}

impl Journal {
    /// Opens the journal in a directory and reads it back. Creates the directory if necessary; its
    /// parent must exist. Returns the journal, and the state after all records have been applied to
    /// `empty`.
    ///
    /// # Errors
    /// The directory is in use, contains other files but no journal, or cannot be read or written;
    /// or the journal is damaged.
    pub fn open<S: JournalState>(
        directory: &Path,
        options: &JournalOptions,
        empty: S,
    ) -> Result<(Self, S), JournalError> {
        let directory = Arc::new(JournalDirectory::open(directory)?);
        let block = BLOCK as u64;
        let segment_bytes = options.segment_bytes.next_multiple_of(block).max(4 * block);
        let first_bytes = segment_bytes.min(MAX_FIRST_SEGMENT);
        let recovered = recover(&directory, first_bytes, empty)?;
        let state = recovered.state.clone();
        // A batch must fit into an empty segment.
        let max_batch = usize::try_from(first_bytes - block).unwrap_or(usize::MAX);
        let queue = JournalQueue::new(recovered.records, options.queue_bytes.min(max_batch));
        let (requests, requested) = mpsc::channel();
        let (preparing, prepared) = mpsc::channel();
        let upkeep = Upkeep {
            directory: Arc::clone(&directory),
            segment_bytes,
            record_bytes: S::RECORD_BYTES as u32,
            requests: requested,
            prepared: preparing,
        };
        let current = recovered.segment.sequence();
        let first = SegmentRequest {
            snapshot: None,
            current,
        };
        let store = SegmentStore {
            state: recovered.state,
            records: recovered.records,
            segment: recovered.segment,
            requests,
            next: Some(first),
            prepared,
        };
        let mut journal = Journal {
            queue: Arc::new(queue),
            threads: Vec::new(),
            directory: Some(directory),
        };
        journal.spawn("journal", |queue| writer::run(queue, store))?;
        journal.spawn("journal-upkeep", move |queue| upkeep.run(current, queue))?;
        Ok((journal, state))
    }

    /// Opens the journal in a Cassandra keyspace and reads it back. Creates the keyspace and the
    /// tables if necessary. Returns the journal, and the state after all records have been applied
    /// to `empty`. Supersedes any server that has the journal open: no later record from that
    /// server is stored.
    ///
    /// # Errors
    /// Cassandra is unreachable or refuses a statement, the journal is damaged, or another server
    /// takes over the journal in the meantime.
    pub fn open_cassandra<S: JournalState>(
        address: &CassandraAddress,
        options: &JournalOptions,
        empty: S,
    ) -> Result<(Self, S), JournalError> {
        let (store, state) = cassandra::open(address, empty)?;
        let max_bytes = options.queue_bytes.min(cassandra::MAX_BATCH);
        let mut journal = Journal {
            queue: Arc::new(JournalQueue::new(store.records(), max_bytes)),
            threads: Vec::new(),
            directory: None,
        };
        journal.spawn("journal", |queue| writer::run(queue, store))?;
        Ok((journal, state))
    }

    /// Opens a journal that stores nothing, to measure the cost of the queue alone.
    ///
    /// # Errors
    /// The journal's thread cannot start.
    pub fn in_memory(options: &JournalOptions) -> Result<Self, JournalError> {
        let mut journal = Journal {
            queue: Arc::new(JournalQueue::new(0, options.queue_bytes)),
            threads: Vec::new(),
            directory: None,
        };
        journal.spawn("journal", |queue| writer::run(queue, MemoryStore))?;
        Ok(journal)
    }

    fn spawn(
        &mut self,
        name: &str,
        run: impl FnOnce(Arc<JournalQueue>) + Send + 'static,
    ) -> Result<(), JournalError> {
        let queue = Arc::clone(&self.queue);
        let thread = thread::Builder::new().name(name.into());
        let thread = thread
            .spawn(move || run(queue))
            .map_err(JournalError::Thread)?;
        // The first thread takes the batches.
        self.queue.set_thread(thread.thread());
        self.threads.push(thread);
        Ok(())
    }

    /// Appends a record and returns its number. Numbers start at 1 and have no gaps. The record is
    /// durable once [`Self::progress`] has reached its number. Call [`Self::commit`] afterwards.
    ///
    /// # Errors
    /// The journal has failed, or its queue is full. The record is then not stored.
    pub fn append(&self, record: &[u8]) -> Result<u64, AppendError> {
        self.queue.append(record)
    }

    /// Asks the journal to write the appended records. A call after several records is cheaper than
    /// a call after each record.
    pub fn commit(&self) {
        self.queue.commit();
    }

    /// Returns the number of durable records, and the error if the journal has failed.
    #[must_use]
    pub fn progress(&self) -> Progress<'_> {
        self.queue.progress()
    }

    /// Calls `listener` on a thread of the journal after each batch and after a failure. The
    /// listener must be quick, because it delays the next batch.
    pub fn listen(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.queue.listen(Box::new(listener));
    }

    /// Stores all queued records and closes the journal.
    ///
    /// # Errors
    /// The journal has failed.
    pub fn close(mut self) -> Result<(), Arc<JournalError>> {
        self.finish();
        let failure = self.queue.progress().failure.cloned();
        failure.map_or(Ok(()), Err)
    }

    fn finish(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            // A panic has made the journal fail.
            let _ = thread.join();
        }
        self.directory = None;
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.finish();
    }
}
