//! The queue between the threads that append records and the journal thread.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};

use crate::error::{AppendError, JournalError};
use crate::format::BATCH_HEADER;

/// A function that is called after each batch.
type ProgressListener = Box<dyn Fn() + Send + Sync>;

/// Progress of a journal.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Number of durable records. A record is durable if its number is at most this value.
    pub durable: u64,
    /// The cause, once the journal has failed.
    pub failure: Option<&'a Arc<JournalError>>,
}

/// The queue. Its length is bounded by `max_bytes`.
pub(crate) struct JournalQueue {
    waiting: Mutex<WaitingBatch>,
    max_bytes: usize,
    /// Whether the journal thread must take the batch.
    is_requested: AtomicBool,
    is_closing: AtomicBool,
    durable: AtomicU64,
    failure: OnceLock<Arc<JournalError>>,
    listeners: Mutex<Vec<ProgressListener>>,
    /// The journal thread.
    thread: OnceLock<Thread>,
}

/// The records that the next write stores.
struct WaitingBatch {
    /// Room for the header, followed by the records.
    bytes: Vec<u8>,
    /// Number of records up to the last one in the batch.
    last: u64,
}

impl JournalQueue {
    /// Creates a queue for a journal with `records` durable records. `max_bytes` is the maximum
    /// length of a batch, including its header.
    pub(crate) fn new(records: u64, max_bytes: usize) -> Self {
        JournalQueue {
            waiting: Mutex::new(WaitingBatch {
                bytes: empty_batch(),
                last: records,
            }),
            max_bytes,
            is_requested: AtomicBool::default(),
            is_closing: AtomicBool::default(),
            durable: AtomicU64::new(records),
            failure: OnceLock::new(),
            listeners: Mutex::default(),
            thread: OnceLock::new(),
        }
    }

    /// Sets the thread that takes batches.
    pub(crate) fn set_thread(&self, thread: &Thread) {
        self.thread.get_or_init(|| thread.clone());
    }

    pub(crate) fn append(&self, record: &[u8]) -> Result<u64, AppendError> {
        let mut waiting = self.waiting();
        if self.failure.get().is_some() {
            return Err(AppendError::Failed);
        }
        if waiting.bytes.len() + record.len() > self.max_bytes {
            return Err(AppendError::Full);
        }
        waiting.bytes.extend_from_slice(record);
        waiting.last += 1;
        Ok(waiting.last)
    }

    /// Asks the journal thread to write the records in the queue.
    pub(crate) fn commit(&self) {
        self.is_requested.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Asks the journal thread to end after it has written all records.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        self.commit();
    }

    pub(crate) fn progress(&self) -> Progress<'_> {
        Progress {
            durable: self.durable.load(Ordering::SeqCst),
            failure: self.failure.get(),
        }
    }

    pub(crate) fn listen(&self, listener: ProgressListener) {
        self.listeners().push(listener);
    }

    /// Waits for the next batch and exchanges it for an empty one. Returns the number of its last
    /// record, or `None` if the journal has been closed or has failed.
    pub(crate) fn take(&self, batch: &mut Vec<u8>) -> Option<u64> {
        batch.clear();
        batch.resize(BATCH_HEADER, 0);
        loop {
            let is_closing = self.is_closing.load(Ordering::SeqCst);
            if self.failure.get().is_some() {
                return None;
            }
            if self.is_requested.swap(false, Ordering::SeqCst) || is_closing {
                let mut waiting = self.waiting();
                if waiting.bytes.len() > BATCH_HEADER {
                    mem::swap(&mut waiting.bytes, batch);
                    return Some(waiting.last);
                }
            }
            if is_closing {
                return None;
            }
            thread::park();
        }
    }

    /// Publishes durable records.
    pub(crate) fn advance(&self, durable: u64) {
        self.durable.store(durable, Ordering::SeqCst);
        self.notify();
    }

    /// Makes the journal fail. Only the first failure is kept.
    pub(crate) fn fail(&self, error: JournalError) {
        {
            // Under the lock, so that no record is appended after the failure.
            let _waiting = self.waiting();
            let _ = self.failure.set(Arc::new(error));
        }
        self.wake();
        self.notify();
    }

    fn notify(&self) {
        self.listeners().iter().for_each(|listener| listener());
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<ProgressListener>> {
        let listeners = self.listeners.lock();
        listeners.unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingBatch> {
        // No code panics while it holds the lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a batch with room for the header and no records.
pub(crate) fn empty_batch() -> Vec<u8> {
    vec![0; BATCH_HEADER]
}

/// Makes the journal fail if its thread panics. Otherwise, its clients would wait forever.
pub(crate) struct FailOnPanic(pub(crate) Arc<JournalQueue>);

impl Drop for FailOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(JournalError::Panicked);
        }
    }
}
