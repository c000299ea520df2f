//! The store of the workload `bars`, behind queues.
//!
//! Inserts that arrive while a write is in flight join the next write, and lists that arrive while
//! a list is read share the next one. No event loop waits for a disk or database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::store_queue::{QueueRefusal, QueuedRequests, StoreQueue, StoreRequest, store_queue};

/// Maximum number of inserts in one write.
pub(crate) const MAX_BATCH: usize = 4096;
/// Maximum time to wait for a response from the store. After this time, the server responds with a
/// 503. The bar may still be stored later.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Message for the client: why the store did not complete a request, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoreFault(pub(crate) String);

/// Result of a request to the store.
pub(crate) type StoreResult<T> = Result<T, StoreFault>;

/// A stored bar, as it appears in responses.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct StoredBar<'a> {
    pub(crate) id: i64,
    pub(crate) name: &'a str,
}

/// A request to insert a bar.
pub(crate) struct BarInsert {
    pub(crate) name: String,
    /// Receives the id once the bar is durable.
    pub(crate) stored: oneshot::Sender<StoreResult<i64>>,
    /// Set when the store takes the insert or the worker abandons it, whichever happens first.
    claimed: Arc<AtomicBool>,
}

/// A request to list all bars. Receives the JSON array.
pub(crate) type BarList = oneshot::Sender<StoreResult<Bytes>>;

impl StoreRequest for BarInsert {
    fn claim(&self) -> bool {
        !self.stored.is_closed() && !self.claimed.swap(true, Ordering::Relaxed)
    }

    fn refuse(self) {
        // An error means that the client no longer waits.
        let _ = self.stored.send(Err(overloaded()));
    }
}

impl StoreRequest for BarList {
    fn claim(&self) -> bool {
        !self.is_closed()
    }

    fn refuse(self) {
        let _ = self.send(Err(overloaded()));
    }
}

/// The receiving halves of the queues, for a store.
pub(crate) struct BarRequests {
    pub(crate) inserts: QueuedRequests<BarInsert>,
    pub(crate) lists: QueuedRequests<BarList>,
}

/// The sending halves of the queues, for the workers.
pub(crate) struct BarStore {
    inserts: StoreQueue<BarInsert>,
    lists: StoreQueue<BarList>,
}

impl BarStore {
    /// Creates the queues. Inserts that have waited longer than `max_wait` are refused.
    pub(crate) fn new(max_wait: Duration) -> (Self, BarRequests) {
        let (inserts, insert_requests) = store_queue(max_wait);
        // One read answers all waiting lists, so refusing some would save no work.
        let (lists, list_requests) = store_queue(Duration::MAX);
        let requests = BarRequests {
            inserts: insert_requests,
            lists: list_requests,
        };
        (BarStore { inserts, lists }, requests)
    }

    /// Inserts a bar and returns its id once the bar is durable.
    pub(crate) async fn insert(&self, name: String) -> StoreResult<i64> {
        let (stored, mut id) = oneshot::channel();
        let claimed = Arc::<AtomicBool>::default();
        let insert = BarInsert {
            name,
            stored,
            claimed: Arc::clone(&claimed),
        };
        send(&self.inserts, insert)?;
        let patience = self.inserts.patience().min(STORE_TIMEOUT);
        match timeout(patience, &mut id).await {
            Ok(stored) => stored.unwrap_or_else(|_| Err(ended())),
            Err(_) if !claimed.swap(true, Ordering::Relaxed) => Err(overloaded()),
            Err(_) => receive(id, STORE_TIMEOUT - patience).await,
        }
    }

    /// Returns all bars as a JSON array in the order of their ids.
    pub(crate) async fn list(&self) -> StoreResult<Bytes> {
        let (listed, bars) = oneshot::channel();
        send(&self.lists, listed)?;
        receive(bars, STORE_TIMEOUT).await
    }
}

fn send<T>(queue: &StoreQueue<T>, request: T) -> StoreResult<()> {
    queue.add(request).map_err(|refusal| match refusal {
        QueueRefusal::Overloaded => overloaded(),
        QueueRefusal::Ended => ended(),
    })
}

fn overloaded() -> StoreFault {
    StoreFault("the store is overloaded; retry later".to_owned())
}

fn ended() -> StoreFault {
    StoreFault("the store has ended; restart the server".to_owned())
}

async fn receive<T>(
    response: oneshot::Receiver<StoreResult<T>>,
    within: Duration,
) -> StoreResult<T> {
    match timeout(within, response).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(ended()),
        Err(_) => Err(StoreFault(
            "the store does not respond; retry later".to_owned(),
        )),
    }
}

/// Answers all inserts in a batch. The ids are in the order of the inserts.
pub(crate) fn answer_inserts(
    batch: impl IntoIterator<Item = BarInsert>,
    ids: StoreResult<Vec<i64>>,
) {
    match ids {
        Ok(ids) => {
            for (insert, id) in batch.into_iter().zip(ids) {
                // An error means that the client no longer waits.
                let _ = insert.stored.send(Ok(id));
            }
        }
        Err(fault) => {
            for insert in batch {
                let _ = insert.stored.send(Err(fault.clone()));
            }
        }
    }
}

/// Answers all list requests that share a result.
pub(crate) fn answer_lists(waiting: impl IntoIterator<Item = BarList>, bars: &StoreResult<Bytes>) {
    for list in waiting {
        let _ = list.send(bars.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::{sleep, spawn};
    use std::time::Instant;

    #[tokio::test]
    async fn refuses_inserts_that_a_stuck_store_does_not_take() {
        let (store, mut requests) = BarStore::new(Duration::from_millis(100));
        let insert = async |name: &str| {
            let begin = Instant::now();
            let stored = store.insert(name.to_owned()).await;
            (stored, begin.elapsed())
        };
        // The store takes the first insert and does not respond for 1 s.
        let taker = spawn(move || {
            let mut batch = Vec::new();
            assert!(requests.inserts.blocking_take(&mut batch, MAX_BATCH));
            sleep(Duration::from_secs(1));
            answer_inserts(batch.drain(..), Ok(vec![1]));
            requests.inserts.blocking_take(&mut batch, MAX_BATCH)
        });
        let queued = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            insert("queued").await
        };
        let ((in_flight, _), (queued, waited)) = tokio::join!(insert("in flight"), queued);
        assert_eq!(in_flight, Ok(1), "an insert in flight is not refused");
        assert_eq!(queued, Err(overloaded()));
        assert!(waited < Duration::from_millis(700), "{waited:?}");
        drop(store);
        assert!(!taker.join().unwrap(), "the abandoned insert is skipped");
    }

    #[tokio::test]
    async fn refuses_no_list_during_a_long_read() {
        let (store, mut requests) = BarStore::new(Duration::ZERO);
        let reader = spawn(move || {
            let (mut batch, mut reads) = (Vec::new(), 0);
            while requests.lists.blocking_take(&mut batch, usize::MAX) {
                sleep(Duration::from_millis(300));
                answer_lists(batch.drain(..), &Ok(Bytes::from_static(b"[]")));
                reads += 1;
            }
            reads
        });
        let list = async |wait| {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            store.list().await
        };
        let (first, second, third) = tokio::join!(list(0), list(50), list(100));
        for bars in [first, second, third] {
            assert_eq!(bars, Ok(Bytes::from_static(b"[]")));
        }
        drop(store);
        assert_eq!(reader.join().unwrap(), 2, "the last two share a read");
    }
}
