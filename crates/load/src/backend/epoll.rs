//! The epoll backend: edge-triggered, each socket registered once for reading and writing, requests
//! written inline. A kept request costs one `send`, one `recv` and its share of an `epoll_pwait2`.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use floodmark_record::plan::{Address, CloseFirst};
use socket2::{Socket, Type};

use super::calls::{fire_when_due, new_epoll, receive, register, send_some, wait_events};
use super::endpoint::Endpoint;
use super::full_queue::FullQueue;
use super::stamps::{self, Stamps};
use super::{Backend, Bytes, Completion, Route, Slot};
use crate::clock::{Clock, Ns};

mod unix;

/// Events taken from the kernel at once: few enough that a due send never waits long for its turn,
/// enough that a full thread pays little for waiting.
const EVENTS: usize = 64;

/// One read takes at most this much; shared by all connections of the thread.
const READ_BUFFER: usize = 64 * 1024;

/// Answers larger than a segment are cut by Nagle's algorithm only when a small write follows a
/// small write; a request in one segment never does.
const ONE_SEGMENT: usize = 1400;

/// epoll and plain calls.
pub struct Epoll {
    clock: Clock,
    epoll: OwnedFd,
    endpoints: Box<[Endpoint]>,
    full_queue: FullQueue,
    slots: Vec<Entry>,
    events: Vec<libc::epoll_event>,
    at: usize,
    /// What was found out outside of an event: at most two entries for each open slot.
    early: VecDeque<Early>,
    buffer: Box<[u8]>,
    /// Where answers are timed by the kernel's stamps.
    stamps: Option<Stamps>,
}

#[derive(Default)]
struct Entry {
    socket: Option<Socket>,
    /// Raised on each close, so that an event of a closed connection is told from its successor's.
    generation: u32,
    target: u32,
    connecting: bool,
    /// Bytes still to be written, with how many of them are.
    pending: Option<(Bytes, usize)>,
}

enum Early {
    Connected {
        slot: Slot,
        generation: u32,
        at: Ns,
        sent: bool,
    },
    ConnectFailed {
        slot: Slot,
        generation: u32,
        error: io::Error,
    },
    Failed {
        slot: Slot,
        generation: u32,
        error: io::Error,
    },
}

/// What became of an attempt to connect that the kernel did not refuse.
enum Opened {
    /// An event will tell.
    NotYet,
    /// It stands, and the request, where there is one, is on its way.
    Stands(Ns),
    /// It stood, and the peer cut it before the request could go.
    Broke(Ns, io::Error),
}

/// What an event led to, before the borrow of the buffer.
enum Found {
    Nothing,
    Connected { at: Ns, sent: bool },
    ConnectFailed(io::Error),
    Received(usize, Option<Ns>),
    Ended,
    Failed(io::Error),
}

impl Epoll {
    /// A backend whose connections go to `targets`, for the calling thread.
    ///
    /// # Errors
    /// When the kernel gives no epoll descriptor, or a unix socket's path is too long.
    pub fn new(clock: Clock, targets: &[Address]) -> io::Result<Self> {
        fire_when_due()?;
        let epoll = new_epoll()?;
        Ok(Epoll {
            clock,
            epoll,
            endpoints: Endpoint::all(targets)?,
            full_queue: FullQueue::default(),
            slots: Vec::new(),
            events: Vec::with_capacity(EVENTS),
            at: 0,
            early: VecDeque::new(),
            buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            stamps: None,
        })
    }

    /// Has answers timed by the kernel's stamps from now on, where it gives them.
    #[must_use]
    pub fn stamped(mut self) -> Self {
        self.stamps = Stamps::keep();
        self
    }

    /// Reads once, and tells when the kernel had it.
    fn receive(&mut self, fd: RawFd) -> io::Result<(usize, Option<Ns>)> {
        if self.stamps.is_none() {
            return Ok((receive(fd, &mut self.buffer)?, None));
        }
        let (n, stamp) = stamps::receive(fd, &mut self.buffer)?;
        let at = stamp.and_then(|stamp| stamps::moment(stamp, stamps::wall(), self.clock.now()));
        Ok((n, at))
    }

    fn try_open(&mut self, slot: Slot, route: Route, first: Option<&Bytes>) -> io::Result<Opened> {
        let endpoint = &self.endpoints[route.target as usize];
        let at_once = first.is_none_or(|bytes| bytes.len() > ONE_SEGMENT);
        let socket = endpoint.socket(Type::STREAM.nonblocking(), at_once, route.source)?;
        let is_unix = endpoint.is_unix();
        if let Some(stamps) = self.stamps.as_ref().filter(|_| !is_unix) {
            stamps.ask(&socket);
        }
        let connected = socket.connect(&endpoint.address);
        let entry = &mut self.slots[slot as usize];
        let token = u64::from(entry.generation) << 32 | u64::from(slot);
        let fd = socket.as_raw_fd();
        entry.target = route.target;
        entry.socket = Some(socket);
        entry.connecting = true;
        entry.pending = None;
        match connected {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(e) if is_unix && refused_for_now(&e) => {
                entry.pending = first.map(|bytes| (Rc::clone(bytes), 0));
                let generation = entry.generation;
                self.full_queue.join(slot, generation, self.clock.now());
                return Ok(Opened::NotYet);
            }
            Err(e) => return Err(e),
        }
        register(&self.epoll, fd, token)?;
        let at = self.clock.now();
        // On loopback the handshake is over when connect returns, so a request can go out at once;
        // elsewhere the socket refuses it and the first event says when.
        let bytes = match first {
            Some(bytes) => bytes,
            // A unix socket stands now. Its first event may already be that of its end.
            None if is_unix => {
                entry.connecting = false;
                return Ok(Opened::Stands(at));
            }
            None => return Ok(Opened::NotYet),
        };
        match send_some(fd, bytes) {
            Ok(n) => {
                entry.connecting = false;
                entry.pending = (n < bytes.len()).then(|| (Rc::clone(bytes), n));
                Ok(Opened::Stands(at))
            }
            Err(e) if refused_for_now(&e) => {
                entry.pending = Some((Rc::clone(bytes), 0));
                Ok(Opened::NotYet)
            }
            // A handshake is refused otherwise (ECONNREFUSED): this connection stood and was cut at once.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ECONNRESET | libc::EPIPE)) => {
                entry.connecting = false;
                Ok(Opened::Broke(at, e))
            }
            Err(e) => Err(e),
        }
    }

    /// Looks into what an event says of its slot.
    fn look(&mut self, slot: Slot, flags: u32) -> Found {
        let entry = &mut self.slots[slot as usize];
        let Some(socket) = entry.socket.as_ref() else {
            return Found::Nothing;
        };
        let fd = socket.as_raw_fd();
        if entry.connecting {
            if flags & (libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0 {
                let error = match socket.take_error() {
                    Ok(Some(error)) | Err(error) => error,
                    Ok(None) => io::Error::from_raw_os_error(libc::ECONNRESET),
                };
                return Found::ConnectFailed(error);
            }
            if flags & libc::EPOLLOUT as u32 == 0 {
                return Found::Nothing;
            }
            entry.connecting = false;
            let at = self.clock.now();
            let sent = entry.pending.is_some();
            if let Err(error) = push_pending(fd, &mut entry.pending) {
                let generation = entry.generation;
                self.early.push_back(Early::Failed {
                    slot,
                    generation,
                    error,
                });
            }
            return Found::Connected { at, sent };
        }
        if flags & libc::EPOLLOUT as u32 != 0
            && entry.pending.is_some()
            && let Err(error) = push_pending(fd, &mut entry.pending)
        {
            return Found::Failed(error);
        }
        if flags & (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32 == 0
        {
            return Found::Nothing;
        }
        match self.receive(fd) {
            Ok((0, _)) => Found::Ended,
            Ok((n, at)) => Found::Received(n, at),
            Err(e) if refused_for_now(&e) => Found::Nothing,
            Err(e) => Found::Failed(e),
        }
    }
}

impl Backend for Epoll {
    fn open(&mut self, slot: Slot, route: Route, first: Option<&Bytes>) {
        if self.slots.len() <= slot as usize {
            self.slots.resize_with(slot as usize + 1, Entry::default);
        }
        let generation = self.slots[slot as usize].generation;
        let sent = first.is_some();
        match self.try_open(slot, route, first) {
            Ok(Opened::NotYet) => {}
            Ok(Opened::Stands(at)) => self.early.push_back(Early::Connected {
                slot,
                generation,
                at,
                sent,
            }),
            Ok(Opened::Broke(at, error)) => {
                self.early.push_back(Early::Connected {
                    slot,
                    generation,
                    at,
                    sent,
                });
                self.early.push_back(Early::Failed {
                    slot,
                    generation,
                    error,
                });
            }
            Err(error) => {
                self.slots[slot as usize].socket = None;
                self.early.push_back(Early::ConnectFailed {
                    slot,
                    generation,
                    error,
                });
            }
        }
    }

    fn send(&mut self, slot: Slot, bytes: &Bytes) {
        let entry = &mut self.slots[slot as usize];
        let Some(socket) = entry.socket.as_ref() else {
            return;
        };
        let sent = if entry.pending.is_none() {
            send_some(socket.as_raw_fd(), bytes)
        } else {
            // The server answered before it had read the whole request before: nothing can follow on this one.
            Err(io::Error::from_raw_os_error(libc::EPIPE))
        };
        match sent {
            Ok(n) if n == bytes.len() => {}
            Ok(n) => entry.pending = Some((Rc::clone(bytes), n)),
            Err(e) if refused_for_now(&e) => entry.pending = Some((Rc::clone(bytes), 0)),
            Err(error) => {
                let generation = entry.generation;
                self.early.push_back(Early::Failed {
                    slot,
                    generation,
                    error,
                });
            }
        }
    }

    fn close(&mut self, slot: Slot, how: CloseFirst) {
        let entry = &mut self.slots[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.pending = None;
        if let Some(socket) = entry.socket.take()
            && how == CloseFirst::Reset
        {
            // A failure leaves an orderly close, which the next line does.
            let _ = socket.set_linger(Some(Duration::ZERO));
        }
    }

    fn wait(&mut self, until: Ns) -> io::Result<()> {
        let now = self.clock.now();
        let wait = if self.early.is_empty() {
            self.full_queue.wake(until).saturating_sub(now)
        } else {
            0
        };
        self.at = 0;
        wait_events(&self.epoll, &mut self.events, wait)?;
        self.try_again();
        Ok(())
    }

    fn next(&mut self) -> Option<Completion<'_>> {
        while let Some(early) = self.early.pop_front() {
            let current =
                |slot: Slot, generation| self.slots[slot as usize].generation == generation;
            match early {
                Early::Connected {
                    slot,
                    generation,
                    at,
                    sent,
                } if current(slot, generation) => {
                    return Some(Completion::Connected { slot, at, sent });
                }
                Early::ConnectFailed {
                    slot,
                    generation,
                    error,
                } if current(slot, generation) => {
                    return Some(Completion::ConnectFailed { slot, error });
                }
                Early::Failed {
                    slot,
                    generation,
                    error,
                } if current(slot, generation) => {
                    return Some(Completion::Failed { slot, error });
                }
                _ => {}
            }
        }
        while let Some(event) = self.events.get(self.at) {
            let (token, flags) = (event.u64, event.events);
            let slot = token as Slot;
            if self.slots[slot as usize].generation != (token >> 32) as u32 {
                self.at += 1;
                continue;
            }
            let found = self.look(slot, flags);
            // Edge-triggered: a read that filled the buffer may have left some behind, and an event
            // that also announced the end is looked at again until the end has been read.
            let again = match found {
                Found::Received(n, _) => {
                    n == self.buffer.len()
                        || flags & (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
                }
                Found::Connected { .. } => flags & (libc::EPOLLIN | libc::EPOLLRDHUP) as u32 != 0,
                _ => false,
            };
            if !again {
                self.at += 1;
            }
            match found {
                Found::Nothing => {}
                Found::Connected { at, sent } => {
                    return Some(Completion::Connected { slot, at, sent });
                }
                Found::ConnectFailed(error) => {
                    self.close(slot, CloseFirst::Client);
                    return Some(Completion::ConnectFailed { slot, error });
                }
                Found::Received(n, at) => {
                    let data = &self.buffer[..n];
                    return Some(Completion::Received { slot, data, at });
                }
                Found::Ended => return Some(Completion::Ended { slot }),
                Found::Failed(error) => return Some(Completion::Failed { slot, error }),
            }
        }
        None
    }
}

fn refused_for_now(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn push_pending(fd: RawFd, pending: &mut Option<(Bytes, usize)>) -> io::Result<()> {
    if let Some((bytes, done)) = pending {
        match send_some(fd, &bytes[*done..]) {
            Ok(n) if *done + n == bytes.len() => *pending = None,
            Ok(n) => *done += n,
            Err(e) if refused_for_now(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
