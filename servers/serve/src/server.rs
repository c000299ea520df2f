//! Starts, runs and shuts down a server.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use floodmark_host::raise_open_files;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{oneshot, watch};

use crate::accepting::{self, ConnectionBudget, RESERVED_FILES, handoffs};
use crate::bars::{BarStore, RunningStore};
use crate::error::ServeError;
use crate::numbers::{Numbers, Reserver};
use crate::scoring::SharedScores;
use crate::settings::{JournalSetting, Settings};
use crate::tls;
use crate::worker::{ServeSummary, ServerState, Worker};
use crate::workload::NativeWorkload;

/// Runs a server until `shutdown` completes, and blocks the calling thread.
///
/// `on_ready` is called with the server's address once the server accepts connections. `shutdown`
/// is polled on a tokio runtime. After `shutdown`, new connections are not established. Established
/// connections that are waiting in the accept queue are still served, and each response is the last
/// on its connection. The server waits up to 1 s for a request head, and in total up to
/// [`Limits::grace`](crate::Limits::grace).
///
/// # Errors
/// The address, the state file, the journal, the store or a thread is not available, or the state
/// file, the journal or the store has failed. After a failure of the state file, the next start
/// leaves a gap in the numbers.
pub fn serve(
    settings: Settings,
    shutdown: impl Future<Output = ()> + Send + 'static,
    on_ready: impl FnOnce(SocketAddr),
) -> Result<ServeSummary, ServeError> {
    let (workload, address) = (settings.workload, settings.listen);
    let Settings {
        state,
        journal,
        store,
        tls,
        limits,
        on_failure,
        ..
    } = settings;
    if state.is_some() && workload != NativeWorkload::Dispatcher {
        return Err(ServeError::NoState(workload));
    }
    if journal != JournalSetting::None && workload != NativeWorkload::Scoring {
        return Err(ServeError::NoJournal(workload));
    }
    if store.is_some() && workload != NativeWorkload::Bars {
        return Err(ServeError::NoStore(workload));
    }
    if store.is_none() && workload == NativeWorkload::Bars {
        return Err(ServeError::StoreRequired);
    }
    if settings.share_port && workload.has_state() {
        return Err(ServeError::SharedState(workload));
    }
    let max_connections = max_connections(limits.connections)?;
    // Listen before opening files, so that a second server on this port cannot change them.
    let cannot_listen = |source| ServeError::Listen { address, source };
    let listener = accepting::listen(address, settings.share_port).map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    let reserver = state.map(|path| Reserver::start(&path, limits.reserve.get(), on_failure));
    let (numbers, reserver) = reserver.transpose()?.unzip();
    let numbers = numbers.unwrap_or_else(Numbers::volatile);
    let scores = (workload == NativeWorkload::Scoring).then(|| SharedScores::open(&journal));
    let scores = scores.transpose()?;
    let started = store.map(|setting| {
        let (bars, requests) = BarStore::new(limits.max_wait);
        RunningStore::start(&setting, requests, on_failure).map(|threads| (bars, threads))
    });
    let (bars, store) = started.transpose()?.unzip();
    let threads = (settings.threads).map_or_else(default_threads, NonZeroUsize::get);
    let (handoffs, receivers) = handoffs(threads);
    let shared = Arc::new(ServerState {
        workload,
        limits,
        budget: ConnectionBudget::new(max_connections),
        handoffs,
        tls: tls.map(tls::acceptor),
        numbers: Arc::clone(&numbers),
        scores,
        bars,
        on_failure,
    });
    let ran = run(&shared, receivers, listener, shutdown, || on_ready(address));
    // All workers have stopped, even after an error, so the next number is final.
    reserver.map(Reserver::finish).transpose()?;
    // This also closes the queues of the store.
    let scores = Arc::into_inner(shared).and_then(|shared| shared.scores);
    store.map(RunningStore::finish).transpose()?;
    let closed = scores.map_or(Ok(()), SharedScores::close);
    closed.map_err(ServeError::JournalFailed)?;
    Ok(ServeSummary {
        next_number: (workload == NativeWorkload::Dispatcher).then(|| numbers.next()),
        ..ran?
    })
}

/// Runs the workers until `shutdown` and returns their totals. Each worker has a receiver of handed
/// connections. All workers have stopped when the function returns, even if it returns an error.
fn run(
    shared: &Arc<ServerState>,
    receivers: Vec<UnboundedReceiver<TcpStream>>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
    on_ready: impl FnOnce(),
) -> Result<ServeSummary, ServeError> {
    let control = event_loop().map_err(ServeError::Thread)?;
    let (stop, stopped) = watch::channel(false);
    let listener = Arc::new(listener);
    let mut workers = Vec::new();
    let mut receivers = (0..).zip(receivers);
    let started: Result<(), ServeError> = receivers.try_for_each(|(number, handed)| {
        let (shared, listener) = (Arc::clone(shared), Arc::clone(&listener));
        let stopped = stopped.clone();
        let run = move |runtime: LocalRuntime| {
            runtime.block_on(Worker::run(number, shared, listener, stopped, handed))
        };
        workers.push(start_worker(number, run)?);
        Ok(())
    });
    drop(stopped);
    if started.is_ok() {
        on_ready();
        // Waiting only for `shutdown` would hang if all workers panicked.
        control.block_on(async {
            tokio::select! {
                () = shutdown => {}
                () = stop.closed() => {}
            }
        });
    }
    // Without the filter, connections that are established during the shutdown are reset.
    let _ = accepting::refuse_handshakes(&listener);
    // The listener is closed when the last worker stops accepting.
    drop(listener);
    stop.send_replace(true);
    // Join all workers, even after an error.
    let joined: Vec<_> = workers.into_iter().map(join).collect();
    started?;
    let mut sum = ServeSummary::default();
    for done in joined {
        sum.add(done?);
    }
    Ok(sum)
}

/// Worker thread that returns an error if its event loop cannot be created.
type WorkerThread = JoinHandle<io::Result<ServeSummary>>;

/// Starts a worker thread and waits until its event loop exists.
fn start_worker(
    number: usize,
    run: impl FnOnce(LocalRuntime) -> ServeSummary + Send + 'static,
) -> Result<WorkerThread, ServeError> {
    let (ready, started) = oneshot::channel();
    let worker = thread::Builder::new()
        .name(format!("serve-{number}"))
        .spawn(move || {
            let runtime = event_loop()?;
            // Sending cannot fail, because the receiver is waiting.
            let _ = ready.send(());
            Ok(run(runtime))
        })
        .map_err(ServeError::Thread)?;
    if started.blocking_recv().is_err() {
        join(worker)?;
        return Err(ServeError::Panicked);
    }
    Ok(worker)
}

fn join(worker: WorkerThread) -> Result<ServeSummary, ServeError> {
    let done = worker.join().map_err(|_| ServeError::Panicked)?;
    done.map_err(ServeError::Thread)
}

fn event_loop() -> io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
}

/// Returns half the number of CPUs. A local client can use the other half.
fn default_threads() -> usize {
    thread::available_parallelism().map_or(1, |cpus| (cpus.get() / 2).max(1))
}

fn max_connections(requested: Option<NonZeroUsize>) -> Result<usize, ServeError> {
    let needed = requested.map_or(usize::MAX, NonZeroUsize::get);
    let needed = needed.saturating_add(RESERVED_FILES) as u64;
    // If the limit cannot be raised, assume the smallest default limit on Linux.
    let limit = raise_open_files(needed).map_or(1024, |raised| raised.now);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let possible = limit.saturating_sub(RESERVED_FILES).max(1);
    match requested {
        Some(requested) if requested.get() > possible => Err(ServeError::Connections {
            requested: requested.get(),
            limit,
        }),
        Some(requested) => Ok(requested.get()),
        None => Ok(possible),
    }
}
