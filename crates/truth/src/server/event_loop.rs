//! The event loop: accepts, reads, decides what happens to each request, and carries it out when it is due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::SockRef;

use super::answers::{Answers, Step};
use super::connection::{Connection, Input, Whole};
use crate::choice::exponential_ns;
use crate::log::{ClosedBy, ConnectionEntry, Kind, Log, RequestEntry, StallEntry};
use crate::scenario::{Fault, Scenario, Service};
use crate::sys::{Poller, monotonic_ns, run_delay_ns, sleep_until};

/// Longest wait, so that a stop is seen soon.
const LONGEST_WAIT_NS: u64 = 10_000_000;

/// How long before a due time the loop stops sleeping: waking a sleeper takes about this long.
const SPIN_NS: u64 = 60_000;

/// Token of the listener; a connection has its place in the low half and its generation in the high half.
const LISTENER: u64 = u64::MAX;

/// Connections accepted in one turn, so that answers that are due do not wait for all of a burst.
const ACCEPTS_PER_TURN: usize = 256;

/// Bytes read in one call.
const READ_BYTES: usize = 64 * 1024;

/// A place for a connection; its generation tells a late event of a former tenant from one of this.
#[derive(Debug, Default)]
struct Place {
    generation: u32,
    tenant: Option<Connection>,
}

pub struct EventLoop {
    poller: Poller,
    listener: TcpListener,
    scenario: Scenario,
    answers: Answers,
    stop: Arc<AtomicBool>,
    places: Vec<Place>,
    free: Vec<usize>,
    /// When which connection goes on.
    due: BinaryHeap<Reverse<(u64, u64)>>,
    first_request_ns: Option<u64>,
    /// When the one server of exponential service is free again.
    queue_free_ns: u64,
    buffer: Vec<u8>,
    log: Log,
}

impl EventLoop {
    pub fn new(
        listener: TcpListener,
        scenario: Scenario,
        stop: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(listener.as_fd(), LISTENER)?;
        Ok(EventLoop {
            poller,
            listener,
            answers: Answers::new(&scenario.body),
            scenario,
            stop,
            places: Vec::new(),
            free: Vec::new(),
            due: BinaryHeap::new(),
            first_request_ns: None,
            queue_free_ns: 0,
            buffer: vec![0; READ_BYTES],
            log: Log {
                started_ns: monotonic_ns(),
                ..Log::default()
            },
        })
    }

    /// Serves until it is told to stop.
    pub fn run(&mut self) -> io::Result<()> {
        while !self.stop.load(Ordering::Relaxed) {
            self.stall();
            self.go_on_with_due()?;
            let events = self.poller.wait(self.timeout_ns())?;
            let readable_ns = monotonic_ns();
            for i in 0..events {
                self.stall();
                match self.poller.event(i) {
                    (LISTENER, _) => self.accept()?,
                    (token, room) => self.ready(token, room, readable_ns)?,
                }
            }
        }
        Ok(())
    }

    /// Closes what is open and returns what was done; to be called on the thread that ran.
    pub fn into_log(mut self) -> Log {
        for place in 0..self.places.len() {
            if let Some(connection) = self.places[place].tenant.take() {
                self.end(place, connection, ClosedBy::Stop);
            }
        }
        self.log.stopped_ns = monotonic_ns();
        self.log.run_delay_ns = run_delay_ns();
        self.log
    }

    /// Does nothing at all until the stall is over, when there is one.
    fn stall(&mut self) {
        if let (Some(stall), Some(first)) = (self.scenario.stall, self.first_request_ns)
            && let Some(end) = stall.end_of(monotonic_ns().saturating_sub(first))
        {
            sleep_until(first + end);
            self.log.stalls.push(StallEntry {
                begin_ns: first + end - stall.length_ms * 1_000_000,
                end_ns: monotonic_ns(),
            });
        }
    }

    fn timeout_ns(&self) -> u64 {
        if self.scenario.busy_poll {
            return 0;
        }
        self.due.peek().map_or(LONGEST_WAIT_NS, |Reverse((at, _))| {
            at.saturating_sub(monotonic_ns() + SPIN_NS)
                .min(LONGEST_WAIT_NS)
        })
    }

    fn go_on_with_due(&mut self) -> io::Result<()> {
        while let Some(Reverse((at, token))) = self.due.peek().copied() {
            if at > monotonic_ns() {
                break;
            }
            self.due.pop();
            self.with_tenant(token, |this, connection| this.advance(connection, token, 0))?;
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        for _ in 0..ACCEPTS_PER_TURN {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // The client gave up before its turn came.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(e) => return Err(e),
            };
            self.admit(stream)?;
        }
        Ok(())
    }

    fn admit(&mut self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let number = u32::try_from(self.log.totals.accepted).unwrap_or(u32::MAX);
        self.log.totals.accepted += 1;
        if self.log.connections.len() < self.scenario.log_cap {
            self.log.connections.push(ConnectionEntry {
                accepted_ns: monotonic_ns(),
                closed_ns: 0,
                closed_by: None,
                requests: 0,
            });
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        });
        let place = &mut self.places[index];
        let token = u64::from(place.generation) << 32 | index as u64;
        self.poller.add(stream.as_fd(), token)?;
        place.tenant = Some(Connection::new(stream, number));
        Ok(())
    }

    /// Calls `act` with the connection of a token, if it is still there, and keeps or ends it as it says.
    fn with_tenant(
        &mut self,
        token: u64,
        act: impl FnOnce(&mut Self, &mut Connection) -> io::Result<Option<ClosedBy>>,
    ) -> io::Result<()> {
        let index = (token & 0xffff_ffff) as usize;
        let place = &mut self.places[index];
        if u64::from(place.generation) != token >> 32 {
            return Ok(());
        }
        let Some(mut connection) = place.tenant.take() else {
            return Ok(());
        };
        match act(self, &mut connection)? {
            None => self.places[index].tenant = Some(connection),
            Some(by) => self.end(index, connection, by),
        }
        Ok(())
    }

    fn ready(&mut self, token: u64, room: bool, readable_ns: u64) -> io::Result<()> {
        self.with_tenant(token, |this, connection| {
            match connection.read(&mut this.buffer) {
                Input::Bytes(n) => this.log.totals.bytes_in += n as u64,
                Input::End => return Ok(Some(ClosedBy::Client)),
                Input::Reset => return Ok(Some(ClosedBy::ClientReset)),
                Input::TooMuch => {
                    this.log.totals.bad_requests += 1;
                    return Ok(Some(ClosedBy::Server));
                }
            }
            if room || connection.steps.is_empty() {
                return this.advance(connection, token, readable_ns);
            }
            Ok(None)
        })
    }

    /// Carries out steps until one has to wait, and takes the next request where there are none left.
    /// Returns who ended the connection, where it is over.
    fn advance(
        &mut self,
        connection: &mut Connection,
        token: u64,
        readable_ns: u64,
    ) -> io::Result<Option<ClosedBy>> {
        loop {
            match connection.steps.front() {
                Some(Step::At(at)) if monotonic_ns() < *at => {
                    self.due.push(Reverse((*at, token)));
                    return Ok(None);
                }
                Some(Step::At(_)) => {}
                Some(Step::Send(bytes)) => {
                    let bytes = Arc::clone(bytes);
                    match self.send(connection, token, &bytes)? {
                        Some(true) => {}
                        Some(false) => return Ok(None),
                        None => return Ok(Some(ClosedBy::ClientReset)),
                    }
                }
                Some(Step::Hang) => return Ok(None),
                Some(Step::Close) => return Ok(Some(ClosedBy::Server)),
                Some(Step::Reset) => return Ok(Some(ClosedBy::ServerReset)),
                None => {
                    match connection.take_request() {
                        Ok(None) => return Ok(None),
                        Ok(Some(whole)) => self.begin(connection, whole, readable_ns),
                        Err(_) => {
                            self.log.totals.bad_requests += 1;
                            return Ok(Some(ClosedBy::Server));
                        }
                    }
                    continue;
                }
            }
            connection.steps.pop_front();
        }
    }

    /// Whether all of `bytes` was sent; none when the client is gone.
    fn send(
        &mut self,
        connection: &mut Connection,
        token: u64,
        bytes: &Arc<[u8]>,
    ) -> io::Result<Option<bool>> {
        let now_ns = monotonic_ns();
        let Ok((n, all)) = connection.write(bytes) else {
            return Ok(None);
        };
        self.log.totals.bytes_out += n as u64;
        if let Some(entry) = connection.entry.map(|i| &mut self.log.requests[i])
            && n > 0
        {
            if entry.first_byte_ns == 0 {
                entry.first_byte_ns = now_ns;
            }
            entry.departure_ns = now_ns;
            entry.bytes_out += n as u32;
        }
        if all == connection.watches_writing {
            connection.watches_writing = !all;
            let fd = connection.stream.as_fd();
            self.poller.watch_writing(fd, token, !all)?;
        }
        Ok(Some(all))
    }

    /// Logs a request that is whole and decides what happens to it.
    fn begin(&mut self, connection: &mut Connection, whole: Whole, readable_ns: u64) {
        let arrival_ns = monotonic_ns();
        let first_ns = *self.first_request_ns.get_or_insert(arrival_ns);
        let index = self.log.totals.requests;
        let fault = self.scenario.fault_of(index);
        let kind = Kind::from(fault);
        self.log.totals.requests += 1;
        *self.log.totals.kinds.entry(kind).or_default() += 1;
        connection.requests += 1;
        connection.entry = None;
        if self.log.requests.len() < self.scenario.log_cap {
            connection.entry = Some(self.log.requests.len());
            self.log.requests.push(RequestEntry {
                connection: connection.number,
                kind,
                // A request that waited behind another one's answer became readable with that one.
                readable_ns: match connection.stamp_ns {
                    Some(stamp_ns) => stamp_ns,
                    None if readable_ns == 0 => arrival_ns,
                    None => readable_ns,
                },
                arrival_ns,
                first_byte_ns: 0,
                departure_ns: 0,
                bytes_in: u32::try_from(whole.bytes).unwrap_or(u32::MAX),
                bytes_out: 0,
            });
        }
        let due_ns = self.due_ns(index, fault, (arrival_ns, arrival_ns - first_ns));
        let last = self
            .scenario
            .close_after
            .filter(|c| connection.requests >= c.requests);
        let announce = whole.close || last.is_some_and(|c| c.announced);
        let close = whole.close || last.is_some();
        let steps = &mut connection.steps;
        self.answers
            .script(fault, (arrival_ns, due_ns), (announce, close), steps);
    }

    /// When the answer to a request leaves that arrived at `arrival_ns`, `since_first_ns` after the first one.
    fn due_ns(
        &mut self,
        index: u64,
        fault: Option<Fault>,
        (arrival_ns, since_first_ns): (u64, u64),
    ) -> u64 {
        if matches!(fault, Some(Fault::Status { .. })) {
            return arrival_ns;
        }
        let service = match self.scenario.change {
            Some(change) if since_first_ns >= change.at_ms * 1_000_000 => change.service,
            _ => self.scenario.service,
        };
        match service {
            Service::Fixed { delay_us } => arrival_ns + delay_us * 1000,
            Service::Exponential { mean_us } => {
                let takes_ns = exponential_ns(!self.scenario.seed, index, mean_us * 1e3);
                self.queue_free_ns = self.queue_free_ns.max(arrival_ns) + takes_ns;
                self.queue_free_ns
            }
        }
    }

    fn end(&mut self, index: usize, connection: Connection, by: ClosedBy) {
        if by == ClosedBy::ServerReset {
            // Fails only on a socket that is gone already.
            let _ = SockRef::from(&connection.stream).set_linger(Some(Duration::ZERO));
        }
        *self.log.totals.closed.entry(by).or_default() += 1;
        if let Some(entry) = self.log.connections.get_mut(connection.number as usize) {
            entry.closed_ns = monotonic_ns();
            entry.closed_by = Some(by);
            entry.requests = u32::try_from(connection.requests).unwrap_or(u32::MAX);
        }
        let place = &mut self.places[index];
        place.generation = place.generation.wrapping_add(1);
        self.free.push(index);
    }
}
