//! Starting a server, running it until it is told to stop, and ending it in order.

use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Poll;
use std::thread::{self, JoinHandle};

use floodmark_host::raise_open_files;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{oneshot, watch};

use crate::desk::desks;
use crate::error::ServeError;
use crate::listen;
use crate::numbers::{Numbers, Reserver};
use crate::settings::Settings;
use crate::worker::{Done, MOST_SHEDDING, Shared, Worker};
use crate::workload::Workload;

/// Files that the server needs besides its connections: those being refused, event loops, the state file.
const RESERVED_FILES: usize = MOST_SHEDDING + 64;

/// What a server did from its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Connections accepted and served.
    pub accepted: u64,
    /// Connections refused with a 503, as there were too many.
    pub shed: u64,
    /// Requests answered, refusals of single requests included. Heads that hyper refused (400, 431) are not.
    pub answered: u64,
    /// Connections still open when the grace was over, and cut off.
    pub cut_at_end: u64,
    /// The number that the dispatcher would have handed out next.
    pub next_number: Option<u64>,
}

/// Runs a server until `shutdown` is ready: then it stops accepting, answers what is in flight with `Connection: close`, waits
/// for that at most [`Limits::grace`](crate::Limits::grace), and returns. Blocks; brings its own event loops, and `shutdown` is
/// polled within one, so that it may await tokio's signals. `on_ready` gets the real address once connections are accepted.
///
/// # Errors
/// The address, the state file or the threads could not be had; or, at the end, the next number could not be written (what is
/// on the disk stays safe: the next start leaves a gap).
pub fn serve(
    settings: Settings,
    shutdown: impl Future<Output = ()> + Send + 'static,
    on_ready: impl FnOnce(SocketAddr),
) -> Result<Summary, ServeError> {
    let Settings {
        workload,
        listen: address,
        share_port,
        threads,
        state,
        limits,
    } = settings;
    if state.is_some() && workload != Workload::Dispatcher {
        return Err(ServeError::NoState(workload));
    }
    if share_port && workload.has_state() {
        return Err(ServeError::SharedState(workload));
    }
    let most_connections = most_connections(limits.connections)?;
    // Before the state file: a second server on a taken port must not touch numbers.
    let cannot_listen = |source| ServeError::Listen { address, source };
    let listener = listen::listen(address, share_port).map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    let (numbers, reserver) = match state {
        Some(path) => {
            let (numbers, reserver) = Reserver::start(&path, limits.reserve.get())?;
            (numbers, Some(reserver))
        }
        None => (Numbers::volatile(), None),
    };
    let threads = threads.map_or_else(default_threads, NonZeroUsize::get);
    let shared = Arc::new(Shared {
        workload,
        limits,
        most_connections,
        open: AtomicUsize::new(0),
        desks: desks(threads),
        shedding: AtomicUsize::new(0),
        numbers: Arc::clone(&numbers),
    });
    let ran = run(&shared, listener, shutdown, || on_ready(address));
    // Also after a failure: nothing takes numbers any more.
    let next = match reserver {
        Some(reserver) => reserver.finish()?,
        None => numbers.next(),
    };
    let done = ran?;
    Ok(Summary {
        accepted: done.accepted,
        shed: done.shed,
        answered: done.answered,
        cut_at_end: done.cut_at_end,
        next_number: (workload == Workload::Dispatcher).then_some(next),
    })
}

/// Runs the workers until `shutdown`, and adds up what they did. None of them runs any more when it returns, with an error or not.
fn run(
    shared: &Arc<Shared>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
    on_ready: impl FnOnce(),
) -> Result<Done, ServeError> {
    let control = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ServeError::Thread)?;
    let (stop, stopped) = watch::channel(false);
    let listener = Arc::new(listener);
    let mut workers = Vec::new();
    let mut started = Ok(());
    for number in 0..shared.desks.len() {
        started = start_worker(number, shared, &listener, &stopped, &mut workers);
        if started.is_err() {
            break;
        }
    }
    // From here on both belong to the workers alone: the listener closes with the last that stops accepting.
    drop(listener);
    drop(stopped);
    if started.is_ok() {
        on_ready();
        control.block_on(first_of(shutdown, stop.closed()));
    }
    stop.send_replace(true);
    let mut sum = Ok(Done::default());
    for worker in workers {
        match (&mut sum, worker.join()) {
            (Ok(sum), Ok(done)) => sum.add(done),
            (sum, Err(_)) => *sum = Err(ServeError::Panicked),
            (Err(_), Ok(_)) => {}
        }
    }
    started.and(sum)
}

/// Starts one worker and waits until its event loop is there.
fn start_worker(
    number: usize,
    shared: &Arc<Shared>,
    listener: &Arc<TcpListener>,
    stopped: &watch::Receiver<bool>,
    workers: &mut Vec<JoinHandle<Done>>,
) -> Result<(), ServeError> {
    let (ready, started) = oneshot::channel();
    let (shared, listener) = (Arc::clone(shared), Arc::clone(listener));
    let stopped = stopped.clone();
    let worker = thread::Builder::new()
        .name(format!("serve-{number}"))
        .spawn(move || match event_loop() {
            Ok(runtime) => {
                // The receiver waits for exactly this.
                let _ = ready.send(Ok(()));
                Worker::run(number, shared, listener, &runtime, stopped)
            }
            Err(e) => {
                let _ = ready.send(Err(e));
                Done::default()
            }
        })
        .map_err(ServeError::Thread)?;
    workers.push(worker);
    match started.blocking_recv() {
        Ok(result) => result.map_err(ServeError::Thread),
        Err(_) => Err(ServeError::Panicked),
    }
}

/// Waits for either. All workers gone can only mean that they panicked; waiting for a shutdown alone would then hang.
async fn first_of(shutdown: impl Future<Output = ()>, all_gone: impl Future<Output = ()>) {
    let mut shutdown = std::pin::pin!(shutdown);
    let mut all_gone = std::pin::pin!(all_gone);
    poll_fn(|cx| {
        if shutdown.as_mut().poll(cx).is_ready() {
            Poll::Ready(())
        } else {
            all_gone.as_mut().poll(cx)
        }
    })
    .await;
}

fn event_loop() -> io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
}

/// Half the CPUs: on one machine the other half belongs to whoever sends the load.
fn default_threads() -> usize {
    thread::available_parallelism().map_or(1, |cpus| (cpus.get() / 2).max(1))
}

fn most_connections(asked: Option<NonZeroUsize>) -> Result<usize, ServeError> {
    let needed = asked.map_or(u64::MAX, |asked| {
        asked.get().saturating_add(RESERVED_FILES) as u64
    });
    // Where the limit cannot even be read, the smallest that any Linux starts with.
    let limit = raise_open_files(needed).map_or(1024, |raised| raised.now);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let possible = limit.saturating_sub(RESERVED_FILES).max(1);
    match asked {
        Some(asked) if asked.get() > possible => Err(ServeError::Connections {
            asked: asked.get(),
            limit,
            reserve: RESERVED_FILES,
        }),
        Some(asked) => Ok(asked.get()),
        None => Ok(possible),
    }
}
