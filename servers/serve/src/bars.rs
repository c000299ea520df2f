//! The `bars` workload: `GET /bars` lists the bars in a database, and `POST /bars` adds one.
//!
//! Requests reach the store through queues. Inserts that arrive during a write join the next write,
//! and list requests that arrive during a read share the next read. No event loop waits for a disk
//! or a database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{HeaderValue, LOCATION, RETRY_AFTER};
use hyper::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::embedded_bars::EmbeddedBars;
use crate::error::ServeError;
use crate::http::{HttpResponse, ok, refusal};
#[cfg(feature = "postgresql")]
use crate::postgresql::PostgresqlBars;
use crate::settings::StoreSetting;
use crate::store_queue::{
    QueuedRequests, StoreFault, StoreQueue, StoreRequest, StoreResult, store_queue,
};

/// Maximum length of a name, in characters.
const MAX_NAME: usize = 255;

/// Body of a request. Other fields are ignored.
#[derive(Deserialize)]
struct BarBody {
    name: String,
}

/// Lists the bars, or adds the bar in the request body.
pub(crate) async fn bars(store: &BarStore, method: &Method, body: Bytes) -> HttpResponse {
    if method != Method::POST {
        return match store.list().await {
            Ok(bars) => ok("application/json", bars),
            Err(fault) => unavailable(&fault),
        };
    }
    let name = match parse(&body) {
        Ok(name) => name,
        Err(reason) => return refusal(StatusCode::BAD_REQUEST, reason, None),
    };
    drop(body);
    match store.insert(name.clone()).await {
        Ok(id) => created(&StoredBar { id, name: &name }),
        Err(fault) => unavailable(&fault),
    }
}

fn parse(body: &[u8]) -> Result<String, &'static str> {
    // serde would also accept an array of the field values.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(r#"the body is not a JSON object; send {"name": "Corner"}"#);
    }
    let body: BarBody = serde_json::from_slice(body).map_err(|error| {
        if error.is_data() {
            r#""name" is missing, repeated or not a string; send {"name": "Corner"}"#
        } else {
            r#"the body is not JSON; send {"name": "Corner"}"#
        }
    })?;
    let name = body.name;
    if name.is_empty() {
        return Err("the name is empty; send 1 to 255 characters");
    }
    if name.chars().count() > MAX_NAME {
        return Err("the name is too long; send 1 to 255 characters");
    }
    if name.contains('\0') {
        return Err(
            "the name contains the character U+0000, which some databases cannot store; remove it",
        );
    }
    Ok(name)
}

fn created(bar: &StoredBar<'_>) -> HttpResponse {
    // A number and a string can always be written as JSON.
    let body = serde_json::to_vec(bar).unwrap_or_default();
    let mut response = ok("application/json", Bytes::from(body));
    *response.status_mut() = StatusCode::CREATED;
    if let Ok(location) = HeaderValue::try_from(format!("/bars/{}", bar.id)) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

fn unavailable(fault: &StoreFault) -> HttpResponse {
    let header = Some((RETRY_AFTER, "1"));
    refusal(StatusCode::SERVICE_UNAVAILABLE, &fault.0, header)
}

/// Maximum number of inserts in one write.
pub(crate) const MAX_BATCH: usize = 4096;
/// Maximum time to wait for a response from the store. After this time, the server responds with
/// 503. The bar may still be stored later.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

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

/// A request to list all bars: the channel for the resulting JSON array.
pub(crate) type BarList = oneshot::Sender<StoreResult<Bytes>>;

impl StoreRequest for BarInsert {
    fn claim(&self) -> bool {
        !self.stored.is_closed() && !self.claimed.swap(true, Ordering::Relaxed)
    }

    fn refuse(self) {
        // An error means that the client is no longer waiting.
        let _ = self.stored.send(Err(StoreFault::overloaded()));
    }
}

impl StoreRequest for BarList {
    fn claim(&self) -> bool {
        !self.is_closed()
    }

    fn refuse(self) {
        let _ = self.send(Err(StoreFault::overloaded()));
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
        // One read answers all waiting list requests, so refusing some would save no work.
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
        self.inserts.add(insert)?;
        let patience = self.inserts.patience().min(STORE_TIMEOUT);
        match timeout(patience, &mut id).await {
            Ok(stored) => stored.unwrap_or_else(|_| Err(StoreFault::ended())),
            Err(_) if !claimed.swap(true, Ordering::Relaxed) => Err(StoreFault::overloaded()),
            Err(_) => receive(id, STORE_TIMEOUT - patience).await,
        }
    }

    /// Returns all bars as a JSON array, in the order of their ids.
    pub(crate) async fn list(&self) -> StoreResult<Bytes> {
        let (listed, bars) = oneshot::channel();
        self.lists.add(listed)?;
        receive(bars, STORE_TIMEOUT).await
    }
}

async fn receive<T>(
    response: oneshot::Receiver<StoreResult<T>>,
    within: Duration,
) -> StoreResult<T> {
    match timeout(within, response).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(StoreFault::ended()),
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
                // An error means that the client is no longer waiting.
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

/// A store's threads.
pub(crate) enum RunningStore {
    Embedded(EmbeddedBars),
    #[cfg(feature = "postgresql")]
    Postgresql(PostgresqlBars),
}

impl RunningStore {
    /// Opens the store and starts its threads.
    pub(crate) fn start(
        setting: &StoreSetting,
        requests: BarRequests,
        on_failure: fn(&ServeError),
    ) -> Result<Self, ServeError> {
        match setting {
            StoreSetting::Embedded(path) => {
                EmbeddedBars::start(path, requests, on_failure).map(RunningStore::Embedded)
            }
            #[cfg(feature = "postgresql")]
            StoreSetting::Postgresql(setting) => {
                PostgresqlBars::start(setting, requests).map(RunningStore::Postgresql)
            }
        }
    }

    /// Waits until the threads have ended. Must be called after the queues have been closed.
    ///
    /// # Errors
    /// The store has failed.
    pub(crate) fn finish(self) -> Result<(), ServeError> {
        match self {
            RunningStore::Embedded(store) => store.finish(),
            #[cfg(feature = "postgresql")]
            RunningStore::Postgresql(store) => store.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::{sleep, spawn};
    use std::time::Instant;

    use super::*;

    #[test]
    fn reads_names_of_1_to_255_characters() {
        let longest = "é".repeat(255);
        for (body, name) in [
            (r#"{"name": "Corner"}"#, "Corner"),
            (" {\"at\": 1, \"name\": \"\\u2615 \\\"\"} ", "☕ \""),
            (&format!("{{\"name\": \"{longest}\"}}"), &longest),
        ] {
            assert_eq!(parse(body.as_bytes()).as_deref(), Ok(name), "{body}");
        }
        for body in [
            "",
            r#"["Corner"]"#,
            r#""Corner""#,
            r#"{"title": "Corner"}"#,
            r#"{"name": ""}"#,
            r#"{"name": 7}"#,
            r#"{"name": null}"#,
            r#"{"name": "a", "name": "b"}"#,
            r#"{"name": "\u0000"}"#,
            r#"{"name": "\ud800"}"#,
            &format!("{{\"name\": \"{longest}x\"}}"),
        ] {
            assert!(parse(body.as_bytes()).is_err(), "{body}");
        }
        assert!(parse(b"{\"name\": \"\xff\"}").is_err(), "not UTF-8");
    }

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
        assert_eq!(queued, Err(StoreFault::overloaded()));
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
