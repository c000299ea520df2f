//! The session: the state of one connection.

use std::sync::Arc;

use super::error::{ConnectionError, ErrorCode, Malformed, Unavailable};
use super::frame::{
    self, DEFAULT_WINDOW_BYTES, Frame, FrameHeader, MAX_31_BITS, MIN_MAX_FRAME_BYTES, PREFACE,
    Setting, flag, kind,
};
use super::hpack::{DEFAULT_TABLE_BYTES, Decoder, integer};
use super::request::{Form, RequestHeads};
use super::response::Section;
use super::streams::{Stream, StreamState, Streams, add_window};
use crate::head::MAX_SECTION_BYTES;
use crate::reader::MAX_INTERIM;

/// Maximum number of CONTINUATION frames per field block, equal to nghttp2's default. Servers and
/// clients without a limit can be attacked (CVE-2024-28182).
pub const MAX_CONTINUATIONS: u8 = 8;

/// Output above which a session accepts neither requests nor parts of request bodies, in bytes.
///
/// The output therefore has at most this size plus one request head. Answers to the server's frames
/// may add the same number of bytes. Each open stream may add an empty DATA frame and a RST_STREAM
/// frame.
pub const MAX_OUTPUT_BYTES: usize = 64 * 1024;

/// Maximum size of a field block that is compared with the next one, in bytes.
const MAX_REPEATED_BYTES: usize = 512;

/// Maximum number of open streams before the server's SETTINGS arrive, equal to nghttp2's value.
/// RFC 9113 section 6.5.2 recommends that servers allow at least 100 streams.
const STREAMS_BEFORE_SETTINGS: u32 = 100;

/// Settings of a session. Values outside the range in their description are replaced by the nearest
/// legal value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Maximum number of open streams, from 1 to 2^20.
    pub max_streams: u32,
    /// Flow-control window of a stream for received data, in bytes, from 2 to 2^31 - 1.
    pub stream_window: u32,
    /// Maximum number of open streams until the server's SETTINGS arrive, at least 1.
    pub streams_before_settings: u32,
    /// Flow-control window of the connection for received data, in bytes, from 65,535 to 2^31 - 1.
    pub connection_window: u32,
    /// Maximum size of the dynamic table that the server may use to compress responses, in bytes,
    /// from 0 to 65,536.
    pub header_table: u32,
    /// Maximum number of frames without effect on a response. The count restarts when the client
    /// sends part of a request or calls [`Session::renew_idle_frames`]. Such frames are SETTINGS,
    /// PING, their acknowledgments, GOAWAY, PRIORITY, unknown types, and empty DATA frames.
    ///
    /// A server may send a PING for each DATA frame, as grpc-go does to measure the round-trip time.
    pub idle_frames: u32,
    /// Identifier of the first stream: an odd number up to 2^31 - 1. Only tests change it, to reach
    /// the last identifier. Lower identifiers are skipped (RFC 9113 section 5.1.1).
    pub first_stream: u32,
}

impl Default for Config {
    /// One stream with the identifier 1, a window of 1 MiB for the stream and 16 MiB for the
    /// connection, the RFC's table size of 4,096 bytes, 1,000 idle frames, and 100 streams until
    /// the server's SETTINGS arrive.
    fn default() -> Self {
        Config {
            max_streams: 1,
            stream_window: 1 << 20,
            streams_before_settings: STREAMS_BEFORE_SETTINGS,
            connection_window: 16 << 20,
            header_table: DEFAULT_TABLE_BYTES,
            idle_frames: 1000,
            first_stream: 1,
        }
    }
}

/// The server's SETTINGS that affect a client (RFC 9113 section 6.5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerSettings {
    /// Maximum size of the dynamic table for request heads, in bytes.
    pub header_table: u32,
    /// Maximum number of open streams. `None` means no limit.
    pub max_streams: Option<u32>,
    /// Initial flow-control window of a stream for request bodies, in bytes.
    pub stream_window: u32,
    /// Maximum payload of a frame, in bytes.
    pub max_frame: u32,
}

/// An action of the server. Events follow the order of its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A final response head arrived.
    Head {
        /// Stream identifier.
        stream: u32,
        /// Status code, 200 to 999.
        status: u16,
        /// Value of `content-length`, in bytes.
        content_length: Option<u64>,
        /// Whether the response ends with its head.
        end: bool,
    },
    /// A part of a response body arrived. Without `end`, the part is not empty. One DATA frame may
    /// cause several events.
    Data {
        /// Stream identifier.
        stream: u32,
        /// The part, without padding.
        bytes: &'a [u8],
        /// Whether the response ends with this part.
        end: bool,
    },
    /// Trailers arrived and ended a response.
    Trailers {
        /// Stream identifier.
        stream: u32,
    },
    /// The server ended a stream before its response was complete.
    Reset {
        /// Stream identifier.
        stream: u32,
        /// The server's reason.
        code: ErrorCode,
    },
    /// The server did not process a request (RFC 9113 section 8.7). It may be sent again.
    Refused {
        /// Stream identifier.
        stream: u32,
    },
    /// A response is malformed. The session resets its stream.
    Malformed {
        /// Stream identifier.
        stream: u32,
        /// The first fault.
        reason: Malformed,
    },
    /// The server shuts the connection down. Streams above `last` were not processed and are
    /// closed without further events. The others continue. A second GOAWAY may lower `last`.
    GoAway {
        /// Highest stream that the server may process.
        last: u32,
        /// The server's reason.
        code: ErrorCode,
    },
    /// SETTINGS arrived. [`Session::peer`] returns them. They may allow more streams, and may
    /// change the credit for request bodies.
    Settings,
    /// The answer to a PING arrived.
    Pong([u8; 8]),
    /// Credit arrived for the request body of a stream, or for all bodies (stream 0).
    WindowUpdate {
        /// Stream identifier, or 0.
        stream: u32,
    },
}

/// Receives the events of a session.
pub trait EventSink {
    /// Receives an event.
    fn event(&mut self, event: Event<'_>);

    /// Receives a regular field of a final response head or of trailers, before the event
    /// [`Head`](Event::Head), [`Trailers`](Event::Trailers) or [`Malformed`](Event::Malformed).
    /// Names are lower-case. Called only if [`reads_fields`](Self::reads_fields) returns `true`.
    fn field(&mut self, _stream: u32, _name: &[u8], _value: &[u8]) {}

    /// Returns whether fields are received.
    fn reads_fields(&self) -> bool {
        false
    }
}

impl<F: FnMut(Event<'_>)> EventSink for F {
    fn event(&mut self, event: Event<'_>) {
        self(event);
    }
}

/// The state of one connection.
///
/// Memory: about 150 KiB, most of which is used only for heads that span several reads or frames,
/// plus at most 160 bytes per allowed stream. The largest [`Config::header_table`] adds about
/// 110 KiB.
///
/// ```
/// use std::sync::Arc;
///
/// use floodmark_wire::RequestSpec;
/// use floodmark_wire::h2::{Config, Event, RequestHeads, Scheme, Session, request_fields};
///
/// let spec = RequestSpec {
///     method: "GET",
///     path: "/",
///     authority: "127.0.0.1:8080",
///     headers: &[],
///     body: b"",
///     close: false,
/// };
/// let fields = request_fields(&spec, Scheme::Http, Some(0))?;
/// let requests = Arc::new(RequestHeads::new(&[fields]));
///
/// let mut session = Session::new(&Config::default(), requests);
/// let stream = session.request(0, false, |_, _| ()).expect("the first stream is free");
/// assert!(session.output().starts_with(b"PRI * HTTP/2.0\r\n"));
///
/// // SETTINGS, then HEADERS with `:status: 200` and the end of the stream.
/// let input = b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x05\0\0\0\x01\x88";
/// let mut status = None;
/// session.feed(input, &mut |event: Event<'_>| {
///     if let Event::Head { stream: of, status: code, end: true, .. } = event {
///         status = Some((of, code));
///     }
/// })?;
/// assert_eq!(status, Some((stream, 200)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Session {
    config: Config,
    peer: PeerSettings,
    has_peer_settings: bool,
    decoder: Decoder,
    latest_head: LatestHead,
    streams: Streams,
    /// Bytes to send.
    out: Vec<u8>,
    reading: Reading,
    /// A frame header, or a payload other than DATA, that is split over several reads.
    partial: Vec<u8>,
    /// The fragments of a field block in several frames.
    block: Vec<u8>,
    open_block: Option<OpenBlock>,
    idle_frames: u32,
    /// Bytes that flow control allows the client to send on all streams.
    send_window: i64,
    /// Bytes of DATA frames for which the server has no new credit yet.
    received: u32,
    requests: Arc<RequestHeads>,
    table: RequestTable,
    /// Highest stream that the server may process, after GOAWAY.
    last_stream: Option<u32>,
    failed: Option<ConnectionError>,
}

/// The latest response head. Most servers repeat it, and comparing bytes costs less than decoding
/// them.
#[derive(Debug)]
struct LatestHead {
    block: Vec<u8>,
    /// [`Decoder::changes`] when the block was decoded; `None` before the first head.
    changes: Option<u64>,
    status: u16,
    content_length: Option<u64>,
}

/// State of the table that the server uses to decompress request heads.
#[derive(Debug)]
struct RequestTable {
    /// Size of the table. It only shrinks, so the shared fields never leave the table while they
    /// are used.
    bytes: u32,
    /// Whether the next block must start with a size update (RFC 7541 section 4.2).
    needs_size_update: bool,
    /// Whether a request has inserted the shared fields.
    has_shared_fields: bool,
}

#[derive(Debug, Clone, Copy)]
enum Reading {
    Header,
    Payload(FrameHeader),
    /// The byte with the length of the padding of a DATA frame.
    DataPadding(FrameHeader),
    Data(Data),
}

/// The rest of a DATA frame.
#[derive(Debug, Clone, Copy)]
struct Data {
    stream: u32,
    left: usize,
    padding_left: usize,
    end: bool,
}

/// A field block whose frames have not all arrived.
#[derive(Debug, Clone, Copy)]
struct OpenBlock {
    stream: u32,
    end_stream: bool,
    continuations: u8,
}

impl Session {
    /// Creates a session that can send `requests`. Its output starts with the preface, our SETTINGS
    /// and the credit for the connection.
    #[must_use]
    pub fn new(config: &Config, requests: Arc<RequestHeads>) -> Self {
        let config = Config {
            max_streams: config.max_streams.clamp(1, 1 << 20),
            stream_window: config.stream_window.clamp(2, MAX_31_BITS),
            streams_before_settings: config.streams_before_settings.max(1),
            connection_window: config
                .connection_window
                .clamp(DEFAULT_WINDOW_BYTES, MAX_31_BITS),
            header_table: config.header_table.min(1 << 16),
            idle_frames: config.idle_frames,
            first_stream: config.first_stream.min(MAX_31_BITS) | 1,
        };
        let mut out = Vec::with_capacity(1024);
        out.extend_from_slice(PREFACE);
        let settings = [
            Setting::HeaderTableSize(config.header_table),
            Setting::EnablePush(0),
            Setting::InitialWindowSize(config.stream_window),
            Setting::MaxHeaderListSize(MAX_SECTION_BYTES as u32),
        ];
        frame::settings(&settings, &mut out);
        let credit = config.connection_window - DEFAULT_WINDOW_BYTES;
        if credit > 0 {
            frame::window_update(0, credit, &mut out);
        }
        Session {
            config,
            peer: PeerSettings {
                header_table: DEFAULT_TABLE_BYTES,
                max_streams: None,
                stream_window: DEFAULT_WINDOW_BYTES,
                max_frame: MIN_MAX_FRAME_BYTES,
            },
            has_peer_settings: false,
            decoder: Decoder::new(config.header_table, MAX_SECTION_BYTES),
            latest_head: LatestHead {
                block: Vec::with_capacity(MAX_REPEATED_BYTES),
                changes: None,
                status: 0,
                content_length: None,
            },
            streams: Streams::new(config.max_streams, config.first_stream),
            out,
            reading: Reading::Header,
            partial: Vec::with_capacity(MIN_MAX_FRAME_BYTES as usize),
            block: Vec::with_capacity(MAX_SECTION_BYTES),
            open_block: None,
            idle_frames: config.idle_frames,
            send_window: i64::from(DEFAULT_WINDOW_BYTES),
            received: 0,
            requests,
            table: RequestTable {
                bytes: DEFAULT_TABLE_BYTES,
                needs_size_update: false,
                has_shared_fields: false,
            },
            last_stream: None,
            failed: None,
        }
    }

    /// Returns the bytes to send.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        &self.out
    }

    /// Removes bytes that were sent from the start of the output.
    ///
    /// # Panics
    /// Panics if the output is shorter.
    pub fn sent(&mut self, bytes: usize) {
        self.out.drain(..bytes);
    }

    /// Returns the server's SETTINGS, or their defaults.
    #[must_use]
    pub fn peer(&self) -> &PeerSettings {
        &self.peer
    }

    /// Returns the number of open streams.
    #[must_use]
    pub fn open_streams(&self) -> u32 {
        self.streams.open()
    }

    /// Returns the maximum number of open streams: the smaller limit of client and server. A lower
    /// limit does not close streams.
    #[must_use]
    pub fn stream_limit(&self) -> u32 {
        let peer = match self.peer.max_streams {
            None if !self.has_peer_settings => self.config.streams_before_settings,
            None => u32::MAX,
            Some(limit) => limit,
        };
        self.config.max_streams.min(peer)
    }

    /// Restores the number of frames in [`Config::idle_frames`]. Calls at a fixed interval limit the
    /// rate of these frames.
    pub fn renew_idle_frames(&mut self) {
        self.idle_frames = self.config.idle_frames;
    }

    /// Appends a request head to the output and returns the stream identifier. With `has_body`, the
    /// body follows in calls of [`send_body`](Self::send_body).
    ///
    /// `value` is called for each varying field in turn, with its number from 0, and appends the
    /// value. The value must not contain CR, LF or NUL (RFC 9113 section 8.2.1). White space around it
    /// is removed.
    ///
    /// # Errors
    /// The session cannot send another request now.
    ///
    /// # Panics
    /// Panics if `index` is not an index of the requests in [`RequestHeads::new`].
    pub fn request(
        &mut self,
        index: usize,
        has_body: bool,
        value: impl FnMut(usize, &mut Vec<u8>),
    ) -> Result<u32, Unavailable> {
        if self.failed.is_some() || self.last_stream.is_some() {
            return Err(Unavailable::Closing);
        }
        if self.streams.open() >= self.stream_limit() {
            return Err(Unavailable::Streams);
        }
        if self.out.len() >= MAX_OUTPUT_BYTES {
            return Err(Unavailable::Output);
        }
        let head = &self.requests.heads[index];
        let stream = Stream {
            state: StreamState::Head,
            to_head_request: head.is_head_request,
            is_sending: has_body,
            send_window: i64::from(self.peer.stream_window),
            ..Stream::default()
        };
        let id = self.streams.start(stream).ok_or(Unavailable::Closing)?;
        self.idle_frames = self.config.idle_frames;
        let shared_bytes = self.requests.table_bytes;
        let table = &mut self.table;
        frame::headers(id, !has_body, &mut self.out, |out| {
            if std::mem::take(&mut table.needs_size_update) {
                integer::encode(table.bytes as usize, 5, 0x20, out);
            }
            let form = if shared_bytes > table.bytes as usize {
                Form::Static
            } else if std::mem::replace(&mut table.has_shared_fields, true) {
                Form::Later
            } else {
                Form::First
            };
            head.write(form, value, out);
        });
        Ok(id)
    }

    /// Appends as much of a request body as flow control and [`MAX_OUTPUT_BYTES`] allow, and
    /// returns the number of bytes. With `end`, the body ends after `part`, which may be empty.
    ///
    /// Returns `None` if the stream is closed, its body has ended, or the session failed.
    ///
    /// If the response ends before the body, the session resets the stream with CANCEL. Servers
    /// that limit resets (CVE-2023-44487) may then close the connection. Therefore, call this
    /// function for a small body directly after [`request`](Self::request), so that both are sent
    /// together.
    pub fn send_body(&mut self, stream: u32, part: &[u8], end: bool) -> Option<usize> {
        let sender = self.streams.get_open(stream)?;
        if !sender.is_sending || self.failed.is_some() {
            return None;
        }
        let mut sent = 0;
        loop {
            let window = sender.send_window.min(self.send_window).max(0);
            let room = MAX_OUTPUT_BYTES.saturating_sub(self.out.len() + FrameHeader::BYTES);
            let length = (part.len() - sent)
                .min(window as usize)
                .min(room)
                .min(self.peer.max_frame as usize);
            let is_last = end && sent + length == part.len();
            if length == 0 && !is_last {
                return Some(sent);
            }
            frame::data(stream, &part[sent..sent + length], is_last, &mut self.out);
            sent += length;
            self.idle_frames = self.config.idle_frames;
            sender.send_window -= length as i64;
            self.send_window -= length as i64;
            if is_last {
                sender.is_sending = false;
                return Some(sent);
            }
        }
    }

    /// Returns the number of body bytes that flow control allows on a stream, or `None` if the
    /// stream is closed or its body has ended.
    #[must_use]
    pub fn send_credit(&mut self, stream: u32) -> Option<u32> {
        let sender = self.streams.get_open(stream)?;
        let window = sender.send_window.min(self.send_window).max(0);
        sender.is_sending.then_some(window as u32)
    }

    /// Ends a stream before its response is complete. Frames that are still in transit are ignored.
    pub fn reset(&mut self, stream: u32, code: ErrorCode) {
        if self.failed.is_some() {
            return;
        }
        if self.streams.close(stream, StreamState::Abandoned).is_some() {
            frame::reset(stream, code, &mut self.out);
        }
    }

    /// Appends a PING to the output. The answer is an [`Event::Pong`] with the same bytes.
    pub fn ping(&mut self, payload: [u8; 8]) {
        if self.failed.is_none() {
            frame::ping(payload, &mut self.out);
        }
    }

    /// Returns the highest identifier of a stream that the server may process, or `None` before a
    /// GOAWAY.
    #[must_use]
    pub fn last_stream(&self) -> Option<u32> {
        self.last_stream
    }

    /// Appends a GOAWAY to the output, before the client closes the connection.
    pub fn go_away(&mut self) {
        if self.failed.is_none() {
            frame::go_away(ErrorCode::NO_ERROR, &mut self.out);
        }
    }

    /// Reads bytes from the connection. The events do not depend on how the bytes are split over
    /// calls, except that the [`Data`](Event::Data) of a stream may be split differently.
    ///
    /// # Errors
    /// The server violates the protocol. The output then ends with a GOAWAY, every later call
    /// returns the same error, and the session sends nothing else.
    pub fn feed(&mut self, input: &[u8], sink: &mut impl EventSink) -> Result<(), ConnectionError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.read(input, sink).inspect_err(|error| {
            self.failed = Some(*error);
            frame::go_away(error.code(), &mut self.out);
        })
    }

    fn read(&mut self, mut input: &[u8], sink: &mut impl EventSink) -> Result<(), ConnectionError> {
        loop {
            match self.reading {
                Reading::Header => {
                    let Some(header) = self.take_header(&mut input) else {
                        return Ok(());
                    };
                    self.reading = self.begin(header, sink)?;
                }
                Reading::Payload(header) => {
                    if !self.payload(&header, &mut input, sink)? {
                        return Ok(());
                    }
                    self.reading = Reading::Header;
                }
                Reading::DataPadding(header) => {
                    let Some((&padding, rest)) = input.split_first() else {
                        return Ok(());
                    };
                    input = rest;
                    self.reading = self.begin_data(&header, Some(padding), sink)?;
                }
                Reading::Data(mut data) => {
                    if !self.data(&mut data, &mut input, sink)? {
                        self.reading = Reading::Data(data);
                        return Ok(());
                    }
                    self.reading = Reading::Header;
                }
            }
        }
    }

    /// Removes a frame header from the start of the input, once all its bytes have arrived.
    #[inline]
    fn take_header(&mut self, input: &mut &[u8]) -> Option<[u8; FrameHeader::BYTES]> {
        if self.partial.is_empty()
            && let Some((header, rest)) = input.split_first_chunk()
        {
            *input = rest;
            return Some(*header);
        }
        fill(&mut self.partial, FrameHeader::BYTES, input);
        let header = *self.partial.first_chunk()?;
        self.partial.clear();
        Some(header)
    }

    /// Checks a frame header and returns what follows it.
    fn begin(
        &mut self,
        bytes: [u8; FrameHeader::BYTES],
        sink: &mut impl EventSink,
    ) -> Result<Reading, ConnectionError> {
        let header = FrameHeader::parse(bytes);
        if !self.has_peer_settings && (header.kind != kind::SETTINGS || header.has(flag::ACK)) {
            let is_http1 = bytes.starts_with(b"HTTP/");
            return Err(if is_http1 {
                ConnectionError::Http1
            } else {
                ConnectionError::NoSettings
            });
        }
        header.check()?;
        if self.open_block.is_some() && header.kind != kind::CONTINUATION {
            return Err(ConnectionError::Continuation);
        }
        if header.kind != kind::DATA {
            return Ok(Reading::Payload(header));
        }
        self.received += header.length;
        if self.received > self.config.connection_window {
            return Err(ConnectionError::WindowExceeded);
        }
        match (header.has(flag::PADDED), header.length) {
            (false, _) => self.begin_data(&header, None, sink),
            (true, 0) => Err(ConnectionError::FrameSize),
            (true, _) => Ok(Reading::DataPadding(header)),
        }
    }

    /// Reads the payload of a frame other than DATA. Returns whether all of it has arrived.
    #[inline]
    fn payload(
        &mut self,
        header: &FrameHeader,
        input: &mut &[u8],
        sink: &mut impl EventSink,
    ) -> Result<bool, ConnectionError> {
        let length = header.length as usize;
        if self.partial.is_empty()
            && let Some((payload, rest)) = input.split_at_checked(length)
        {
            *input = rest;
            return self.frame(header, payload, sink).map(|()| true);
        }
        fill(&mut self.partial, length, input);
        if self.partial.len() < length {
            return Ok(false);
        }
        let mut payload = std::mem::take(&mut self.partial);
        self.frame(header, &payload, sink)?;
        payload.clear();
        self.partial = payload;
        Ok(true)
    }

    fn frame(
        &mut self,
        header: &FrameHeader,
        payload: &[u8],
        sink: &mut impl EventSink,
    ) -> Result<(), ConnectionError> {
        let stream = header.stream;
        match Frame::parse(header, payload)? {
            Frame::Headers(fragment) => {
                let end_stream = header.has(flag::END_STREAM);
                if header.has(flag::END_HEADERS) {
                    return self.section(stream, end_stream, fragment, sink);
                }
                self.streams.get(stream)?;
                self.block.clear();
                self.block.extend_from_slice(fragment);
                self.open_block = Some(OpenBlock {
                    stream,
                    end_stream,
                    continuations: 0,
                });
            }
            Frame::Continuation(fragment) => {
                let open = self.open_block.take().filter(|open| open.stream == stream);
                let mut open = open.ok_or(ConnectionError::Continuation)?;
                if open.continuations == MAX_CONTINUATIONS {
                    return Err(ConnectionError::TooManyContinuations);
                }
                open.continuations += 1;
                if self.block.len() + fragment.len() > MAX_SECTION_BYTES {
                    return Err(ConnectionError::BlockTooLarge);
                }
                self.block.extend_from_slice(fragment);
                if header.has(flag::END_HEADERS) {
                    let block = std::mem::take(&mut self.block);
                    self.section(stream, open.end_stream, &block, sink)?;
                    self.block = block;
                } else {
                    self.open_block = Some(open);
                }
            }
            Frame::Reset(code) => {
                self.streams.get(stream)?;
                if let Some(closed) = self.streams.close(stream, StreamState::Ended) {
                    sink.event(match (code, closed.state) {
                        (ErrorCode::REFUSED_STREAM, StreamState::Head) => Event::Refused { stream },
                        _ => Event::Reset { stream, code },
                    });
                }
            }
            Frame::Settings(payload) => {
                self.count_idle_frame()?;
                self.apply(payload)?;
                frame::settings_ack(self.answers()?);
                sink.event(Event::Settings);
            }
            Frame::Ping(payload) => {
                self.count_idle_frame()?;
                frame::pong(payload, self.answers()?);
            }
            Frame::Pong(payload) => {
                self.count_idle_frame()?;
                sink.event(Event::Pong(payload));
            }
            Frame::GoAway { last, code } => {
                self.count_idle_frame()?;
                if self.last_stream.is_some_and(|before| last > before) {
                    return Err(ConnectionError::GoAwayIncreased);
                }
                if self.last_stream.replace(last) != Some(last) {
                    self.streams.abandon_above(last);
                }
                sink.event(Event::GoAway { last, code });
            }
            Frame::WindowUpdate(bytes) if stream == 0 => {
                add_window(&mut self.send_window, i64::from(bytes))?;
                sink.event(Event::WindowUpdate { stream });
            }
            Frame::WindowUpdate(bytes) => {
                self.streams.get(stream)?;
                if let Some(receiver) = self.streams.get_open(stream) {
                    add_window(&mut receiver.send_window, i64::from(bytes))?;
                    sink.event(Event::WindowUpdate { stream });
                }
            }
            Frame::SettingsAck | Frame::Ignored => self.count_idle_frame()?,
        }
        Ok(())
    }

    fn count_idle_frame(&mut self) -> Result<(), ConnectionError> {
        let left = self.idle_frames.checked_sub(1);
        self.idle_frames = left.ok_or(ConnectionError::Flood)?;
        Ok(())
    }

    /// Returns the output for the answer to a frame.
    fn answers(&mut self) -> Result<&mut Vec<u8>, ConnectionError> {
        if self.out.len() > 2 * MAX_OUTPUT_BYTES {
            return Err(ConnectionError::OutputFull);
        }
        Ok(&mut self.out)
    }

    /// Applies the server's SETTINGS (RFC 9113 section 6.5.3).
    fn apply(&mut self, payload: &[u8]) -> Result<(), ConnectionError> {
        let before = self.peer.stream_window;
        for setting in Setting::parse(payload) {
            match setting? {
                Setting::HeaderTableSize(bytes) => {
                    self.peer.header_table = bytes;
                    if bytes < self.table.bytes {
                        self.table.bytes = bytes;
                        self.table.needs_size_update = true;
                    }
                }
                Setting::MaxConcurrentStreams(limit) => self.peer.max_streams = Some(limit),
                Setting::InitialWindowSize(bytes) => self.peer.stream_window = bytes,
                Setting::MaxFrameSize(bytes) => self.peer.max_frame = bytes,
                Setting::EnablePush(_) | Setting::MaxHeaderListSize(_) | Setting::Unknown(..) => {}
            }
        }
        self.has_peer_settings = true;
        // All streams change, so only the last value in the frame is applied.
        let change = i64::from(self.peer.stream_window) - i64::from(before);
        self.streams.add_send_window(change)
    }

    /// Reads a complete field block. The decoder needs the blocks of closed streams, too.
    fn section(
        &mut self,
        id: u32,
        end_stream: bool,
        block: &[u8],
        sink: &mut impl EventSink,
    ) -> Result<(), ConnectionError> {
        let state = self.streams.get(id)?.map(|stream| stream.state);
        if state == Some(StreamState::Ended) {
            return Err(ConnectionError::StreamClosed);
        }
        let is_trailers = state == Some(StreamState::Body);
        let is_open = is_trailers || state == Some(StreamState::Head);
        let latest = &self.latest_head;
        let is_repeated = !is_trailers
            && latest.block == block
            && latest.changes == Some(self.decoder.changes())
            && !sink.reads_fields();
        let fields = if is_repeated {
            Ok((latest.status, latest.content_length))
        } else {
            self.decode(id, (is_trailers, is_open), block, sink)?
        };
        let Some(stream) = self.streams.get_open(id) else {
            return Ok(());
        };
        match fields.and_then(|fields| respond(stream, fields, end_stream)) {
            Ok(None) => {}
            Ok(Some(event)) => {
                if end_stream {
                    self.end(id);
                }
                sink.event(event);
            }
            Err(reason) => self.reject(id, reason, sink),
        }
        Ok(())
    }

    /// Decodes a field block. Returns the status, which is 0 for trailers, and `content-length`.
    fn decode(
        &mut self,
        id: u32,
        (is_trailers, is_open): (bool, bool),
        block: &[u8],
        sink: &mut impl EventSink,
    ) -> Result<Result<(u16, Option<u64>), Malformed>, ConnectionError> {
        let reads_fields = sink.reads_fields();
        let mut section = Section::new(is_trailers);
        self.decoder.decode(block, |name, value| {
            if is_open && section.field(name, value) && reads_fields {
                sink.field(id, name, value);
            }
        })?;
        let fields = section.finish();
        if let Ok((status, content_length)) = fields
            && is_open
            && !is_trailers
            && block.len() <= MAX_REPEATED_BYTES
        {
            let latest = &mut self.latest_head;
            latest.block.clear();
            latest.block.extend_from_slice(block);
            latest.changes = Some(self.decoder.changes());
            (latest.status, latest.content_length) = (status, content_length);
        }
        Ok(fields)
    }

    /// Checks the start of a DATA frame and returns what follows it.
    fn begin_data(
        &mut self,
        header: &FrameHeader,
        padding: Option<u8>,
        sink: &mut impl EventSink,
    ) -> Result<Reading, ConnectionError> {
        let data_and_padding = header.length as usize - usize::from(padding.is_some());
        let padding_left = usize::from(padding.unwrap_or(0));
        let left = data_and_padding.checked_sub(padding_left);
        let left = left.ok_or(ConnectionError::Padding)?;
        let end = header.has(flag::END_STREAM);
        if left == 0 && !end {
            self.count_idle_frame()?;
        }
        let id = header.stream;
        if let Some(stream) = self.streams.get(id)? {
            if stream.state == StreamState::Ended {
                return Err(ConnectionError::StreamClosed);
            }
            stream.received += header.length;
            if stream.received > self.config.stream_window {
                return Err(ConnectionError::WindowExceeded);
            }
            let fault = match stream.state {
                StreamState::Ended | StreamState::Abandoned => None,
                StreamState::Head => Some(Malformed::DataBeforeHead),
                StreamState::Body => match &mut stream.body_left {
                    Some(body) if *body < left as u64 || end && *body > left as u64 => {
                        Some(Malformed::BodyLength)
                    }
                    Some(body) => {
                        *body -= left as u64;
                        None
                    }
                    None => None,
                },
            };
            if let Some(reason) = fault {
                self.reject(id, reason, sink);
            }
        }
        Ok(Reading::Data(Data {
            stream: id,
            left,
            padding_left,
            end,
        }))
    }

    /// Reads data and padding. Returns whether the frame is complete.
    #[inline]
    fn data(
        &mut self,
        data: &mut Data,
        input: &mut &[u8],
        sink: &mut impl EventSink,
    ) -> Result<bool, ConnectionError> {
        let (bytes, rest) = input.split_at(data.left.min(input.len()));
        data.left -= bytes.len();
        let (padding, rest) = rest.split_at(data.padding_left.min(rest.len()));
        data.padding_left -= padding.len();
        *input = rest;
        let is_complete = data.left == 0 && data.padding_left == 0;
        let end = data.end && is_complete;
        let stream = data.stream;
        if self.streams.get_open(stream).is_some() && (end || !bytes.is_empty()) {
            if end {
                self.end(stream);
            }
            sink.event(Event::Data { stream, bytes, end });
        }
        if is_complete {
            self.return_credit(stream)?;
        }
        Ok(is_complete)
    }

    /// Returns credit for received data once it makes up half a window.
    fn return_credit(&mut self, id: u32) -> Result<(), ConnectionError> {
        if self.received >= self.config.connection_window / 2 {
            frame::window_update(0, self.received, self.answers()?);
            self.received = 0;
        }
        if let Some(stream) = self.streams.get_open(id)
            && stream.received >= self.config.stream_window / 2
        {
            let credit = std::mem::take(&mut stream.received);
            frame::window_update(id, credit, self.answers()?);
        }
        Ok(())
    }

    /// Closes a stream whose response is complete. An unfinished request body is no longer needed
    /// (RFC 9113 section 8.1).
    fn end(&mut self, id: u32) {
        let closed = self.streams.close(id, StreamState::Ended);
        if closed.is_some_and(|stream| stream.is_sending) {
            frame::reset(id, ErrorCode::CANCEL, &mut self.out);
        }
    }

    fn reject(&mut self, stream: u32, reason: Malformed, sink: &mut impl EventSink) {
        self.reset(stream, ErrorCode::PROTOCOL_ERROR);
        sink.event(Event::Malformed { stream, reason });
    }
}

/// Moves bytes from the start of `input` to `partial` until `partial` has `length` bytes.
fn fill(partial: &mut Vec<u8>, length: usize, input: &mut &[u8]) {
    let missing = length - partial.len();
    let (part, rest) = input.split_at(missing.min(input.len()));
    partial.extend_from_slice(part);
    *input = rest;
}

/// Applies the status and `content-length` of a section to its stream. Returns the event, or `None`
/// for an interim response.
fn respond(
    stream: &mut Stream,
    (status, content_length): (u16, Option<u64>),
    end: bool,
) -> Result<Option<Event<'static>>, Malformed> {
    let id = stream.id;
    let event = match stream.state {
        StreamState::Head if status < 200 => {
            if end {
                return Err(Malformed::InterimEnd);
            }
            if stream.interim == MAX_INTERIM {
                return Err(Malformed::TooManyInterim);
            }
            stream.interim += 1;
            return Ok(None);
        }
        StreamState::Head => {
            let has_no_body = stream.to_head_request || matches!(status, 204 | 304);
            stream.body_left = if has_no_body { Some(0) } else { content_length };
            stream.state = StreamState::Body;
            Event::Head {
                stream: id,
                status,
                content_length,
                end,
            }
        }
        _ if end => Event::Trailers { stream: id },
        _ => return Err(Malformed::TrailersWithoutEnd),
    };
    if end && stream.body_left.is_some_and(|left| left > 0) {
        return Err(Malformed::BodyLength);
    }
    Ok(Some(event))
}

#[cfg(test)]
mod tests;
