//! The epoll backend. It uses edge-triggered events, registers each socket once for reading and
//! writing, and writes requests directly.
//!
//! A request on a kept connection costs one `send`, one `recv` and a share of an `epoll_pwait2`.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use floodmark_record::plan::{Address, CloseFirst};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::{SockAddr, Socket, Type};

use super::endpoint::{FullQueue, endpoints, fire_when_due, socket};
use super::stamps::{self, Stamps};
use super::{Completion, EarlyCompletions, IoBackend, Route, SharedBytes, Slot};
use crate::clock::{Clock, NS_PER_S, Ns};

/// Maximum number of events per wait.
/// A lower maximum would make waits expensive for a busy thread. A higher maximum would delay sends
/// that are due.
const EVENTS: usize = 64;

/// Size in bytes of the read buffer, which all connections of a thread share.
const READ_BUFFER: usize = 64 * 1024;

/// Maximum number of times in a row that an event is processed. Afterwards, other sockets and
/// timeouts have their turn, even if a server sends faster than the thread reads. One event can
/// report a connection, a response and the end of the stream.
const READS: u32 = 4;

/// Maximum length in bytes of a request that Nagle's algorithm does not delay.
/// The algorithm delays only a small write that follows another small write. A request in one
/// segment is a single write.
const ONE_SEGMENT: usize = 1400;

/// Events that report the end of a connection.
const END: epoll::EventFlags = epoll::EventFlags::RDHUP
    .union(epoll::EventFlags::HUP)
    .union(epoll::EventFlags::ERR);

/// The epoll backend.
pub struct Epoll {
    clock: Clock,
    epoll: OwnedFd,
    endpoints: Box<[SockAddr]>,
    full_queue: FullQueue,
    slots: Vec<EpollSlot>,
    events: Vec<epoll::Event>,
    at: usize,
    /// Number of times that the current event was processed.
    reads: u32,
    /// Tokens of sockets that may have more data, although no event will report it.
    unfinished: Vec<u64>,
    early: EarlyCompletions,
    buffer: Box<[u8]>,
    /// Kernel timestamps of responses, if enabled.
    stamps: Option<Stamps>,
}

#[derive(Default)]
struct EpollSlot {
    socket: Option<Socket>,
    /// Incremented on each close, to distinguish a closed connection's events from its successor's.
    generation: u32,
    target: u32,
    connecting: bool,
    /// The pending request, and the number of its bytes that have been written.
    pending: Option<(SharedBytes, usize)>,
    /// Flags of the event to process again after the next wait; empty if there is none.
    unfinished: epoll::EventFlags,
}

/// The meaning of an event, without a borrow of the read buffer.
enum SocketEvent {
    Nothing,
    Received(usize, Option<Ns>),
    Other(Completion<'static>),
}

impl Epoll {
    /// Creates a backend for the calling thread, which will connect to `targets`.
    /// If `stamped`, enables kernel timestamps of responses if the kernel supports them.
    ///
    /// # Errors
    /// Fails if no epoll descriptor is available, or if a unix socket's path is too long.
    pub fn new(clock: Clock, targets: &[Address], stamped: bool) -> io::Result<Self> {
        fire_when_due()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Epoll {
            clock,
            epoll,
            endpoints: endpoints(targets)?,
            full_queue: FullQueue::default(),
            slots: Vec::new(),
            events: Vec::with_capacity(EVENTS),
            at: 0,
            reads: 0,
            unfinished: Vec::new(),
            early: EarlyCompletions::default(),
            buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            stamps: stamped.then(Stamps::keep).flatten(),
        })
    }

    /// Reads once from the slot's socket.
    fn receive(&mut self, slot: Slot) -> io::Result<(usize, Option<Ns>)> {
        let Some(socket) = &self.slots[slot as usize].socket else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        if self.stamps.is_none() {
            let (n, _) = recv(socket, &mut self.buffer[..], RecvFlags::empty())?;
            return Ok((n, None));
        }
        let (n, stamp) = stamps::receive(socket.as_raw_fd(), &mut self.buffer)?;
        let at = stamp.and_then(|stamp| stamps::moment(stamp, stamps::wall(), self.clock.now()));
        Ok((n, at))
    }

    /// Registers a slot's socket for all events, in edge-triggered mode.
    fn register(&self, slot: Slot) -> io::Result<()> {
        use epoll::EventFlags;
        let entry = &self.slots[slot as usize];
        if let Some(socket) = &entry.socket {
            let token = u64::from(entry.generation) << 32 | u64::from(slot);
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            epoll::add(&self.epoll, socket, epoll::EventData::new_u64(token), flags)?;
        }
        Ok(())
    }

    /// Queues a completion, which is then reported before the next wait.
    fn report_early(&mut self, completion: Completion<'static>) {
        let generation = self.slots[completion.slot() as usize].generation;
        self.early.push(generation, completion);
    }

    /// Reports that the slot is connected.
    fn connected(&mut self, slot: Slot, at: Ns, sent: bool) {
        self.slots[slot as usize].connecting = false;
        self.report_early(Completion::Connected { slot, at, sent });
    }

    fn try_open(
        &mut self,
        slot: Slot,
        route: Route,
        first: Option<&SharedBytes>,
    ) -> io::Result<()> {
        let endpoint = &self.endpoints[route.target as usize];
        let at_once = first.is_none_or(|bytes| bytes.len() > ONE_SEGMENT);
        let socket = socket(endpoint, Type::STREAM.nonblocking(), at_once, route.source)?;
        let is_unix = endpoint.is_unix();
        if let Some(stamps) = self.stamps.as_ref().filter(|_| !is_unix) {
            stamps.ask(&socket);
        }
        let connected = socket.connect(endpoint);
        let entry = &mut self.slots[slot as usize];
        entry.target = route.target;
        entry.socket = Some(socket);
        entry.connecting = true;
        entry.pending = first.map(|bytes| (Rc::clone(bytes), 0));
        match connected {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(e) if is_unix && refused_for_now(&e) => {
                let generation = entry.generation;
                self.full_queue.join(slot, generation, self.clock.now());
                return Ok(());
            }
            Err(e) => return Err(e),
        }
        self.register(slot)?;
        let at = self.clock.now();
        // On loopback, the handshake is complete when `connect` returns, so try to send the request
        // now.
        // With a remote server, the socket does not accept the request yet, and the first event
        // reports the connection.
        let entry = &mut self.slots[slot as usize];
        let Some(bytes) = first else {
            // A unix socket is already connected. Its first event may already report that the
            // connection has ended.
            if is_unix {
                self.connected(slot, at, false);
            }
            return Ok(());
        };
        match entry.send(bytes) {
            Ok(n) => {
                entry.pending = (n < bytes.len()).then(|| (Rc::clone(bytes), n));
                self.connected(slot, at, true);
                Ok(())
            }
            Err(e) if refused_for_now(&e) => Ok(()),
            // A refused handshake would fail with ECONNREFUSED. This connection was established and
            // then closed immediately.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ECONNRESET | libc::EPIPE)) => {
                self.connected(slot, at, true);
                self.report_early(Completion::Failed { slot, error });
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// Handles a failed write. The server may have responded before it closed the connection, so
    /// first reports what can be read.
    fn write_failed(&mut self, slot: Slot, error: io::Error) -> SocketEvent {
        let failed = Completion::Failed { slot, error };
        match self.receive(slot) {
            Ok((n, at)) if n > 0 => {
                self.report_early(failed);
                SocketEvent::Received(n, at)
            }
            _ => SocketEvent::Other(failed),
        }
    }

    /// Returns the completion for bytes at the start of the read buffer.
    fn received(&self, slot: Slot, n: usize, at: Option<Ns>) -> Completion<'_> {
        Completion::Received {
            slot,
            data: &self.buffer[..n],
            at,
            is_sending: self.slots[slot as usize].pending.is_some(),
        }
    }

    /// Interprets an event of a slot.
    fn interpret(&mut self, slot: Slot, flags: epoll::EventFlags) -> SocketEvent {
        use epoll::EventFlags;
        let entry = &mut self.slots[slot as usize];
        let Some(socket) = entry.socket.as_ref() else {
            return SocketEvent::Nothing;
        };
        if entry.connecting {
            if flags.intersects(EventFlags::ERR | EventFlags::HUP) {
                let error = match socket.take_error() {
                    Ok(Some(error)) | Err(error) => error,
                    Ok(None) => io::Error::from_raw_os_error(libc::ECONNRESET),
                };
                self.close(slot, CloseFirst::Client);
                return SocketEvent::Other(Completion::ConnectFailed { slot, error });
            }
            if !flags.contains(EventFlags::OUT) {
                return SocketEvent::Nothing;
            }
            entry.connecting = false;
            let at = self.clock.now();
            let sent = entry.pending.is_some();
            if let Err(error) = entry.push_pending() {
                self.report_early(Completion::Failed { slot, error });
            }
            return SocketEvent::Other(Completion::Connected { slot, at, sent });
        }
        if flags.contains(EventFlags::OUT)
            && entry.pending.is_some()
            && let Err(error) = entry.push_pending()
        {
            return self.write_failed(slot, error);
        }
        if !flags.intersects(EventFlags::IN | END) {
            return SocketEvent::Nothing;
        }
        match self.receive(slot) {
            Ok((0, _)) => SocketEvent::Other(Completion::Ended { slot }),
            Ok((n, at)) => SocketEvent::Received(n, at),
            Err(e) if refused_for_now(&e) => SocketEvent::Nothing,
            Err(error) => SocketEvent::Other(Completion::Failed { slot, error }),
        }
    }
}

impl IoBackend for Epoll {
    fn open(&mut self, slot: Slot, route: Route, first: Option<&SharedBytes>) {
        if self.slots.len() <= slot as usize {
            self.slots
                .resize_with(slot as usize + 1, EpollSlot::default);
        }
        if let Err(error) = self.try_open(slot, route, first) {
            self.slots[slot as usize].socket = None;
            self.report_early(Completion::ConnectFailed { slot, error });
        }
    }

    fn send(&mut self, slot: Slot, bytes: &SharedBytes) {
        let entry = &mut self.slots[slot as usize];
        let sent = if entry.pending.is_none() {
            entry.send(bytes)
        } else {
            // Bytes from an earlier call, such as a TLS alert, are still pending.
            Err(io::Error::from_raw_os_error(libc::EPIPE))
        };
        match sent {
            Ok(n) if n == bytes.len() => {}
            Ok(n) => entry.pending = Some((Rc::clone(bytes), n)),
            Err(error) => {
                entry.pending = Some((Rc::clone(bytes), 0));
                if !refused_for_now(&error) {
                    self.report_early(Completion::Failed { slot, error });
                }
            }
        }
    }

    fn is_sending(&self, slot: Slot) -> bool {
        self.slots[slot as usize].pending.is_some()
    }

    fn close(&mut self, slot: Slot, how: CloseFirst) {
        let entry = &mut self.slots[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.pending = None;
        entry.unfinished = epoll::EventFlags::empty();
        if let Some(socket) = entry.socket.take()
            && how == CloseFirst::Reset
        {
            // If this fails, the connection is closed with FIN instead of RST.
            let _ = socket.set_linger(Some(Duration::ZERO));
        }
    }

    fn wait(&mut self, until: Ns) -> io::Result<()> {
        let now = self.clock.now();
        let wait = if self.early.is_empty() && self.unfinished.is_empty() {
            self.full_queue.wake(until).saturating_sub(now)
        } else {
            0
        };
        let timeout = Timespec {
            tv_sec: (wait / NS_PER_S) as i64,
            tv_nsec: (wait % NS_PER_S) as i64,
        };
        self.at = 0;
        self.reads = 0;
        self.events.clear();
        self.events.reserve(EVENTS);
        match epoll::wait(
            &self.epoll,
            spare_capacity(&mut self.events),
            Some(&timeout),
        ) {
            // A signal ends the wait early.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for token in self.unfinished.drain(..) {
            let entry = &mut self.slots[token as Slot as usize];
            if entry.generation == (token >> 32) as u32 {
                self.events.push(epoll::Event {
                    data: epoll::EventData::new_u64(token),
                    flags: std::mem::take(&mut entry.unfinished),
                });
            }
        }
        self.try_again();
        Ok(())
    }

    fn next(&mut self) -> Option<Completion<'_>> {
        let slots = &self.slots;
        if !self.early.is_empty()
            && let Some(early) = self.early.take(|slot| slots[slot as usize].generation)
        {
            let Completion::Failed { slot, error } = early else {
                return Some(early);
            };
            return match self.write_failed(slot, error) {
                SocketEvent::Received(n, at) => Some(self.received(slot, n, at)),
                SocketEvent::Other(completion) => Some(completion),
                SocketEvent::Nothing => None,
            };
        }
        while let Some(event) = self.events.get(self.at) {
            let (token, flags) = (event.data.u64(), event.flags);
            let slot = token as Slot;
            if self.slots[slot as usize].generation != (token >> 32) as u32 {
                self.at += 1;
                self.reads = 0;
                continue;
            }
            let found = self.interpret(slot, flags);
            // If a read filled the buffer, more data may be available. Edge-triggered epoll does
            // not report the rest, so process the event again.
            // If the event also reported the end of the stream, repeat until the end is read.
            let again = match found {
                SocketEvent::Received(n, _) => n == self.buffer.len() || flags.intersects(END),
                SocketEvent::Other(Completion::Connected { .. }) => {
                    flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP)
                }
                _ => false,
            };
            self.reads += 1;
            if !again || self.reads == READS {
                self.at += 1;
                self.reads = 0;
            }
            if again && self.reads == 0 {
                let entry = &mut self.slots[slot as usize];
                if entry.unfinished.is_empty() {
                    self.unfinished.push(token);
                }
                entry.unfinished |= flags;
            }
            match found {
                SocketEvent::Nothing => {}
                SocketEvent::Received(n, at) => return Some(self.received(slot, n, at)),
                SocketEvent::Other(completion) => return Some(completion),
            }
        }
        None
    }
}

impl EpollSlot {
    /// Sends as much of `bytes` as the socket accepts. Returns the number of bytes sent.
    #[inline]
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.socket {
            Some(socket) => Ok(send(socket, bytes, SendFlags::NOSIGNAL)?),
            None => Ok(bytes.len()),
        }
    }

    /// Sends as much of the remaining request as the socket accepts. If that fails, the request
    /// stays pending.
    fn push_pending(&mut self) -> io::Result<()> {
        let Some((bytes, done)) = self.pending.take() else {
            return Ok(());
        };
        match self.send(&bytes[done..]) {
            Ok(n) if done + n == bytes.len() => {}
            Ok(n) => self.pending = Some((bytes, done + n)),
            Err(error) => {
                self.pending = Some((bytes, done));
                if !refused_for_now(&error) {
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

fn refused_for_now(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

impl Epoll {
    /// Retries connects that failed because the unix socket's accept queue was full.
    pub(super) fn try_again(&mut self) {
        let mut queue = std::mem::take(&mut self.full_queue);
        queue.retry(self.clock.now(), |slot, generation| {
            let entry = &self.slots[slot as usize];
            let Some(socket) = entry
                .socket
                .as_ref()
                .filter(|_| entry.generation == generation)
            else {
                return true;
            };
            let established = match socket.connect(&self.endpoints[entry.target as usize]) {
                Err(e) if refused_for_now(&e) => return false,
                Err(e) => Err(e),
                Ok(()) => self.register(slot),
            };
            if let Err(error) = established {
                self.slots[slot as usize].socket = None;
                self.report_early(Completion::ConnectFailed { slot, error });
                return true;
            }
            let sent = self.slots[slot as usize].pending.is_some();
            self.connected(slot, self.clock.now(), sent);
            if let Err(error) = self.slots[slot as usize].push_pending() {
                self.report_early(Completion::Failed { slot, error });
            }
            true
        });
        self.full_queue = queue;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    /// A server that sends faster than the thread reads delays neither other sockets nor timeouts,
    /// and no data is lost.
    #[test]
    fn reads_from_a_socket_a_few_times_per_wait() {
        const LENGTH: usize = 8 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Ip(listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&vec![0; LENGTH]).unwrap();
        });
        let clock = Clock::start();
        let mut backend = Epoll::new(clock, &[address], false).unwrap();
        backend.open(0, Route::default(), None);
        let (mut total, mut most, mut ended) = (0, 0, false);
        while !ended {
            backend.wait(clock.now() + NS_PER_S).unwrap();
            let mut reads = 0;
            while let Some(completion) = backend.next() {
                match completion {
                    Completion::Received { data, .. } => {
                        total += data.len();
                        reads += 1;
                    }
                    Completion::Ended { .. } => ended = true,
                    Completion::Connected { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            most = most.max(reads);
            // The server fills the socket's buffers.
            std::thread::sleep(Duration::from_millis(1));
        }
        server.join().unwrap();
        assert_eq!(total, LENGTH);
        // An event and the rest of an earlier one can coincide.
        assert!((READS..=2 * READS).contains(&most), "{most} reads per wait");
    }
}
