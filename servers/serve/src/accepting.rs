//! Accepting connections: the listening socket, the connection limit, and the distribution of
//! connections among the workers.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use socket2::{Domain, Protocol, SockFilter, SockRef, Socket, Type};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Length of the accept queue; the kernel limits it to `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;

/// Opens a non-blocking listener.
///
/// If `share` is set, other processes of this user may listen on the same port, and the kernel
/// distributes connections among the processes. Accepted sockets inherit `TCP_NODELAY`, which saves
/// a system call per connection.
pub(crate) fn listen(address: SocketAddr, share: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        Some(Protocol::TCP),
    )?;
    // A restarted server must be able to listen while old connections are in TIME_WAIT. This option
    // does not allow two listeners on one port.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(share)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Accepts a connection and makes it non-blocking with one system call. The standard library needs
/// two.
pub(crate) fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(accept_with(listener, flags)?.into())
}

/// Makes the kernel drop the SYN of each new connection, so that no further handshake begins.
/// Handshakes in progress complete, and connections in the accept queue can still be accepted.
///
/// A filter that also dropped other packets would break connections: a client whose last packet of
/// the handshake is dropped considers the connection established, and accepted sockets inherit the
/// filter.
///
/// # Errors
/// The kernel is out of memory, or a security policy forbids filters.
pub(crate) fn refuse_handshakes(listener: &TcpListener) -> io::Result<()> {
    /// Offset of the flags in a TCP header (RFC 9293, section 3.1).
    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    // Classic BPF instructions (linux/bpf_common.h).
    const LOAD_BYTE: u16 = 0x30;
    const AND: u16 = 0x54;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    SockRef::from(listener).attach_filter(&[
        SockFilter::new(LOAD_BYTE, 0, 0, FLAGS),
        SockFilter::new(AND, 0, 0, SYN | ACK),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, SYN), // otherwise skip one instruction
        SockFilter::new(RETURN, 0, 0, 0),          // drop the packet
        SockFilter::new(RETURN, 0, 0, u32::MAX),   // keep the whole packet
    ])
}

/// Returns whether a connection is waiting in the accept queue.
pub(crate) fn is_queued(listener: &TcpListener) -> bool {
    let mut listeners = [PollFd::new(listener, PollFlags::IN)];
    // Polling fails only for lack of memory. In this case, assume that a connection is waiting.
    poll(&mut listeners, Some(&Timespec::default())).map_or(true, |ready| ready > 0)
}

/// Returns whether `accept` failed for lack of file descriptors or memory. After such an error, an
/// immediate retry would fail again.
pub(crate) fn is_exhaustion(error: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| exhausted.contains(&errno))
}

/// Number of file descriptors that the server reserves for event loops, the state file and other
/// uses.
pub(crate) const RESERVED_FILES: usize = 64;

/// Slots for connections, shared by all workers.
#[derive(Debug)]
pub(crate) struct ConnectionBudget {
    max: usize,
    /// Number of slots in use.
    used: AtomicUsize,
    /// Notified when a slot becomes free.
    freed: Notify,
    /// Whether connections are waiting in the accept queue because no slot is free.
    is_exceeded: AtomicBool,
}

impl ConnectionBudget {
    pub(crate) fn new(max: usize) -> Self {
        ConnectionBudget {
            max,
            used: AtomicUsize::new(0),
            freed: Notify::new(),
            is_exceeded: AtomicBool::new(false),
        }
    }

    /// Takes a slot. Returns false if none is free.
    pub(crate) fn try_take(&self) -> bool {
        let free = |used| (used < self.max).then_some(used + 1);
        let taken = (self.used).fetch_update(Ordering::SeqCst, Ordering::Relaxed, free);
        taken.is_ok()
    }

    /// Frees a slot.
    pub(crate) fn release(&self) {
        self.used.fetch_sub(1, Ordering::SeqCst);
        self.freed.notify_one();
    }

    /// Waits until a slot is free.
    pub(crate) async fn wait_for_slot(&self) {
        let is_full = || self.used.load(Ordering::SeqCst) >= self.max;
        while is_full() {
            let mut freed = pin!(self.freed.notified());
            // Enable the notification before the check, so that no release is missed.
            freed.as_mut().enable();
            if is_full() {
                freed.await;
            }
        }
    }

    /// Records whether connections are waiting in the accept queue.
    pub(crate) fn set_exceeded(&self, is_exceeded: bool) {
        // Most calls change nothing, and an unnecessary write would invalidate the cache line on
        // the CPUs of other threads.
        if self.is_exceeded() != is_exceeded {
            self.is_exceeded.store(is_exceeded, Ordering::Relaxed);
        }
    }

    /// Returns whether connections are waiting in the accept queue. If so, each open connection is
    /// closed after its next response, so that all clients are served in turn.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded.load(Ordering::Relaxed)
    }
}

/// Hands over connections to one worker.
pub(crate) struct Handoff {
    /// Number of connections that the worker serves or will serve.
    open: AtomicUsize,
    /// Connections that have been handed over but are not being served yet. The connection limit
    /// bounds their number.
    handed: UnboundedSender<TcpStream>,
}

impl Handoff {
    /// Counts a connection.
    pub(crate) fn keep(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Stops counting a closed connection.
    pub(crate) fn release(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Hands over a connection. Returns the connection if the worker no longer accepts connections.
    fn hand(&self, stream: TcpStream) -> Option<TcpStream> {
        // Count the connection before the worker can see and release it.
        self.keep();
        let refused = self.handed.send(stream).err()?;
        self.release();
        Some(refused.0)
    }
}

/// Creates a handoff for each worker. The receivers yield connections that have already been
/// counted.
pub(crate) fn handoffs(workers: usize) -> (Vec<Handoff>, Vec<UnboundedReceiver<TcpStream>>) {
    let handoff = |_| {
        let (handed, receiver) = unbounded_channel();
        let open = AtomicUsize::new(0);
        (Handoff { open, handed }, receiver)
    };
    (0..workers).map(handoff).unzip()
}

/// Hands a connection to the worker with the fewest connections. Returns the connection if no
/// worker has fewer connections than the worker `from`, or if the worker with the fewest
/// connections no longer accepts any.
pub(crate) fn hand_over(handoffs: &[Handoff], from: usize, stream: TcpStream) -> Option<TcpStream> {
    let open = |handoff: &Handoff| handoff.open.load(Ordering::Relaxed);
    let own = open(&handoffs[from]);
    match handoffs.iter().min_by_key(|handoff| open(handoff)) {
        Some(least) if open(least) < own => least.hand(stream),
        _ => Some(stream),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn never_exceeds_the_limit_and_wakes_all_waiting_threads() {
        const MAX: usize = 3;
        let budget = Arc::new(ConnectionBudget::new(MAX));
        let open = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (budget, open) = (Arc::clone(&budget), Arc::clone(&open));
                thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread();
                    let runtime = { runtime }.build().unwrap();
                    for _ in 0..2_000 {
                        while !budget.try_take() {
                            runtime.block_on(budget.wait_for_slot());
                        }
                        assert!(open.fetch_add(1, Ordering::SeqCst) < MAX);
                        thread::yield_now();
                        open.fetch_sub(1, Ordering::SeqCst);
                        budget.release();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(budget.used.load(Ordering::SeqCst), 0);
    }

    fn streams(n: usize) -> Vec<TcpStream> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        (0..n).map(|_| TcpStream::connect(to).unwrap()).collect()
    }

    #[test]
    fn balances_connections_of_one_accepting_worker() {
        let (handoffs, receivers) = handoffs(3);
        for stream in streams(10) {
            if hand_over(&handoffs, 0, stream).is_some() {
                handoffs[0].keep();
            }
        }
        let open: Vec<usize> = handoffs
            .iter()
            .map(|d| d.open.load(Ordering::Relaxed))
            .collect();
        assert_eq!(open, [4, 3, 3]);
        assert_eq!(receivers[1].len() + receivers[2].len(), 6);
    }

    #[test]
    fn a_closed_handoff_returns_the_connection() {
        let (handoffs, mut receivers) = handoffs(2);
        handoffs[0].keep();
        receivers[1].close();
        for stream in streams(1) {
            assert!(hand_over(&handoffs, 0, stream).is_some());
            assert_eq!(handoffs[1].open.load(Ordering::Relaxed), 0);
        }
    }
}
