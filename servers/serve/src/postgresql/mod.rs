//! Bars in PostgreSQL.
//!
//! Inserts and lists have separate threads and sessions, so neither waits for the other.
//!
//! `table.rs` creates or checks the table, `session.rs` opens a session, `operation.rs` has the two
//! statements, and `batch_limit.rs` limits the number of requests per statement.

mod batch_limit;
mod error;
mod operation;
mod session;
mod setting;
mod table;

use std::io;
use std::pin::pin;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::bars::BarRequests;
use crate::error::ServeError;
use crate::store_queue::QueuedRequests;

use batch_limit::BatchLimit;
pub use error::PostgresqlError;
use error::unavailable;
use operation::{BarOperation, InsertBars, ListBars};
use session::{StatementEnd, StoreSession};
pub use setting::PostgresqlSetting;

/// Maximum number of statements in flight per session if the database is slow. If more statements
/// waited in a slow database, requests that were admitted in time would be answered late.
const MIN_IN_FLIGHT: usize = 2;
/// Maximum number of statements in flight per session if the database is fast but far away.
const MAX_IN_FLIGHT: usize = 16;
/// Minimum time between two statements while one is in flight. A database on the same host usually
/// responds sooner, so its statements run one at a time and each serves more requests.
const MIN_INTERVAL: Duration = Duration::from_millis(2);
/// First and longest pause between attempts to open a session. Each pause is twice as long as the
/// previous one, up to the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(250)];
/// Maximum time that requests wait for the first attempt to replace a lost session.
const FIRST_ATTEMPT: Duration = Duration::from_millis(250);
/// Maximum time to wait at startup while PostgreSQL is still starting.
const STARTING_TIME: Duration = Duration::from_secs(30);

/// The session threads.
pub(crate) struct PostgresqlBars {
    threads: [JoinHandle<()>; 2],
    /// Stops the threads when dropped.
    stop: watch::Sender<()>,
}

impl PostgresqlBars {
    /// Creates the table if necessary, opens the sessions, and starts their threads.
    pub(crate) fn start(
        setting: &PostgresqlSetting,
        requests: BarRequests,
    ) -> Result<Self, ServeError> {
        let runtime = runtime().map_err(ServeError::Thread)?;
        runtime.block_on(table::prepare_table(setting))?;
        let (stop, stopped) = watch::channel(());
        let BarRequests { inserts, lists } = requests;
        let threads = [
            start_session::<InsertBars>("bars-inserts", setting, inserts, stopped.clone())?,
            start_session::<ListBars>("bars-lists", setting, lists, stopped)?,
        ];
        Ok(PostgresqlBars { threads, stop })
    }

    /// Closes the sessions and waits until the threads have ended. Must be called after the workers
    /// have ended, because requests in flight get no response.
    pub(crate) fn finish(self) -> Result<(), ServeError> {
        drop(self.stop);
        let joined = self.threads.map(JoinHandle::join);
        let ended = joined.into_iter().collect::<Result<(), _>>();
        ended.map_err(|_| ServeError::Panicked)
    }
}

/// Opens a session and starts its thread. The thread serves a queue until the queue is closed or
/// the sender of `stopped` is dropped. Because of the separate threads, a long list does not delay
/// inserts.
fn start_session<O: BarOperation>(
    name: &str,
    setting: &PostgresqlSetting,
    queue: QueuedRequests<O::Request>,
    mut stopped: watch::Receiver<()>,
) -> Result<JoinHandle<()>, ServeError> {
    let runtime = runtime().map_err(ServeError::Thread)?;
    let session = runtime.block_on(StoreSession::open(setting, O::STATEMENT))?;
    let setting = setting.clone();
    let run = move || {
        runtime.block_on(async {
            tokio::select! {
                () = serve::<O>(&setting, session, queue) => {}
                _ = stopped.changed() => {}
            }
        });
    };
    let thread = thread::Builder::new().name(name.into()).spawn(run);
    thread.map_err(ServeError::Thread)
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Serves the requests in a queue until the queue is closed. Replaces a lost session.
async fn serve<O: BarOperation>(
    setting: &PostgresqlSetting,
    session: StoreSession,
    mut queue: QueuedRequests<O::Request>,
) {
    let mut session = Some(session);
    while let Some(open) = session {
        if serve_session::<O>(open, &mut queue).await.is_none() {
            return;
        }
        session = reopen::<O>(setting, &mut queue).await;
    }
}

/// Serves requests in one session. Returns `None` when the queue is closed, and `Some` when the
/// session is lost and all its requests have been answered.
async fn serve_session<O: BarOperation>(
    mut session: StoreSession,
    queue: &mut QueuedRequests<O::Request>,
) -> Option<()> {
    let mut in_flight = JoinSet::<(StatementEnd, usize, Instant)>::new();
    let mut interval = MIN_INTERVAL;
    let mut next = Instant::now();
    let mut is_due = true;
    let mut limit = BatchLimit::new(queue.max_wait(), O::MAX_BATCH);
    let mut most_in_flight = MIN_IN_FLIGHT;
    let mut last_done = next;
    loop {
        let mut batch = Vec::new();
        let can_send = in_flight.is_empty() || (is_due && in_flight.len() < most_in_flight);
        tokio::select! {
            Some(done) = in_flight.join_next() => match done {
                Ok((StatementEnd::SessionLost, ..)) => break,
                // A session executes its statements one at a time. If the interval were shorter
                // than the last statement's time in PostgreSQL, statements would only queue there.
                Ok((end, requests, sent)) => {
                    let now = Instant::now();
                    let taken = session.round_trip.without_network(now - sent);
                    // Exclude the time that the statement waited for earlier statements.
                    let own = taken.min(now - last_done);
                    last_done = now;
                    // A failed statement's duration does not show how fast the database is.
                    if end != StatementEnd::Failed {
                        interval = taken.max(MIN_INTERVAL);
                        limit.adapt(requests, own);
                        most_in_flight = session.round_trip.statements(own)
                            .saturating_add(MIN_IN_FLIGHT)
                            .min(MAX_IN_FLIGHT);
                    }
                }
                Err(_) => {}
            },
            () = sleep_until(next), if !is_due => is_due = true,
            () = session.lost() => break,
            is_open = queue.take(&mut batch, limit.requests()), if can_send => {
                if !is_open {
                    return None;
                }
                let (sent, statement) = (Instant::now(), session.statement());
                let requests = batch.len();
                in_flight.spawn(async move {
                    (O::run(statement, batch).await, requests, sent)
                });
                next = sent + interval;
                is_due = false;
            }
        }
    }
    // The other statements fail as well, because their session is closed.
    drop(session);
    in_flight.join_all().await;
    Some(())
}

/// Opens a session, with pauses between the attempts. Requests wait for the first attempt, but no
/// longer than `FIRST_ATTEMPT`. They are then refused until an attempt succeeds. Returns `None` if
/// the queue is closed.
async fn reopen<O: BarOperation>(
    setting: &PostgresqlSetting,
    queue: &mut QueuedRequests<O::Request>,
) -> Option<StoreSession> {
    let [next_pause, longest] = PAUSES;
    let mut next_pause = next_pause;
    let mut pause = Duration::ZERO;
    let mut refuse_from = Instant::now() + queue.max_wait().min(FIRST_ATTEMPT);
    let mut fault = unavailable("the session was lost");
    loop {
        let mut attempt = pin!(async move {
            sleep(pause).await;
            StoreSession::open(setting, O::STATEMENT).await
        });
        let error = loop {
            let mut batch = Vec::new();
            let refused = async {
                sleep_until(refuse_from).await;
                queue.take_all(&mut batch).await
            };
            tokio::select! {
                opened = &mut attempt => match opened {
                    Ok(session) => return Some(session),
                    Err(error) => break error,
                },
                is_open = refused => {
                    if !is_open {
                        return None;
                    }
                    O::refuse(batch, &fault);
                }
            }
        };
        fault = error.fault();
        refuse_from = Instant::now();
        pause = next_pause;
        next_pause = (pause * 2).min(longest);
    }
}
