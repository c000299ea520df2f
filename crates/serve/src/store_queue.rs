//! The queue of requests to a store. It refuses requests while the queueing delay is too long.
//!
//! If only the length of a queue is limited, clients can give up before the store reaches their
//! requests. The queueing delay shows earlier that the store cannot keep up (Nichols and Jacobson,
//! "Controlling Queue Delay", 2012).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

/// Maximum length of a queue.
const MAX_WAITING: usize = 65_536;

/// Why a queue refuses a request. The request never reaches the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueRefusal {
    /// The oldest request has waited too long, or the queue is full.
    Overloaded,
    /// The store has ended.
    Ended,
}

/// The sending half of a queue.
#[derive(Debug)]
pub(crate) struct StoreQueue<T> {
    requests: mpsc::Sender<Queued<T>>,
    oldest: Arc<OldestRequest>,
    max_wait: Duration,
}

/// The receiving half of a queue.
#[derive(Debug)]
pub(crate) struct QueuedRequests<T> {
    requests: mpsc::Receiver<Queued<T>>,
    oldest: Arc<OldestRequest>,
    taken: Vec<Queued<T>>,
}

#[derive(Debug)]
struct Queued<T> {
    since: Instant,
    request: T,
}

/// Creates a queue that refuses requests while its oldest request has waited longer than `max_wait`.
pub(crate) fn store_queue<T>(max_wait: Duration) -> (StoreQueue<T>, QueuedRequests<T>) {
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    let oldest = Arc::new(OldestRequest {
        origin: Instant::now(),
        since: AtomicU64::new(OldestRequest::NONE),
    });
    let queue = StoreQueue {
        requests: sender,
        oldest: Arc::clone(&oldest),
        max_wait,
    };
    let requests = QueuedRequests {
        requests: receiver,
        oldest,
        taken: Vec::new(),
    };
    (queue, requests)
}

impl<T> StoreQueue<T> {
    /// Adds a request.
    pub(crate) fn add(&self, request: T) -> Result<(), QueueRefusal> {
        let since = Instant::now();
        if self.oldest.delay(since) > self.max_wait && !self.requests.is_closed() {
            return Err(QueueRefusal::Overloaded);
        }
        let sent = self.requests.try_send(Queued { since, request });
        sent.map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => QueueRefusal::Overloaded,
            mpsc::error::TrySendError::Closed(_) => QueueRefusal::Ended,
        })
    }
}

impl<T> QueuedRequests<T> {
    /// Blocks the thread until a request is waiting, then appends up to `max` requests to a batch,
    /// oldest first. Returns false once the queue is closed and empty.
    pub(crate) fn blocking_take(&mut self, batch: &mut Vec<T>, max: usize) -> bool {
        let taken = self.requests.blocking_recv_many(&mut self.taken, max);
        self.pass_on(batch);
        taken > 0
    }

    /// Waits like [`blocking_take`](Self::blocking_take), but without blocking the thread. No request is
    /// lost if the future is dropped.
    #[cfg(feature = "postgresql")]
    pub(crate) async fn take(&mut self, batch: &mut Vec<T>, max: usize) -> bool {
        let taken = self.requests.recv_many(&mut self.taken, max).await;
        self.pass_on(batch);
        taken > 0
    }

    /// Moves the taken requests to a batch.
    fn pass_on(&mut self, batch: &mut Vec<T>) {
        // The next request is no older than the last one taken.
        let rest = self.taken.last().filter(|_| !self.requests.is_empty());
        self.oldest.set(rest.map(|last| last.since));
        batch.extend(self.taken.drain(..).map(|queued| queued.request));
    }
}

/// Time at which the oldest request in a queue was added. With concurrent additions and removals, it
/// can be the time of a later request.
#[derive(Debug)]
struct OldestRequest {
    origin: Instant,
    /// Microseconds after the origin.
    since: AtomicU64,
}

impl OldestRequest {
    /// Value of `since` for an empty queue.
    const NONE: u64 = u64::MAX;

    fn micros(&self, time: Instant) -> u64 {
        let micros = time.duration_since(self.origin).as_micros();
        u64::try_from(micros).unwrap_or(Self::NONE - 1)
    }

    fn set(&self, since: Option<Instant>) {
        let since = since.map_or(Self::NONE, |since| self.micros(since));
        self.since.store(since, Ordering::Relaxed);
    }

    /// Returns how long the oldest request has waited, for a request that arrives now. If the queue
    /// is empty, the request becomes the oldest.
    fn delay(&self, now: Instant) -> Duration {
        let now = self.micros(now);
        let since = self.since.load(Ordering::Relaxed);
        if since == Self::NONE {
            self.since.store(now, Ordering::Relaxed);
        }
        Duration::from_micros(now.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::sleep;

    const MAX_WAIT: Duration = Duration::from_millis(50);

    #[test]
    fn hands_over_all_requests_in_order() {
        let (queue, mut requests) = store_queue(MAX_WAIT);
        for request in 0..5 {
            assert_eq!(queue.add(request), Ok(()));
        }
        let mut batch = Vec::new();
        assert!(requests.blocking_take(&mut batch, 3));
        assert!(requests.blocking_take(&mut batch, 3));
        assert_eq!(batch, [0, 1, 2, 3, 4]);
        assert_eq!(queue.add(5), Ok(()));
        drop(queue);
        assert!(requests.blocking_take(&mut batch, 3));
        assert!(!requests.blocking_take(&mut batch, 3), "closed");
        assert_eq!(batch.len(), 6);
    }

    #[test]
    fn refuses_requests_while_the_oldest_has_waited_too_long() {
        let (queue, mut requests) = store_queue(MAX_WAIT);
        for request in 0..2 {
            assert_eq!(queue.add(request), Ok(()));
        }
        sleep(2 * MAX_WAIT);
        assert_eq!(queue.add(2), Err(QueueRefusal::Overloaded));
        let mut batch = Vec::new();
        assert!(requests.blocking_take(&mut batch, 1));
        assert_eq!(queue.add(2), Err(QueueRefusal::Overloaded), "one is left");
        assert!(requests.blocking_take(&mut batch, 1));
        assert_eq!(queue.add(2), Ok(()));
        sleep(2 * MAX_WAIT);
        drop(requests);
        assert_eq!(queue.add(3), Err(QueueRefusal::Ended), "not overloaded");
    }

    #[test]
    fn refuses_requests_if_the_queue_is_full() {
        let (queue, _requests) = store_queue(Duration::from_secs(60));
        for request in 0..MAX_WAITING {
            assert_eq!(queue.add(request), Ok(()));
        }
        assert_eq!(queue.add(0), Err(QueueRefusal::Overloaded));
    }
}
