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

mod availability;
mod bound;
mod buffers;
mod outcome;
mod queue;
mod stamped;
mod tag;
mod unix;

use std::io;
use std::os::fd::IntoRawFd;

use floodmark_record::plan::{Address, CloseFirst};
use io_uring::types::{Fd, Fixed};
use io_uring::{IoUring, cqueue, opcode};
use socket2::{Socket, Type};

use self::bound::Addresses;
use self::buffers::ReceiveBuffers;
use self::outcome::RingEvent;
use self::queue::AT_ONCE;
use self::stamped::Stamping;
use self::tag::{RingOperation, next_generation, user_data};
use super::endpoint::{KernelAddress, fire_when_due};
use super::full_queue::FullQueue;
use super::{Completion, EarlyCompletions, IoBackend, Route, SharedBytes, Slot, stamps};
use crate::clock::{Clock, Ns};
use crate::coalescing::Batch;

pub use self::availability::{Abilities, unavailable};

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
    endpoints: Box<[KernelAddress]>,
    full_queue: FullQueue,
    /// Whether sockets are created by ordinary system calls.
    plain: bool,
    /// Whether sockets with a source address are created by ordinary system calls.
    plain_bound: bool,
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
        let plain_bound = !bound::can_bind(&ring);
        Ok(Uring {
            ring,
            buffers,
            clock,
            endpoints: KernelAddress::all(targets)?,
            full_queue: FullQueue::default(),
            plain: longest > AT_ONCE,
            plain_bound,
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
        })
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
        if self.plain || (self.plain_bound && route.source.is_some()) {
            match endpoint.socket(Type::STREAM, true, route.source) {
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
            // The server responded before it had read the whole previous request.
            // No further request can use this connection.
            let error = io::Error::from_raw_os_error(libc::EPIPE);
            return self.report_early(Completion::Failed { slot, error });
        }
        self.hold(slot, bytes);
        self.push_send(slot, bytes.len() > AT_ONCE);
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
                    return Some(Completion::Received { slot, data, at });
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
pub(super) struct RingSlot {
    /// Incremented on each close, to distinguish a closed connection's completions from its
    /// successor's.
    pub generation: u32,
    /// Index of the target address.
    pub target: u32,
    pub socket: Descriptor,
    pub connecting: bool,
    /// Whether a receive is armed.
    pub receiving: bool,
    /// Whether a watched send is in progress.
    pub sending: bool,
    /// The latest request. It contains the bytes that the socket has not accepted yet.
    pub request: Option<SharedBytes>,
    /// Number of request bytes that the socket has accepted. If a send caused no completion, the
    /// socket has accepted all bytes.
    pub sent: usize,
}

/// Location of a slot's socket.
#[derive(Default)]
pub(super) enum Descriptor {
    #[default]
    None,
    /// The socket is in the ring's table. Its index is the slot.
    Direct,
    /// The socket has an ordinary descriptor, because some options must be set before the connect.
    Plain(Socket),
}
