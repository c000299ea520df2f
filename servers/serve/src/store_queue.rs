//! A queue of requests to a store, which refuses requests whose queueing delay is too long.
//!
//! If only the length of a queue is limited, clients can give up before the store reaches their
//! requests. The queueing delay shows earlier that the store cannot keep up (Nichols and Jacobson,
//! "Controlling Queue Delay", 2012).
//!
//! New requests are refused while the oldest one has waited too long. Refusing new requests alone
//! is not enough: far more requests can arrive within the limit than the store completes in that
//! time. Queued requests that have waited too long are therefore refused instead of being passed
//! on. If the store hangs and takes no requests, the workers abandon queued inserts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

/// Maximum length of a queue.
const MAX_WAITING: usize = 65_536;

/// Time within which an idle store takes a request, even on a busy host.
const IDLE_TIME: Duration = Duration::from_millis(200);

/// Message for the client: why the store did not complete a request, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoreFault(pub(crate) String);

/// Result of a request to the store.
pub(crate) type StoreResult<T> = Result<T, StoreFault>;

impl StoreFault {
    /// Returns the fault for a request that finds the queue full or its oldest request overdue, or
    /// that has itself waited too long in the queue. Such a request never reaches the store.
    pub(crate) fn overloaded() -> Self {
        StoreFault("the store is overloaded; retry later".to_owned())
    }

    pub(crate) fn ended() -> Self {
        StoreFault("the store has ended; restart the server".to_owned())
    }
}

/// A request in a queue.
pub(crate) trait StoreRequest {
    /// Takes the request for the store. Returns false if the worker is no longer waiting for the
    /// response, because the request has timed out or the worker has closed the connection. The
    /// worker does not notice a disconnected client, because it reads nothing until it has
    /// responded.
    fn claim(&self) -> bool;

    /// Responds that the store is overloaded.
    fn refuse(self);
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
    max_wait: Duration,
    taken: Vec<Queued<T>>,
}

#[derive(Debug)]
struct Queued<T> {
    since: Instant,
    request: T,
}

/// Creates a queue that refuses requests that have waited longer than `max_wait`.
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
        max_wait,
        taken: Vec::new(),
    };
    (queue, requests)
}

impl<T> StoreQueue<T> {
    /// Adds a request.
    pub(crate) fn add(&self, request: T) -> StoreResult<()> {
        let since = Instant::now();
        if self.oldest.delay(since) > self.max_wait && !self.requests.is_closed() {
            return Err(StoreFault::overloaded());
        }
        let sent = self.requests.try_send(Queued { since, request });
        sent.map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StoreFault::overloaded(),
            mpsc::error::TrySendError::Closed(_) => StoreFault::ended(),
        })
    }

    /// Returns the time after which a worker can abandon a request that the store has not taken.
    pub(crate) fn patience(&self) -> Duration {
        self.max_wait.saturating_add(IDLE_TIME)
    }
}

impl<T: StoreRequest> QueuedRequests<T> {
    /// Blocks the thread until a request is waiting, then appends up to `max` requests to a batch,
    /// oldest first. Refuses requests that have waited too long. Returns false once the queue is
    /// closed and empty.
    pub(crate) fn blocking_take(&mut self, batch: &mut Vec<T>, max: usize) -> bool {
        loop {
            let max_wait = self.max_wait_of_next();
            if self.requests.blocking_recv_many(&mut self.taken, max) == 0 {
                return false;
            }
            if self.pass_on(batch, max, max_wait) {
                return true;
            }
        }
    }

    /// Like [`blocking_take`](Self::blocking_take), but does not block the thread. No request is
    /// lost if the future is dropped.
    #[cfg(feature = "postgresql")]
    pub(crate) async fn take(&mut self, batch: &mut Vec<T>, max: usize) -> bool {
        loop {
            let max_wait = self.max_wait_of_next();
            if self.requests.recv_many(&mut self.taken, max).await == 0 {
                return false;
            }
            if self.pass_on(batch, max, max_wait) {
                return true;
            }
        }
    }

    /// Waits like [`take`](Self::take), then appends all queued requests to a batch, regardless of
    /// their queueing delay.
    #[cfg(feature = "postgresql")]
    pub(crate) async fn take_all(&mut self, batch: &mut Vec<T>) -> bool {
        loop {
            if self.requests.recv_many(&mut self.taken, usize::MAX).await == 0 {
                return false;
            }
            if self.pass_on(batch, usize::MAX, Duration::MAX) {
                return true;
            }
        }
    }

    /// Returns the maximum queueing delay.
    #[cfg(feature = "postgresql")]
    pub(crate) fn max_wait(&self) -> Duration {
        self.max_wait
    }

    /// Returns the maximum queueing delay of the next requests. The delay is unlimited if the queue
    /// is empty: the store is then idle, so the next requests do not wait for others.
    fn max_wait_of_next(&self) -> Duration {
        if self.requests.is_empty() {
            Duration::MAX
        } else {
            self.max_wait
        }
    }

    /// Appends the taken requests to a batch. Replaces refused requests with further ones.
    /// Returns whether any request was appended.
    fn pass_on(&mut self, batch: &mut Vec<T>, max: usize, max_wait: Duration) -> bool {
        let now = Instant::now();
        let mut appended = 0;
        let mut last = None;
        for queued in self.taken.drain(..) {
            last = Some(queued.since);
            appended += queued.pass_on(batch, now, max_wait);
        }
        while appended < max
            && let Ok(queued) = self.requests.try_recv()
        {
            last = Some(queued.since);
            appended += queued.pass_on(batch, now, max_wait);
        }
        // The next request is no older than the last one taken.
        self.oldest.set(last.filter(|_| !self.requests.is_empty()));
        appended > 0
    }
}

impl<T: StoreRequest> Queued<T> {
    /// Appends the request to a batch, unless the request is abandoned or has waited too long.
    /// Returns the number of appended requests.
    fn pass_on(self, batch: &mut Vec<T>, now: Instant, max_wait: Duration) -> usize {
        if !self.request.claim() {
            return 0;
        }
        if now.duration_since(self.since) > max_wait {
            self.request.refuse();
            return 0;
        }
        batch.push(self.request);
        1
    }
}

/// Time at which the oldest request in a queue was added. With concurrent additions and removals,
/// the value can be a later request's time.
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

    /// Returns how long the oldest request has waited when a new request arrives. If the queue is
    /// empty, the new request becomes the oldest.
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
    use std::sync::mpsc::{Sender, channel};
    use std::thread::sleep;

    const MAX_WAIT: Duration = Duration::from_millis(50);

    /// A request that reports its refusal.
    #[derive(Debug)]
    struct TestRequest {
        number: usize,
        is_abandoned: bool,
        refused: Sender<usize>,
    }

    impl StoreRequest for TestRequest {
        fn claim(&self) -> bool {
            !self.is_abandoned
        }

        fn refuse(self) {
            self.refused.send(self.number).unwrap();
        }
    }

    fn requests(refused: Sender<usize>) -> impl Fn(usize) -> TestRequest {
        move |number| TestRequest {
            number,
            is_abandoned: false,
            refused: refused.clone(),
        }
    }

    fn numbers(batch: &[TestRequest]) -> Vec<usize> {
        batch.iter().map(|request| request.number).collect()
    }

    #[test]
    fn hands_over_all_requests_in_order() {
        let (refused, _) = channel();
        let request = requests(refused);
        let (queue, mut requests) = store_queue(Duration::from_secs(60));
        for number in 0..5 {
            assert_eq!(queue.add(request(number)), Ok(()));
        }
        let mut batch = Vec::new();
        assert!(requests.blocking_take(&mut batch, 3));
        assert_eq!(numbers(&batch), [0, 1, 2]);
        assert!(requests.blocking_take(&mut batch, 3));
        assert_eq!(numbers(&batch), [0, 1, 2, 3, 4]);
        assert_eq!(queue.add(request(5)), Ok(()));
        drop(queue);
        assert!(requests.blocking_take(&mut batch, 3));
        assert!(!requests.blocking_take(&mut batch, 3), "closed");
        assert_eq!(batch.len(), 6);
    }

    #[test]
    fn refuses_requests_that_wait_too_long() {
        let (refused, refusals) = channel();
        let request = |number| TestRequest {
            is_abandoned: number == 1,
            ..requests(refused.clone())(number)
        };
        let (queue, mut requests) = store_queue(MAX_WAIT);
        for number in 0..4 {
            assert_eq!(queue.add(request(number)), Ok(()));
        }
        sleep(2 * MAX_WAIT);
        let added = queue.add(request(4));
        assert_eq!(
            added,
            Err(StoreFault::overloaded()),
            "the oldest request has waited too long"
        );
        drop(queue);
        let mut batch = Vec::new();
        assert!(!requests.blocking_take(&mut batch, 1), "closed");
        assert!(batch.is_empty());
        let refusals = Vec::from_iter(refusals.try_iter());
        assert_eq!(refusals, [0, 2, 3], "1 was abandoned");
    }

    #[test]
    fn accepts_requests_after_the_old_ones_are_refused() {
        let (refused, refusals) = channel();
        let request = requests(refused);
        let (queue, mut requests) = store_queue(10 * MAX_WAIT);
        assert_eq!(queue.add(request(0)), Ok(()));
        sleep(8 * MAX_WAIT);
        assert_eq!(queue.add(request(1)), Ok(()));
        sleep(4 * MAX_WAIT);
        assert_eq!(queue.add(request(2)), Err(StoreFault::overloaded()));
        let mut batch = Vec::new();
        assert!(requests.blocking_take(&mut batch, 1));
        assert_eq!(numbers(&batch), [1], "replaces the refused request");
        assert_eq!(Vec::from_iter(refusals.try_iter()), [0]);
        assert_eq!(queue.add(request(3)), Ok(()));
        drop(requests);
        let added = queue.add(request(4));
        assert_eq!(added, Err(StoreFault::ended()), "not overloaded");
    }

    #[test]
    fn refuses_requests_if_the_queue_is_full() {
        let (refused, _) = channel();
        let request = requests(refused);
        let (queue, _requests) = store_queue(Duration::from_secs(60));
        for number in 0..MAX_WAITING {
            assert_eq!(queue.add(request(number)), Ok(()));
        }
        assert_eq!(queue.add(request(0)), Err(StoreFault::overloaded()));
    }
}
