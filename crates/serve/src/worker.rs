//! One thread of the server: its event loop, what it accepts, and the connections that it keeps to their end.

use std::cell::Cell;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::LocalRuntime;
use tokio::sync::watch;
use tokio::task::{spawn_local, yield_now};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::connection;
use crate::desk::{self, Desk};
use crate::listen;
use crate::numbers::Numbers;
use crate::pace::{Register, STEP};
use crate::settings::Limits;
use crate::socket::Socket;
use crate::workload::Workload;

/// Connections accepted in one turn before those that are open get theirs.
const ACCEPTS_PER_TURN: usize = 64;
/// Pause after accepting failed for want of files or memory; waiting connections stay in the kernel's queue meanwhile.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(20);
/// Refused connections whose 503 is awaited at one time; beyond that they are closed right after it was sent.
pub(crate) const MOST_SHEDDING: usize = 256;
/// What all workers share.
pub(crate) struct Shared {
    pub(crate) workload: Workload,
    pub(crate) limits: Limits,
    /// Most connections open at once, over all workers.
    pub(crate) most_connections: usize,
    pub(crate) open: AtomicUsize,
    /// One for each worker.
    pub(crate) desks: Vec<Desk>,
    pub(crate) shedding: AtomicUsize,
    pub(crate) numbers: Arc<Numbers>,
}

/// What one worker did.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Done {
    pub(crate) accepted: u64,
    pub(crate) shed: u64,
    pub(crate) answered: u64,
    pub(crate) cut_at_end: u64,
}

impl Done {
    /// Adds what another worker did.
    pub(crate) fn add(&mut self, other: Done) {
        self.accepted += other.accepted;
        self.shed += other.shed;
        self.answered += other.answered;
        self.cut_at_end += other.cut_at_end;
    }
}

/// One thread of the server.
pub(crate) struct Worker {
    pub(crate) workload: Workload,
    pub(crate) limits: Limits,
    pub(crate) numbers: Arc<Numbers>,
    pub(crate) register: Rc<Register>,
    pub(crate) http: http1::Builder,
    /// Its place among the desks.
    number: usize,
    shared: Arc<Shared>,
    closing: Cell<bool>,
    accepted: Cell<u64>,
    shed: Cell<u64>,
    answered: Cell<u64>,
}

impl Worker {
    /// Accepts and answers until `stop` turns true or its sender goes; then ends what is open, within the grace.
    pub(crate) fn run(
        number: usize,
        shared: Arc<Shared>,
        listener: Arc<TcpListener>,
        runtime: &LocalRuntime,
        mut stop: watch::Receiver<bool>,
    ) -> Done {
        let worker = Rc::new(Worker {
            workload: shared.workload,
            limits: shared.limits.clone(),
            numbers: Arc::clone(&shared.numbers),
            register: Rc::default(),
            http: connection::http(&shared.limits),
            number,
            shared,
            closing: Cell::default(),
            accepted: Cell::default(),
            shed: Cell::default(),
            answered: Cell::default(),
        });
        runtime.block_on(async {
            let clock = spawn_local(Rc::clone(&worker).keep_time());
            let accepting = spawn_local(Rc::clone(&worker).accept(Arc::clone(&listener)));
            let taking = spawn_local(Rc::clone(&worker).take_over());
            // An error means that whoever could stop us is gone, which is as good as being stopped.
            let _ = stop.wait_for(|stop| *stop).await;
            accepting.abort();
            taking.abort();
            // Only to know that they are over; they were told to end.
            let _ = (accepting.await, taking.await);
            let cut_at_end = worker.drain(listener).await;
            clock.abort();
            Done {
                accepted: worker.accepted.get(),
                shed: worker.shed.get(),
                answered: worker.answered.get(),
                cut_at_end,
            }
        })
    }

    /// Whether answers are to be the last on their connections.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.get()
    }

    /// Counts an answer.
    pub(crate) fn count_answer(&self) {
        self.answered.set(self.answered.get() + 1);
    }

    /// Gives back a connection's share of the limit.
    pub(crate) fn release(&self) {
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
        self.desk().release();
    }

    fn desk(&self) -> &Desk {
        &self.shared.desks[self.number]
    }

    /// Serves a connection; the limit and the desk have counted it.
    fn serve(self: &Rc<Self>, stream: TcpStream) {
        spawn_local(connection::serve(Rc::clone(self), stream));
    }

    /// Serves what others accepted and hand over.
    async fn take_over(self: Rc<Self>) {
        loop {
            for stream in self.desk().take().await {
                self.serve(stream);
            }
        }
    }

    async fn keep_time(self: Rc<Self>) {
        let began = Instant::now();
        let mut ticks = interval(STEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.register.step(began.elapsed(), &self.limits);
        }
    }

    async fn accept(self: Rc<Self>, listener: Arc<TcpListener>) {
        // Registering anew after a failure is the only way on; it fails only for want of memory or files.
        loop {
            // SAFETY: the listener owns its descriptor, which is always the same, and the `Arc` keeps it open as long as the
            // registration lasts.
            let watched = unsafe {
                AsyncFd::register_with_interest(Arc::clone(&listener), Interest::READABLE)
            };
            if let Ok(listener) = watched {
                self.accept_as_they_come(&listener).await;
            }
            sleep(EXHAUSTED_PAUSE).await;
        }
    }

    /// Returns only when the event loop cannot watch the listener any more.
    async fn accept_as_they_come(self: &Rc<Self>, listener: &AsyncFd<Arc<TcpListener>>) {
        while let Ok(mut ready) = listener.readable().await {
            match self.accept_some(ready.get_inner(), ACCEPTS_PER_TURN) {
                Ok(()) => yield_now().await,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(e) if listen::is_exhaustion(&e) => sleep(EXHAUSTED_PAUSE).await,
                // The connection that was next has gone already (accept(2), "Error handling").
                Err(_) => yield_now().await,
            }
        }
    }

    /// Accepts so many connections, or until an error, which may be that there are no more.
    fn accept_some(self: &Rc<Self>, listener: &TcpListener, most: usize) -> io::Result<()> {
        for _ in 0..most {
            let stream = listen::accept(listener)?;
            let before = self.shared.open.fetch_add(1, Ordering::Relaxed);
            if before >= self.shared.most_connections {
                self.shared.open.fetch_sub(1, Ordering::Relaxed);
                self.shed(stream);
                continue;
            }
            // The place is taken here, so that a connection counts from the moment it is accepted.
            self.accepted.set(self.accepted.get() + 1);
            let own = if self.closing.get() {
                Some(stream)
            } else {
                desk::hand_over(&self.shared.desks, self.number, stream)
            };
            if let Some(stream) = own {
                self.desk().keep();
                self.serve(stream);
            }
        }
        Ok(())
    }

    /// Refuses a connection with a 503.
    fn shed(self: &Rc<Self>, stream: TcpStream) {
        self.shed.set(self.shed.get() + 1);
        // A new socket's send buffer takes these few bytes; should it not, the client sees the close alone.
        let _ = io::Write::write(&mut &stream, refusal().as_bytes());
        let shared = Arc::clone(&self.shared);
        if shared.shedding.fetch_add(1, Ordering::Relaxed) >= MOST_SHEDDING {
            shared.shedding.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let socket = Socket::new(stream, Rc::default(), Rc::clone(&self.register));
        spawn_local(async move {
            connection::linger(socket).await;
            shared.shedding.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Answers what has arrived, ends what is idle, awaits the rest within the grace; returns how many had to be cut off.
    async fn drain(self: &Rc<Self>, listener: Arc<TcpListener>) -> u64 {
        self.closing.set(true);
        // Who is in the kernel's queue was told that the connection stands. The error is that there are no more.
        let _ = self.accept_some(&listener, self.limits_of_queue());
        drop(listener);
        for stream in self.desk().close() {
            self.serve(stream);
        }
        // Twice, as requests that have arrived are seen only when the event loop has asked the kernel.
        yield_now().await;
        yield_now().await;
        self.register.wake_all();
        let until = Instant::now() + self.limits.grace;
        while self.register.len() > 0 && Instant::now() < until {
            sleep(Duration::from_millis(5)).await;
        }
        let cut = self.register.len();
        self.register.cut_all();
        yield_now().await;
        cut as u64
    }

    /// The most that the kernel's queue can hold and the limit of connections lets in.
    fn limits_of_queue(&self) -> usize {
        self.shared.most_connections.min(65_535)
    }
}

fn refusal() -> String {
    let body = r#"{"error": "too many connections; try again later"}"#;
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         retry-after: 1\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}
