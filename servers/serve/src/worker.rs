//! A server thread with its event loop, listener and connections, and the state that all threads
//! share.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use floodmark_journal::JournalError;
use hyper::server::conn::http1;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_local, yield_now};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_rustls::TlsAcceptor;

use crate::accepting::{self, ConnectionBudget, Handoff};
use crate::bars::BarStore;
use crate::commits::Commits;
use crate::connection;
use crate::error::ServeError;
use crate::numbers::Numbers;
use crate::pace::{ClockSteps, Register, STEP};
use crate::scoring::SharedScores;
use crate::settings::Limits;
use crate::tls;
use crate::workload::NativeWorkload;

/// Totals of a server from start to shutdown.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ServeSummary {
    /// Number of connections accepted and served.
    pub accepted: u64,
    /// Number of responses, including those that refuse a request. hyper's own responses to invalid
    /// heads (400, 431) are not counted.
    pub answered: u64,
    /// Number of connections closed at shutdown before their request or response was complete.
    pub cut_at_end: u64,
    /// The dispatcher's next number.
    pub next_number: Option<u64>,
}

impl ServeSummary {
    /// Adds a worker's totals.
    pub(crate) fn add(&mut self, worker: ServeSummary) {
        self.accepted += worker.accepted;
        self.answered += worker.answered;
        self.cut_at_end += worker.cut_at_end;
    }
}

/// State shared by all workers.
pub(crate) struct ServerState {
    pub(crate) workload: NativeWorkload,
    pub(crate) limits: Limits,
    pub(crate) budget: ConnectionBudget,
    /// Handoffs, one per worker.
    pub(crate) handoffs: Vec<Handoff>,
    /// Accepts connections with TLS; `None` if the server does not use TLS.
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) numbers: Arc<Numbers>,
    /// Scores; only for `scoring`.
    pub(crate) scores: Option<SharedScores>,
    /// Queues of the store; only for `bars`.
    pub(crate) bars: Option<BarStore>,
    /// Called when the journal fails.
    pub(crate) on_failure: fn(&ServeError),
}

/// A thread of the server.
pub(crate) struct Worker {
    pub(crate) shared: Arc<ServerState>,
    pub(crate) register: Rc<Register>,
    pub(crate) http: http1::Builder,
    /// Responses that are waiting for the journal.
    pub(crate) commits: Commits,
    /// Index of the worker and of its handoff.
    pub(crate) number: usize,
    /// Time at which the shutdown began. Each later response is the last on its connection.
    pub(crate) stopping_since: Cell<Option<ClockSteps>>,
    /// Totals so far.
    pub(crate) totals: RefCell<ServeSummary>,
}

impl Worker {
    /// Returns whether the server is shutting down.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping_since.get().is_some()
    }

    /// Frees a connection's slot, and stops counting the connection for this worker.
    pub(crate) fn release(&self) {
        self.shared.budget.release();
        self.handoff().release();
    }

    pub(crate) fn handoff(&self) -> &Handoff {
        &self.shared.handoffs[self.number]
    }
}

/// Maximum number of connections to accept before open connections are served.
const ACCEPTS_PER_TURN: usize = 64;
/// Pause after `accept` has failed for lack of file descriptors or memory. Connections wait in the
/// kernel's queue during the pause.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(20);
/// Minimum time for handshakes in progress to complete at shutdown.
const HANDSHAKE_TIME: Duration = Duration::from_millis(100);
/// Interval between checks for the end of the shutdown.
const SHUTDOWN_POLL: Duration = Duration::from_millis(5);

impl Worker {
    /// Serves until `stop` becomes true or its sender is dropped, and then drains.
    pub(crate) async fn run(
        number: usize,
        shared: Arc<ServerState>,
        listener: Arc<TcpListener>,
        mut stop: watch::Receiver<bool>,
        mut handed: UnboundedReceiver<TcpStream>,
    ) -> ServeSummary {
        let worker = Rc::new(Worker {
            register: Rc::default(),
            http: connection::http(&shared.limits),
            commits: Commits::new(shared.limits.max_wait),
            number,
            shared,
            stopping_since: Default::default(),
            totals: Default::default(),
        });
        let clock = spawn_local(Rc::clone(&worker).keep_time());
        let commits = spawn_local(Rc::clone(&worker).attend_commits());
        let accepting = spawn_local(Rc::clone(&worker).accept(Arc::clone(&listener)));
        tokio::select! {
            // An error means that the sender was dropped, which also stops the worker.
            _ = stop.wait_for(|stop| *stop) => {}
            () = worker.take_over(&mut handed) => {}
        }
        worker.drain(accepting, listener, handed).await;
        clock.abort();
        commits.abort();
        worker.totals.take()
    }

    /// Starts to serve a connection that has already been counted.
    fn serve(self: &Rc<Self>, stream: TcpStream) {
        match &self.shared.tls {
            None => spawn_local(connection::serve(Rc::clone(self), stream)),
            Some(acceptor) => spawn_local(tls::serve(Rc::clone(self), acceptor.clone(), stream)),
        };
    }

    /// Serves connections that other workers hand over.
    async fn take_over(self: &Rc<Self>, handed: &mut UnboundedReceiver<TcpStream>) {
        while let Some(stream) = handed.recv().await {
            self.serve(stream);
        }
    }

    async fn keep_time(self: Rc<Self>) {
        let began = Instant::now();
        let mut ticks = interval(STEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.register.step(began.elapsed(), &self.shared.limits);
            if let Some(since) = self.stopping_since.get() {
                self.totals.borrow_mut().cut_at_end += self.register.cut_off_waiting(since);
            }
        }
    }

    /// Sends the responses whose records are durable. Returns immediately if there is no journal.
    async fn attend_commits(self: Rc<Self>) {
        if let Some(journal) = self.shared.scores.as_ref().and_then(SharedScores::journal) {
            self.commits.listen(journal);
            let on_failure = |failure: &Arc<JournalError>| {
                // All workers notice the failure, but only the first worker reports it.
                if self.number == 0 {
                    (self.shared.on_failure)(&ServeError::JournalFailed(Arc::clone(failure)));
                }
            };
            let attended = self.commits.attend(journal, &self.register, on_failure);
            attended.await;
        }
    }

    async fn accept(self: Rc<Self>, listener: Arc<TcpListener>) {
        // Registering the listener fails only for lack of memory or file descriptors, so retry.
        loop {
            // SAFETY: the `Arc` keeps the listener's descriptor open while it is registered.
            let watched = unsafe {
                AsyncFd::register_with_interest(Arc::clone(&listener), Interest::READABLE)
            };
            // `readable` fails only if the event loop cannot poll the listener.
            while let Ok(watched) = &watched
                && let Ok(mut ready) = watched.readable().await
            {
                match self.accept_some(&listener, ACCEPTS_PER_TURN) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                    Err(e) if accepting::is_exhaustion(&e) => sleep(EXHAUSTED_PAUSE).await,
                    // After other errors, the pending connection has already been closed
                    // (accept(2), "Error handling").
                    _ => {
                        self.shared.budget.wait_for_slot().await;
                        yield_now().await;
                    }
                }
            }
            sleep(EXHAUSTED_PAUSE).await;
        }
    }

    /// Accepts connections until it has accepted `max`, no slot is free, or an error occurs. The
    /// error is `WouldBlock` if no connection is waiting.
    fn accept_some(self: &Rc<Self>, listener: &TcpListener, max: usize) -> io::Result<()> {
        let budget = &self.shared.budget;
        for _ in 0..max {
            if !budget.try_take() {
                let is_exceeded = accepting::is_queued(listener);
                budget.set_exceeded(is_exceeded);
                let none_waits = || io::ErrorKind::WouldBlock.into();
                return is_exceeded.then_some(()).ok_or_else(none_waits);
            }
            let stream = accepting::accept(listener).inspect_err(|error| {
                budget.release();
                if error.kind() == io::ErrorKind::WouldBlock {
                    budget.set_exceeded(false);
                }
            })?;
            // Count the connection now, even if another worker serves it.
            self.totals.borrow_mut().accepted += 1;
            let own = if self.is_stopping() {
                Some(stream)
            } else {
                accepting::hand_over(&self.shared.handoffs, self.number, stream)
            };
            if let Some(stream) = own {
                self.handoff().keep();
                self.serve(stream);
            }
        }
        Ok(())
    }

    /// Serves the connections in the accept queue, finishes requests in flight and ends all
    /// connections within the grace period. The kernel must not add connections to the queue.
    async fn drain(
        self: &Rc<Self>,
        accepting: JoinHandle<()>,
        listener: Arc<TcpListener>,
        mut handed: UnboundedReceiver<TcpStream>,
    ) {
        let began = Instant::now();
        let grace = self.shared.limits.grace;
        self.stopping_since.set(Some(self.register.now.get()));
        handed.close();
        self.take_over(&mut handed).await;
        let may_queue = || began.elapsed() < HANDSHAKE_TIME || accepting::is_queued(&listener);
        while may_queue() && began.elapsed() < grace {
            sleep(SHUTDOWN_POLL).await;
        }
        accepting.abort();
        // The listener stays open until the aborted task has ended.
        let _ = accepting.await;
        drop(listener);
        while self.register.len() > 0 && began.elapsed() < grace {
            sleep(SHUTDOWN_POLL).await;
        }
        self.totals.borrow_mut().cut_at_end += self.register.len() as u64;
        self.register.cut_off_all();
        yield_now().await;
    }
}
