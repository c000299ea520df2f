//! The io_uring backend: one `io_uring_enter` per loop iteration submits all commands and waits.
//! It needs Linux 6.1.
//!
//! Sockets are direct descriptors in the ring's table. One multishot receive per TCP connection
//! fills provided buffers. Sends and closes produce a completion only on failure. Because only one
//! thread submits, task work is deferred to the enter call.
//!
//! The first send is not linked to the connect. The send time of a linked send would be unknown, so
//! its delay would be attributed to the server or not counted. Sending one iteration later costs no
//! additional system call.
//!
//! Direct descriptors neither have nor need TCP_NODELAY. Linux delays a small segment only while
//! another small segment is unacknowledged. A request in one write has one small segment at its
//! end, and the response acknowledges this segment. Requests too long for one write use ordinary
//! descriptors with TCP_NODELAY.

mod buffers;
mod queue;

use std::io;
use std::ops::Range;
use std::os::fd::IntoRawFd;
use std::time::Duration;

use floodmark_record::plan::{Address, CloseFirst, Plan};
use io_uring::types::{Fd, Fixed, RecvMsgOut};
use io_uring::{IoUring, cqueue, opcode};
use socket2::{SockAddr, Socket, Type};

use self::buffers::ReceiveBuffers;
use self::queue::{AT_ONCE, Addresses, RingOperation, can_bind, next_generation, parts, user_data};
use super::endpoint::{FullQueue, endpoints, fire_when_due, socket};
use super::stamps::{self, Stamps};
use super::{Completion, EarlyCompletions, IoBackend, Route, SharedBytes, Slot};
use crate::budget::SocketLocation;
use crate::clock::{Clock, Ns};
use crate::coalescing::Batch;

/// Number of entries in the submission queue.
const ENTRIES: u32 = 256;

/// Number of entries in the completion queue.
/// The kernel keeps completions that do not fit until the queue has space.
const COMPLETIONS: u32 = 8 * ENTRIES;

/// The io_uring backend.
pub struct Uring {
    // The ring must be dropped before the memory that it accesses.
    ring: IoUring,
    buffers: ReceiveBuffers,
    clock: Clock,
    endpoints: Box<[SockAddr]>,
    full_queue: FullQueue,
    /// Whether sockets are created by ordinary system calls.
    plain: bool,
    /// Whether sockets in the ring's table can be bound to source addresses (since Linux 6.11).
    /// Otherwise, sockets with a source address are created by ordinary system calls.
    pub can_bind: bool,
    addresses: Addresses,
    slots: Vec<RingSlot>,
    early: EarlyCompletions,
    batch: Vec<cqueue::Entry>,
    /// Time at which the batch of completions was read.
    taken: Ns,
    at: usize,
    /// The buffer that the last completion borrowed.
    lent: Option<u16>,
    /// Replaced requests, which are kept until the submission queue is empty.
    retired: Vec<SharedBytes>,
    /// Requests whose sends were cancelled, each with the user data of its send.
    /// These requests are kept until the kernel confirms the cancellation.
    cancelled: Vec<(u64, SharedBytes)>,
    /// The batch of responses to wait for while coalescing.
    coalesced: Option<Batch>,
    /// Kernel timestamps of responses, if enabled.
    stamping: Option<Stamping>,
    /// The error of a failed submission, if any.
    failed: Option<io::Error>,
    /// Number of waits that submitted the whole queue.
    rounds: u64,
}

impl Uring {
    /// Creates a backend for at most `most` connections to `targets`, with requests of at most
    /// `longest` bytes.
    ///
    /// # Errors
    /// Fails if the kernel is too old or forbids io_uring (`kernel.io_uring_disabled`, seccomp, the
    /// limit on locked memory), or if the limit on open files is below `most`. [`unavailable`]
    /// explains these errors.
    /// Also fails if a unix socket's path is too long.
    pub fn new(clock: Clock, targets: &[Address], most: usize, longest: usize) -> io::Result<Self> {
        fire_when_due()?;
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(COMPLETIONS)
            .setup_submit_all()
            .build(ENTRIES)?;
        let table = u32::try_from(most.max(1)).unwrap_or(u32::MAX);
        ring.submitter().register_files_sparse(table)?;
        let buffers = ReceiveBuffers::register(&ring)?;
        let can_bind = can_bind(&ring);
        Ok(Uring {
            ring,
            buffers,
            clock,
            endpoints: endpoints(targets)?,
            full_queue: FullQueue::default(),
            plain: longest > AT_ONCE,
            can_bind,
            addresses: Addresses::new(),
            slots: Vec::new(),
            early: EarlyCompletions::default(),
            batch: Vec::with_capacity(COMPLETIONS as usize),
            taken: 0,
            at: 0,
            lent: None,
            retired: Vec::with_capacity(ENTRIES as usize),
            cancelled: Vec::new(),
            coalesced: None,
            stamping: None,
            failed: None,
            rounds: 2,
        })
    }

    /// Creates everything that a load thread needs, to check whether io_uring works on this host.
    ///
    /// # Errors
    /// Returns the reason why io_uring does not work; see [`Uring::new`].
    pub fn probe(most: usize) -> io::Result<Self> {
        Self::new(Clock::start(), &[], most, 0)
    }

    /// Returns which table contains a plan's sockets. `longest` is the maximum length, in bytes, of
    /// the plan's requests.
    #[must_use]
    pub fn sockets(&self, plan: &Plan, longest: usize) -> SocketLocation {
        let unix = plan.target.addresses().any(|to| to.ip().is_none());
        let bindable = self.can_bind || plan.sources.is_none();
        if longest <= AT_ONCE && plan.tls.is_none() && bindable && !unix {
            SocketLocation::Tables
        } else {
            SocketLocation::Files
        }
    }

    /// Enables kernel timestamps of responses if the kernel supports them.
    /// Since Linux 6.11, sockets in the ring's table support timestamps.
    #[must_use]
    pub fn stamped(mut self) -> Self {
        if self.plain || self.can_bind {
            self.stamping = Stamps::keep().map(Stamping::new);
        }
        self
    }

    /// Queues a completion, which is then reported before the next wait.
    fn report_early(&mut self, completion: Completion<'static>) {
        let generation = self.slots[completion.slot() as usize].generation;
        self.early.push(generation, completion);
    }

    fn give_back(&mut self, buffer: Option<u16>) {
        if let Some(id) = buffer {
            self.buffers.put(id);
        }
    }
}

impl Drop for Uring {
    /// Submits the delayed closes, so that the last connections are closed as requested.
    fn drop(&mut self) {
        self.enter();
    }
}

impl IoBackend for Uring {
    fn open(&mut self, slot: Slot, route: Route, _first: Option<&SharedBytes>) {
        if self.slots.len() <= slot as usize {
            self.slots.resize_with(slot as usize + 1, RingSlot::default);
        }
        self.slots[slot as usize].target = route.target;
        let endpoint = &self.endpoints[route.target as usize];
        if endpoint.is_unix() {
            return self.open_unix(slot);
        }
        if self.plain || (!self.can_bind && route.source.is_some()) {
            match socket(endpoint, Type::STREAM, true, route.source) {
                Ok(socket) => {
                    if let Some(stamping) = &self.stamping {
                        stamping.stamps.ask(&socket);
                    }
                    self.slots[slot as usize].socket = Descriptor::Plain(socket);
                }
                Err(error) => return self.report_early(Completion::ConnectFailed { slot, error }),
            }
        } else {
            self.slots[slot as usize].socket = Descriptor::Direct;
            self.push_socket(slot);
            if self.stamping.is_some() {
                self.push_stamp(slot);
            }
        }
        self.slots[slot as usize].connecting = true;
        match (route.source, &self.slots[slot as usize].socket) {
            (Some(source), Descriptor::Direct) => self.push_connect_from(slot, source),
            _ => self.push_connect(slot),
        }
    }

    fn send(&mut self, slot: Slot, bytes: &SharedBytes) {
        if self.slots[slot as usize].sending {
            // Bytes from an earlier call, such as a TLS alert, are still pending.
            let error = io::Error::from_raw_os_error(libc::EPIPE);
            return self.report_early(Completion::Failed { slot, error });
        }
        self.hold(slot, bytes);
        self.push_send(slot, bytes.len() > AT_ONCE);
    }

    fn is_unconfirmed(&self, slot: Slot) -> bool {
        !self.slots[slot as usize].sending && self.is_sending(slot)
    }

    fn is_sending(&self, slot: Slot) -> bool {
        let entry = &self.slots[slot as usize];
        // An unwatched send is complete if its round has ended without a completion.
        let is_read = self.at == self.batch.len();
        entry.sending || entry.round + 1 + u64::from(!is_read) > self.rounds
    }

    fn held(&mut self) -> Option<usize> {
        Some(self.ring.submission().len())
    }

    fn submit(&mut self) {
        self.enter();
    }

    fn close(&mut self, slot: Slot, how: CloseFirst) {
        if how == CloseFirst::Reset {
            self.push_disconnect(slot);
        }
        let entry = &mut self.slots[slot as usize];
        let generation = entry.generation;
        let data = |op| user_data(op, slot, generation);
        let pending = [
            (&mut entry.connecting, RingOperation::Connect),
            (&mut entry.receiving, RingOperation::Receive),
            (&mut entry.sending, RingOperation::Send),
        ]
        .map(|(armed, op)| (std::mem::take(armed), op));
        entry.generation = next_generation(generation);
        let socket = std::mem::take(&mut entry.socket);
        if pending[2].0
            && let Some(request) = entry.request.take()
        {
            self.cancelled.push((data(RingOperation::Send), request));
        }
        // Cancel the armed operations, which would otherwise keep the socket open.
        for (_, op) in pending.into_iter().filter(|(armed, _)| *armed) {
            let cancel = opcode::AsyncCancel::new(data(op)).build();
            self.push_quiet(cancel, data(RingOperation::Other));
        }
        let close = match socket {
            Descriptor::None => return,
            Descriptor::Direct => opcode::Close::new(Fixed(slot)).build(),
            Descriptor::Plain(socket) => opcode::Close::new(Fd(socket.into_raw_fd())).build(),
        };
        self.push_quiet(close, data(RingOperation::Other));
    }

    fn wait(&mut self, until: Ns) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let lent = self.lent.take();
        self.give_back(lent);
        self.buffers.publish();
        let ready = !self.early.is_empty() || !self.ring.completion().is_empty();
        let wait = if ready {
            0
        } else {
            let wake = self.full_queue.wake(until);
            wake.saturating_sub(self.clock.now())
        };
        match self.coalesced {
            Some(Batch { most, hold }) if wait > hold => {
                self.submit_and_wait(most, hold)?;
                if self.ring.completion().is_empty() {
                    self.submit_and_wait(1, wait - hold)?;
                }
            }
            _ => self.submit_and_wait(1, wait)?,
        }
        if let Some(stamping) = &mut self.stamping {
            stamping.wall = stamps::wall();
        }
        self.taken = self.clock.now();
        self.batch.clear();
        self.at = 0;
        self.batch.extend(self.ring.completion());
        self.rounds += u64::from(self.ring.submission().is_empty());
        self.try_again();
        Ok(())
    }

    fn next(&mut self) -> Option<Completion<'_>> {
        let lent = self.lent.take();
        self.give_back(lent);
        let slots = &self.slots;
        if !self.early.is_empty()
            && let Some(early) = self.early.take(|slot| slots[slot as usize].generation)
        {
            return Some(early);
        }
        while let Some(completion) = self.batch.get(self.at).cloned() {
            self.at += 1;
            match self.interpret(&completion) {
                RingEvent::Nothing => {}
                RingEvent::Received(slot, id, bytes, at) => {
                    self.lent = Some(id);
                    let data = &self.buffers.filled(id, bytes.end)[bytes.start..];
                    return Some(Completion::Received {
                        slot,
                        data,
                        at,
                        is_sending: self.slots[slot as usize].sending,
                    });
                }
                RingEvent::Other(completion) => return Some(completion),
            }
        }
        None
    }

    fn coalesce(&mut self, batch: Option<Batch>) -> bool {
        self.coalesced = batch;
        true
    }

    fn seen(&self) -> Option<Ns> {
        self.early.is_empty().then_some(self.taken)
    }
}

/// The backend's state for one connection. It is small, because there may be 100,000 slots.
#[derive(Default)]
struct RingSlot {
    /// Incremented on each close, to distinguish the completions of a closed connection from those
    /// of its successor.
    generation: u32,
    /// Index of the target address.
    target: u32,
    socket: Descriptor,
    connecting: bool,
    /// Whether a receive is armed.
    receiving: bool,
    /// Whether a watched send (see [`Uring::push_send`]) is in progress.
    sending: bool,
    /// Value of [`Uring::rounds`] when the latest send was queued.
    round: u64,
    /// The latest request. It contains the bytes that the socket has not accepted yet.
    request: Option<SharedBytes>,
    /// Number of request bytes that the socket has accepted, according to completions. A send
    /// without a completion was accepted completely.
    sent: usize,
}

/// Location of a slot's socket.
#[derive(Default)]
enum Descriptor {
    #[default]
    None,
    /// The socket is in the ring's table. Its index in the table is the slot's index.
    Direct,
    /// The socket has an ordinary descriptor, because some options must be set before the connect.
    Plain(Socket),
}

/// State of receives with timestamps.
struct Stamping {
    stamps: Stamps,
    /// Message header for receives. It also specifies the space for control data.
    /// The kernel reads this header when a receive is submitted.
    message: Box<libc::msghdr>,
    /// Wall-clock time of the last batch, read immediately before its monotonic time
    /// ([`Uring::taken`]).
    wall: Duration,
}

impl Stamping {
    fn new(stamps: Stamps) -> Self {
        // SAFETY: a zeroed msghdr is valid.
        let mut message: Box<libc::msghdr> = Box::new(unsafe { std::mem::zeroed() });
        message.msg_controllen = stamps::ROOM as _;
        Stamping {
            stamps,
            message,
            wall: stamps::wall(),
        }
    }
}

/// What a completion means to the engine.
enum RingEvent {
    /// The completion belongs to a closed connection, or there is nothing to report.
    Nothing,
    /// Bytes were received: slot, buffer id, range within the buffer, and the kernel's timestamp.
    Received(Slot, u16, Range<usize>, Option<Ns>),
    Other(Completion<'static>),
}

impl Uring {
    fn interpret(&mut self, completion: &cqueue::Entry) -> RingEvent {
        let data = completion.user_data();
        let (op, slot, generation) = parts(data);
        let current = |entry: &&mut RingSlot| entry.generation == generation;
        let Some(entry) = self.slots.get_mut(slot as usize).filter(current) else {
            if op == RingOperation::Send {
                self.cancelled.retain(|(send, _)| *send != data);
            }
            self.give_back(cqueue::buffer_select(completion.flags()));
            return RingEvent::Nothing;
        };
        let result = completion.result();
        let error = || io::Error::from_raw_os_error(-result);
        match op {
            RingOperation::Socket => {
                // The connect that follows also fails, because there is no socket. Report only the
                // socket's error, which is the cause.
                entry.socket = Descriptor::None;
                self.connect_failed(slot, error())
            }
            // The kernel cancels the connect that follows, and reports no completion for it.
            RingOperation::Bind => self.connect_failed(slot, error()),
            RingOperation::Connect if result < 0 => self.connect_failed(slot, error()),
            RingOperation::Connect => {
                entry.connecting = false;
                self.push_receive(slot);
                let (at, sent) = (self.taken, false);
                RingEvent::Other(Completion::Connected { slot, at, sent })
            }
            RingOperation::Send => self.sent(slot, result),
            RingOperation::Receive => self.received(slot, completion),
            RingOperation::Other => RingEvent::Nothing,
        }
    }

    fn connect_failed(&mut self, slot: Slot, error: io::Error) -> RingEvent {
        self.slots[slot as usize].connecting = false;
        self.close(slot, CloseFirst::Client);
        RingEvent::Other(Completion::ConnectFailed { slot, error })
    }

    /// Handles the completion of a watched send, or of a send that the socket did not accept
    /// completely.
    fn sent(&mut self, slot: Slot, result: i32) -> RingEvent {
        let entry = &mut self.slots[slot as usize];
        entry.sending = false;
        match result {
            n if n >= 0 => entry.sent += n as usize,
            n if n == -libc::EAGAIN => {}
            n => return failed(slot, -n),
        }
        if entry.request.as_ref().is_some_and(|r| entry.sent < r.len()) {
            self.push_send(slot, true);
        }
        RingEvent::Nothing
    }

    fn received(&mut self, slot: Slot, completion: &cqueue::Entry) -> RingEvent {
        let buffer = cqueue::buffer_select(completion.flags());
        let armed = cqueue::more(completion.flags());
        self.slots[slot as usize].receiving = armed;
        match (completion.result(), buffer) {
            (n, Some(id)) if n > 0 => {
                let Some((bytes, at)) = self.payload(slot, id, n as usize) else {
                    self.give_back(buffer);
                    return failed(slot, libc::EBADMSG);
                };
                if bytes.is_empty() {
                    self.give_back(buffer);
                    return RingEvent::Other(Completion::Ended { slot });
                }
                if !armed {
                    self.push_receive(slot);
                }
                RingEvent::Received(slot, id, bytes, at)
            }
            (0, buffer) => {
                self.give_back(buffer);
                RingEvent::Other(Completion::Ended { slot })
            }
            // All buffers were in use. They are returned before the kernel handles the new receive.
            (n, _) if n == -libc::ENOBUFS => {
                self.push_receive(slot);
                RingEvent::Nothing
            }
            (n, _) => failed(slot, -n),
        }
    }

    /// Returns the range of the received bytes in a buffer that is filled up to `length`, and the
    /// timestamp of the last byte.
    /// Returns `None` if the buffer does not have the requested layout.
    fn payload(&self, slot: Slot, id: u16, length: usize) -> Option<(Range<usize>, Option<Ns>)> {
        let target = self.slots[slot as usize].target as usize;
        let stamping = self.stamping.as_ref();
        let Some(stamping) = stamping.filter(|_| !self.endpoints[target].is_unix()) else {
            return Some((0..length, None));
        };
        let buffer = self.buffers.filled(id, length);
        let out = RecvMsgOut::parse(buffer, &stamping.message).ok()?;
        let stamp = stamps::stamp(out.control_data());
        let at = stamp.and_then(|stamp| stamps::moment(stamp, stamping.wall, self.taken));
        let bytes = buffer.len() - out.payload_data().len()..buffer.len();
        Some((bytes, at))
    }
}

fn failed(slot: Slot, errno: i32) -> RingEvent {
    let error = io::Error::from_raw_os_error(errno);
    RingEvent::Other(Completion::Failed { slot, error })
}

/// Connects unix sockets with ordinary system calls.
///
/// These calls never block. In the ring, each connect that waits for space in an accept queue would
/// occupy a kernel worker thread. All other operations use the ring, as for TCP sockets.
impl Uring {
    /// Connects the slot to its target, which is a unix socket.
    fn open_unix(&mut self, slot: Slot) {
        let entry = &self.slots[slot as usize];
        let (generation, target) = (entry.generation, entry.target as usize);
        let endpoint = &self.endpoints[target];
        // After the connect, the socket is made blocking, so that the ring waits for its data.
        let made = socket(endpoint, Type::STREAM.nonblocking(), false, None);
        let connected = made.and_then(|socket| {
            let connected = socket.connect(endpoint);
            self.slots[slot as usize].socket = Descriptor::Plain(socket);
            connected
        });
        match connected {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.full_queue.join(slot, generation, self.clock.now());
            }
            connected => self.connected_unix(slot, connected),
        }
    }

    /// Retries connects that failed because the accept queue was full.
    fn try_again(&mut self) {
        let mut queue = std::mem::take(&mut self.full_queue);
        queue.retry(self.clock.now(), |slot, generation| {
            let entry = &self.slots[slot as usize];
            let Descriptor::Plain(socket) = &entry.socket else {
                return true;
            };
            if entry.generation != generation {
                return true;
            }
            match socket.connect(&self.endpoints[entry.target as usize]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
                connected => {
                    self.connected_unix(slot, connected);
                    true
                }
            }
        });
        self.full_queue = queue;
    }

    fn connected_unix(&mut self, slot: Slot, connected: io::Result<()>) {
        let entry = &mut self.slots[slot as usize];
        let blocking = |descriptor: &Descriptor| match descriptor {
            Descriptor::Plain(socket) => Socket::set_nonblocking(socket, false),
            Descriptor::Direct | Descriptor::None => Ok(()),
        };
        match connected.and_then(|()| blocking(&entry.socket)) {
            Ok(()) => {
                self.push_receive(slot);
                let at = self.clock.now();
                let sent = false;
                self.report_early(Completion::Connected { slot, at, sent });
            }
            Err(error) => {
                entry.socket = Descriptor::None;
                self.report_early(Completion::ConnectFailed { slot, error });
            }
        }
    }
}

/// Explains why io_uring cannot be used, and suggests a fix.
#[must_use]
pub fn unavailable(error: &io::Error) -> String {
    let (why, fix) = match error.raw_os_error() {
        Some(libc::ENOSYS) => (
            "the kernel lacks io_uring, or a seccomp profile blocks it",
            "use Linux 6.1 or later and a profile that allows io_uring",
        ),
        Some(libc::EPERM | libc::EACCES) => (
            "io_uring is not permitted on this host",
            "check kernel.io_uring_disabled and the container's seccomp profile",
        ),
        Some(libc::ENOMEM) => (
            "io_uring cannot lock enough memory",
            "raise the limit (ulimit -l)",
        ),
        Some(libc::EINVAL) => ("the kernel's io_uring is too old", "use Linux 6.1 or later"),
        Some(libc::EMFILE) => (
            "the number of connections exceeds the limit on open files",
            "raise the limit (ulimit -n)",
        ),
        _ => ("io_uring is unavailable", "run floodmark doctor"),
    };
    format!("{why} ({error}); {fix}")
}
