//! The event loop accepts connections, reads requests, and sends each response when the response is
//! due.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use std::{io, iter};

use floodmark_host::Stop;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use socket2::SockRef;

use super::connection::{Http1Connection, RequestHead};
use super::http2::Http2Connection;
use super::responses::{ResponseStep, Responses};
use crate::log::{ClosedBy, ConnectionEntry, Log, RequestEntry, StallEntry};
use crate::scenario::{ResponseFault, Scenario};
use crate::service::VirtualServer;
use crate::sys::{monotonic_ns, run_delay_ns, sleep_until, timespec};

/// Maximum time to wait for events. The loop checks the stop flag at least this often.
const MAX_WAIT_NS: u64 = 10_000_000;

/// Time for which the loop polls before a due time: about the wake-up time of a thread.
const SPIN_NS: u64 = 60_000;

/// Token of the listener. The token of a connection is the connection's number.
const LISTENER: u64 = u64::MAX;

/// Maximum number of events per turn. Further events remain for the next turn.
const EVENTS_PER_TURN: usize = 512;

/// Maximum number of connections accepted per turn, so that a burst does not delay due responses.
const ACCEPTS_PER_TURN: usize = 256;

/// Maximum number of bytes per read.
const READ_BYTES: usize = 64 * 1024;

/// Status of the response to a request that the service rejects.
const REJECTED_STATUS: u16 = 503;

/// Response to a request that the service rejects.
const REJECTED: ResponseFault = ResponseFault::Status {
    code: REJECTED_STATUS,
};

/// A connection.
enum ServerConnection {
    Http1(Http1Connection),
    Http2(Box<Http2Connection>),
}

pub struct EventLoop {
    epoll: OwnedFd,
    listener: TcpListener,
    scenario: Scenario,
    responses: Responses,
    stop: Stop,
    /// Open connections, by token.
    connections: HashMap<u64, ServerConnection>,
    /// Due times, each with the token of a connection.
    due: BinaryHeap<Reverse<(u64, u64)>>,
    first_request_ns: Option<u64>,
    server: VirtualServer,
    buffer: Vec<u8>,
    log: Log,
}

impl EventLoop {
    pub fn new(listener: TcpListener, scenario: Scenario, stop: Stop) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let token = EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, token, EventFlags::IN)?;
        Ok(EventLoop {
            epoll,
            listener,
            responses: Responses::new(&scenario.body),
            server: VirtualServer::new(&scenario),
            scenario,
            stop,
            connections: HashMap::new(),
            due: BinaryHeap::new(),
            first_request_ns: None,
            buffer: vec![0; READ_BYTES],
            log: Log {
                started_ns: monotonic_ns(),
                ..Log::default()
            },
        })
    }

    /// Serves until `stop` is set.
    pub fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_PER_TURN);
        while !self.stop.is_set() {
            self.stall();
            self.resume_due()?;
            let timeout = timespec(self.timeout_ns());
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let readable_ns = monotonic_ns();
            for epoll::Event { flags, data } in events.iter().copied() {
                self.stall();
                match data.u64() {
                    LISTENER => self.accept()?,
                    token => self.ready(token, flags.contains(EventFlags::OUT), readable_ns)?,
                }
            }
        }
        Ok(())
    }

    /// Closes all connections and returns the log. Must be called on the thread that called `run`.
    pub fn into_log(mut self) -> Log {
        for connection in std::mem::take(&mut self.connections).into_values() {
            self.end(&connection, ClosedBy::Stop);
        }
        self.log.stopped_ns = monotonic_ns();
        self.log.run_delay_ns = run_delay_ns();
        self.log
    }

    /// Sleeps until the end of the current stall, if any.
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
        self.due.peek().map_or(MAX_WAIT_NS, |Reverse((at, _))| {
            at.saturating_sub(monotonic_ns() + SPIN_NS).min(MAX_WAIT_NS)
        })
    }

    fn resume_due(&mut self) -> io::Result<()> {
        while let Some(Reverse((at, token))) = self.due.peek().copied() {
            if at > monotonic_ns() {
                break;
            }
            self.due.pop();
            self.with_connection(token, |this, connection| match connection {
                ServerConnection::Http1(connection) => this.advance(connection, 0),
                ServerConnection::Http2(connection) => this.advance_http2(connection),
            })?;
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        for _ in 0..ACCEPTS_PER_TURN {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // The client closed the connection before the server accepted it.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(e) => return Err(e),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let token = self.log.totals.accepted;
            self.log.totals.accepted += 1;
            self.log.connections.push(ConnectionEntry {
                accepted_ns: monotonic_ns(),
                requests: 0,
            });
            let data = EventData::new_u64(token);
            epoll::add(&self.epoll, &stream, data, EventFlags::IN)?;
            let connection = match &self.scenario.http2 {
                None => ServerConnection::Http1(Http1Connection::new(stream, token)),
                Some(settings) => {
                    let close_after = self.scenario.close_after;
                    let connection = Http2Connection::new(stream, token, settings, close_after);
                    let times = connection.change_times();
                    self.due.extend(times.map(|at| Reverse((at, token))));
                    // The server sends its settings without waiting for the client.
                    self.due.push(Reverse((0, token)));
                    ServerConnection::Http2(Box::new(connection))
                }
            };
            self.connections.insert(token, connection);
        }
        Ok(())
    }

    /// Calls `act` with the connection of a token, if the connection still exists. Closes the
    /// connection if `act` returns the side that closes it.
    fn with_connection(
        &mut self,
        token: u64,
        act: impl FnOnce(&mut Self, &mut ServerConnection) -> io::Result<Option<ClosedBy>>,
    ) -> io::Result<()> {
        // The connection may have been closed since the due time or event was registered.
        let Some(mut connection) = self.connections.remove(&token) else {
            return Ok(());
        };
        match act(self, &mut connection)? {
            None => drop(self.connections.insert(token, connection)),
            Some(by) => self.end(&connection, by),
        }
        Ok(())
    }

    fn ready(&mut self, token: u64, room: bool, readable_ns: u64) -> io::Result<()> {
        self.with_connection(token, |this, connection| {
            let read = match connection {
                ServerConnection::Http1(connection) => connection.read(&mut this.buffer),
                ServerConnection::Http2(connection) => {
                    connection.read(&mut this.buffer, readable_ns)
                }
            };
            match read {
                Ok(n) => this.log.totals.bytes_in += n as u64,
                Err(by) => {
                    this.log.totals.bad_requests += u64::from(by == ClosedBy::Server);
                    return Ok(Some(by));
                }
            }
            match connection {
                ServerConnection::Http1(connection) if room || connection.steps.is_empty() => {
                    this.advance(connection, readable_ns)
                }
                ServerConnection::Http1(_) => Ok(None),
                ServerConnection::Http2(connection) => this.advance_http2(connection),
            }
        })
    }

    /// Executes steps until a step has to wait. Takes the next request when no steps are left.
    /// Returns the side that closed the connection, if any.
    fn advance(
        &mut self,
        connection: &mut Http1Connection,
        readable_ns: u64,
    ) -> io::Result<Option<ClosedBy>> {
        loop {
            match connection.steps.front() {
                Some(ResponseStep::At(at)) if monotonic_ns() < *at => {
                    self.due.push(Reverse((*at, connection.number)));
                    return Ok(None);
                }
                Some(ResponseStep::At(_)) => {}
                Some(ResponseStep::Send(bytes)) => {
                    let (bytes, now_ns) = (Arc::clone(bytes), monotonic_ns());
                    let Ok((n, all)) = connection.write(&bytes) else {
                        return Ok(Some(ClosedBy::ClientReset));
                    };
                    self.sent(connection, now_ns, n);
                    if all == connection.awaits_writable {
                        connection.awaits_writable = !all;
                        self.watch_writable(&connection.stream, connection.number, !all)?;
                    }
                    if !all {
                        return Ok(None);
                    }
                }
                Some(ResponseStep::Hang) => return Ok(None),
                Some(ResponseStep::Close) => return Ok(Some(ClosedBy::Server)),
                Some(ResponseStep::Reset) => return Ok(Some(ClosedBy::ServerReset)),
                None => {
                    match connection.take_request() {
                        Ok(None) => return Ok(None),
                        Ok(Some(request)) => self.begin(connection, request, readable_ns),
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

    /// Logs that `n` bytes of a response were sent at `now_ns`.
    fn sent(&mut self, connection: &Http1Connection, now_ns: u64, n: usize) {
        self.log.totals.bytes_out += n as u64;
        let entry = connection.entry.map(|i| &mut self.log.requests[i]);
        if let Some(entry) = entry.filter(|_| n > 0) {
            if entry.first_byte_ns == 0 {
                entry.first_byte_ns = now_ns;
            }
            entry.departure_ns = now_ns;
            entry.bytes_out += n as u32;
        }
    }

    fn watch_writable(&self, stream: &TcpStream, token: u64, on: bool) -> io::Result<()> {
        let mut flags = EventFlags::IN;
        flags.set(EventFlags::OUT, on);
        Ok(epoll::modify(
            &self.epoll,
            stream,
            EventData::new_u64(token),
            flags,
        )?)
    }

    /// Handles the input of an HTTP/2 connection, and sends what is due. Returns the side that
    /// closed the connection, if any.
    fn advance_http2(&mut self, connection: &mut Http2Connection) -> io::Result<Option<ClosedBy>> {
        connection.change_settings(monotonic_ns());
        let mut answered = Vec::new();
        let has_ended = loop {
            let Ok((complete, has_ended)) = connection.turn() else {
                self.log.totals.bad_requests += 1;
                return Ok(Some(ClosedBy::Server));
            };
            for id in complete {
                let (index, fault, due_ns) = self.log_request(connection.request(id));
                // A rejection is the only fault over HTTP/2.
                let status = fault.map_or(200, |_| REJECTED_STATUS);
                connection.schedule(id, due_ns, status, index);
                self.due.push(Reverse((due_ns, connection.number)));
            }
            let (now_ns, before) = (monotonic_ns(), answered.len());
            answered.extend(iter::from_fn(|| {
                connection.respond(now_ns, &self.scenario.body)
            }));
            if answered.len() == before {
                break has_ended;
            }
        };
        let now_ns = monotonic_ns();
        for entry in answered {
            let entry = &mut self.log.requests[entry];
            (entry.first_byte_ns, entry.departure_ns) = (now_ns, now_ns);
        }
        let Ok((n, all)) = connection.write() else {
            return Ok(Some(ClosedBy::ClientReset));
        };
        self.log.totals.bytes_out += n as u64;
        if all == connection.awaits_writable {
            connection.awaits_writable = !all;
            self.watch_writable(&connection.stream, connection.number, !all)?;
        }
        Ok((has_ended && all).then_some(ClosedBy::Server))
    }

    /// Logs a complete request and selects the response.
    fn begin(&mut self, connection: &mut Http1Connection, request: RequestHead, readable_ns: u64) {
        let arrival_ns = monotonic_ns();
        let steps = &mut connection.steps;
        connection.entry = None;
        if request.is_probe {
            let (at, close) = ((arrival_ns, arrival_ns), (request.close, request.close));
            self.responses.script(None, at, close, steps);
            return;
        }
        let (index, fault, due_ns) = self.log_request(RequestEntry {
            connection: connection.number,
            number: request.number,
            // A pipelined request became readable together with the previous request.
            readable_ns: connection.stamp_ns.unwrap_or(match readable_ns {
                0 => arrival_ns,
                readable_ns => readable_ns,
            }),
            arrival_ns,
            bytes_in: u32::try_from(request.length as u64 + request.body).unwrap_or(u32::MAX),
            ..RequestEntry::default()
        });
        connection.requests += 1;
        connection.entry = Some(index);
        let close_after = self.scenario.close_after;
        let last = close_after.filter(|c| connection.requests >= c.requests);
        let close_header = request.close || last.is_some_and(|c| c.announced);
        let close = (close_header, request.close || last.is_some());
        self.responses
            .script(fault, (arrival_ns, due_ns), close, steps);
    }

    /// Logs a complete request. Returns the index of its log entry, the fault of the response, and
    /// the time when the response is due.
    fn log_request(&mut self, entry: RequestEntry) -> (usize, Option<ResponseFault>, u64) {
        let arrival_ns = entry.arrival_ns;
        self.first_request_ns.get_or_insert(arrival_ns);
        let (fault, due_ns) = match self.scenario.fault_of(self.log.totals.requests) {
            Some(fault @ ResponseFault::Status { .. }) => (Some(fault), arrival_ns),
            fault => match self.server.serve(arrival_ns) {
                Some(due_ns) => (fault, due_ns),
                None => (Some(REJECTED), arrival_ns),
            },
        };
        self.log.totals.requests += 1;
        self.log.requests.push(RequestEntry { fault, ..entry });
        (self.log.requests.len() - 1, fault, due_ns)
    }

    /// Logs the end of a connection. The caller drops the connection.
    fn end(&mut self, connection: &ServerConnection, by: ClosedBy) {
        let (stream, number, requests) = match connection {
            ServerConnection::Http1(of) => (&of.stream, of.number, of.requests),
            ServerConnection::Http2(of) => {
                self.log.settings.extend(&of.acknowledged);
                self.log.totals.ignored_streams += of.ignored;
                (&of.stream, of.number, of.requests)
            }
        };
        if by == ClosedBy::ServerReset {
            // Setting the option fails only for a closed socket.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
        *self.log.totals.closed.entry(by).or_default() += 1;
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        self.log.connections[number as usize].requests = requests;
    }
}
