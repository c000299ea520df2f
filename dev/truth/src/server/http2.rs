//! An HTTP/2 connection with prior knowledge. The crate `h2` checks and decodes the client's
//! frames, without sockets: bytes pass through a pipe in memory. The server itself sends new limits
//! on streams and the GOAWAY frames that leave streams unprocessed, because `h2` cannot.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::io::{self, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use h2::RecvStream;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use hyper::body::Bytes;
use hyper::http::Response;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};

use super::connection::{is_temporary, number_in, receive};
use crate::log::{ClosedBy, RequestEntry, SettingsEntry};
use crate::scenario::{CloseAfter, Setting, SettingsChange};
use crate::sys::monotonic_ns;

/// Capacity of the pipe in each direction, in bytes. `h2` consumes all input at once, and its
/// output for one turn is far shorter.
const PIPE_BYTES: usize = 1 << 20;

/// Length of the client's preface (RFC 9113, section 3.4), in bytes.
const PREFACE_BYTES: usize = 24;

/// Length of a frame's header (RFC 9113, section 4.1), in bytes.
const HEADER_BYTES: usize = 9;

/// Maximum payload of a frame that the server accepts, in bytes (the HTTP/2 default).
const PAYLOAD_LIMIT: usize = 1 << 14;

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GO_AWAY: u8 = 7;
const ACK: u8 = 1;

/// Identifier of the setting SETTINGS_MAX_CONCURRENT_STREAMS.
const MAX_STREAMS: u16 = 3;

/// An HTTP/2 connection.
pub struct Http2Connection {
    pub stream: TcpStream,
    /// Index of the connection, in order of acceptance.
    pub number: u64,
    /// Number of complete requests.
    pub requests: u64,
    /// Whether epoll reports when the connection becomes writable.
    pub awaits_writable: bool,
    session: Session,
    /// The other end of the session's pipe.
    pipe: DuplexStream,
    /// Bytes of an incomplete frame, or of the incomplete preface.
    input: Vec<u8>,
    has_preface: bool,
    /// Kernel timestamp of the last input, or the time when epoll reported the input.
    readable_ns: u64,
    /// The server's own frames, sent after the output of `h2`.
    frames: Vec<u8>,
    /// Bytes to send.
    output: Vec<u8>,
    /// Streams whose response has not been sent.
    streams: BTreeMap<u32, Stream>,
    /// Due times of responses, each with its stream.
    due: BTreeSet<(u64, u32)>,
    /// Settings to send, each with its time.
    changes: VecDeque<(u64, Setting)>,
    /// Settings to be acknowledged: whether `h2` sent them, and their entries.
    sent: VecDeque<(bool, Vec<SettingsEntry>)>,
    close_after: Option<CloseAfter>,
    /// Number of streams whose HEADERS have arrived and that are not ignored.
    opened: u64,
    /// Whether `h2` should shut down the connection.
    shuts_down: bool,
    /// Streams with a higher identifier are ignored.
    last_stream: u32,
    /// Settings that the client has acknowledged.
    pub acknowledged: Vec<SettingsEntry>,
    /// Number of streams that were ignored after a GOAWAY.
    pub ignored: u64,
}

enum Session {
    Handshaking(Handshake<DuplexStream, Bytes>),
    Open(Connection<DuplexStream, Bytes>),
}

/// A request and its response.
#[derive(Default)]
struct Stream {
    request: RequestEntry,
    /// Body and response, after `h2` has accepted the request.
    accepted: Option<(RecvStream, SendResponse<Bytes>)>,
    is_complete: bool,
    /// Status of the response, and the log entry.
    response: Option<(u16, usize)>,
}

/// The client violated the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtocolError;

impl Http2Connection {
    pub fn new(
        stream: TcpStream,
        number: u64,
        settings: &[SettingsChange],
        close_after: Option<CloseAfter>,
    ) -> Http2Connection {
        let now_ns = monotonic_ns();
        let (first, later): (Vec<&SettingsChange>, _) =
            settings.iter().partition(|change| change.after_ms == 0);
        let mut builder = Builder::new();
        for change in &first {
            match change.setting {
                Setting::MaxStreams(streams) => builder.max_concurrent_streams(streams),
                Setting::InitialWindow(bytes) => builder.initial_window_size(bytes),
            };
        }
        let sent = first.iter().map(|change| SettingsEntry {
            connection: number,
            setting: change.setting,
            sent_ns: now_ns,
            acknowledged_ns: 0,
        });
        let sent = VecDeque::from([(true, sent.collect())]);
        let (pipe, inner) = duplex(PIPE_BYTES);
        Http2Connection {
            stream,
            number,
            requests: 0,
            awaits_writable: false,
            session: Session::Handshaking(builder.handshake(inner)),
            pipe,
            input: Vec::new(),
            has_preface: false,
            readable_ns: 0,
            frames: Vec::new(),
            output: Vec::new(),
            streams: BTreeMap::new(),
            due: BTreeSet::new(),
            changes: later
                .into_iter()
                .map(|change: &SettingsChange| {
                    (now_ns + change.after_ms * 1_000_000, change.setting)
                })
                .collect(),
            sent,
            close_after,
            opened: 0,
            shuts_down: false,
            last_stream: u32::MAX,
            acknowledged: Vec::new(),
            ignored: 0,
        }
    }

    /// Returns the times at which settings are due.
    pub fn change_times(&self) -> impl Iterator<Item = u64> {
        self.changes.iter().map(|(at_ns, _)| *at_ns)
    }

    /// Reads once and returns the number of bytes.
    ///
    /// # Errors
    /// The connection must be closed; the error states which side closes it.
    pub fn read(&mut self, buffer: &mut [u8], readable_ns: u64) -> Result<usize, ClosedBy> {
        let (n, stamp_ns) = receive(&self.stream, buffer)?;
        self.readable_ns = stamp_ns.unwrap_or(readable_ns);
        self.input.extend_from_slice(&buffer[..n]);
        self.take_frames().map_err(|_| ClosedBy::Server)?;
        Ok(n)
    }

    /// Passes complete frames to `h2`, except the ones that the server itself handles.
    fn take_frames(&mut self) -> Result<(), ProtocolError> {
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        if !self.has_preface && rest.len() >= PREFACE_BYTES {
            let (preface, frames) = rest.split_at(PREFACE_BYTES);
            self.has_preface = true;
            self.pass(preface)?;
            rest = frames;
        }
        while self.has_preface
            && let Some((header, _)) = rest.split_first_chunk::<HEADER_BYTES>()
        {
            let [high, middle, low, kind, flags, id @ ..] = *header;
            let payload = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            let length = HEADER_BYTES + payload;
            if payload > PAYLOAD_LIMIT {
                return Err(ProtocolError);
            }
            let Some((frame, frames)) = rest.split_at_checked(length) else {
                break;
            };
            let id = u32::from_be_bytes(id) & (u32::MAX >> 1);
            if self.passes_on(kind, flags, id, length) {
                self.pass(frame)?;
            }
            rest = frames;
        }
        self.input = rest.to_vec();
        Ok(())
    }

    /// Logs a frame. Returns whether `h2` should receive the frame.
    fn passes_on(&mut self, kind: u8, flags: u8, id: u32, length: usize) -> bool {
        let now_ns = monotonic_ns();
        if kind == SETTINGS && flags & ACK != 0 {
            let Some((is_of_h2, settings)) = self.sent.pop_front() else {
                return true;
            };
            self.acknowledged
                .extend(settings.into_iter().map(|sent| SettingsEntry {
                    acknowledged_ns: now_ns,
                    ..sent
                }));
            return is_of_h2;
        }
        if id > self.last_stream {
            self.ignored += u64::from(kind == HEADERS);
            return false;
        }
        if kind == HEADERS && !self.streams.contains_key(&id) {
            let stream = Stream {
                request: RequestEntry {
                    connection: self.number,
                    head_ns: now_ns,
                    ..RequestEntry::default()
                },
                ..Stream::default()
            };
            self.streams.insert(id, stream);
            self.opened += 1;
            self.shut_down(id);
        }
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.request.bytes_in += length as u32;
            stream.request.readable_ns = self.readable_ns;
            stream.request.arrival_ns = now_ns;
        }
        true
    }

    /// Sends a GOAWAY if the stream `id` is the last one that the connection serves.
    fn shut_down(&mut self, id: u32) {
        let Some(close_after) = self.close_after.filter(|c| c.requests == self.opened) else {
            return;
        };
        if close_after.announced {
            self.shuts_down = true;
        } else {
            self.last_stream = id;
            let payload = [id.to_be_bytes(), [0; 4]].concat();
            self.push_frame(GO_AWAY, &payload);
        }
    }

    /// Adds a frame of stream 0.
    fn push_frame(&mut self, kind: u8, payload: &[u8]) {
        let header = [0, 0, payload.len() as u8, kind, 0, 0, 0, 0, 0];
        self.frames.extend([&header, payload].concat());
    }

    /// Passes bytes to `h2`.
    fn pass(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        let pipe = Pin::new(&mut self.pipe);
        match pipe.poll_write(&mut Context::from_waker(Waker::noop()), bytes) {
            Poll::Ready(Ok(n)) if n == bytes.len() => Ok(()),
            // The pipe is full, or `h2` has closed the connection.
            _ => Err(ProtocolError),
        }
    }

    /// Accepts requests. Returns whether the connection has ended.
    fn accept_requests(&mut self, context: &mut Context<'_>) -> Result<bool, ProtocolError> {
        loop {
            match &mut self.session {
                Session::Handshaking(handshake) => match Pin::new(handshake).poll(context) {
                    Poll::Ready(session) => {
                        self.session = Session::Open(session.map_err(|_| ProtocolError)?);
                    }
                    Poll::Pending => return Ok(false),
                },
                Session::Open(connection) => {
                    if std::mem::take(&mut self.shuts_down) {
                        connection.graceful_shutdown();
                    }
                    match connection.poll_accept(context) {
                        Poll::Ready(Some(accepted)) => {
                            let (request, respond) = accepted.map_err(|_| ProtocolError)?;
                            let id = respond.stream_id().as_u32();
                            let stream = self.streams.get_mut(&id).ok_or(ProtocolError)?;
                            stream.request.number = number_in(request.uri().path());
                            stream.accepted = Some((request.into_body(), respond));
                        }
                        Poll::Ready(None) => return Ok(true),
                        Poll::Pending => return Ok(false),
                    }
                }
            }
        }
    }

    /// Lets `h2` handle its input and write its output. Returns the streams whose requests are
    /// complete, in order of arrival, and whether the connection has ended.
    ///
    /// # Errors
    /// The client violated the protocol.
    pub fn turn(&mut self) -> Result<(Vec<u32>, bool), ProtocolError> {
        let context = &mut Context::from_waker(Waker::noop());
        let mut complete = Vec::new();
        let has_ended = loop {
            let has_ended = self.accept_requests(context)?;
            let mut has_data = false;
            for (id, stream) in self.streams.iter_mut().filter(|(_, of)| !of.is_complete) {
                has_data |= stream.read_body(context)?;
                complete.extend(stream.is_complete.then_some(*id));
            }
            // `h2` grants new credit in the next turn.
            if !has_data {
                break has_ended;
            }
        };
        complete.sort_by_key(|id| self.request(*id).arrival_ns);
        self.requests += complete.len() as u64;
        let mut bytes = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = Pin::new(&mut self.pipe).poll_read(context, &mut buffer);
            if read.is_pending() || buffer.filled().is_empty() {
                break;
            }
            self.output.extend_from_slice(buffer.filled());
        }
        self.output.append(&mut self.frames);
        Ok((complete, has_ended))
    }

    /// Returns the data recorded so far for the request on a stream.
    pub fn request(&self, id: u32) -> RequestEntry {
        self.streams
            .get(&id)
            .map(|stream| stream.request)
            .unwrap_or_default()
    }

    /// Schedules a response.
    pub fn schedule(&mut self, id: u32, due_ns: u64, status: u16, entry: usize) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.response = Some((status, entry));
            self.due.insert((due_ns, id));
        }
    }

    /// Passes a due response with this body to `h2`. Returns the log entry of its request, or
    /// `None` if no response is due at `now_ns`.
    pub fn respond(&mut self, now_ns: u64, body: &str) -> Option<usize> {
        let &(due_ns, id) = self.due.first()?;
        if due_ns > now_ns {
            return None;
        }
        self.due.pop_first();
        let stream = self.streams.remove(&id)?;
        let (status, entry) = stream.response?;
        let (_, mut respond) = stream.accepted?;
        let mut response = Response::new(());
        *response.status_mut() = status.try_into().unwrap_or_default();
        // Sending fails only if the client has reset the stream.
        if let Ok(mut sending) = respond.send_response(response, false) {
            let _ = sending.send_data(Bytes::copy_from_slice(body.as_bytes()), true);
        }
        Some(entry)
    }

    /// Sends the settings that are due at `now_ns`.
    pub fn change_settings(&mut self, now_ns: u64) {
        while let Some(&(at_ns, setting)) = self.changes.front()
            && at_ns <= now_ns
        {
            self.changes.pop_front();
            let is_of_h2 = match (setting, &mut self.session) {
                (Setting::InitialWindow(bytes), Session::Open(connection)) => {
                    // This fails only if the previous change has not been acknowledged.
                    let _ = connection.set_initial_window_size(bytes);
                    true
                }
                (Setting::InitialWindow(_), Session::Handshaking(_)) => continue,
                (Setting::MaxStreams(streams), _) => {
                    let id = MAX_STREAMS.to_be_bytes();
                    let payload = [&id[..], &streams.to_be_bytes()].concat();
                    self.push_frame(SETTINGS, &payload);
                    false
                }
            };
            let entry = SettingsEntry {
                connection: self.number,
                setting,
                sent_ns: now_ns,
                acknowledged_ns: 0,
            };
            self.sent.push_back((is_of_h2, vec![entry]));
        }
    }

    /// Writes output. Returns the number of bytes that the kernel accepted, and whether all bytes
    /// have been written.
    ///
    /// # Errors
    /// The client has closed the connection.
    pub fn write(&mut self) -> io::Result<(usize, bool)> {
        if self.output.is_empty() {
            return Ok((0, true));
        }
        match self.stream.write(&self.output) {
            Ok(n) => {
                self.output.drain(..n);
                Ok((n, self.output.is_empty()))
            }
            Err(error) if is_temporary(&error) => Ok((0, false)),
            Err(error) => Err(error),
        }
    }
}

impl Stream {
    /// Reads and discards available bytes of the body. Returns whether there were any. A request
    /// that the client has reset stays incomplete.
    fn read_body(&mut self, context: &mut Context<'_>) -> Result<bool, ProtocolError> {
        let Some((body, _)) = &mut self.accepted else {
            return Ok(false);
        };
        let mut has_data = false;
        loop {
            match body.poll_data(context) {
                Poll::Pending => return Ok(has_data),
                Poll::Ready(None) => {
                    self.is_complete = true;
                    return Ok(has_data);
                }
                Poll::Ready(Some(Err(error))) if error.is_reset() => {
                    self.accepted = None;
                    return Ok(has_data);
                }
                Poll::Ready(Some(data)) => {
                    let length = data.map_err(|_| ProtocolError)?.len();
                    let credit = body.flow_control().release_capacity(length);
                    credit.map_err(|_| ProtocolError)?;
                    has_data |= length > 0;
                }
            }
        }
    }
}
