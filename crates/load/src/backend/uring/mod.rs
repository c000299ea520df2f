//! The io_uring backend: all that a turn leads to goes to the kernel in one `io_uring_enter`, which also waits.
//!
//! Sockets are direct descriptors in a table of the ring, received bytes come through one multishot receive per TCP connection
//! into provided buffers, sends and closes leave no completion unless they fail. Task work is deferred to the enter call,
//! since only one thread issues. Needs Linux 6.1.
//!
//! `connect` and the first send are not linked: a linked send leaves when nobody is there to look at the clock, and the
//! time it took would be counted as the server's or lost. Sent one turn later it costs no further system call.
//!
//! Direct descriptors have no TCP_NODELAY and need none. Linux holds a small segment back only behind another small one that is not yet
//! acknowledged; a request in one write has one at its end, and the answer acknowledges it. Requests too long for one
//! write go through ordinary descriptors, which have it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::IntoRawFd;

use floodmark_record::plan::{Address, CloseFirst};
use io_uring::squeue::Flags;
use io_uring::types::{Fd, Fixed};
use io_uring::{IoUring, cqueue, opcode};
use socket2::Type;

use self::bound::Addresses;
use self::buffers::Buffers;
use self::outcome::Found;
use self::queue::AT_ONCE;
use self::slot::{Descriptor, Entry};
use self::stamped::Stamping;
use self::tag::{Op, next_generation, user_data};
use super::calls::fire_when_due;
use super::endpoint::Endpoint;
use super::full_queue::FullQueue;
use super::{Backend, Bytes, Completion, Route, Slot};
use crate::clock::{Clock, Ns};
use crate::coalescing::Batch;

mod availability;
mod bound;
mod buffers;
mod outcome;
mod queue;
mod slot;
mod stamped;
mod tag;
mod unix;

pub use self::availability::{Abilities, unavailable};

/// Entries of the submission queue.
const ENTRIES: u32 = 256;

/// Entries of the completion queue. The kernel keeps what does not fit until there is room.
const COMPLETIONS: u32 = 8 * ENTRIES;

/// io_uring.
pub struct Uring {
    // The ring goes before what it reads and writes.
    ring: IoUring,
    buffers: Buffers,
    clock: Clock,
    endpoints: Box<[Endpoint]>,
    full_queue: FullQueue,
    /// Whether sockets are made by plain calls.
    plain: bool,
    /// Whether those that come from a source address are.
    plain_bound: bool,
    addresses: Addresses,
    slots: Vec<Entry>,
    /// What came about outside of the ring: at most two for each open slot.
    early: VecDeque<(Early, Slot, u32)>,
    batch: Vec<cqueue::Entry>,
    /// When the batch was taken.
    taken: Ns,
    at: usize,
    /// The buffer that the last completion lent out.
    lent: Option<u16>,
    /// Requests that were replaced, until the submission queue is empty.
    retired: Vec<Bytes>,
    /// Requests whose sending was cancelled, with the user data of the send, until the kernel says so.
    cancelled: Vec<(u64, Bytes)>,
    /// What is waited for where completions come thick and fast.
    coalesced: Option<Batch>,
    /// Where answers are timed by the kernel's stamps.
    stamping: Option<Stamping>,
    /// Why the kernel took no submissions.
    failed: Option<io::Error>,
}

/// What came about outside of the ring.
#[derive(Debug)]
enum Early {
    Connected(Ns),
    ConnectFailed(io::Error),
    Failed(io::Error),
}

impl Uring {
    /// A backend for at most `most` connections to `targets`, whose requests have at most `longest` bytes.
    ///
    /// # Errors
    /// A kernel that is too old, or forbids io_uring (`kernel.io_uring_disabled`, seccomp, the limit on locked memory), or
    /// more connections than open files allowed; [`unavailable`] puts it into words. Or a unix socket's path is too long.
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
        let buffers = Buffers::register(&ring)?;
        let plain_bound = !bound::can_bind(&ring);
        Ok(Uring {
            ring,
            buffers,
            clock,
            endpoints: Endpoint::all(targets)?,
            full_queue: FullQueue::default(),
            plain: longest > AT_ONCE,
            plain_bound,
            addresses: Addresses::new(),
            slots: Vec::new(),
            early: VecDeque::new(),
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

    /// Takes note of what will be told when the kernel is asked next.
    fn tell_early(&mut self, slot: Slot, what: Early) {
        let generation = self.slots[slot as usize].generation;
        self.early.push_back((what, slot, generation));
    }

    fn give_back(&mut self, buffer: Option<u16>) {
        if let Some(id) = buffer {
            self.buffers.put(id);
        }
    }
}

impl Drop for Uring {
    /// What is still held back are closes: without them the last connections would end otherwise than was asked.
    fn drop(&mut self) {
        self.enter();
    }
}

impl Backend for Uring {
    fn open(&mut self, slot: Slot, route: Route, _first: Option<&Bytes>) {
        if self.slots.len() <= slot as usize {
            self.slots.resize_with(slot as usize + 1, Entry::default);
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
                Err(error) => return self.tell_early(slot, Early::ConnectFailed(error)),
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

    fn send(&mut self, slot: Slot, bytes: &Bytes) {
        if self.slots[slot as usize].sending {
            // The server answered before it had read the whole request before: nothing can follow on this one.
            let error = io::Error::from_raw_os_error(libc::EPIPE);
            return self.tell_early(slot, Early::Failed(error));
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
            (std::mem::take(&mut entry.connecting), Op::Connect),
            (std::mem::take(&mut entry.receiving), Op::Receive),
            (std::mem::take(&mut entry.sending), Op::Send),
        ];
        entry.generation = next_generation(generation);
        let socket = std::mem::take(&mut entry.socket);
        if pending[2].0
            && let Some(request) = entry.request.take()
        {
            self.cancelled.push((data(Op::Send), request));
        }
        // An armed operation would keep the socket open beyond its close.
        for (_, op) in pending.into_iter().filter(|(armed, _)| *armed) {
            let cancel = opcode::AsyncCancel::new(data(op)).build();
            self.push(&cancel.flags(Flags::SKIP_SUCCESS).user_data(data(Op::Other)));
        }
        let close = match socket {
            Descriptor::None => return,
            Descriptor::Direct => opcode::Close::new(Fixed(slot)).build(),
            Descriptor::Plain(socket) => opcode::Close::new(Fd(socket.into_raw_fd())).build(),
        };
        self.push(&close.flags(Flags::SKIP_SUCCESS).user_data(data(Op::Other)));
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
            stamping.look();
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
        while let Some((early, slot, generation)) = self.early.pop_front() {
            if self.slots[slot as usize].generation == generation {
                let sent = false;
                return Some(match early {
                    Early::Connected(at) => Completion::Connected { slot, at, sent },
                    Early::ConnectFailed(error) => Completion::ConnectFailed { slot, error },
                    Early::Failed(error) => Completion::Failed { slot, error },
                });
            }
        }
        while let Some(completion) = self.batch.get(self.at).cloned() {
            self.at += 1;
            match self.look(&completion) {
                Found::Nothing => {}
                Found::Connected(slot) => {
                    let (at, sent) = (self.taken, false);
                    return Some(Completion::Connected { slot, at, sent });
                }
                Found::ConnectFailed(slot, error) => {
                    self.close(slot, CloseFirst::Client);
                    return Some(Completion::ConnectFailed { slot, error });
                }
                Found::Received(slot, id, bytes, at) => {
                    self.lent = Some(id);
                    let data = &self.buffers.filled(id, bytes.end)[bytes.start..];
                    return Some(Completion::Received { slot, data, at });
                }
                Found::Ended(slot) => return Some(Completion::Ended { slot }),
                Found::Failed(slot, error) => return Some(Completion::Failed { slot, error }),
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
