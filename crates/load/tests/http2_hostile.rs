//! Loads over HTTP/2 against servers on plain sockets that break the rules of RFC 9113, sections 4
//! to 8, or use them against the client.

#![allow(clippy::unwrap_used, reason = "tests")]

#[macro_use]
mod common;

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use common::http2::{SETTINGS, STATUS_200, frame, http2, read_frame, read_preface};
use common::plans::{closed_plan, with_mix};
use common::server::serve;
use common::{Run, run_with};
use floodmark_load::worker::StopFlag;
use floodmark_record::Counts;
use floodmark_record::body::RequestBody;
use floodmark_record::plan::{Backend, Http, Http2, Plan};
use floodmark_wire::h2::frame::{FrameHeader, flag, kind};

on_both_backends! {
    judges_every_first_frame
    judges_every_frame
    rejects_data_beyond_the_window
    survives_a_close_at_every_byte
    every_load_ends
    waiting_bodies_take_bounded_memory
}

/// Time after which a load counts as endless, far longer than any load takes.
const ENDLESS: Duration = Duration::from_secs(20);

/// Maximum number of bytes that are sent one by one.
const FEW_BYTES: usize = 400;

const LARGEST_WINDOW: u32 = (1 << 31) - 1;
const LARGEST_FRAME: usize = 1 << 14;

const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;

/// Flags of DATA and HEADERS.
const OPEN: u8 = flag::END_HEADERS;
const LAST: u8 = flag::END_HEADERS | flag::END_STREAM;

fn headers(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    frame(kind::HEADERS, flags, stream, block)
}

fn data(stream: u32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    frame(kind::DATA, flags, stream, bytes)
}

fn continuation(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    frame(kind::CONTINUATION, flags, stream, block)
}

fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let setting =
        |&(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    let payload: Vec<u8> = values.iter().flat_map(setting).collect();
    frame(kind::SETTINGS, 0, 0, &payload)
}

fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &code.to_be_bytes())
}

fn go_away(last: u32, code: u32) -> Vec<u8> {
    let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
    frame(kind::GOAWAY, 0, 0, &payload)
}

fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// Returns a complete response without a body.
fn ok(stream: u32) -> Vec<u8> {
    headers(stream, LAST, STATUS_200)
}

/// Returns a literal field without indexing.
fn field(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0, name.len() as u8];
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(value.len() as u8);
    bytes.extend_from_slice(value.as_bytes());
    bytes
}

/// Returns the field block of a response with a status and one more field.
fn block(name: &str, value: &str) -> Vec<u8> {
    [STATUS_200, &field(name, value)].concat()
}

/// Number of requests by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Outcomes {
    ok: u64,
    rejected: u64,
    malformed: u64,
    reset: u64,
    timed_out: u64,
}

const NONE: Outcomes = Outcomes {
    ok: 0,
    rejected: 0,
    malformed: 0,
    reset: 0,
    timed_out: 0,
};

impl From<&Counts> for Outcomes {
    fn from(counts: &Counts) -> Self {
        Outcomes {
            ok: counts.ok,
            rejected: counts.rejected,
            malformed: counts.malformed,
            reset: counts.reset,
            timed_out: counts.timed_out,
        }
    }
}

/// Reaction of a server to two requests, on streams 1 and 3.
struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    expected: Outcomes,
    /// Name and number of the errors.
    error: Option<(&'static str, u64)>,
}

/// Returns a case in which the client must reject the connection.
fn invalid(name: &'static str, error: &'static str, frames: &[&[u8]]) -> Case {
    let expected = Outcomes {
        malformed: 2,
        ..NONE
    };
    Case {
        name,
        bytes: frames.concat(),
        expected,
        error: Some((error, 2)),
    }
}

/// Returns a case in which the client must reject the first response only.
fn malformed(name: &'static str, error: &'static str, frames: &[&[u8]]) -> Case {
    let expected = Outcomes {
        ok: 1,
        malformed: 1,
        ..NONE
    };
    Case {
        name,
        bytes: [frames.concat(), ok(3)].concat(),
        expected,
        error: Some((error, 1)),
    }
}

/// Returns a case in which the server resets the first stream.
fn reset_by_server(name: &'static str, error: &'static str, frames: &[&[u8]]) -> Case {
    let expected = Outcomes {
        ok: 1,
        reset: 1,
        ..NONE
    };
    Case {
        expected,
        ..malformed(name, error, frames)
    }
}

/// Returns a case in which the client must accept both responses.
fn legal(name: &'static str, frames: &[&[u8]]) -> Case {
    let expected = Outcomes { ok: 2, ..NONE };
    Case {
        name,
        bytes: frames.concat(),
        expected,
        error: None,
    }
}

/// Returns a case in which the connection becomes invalid after the first response.
fn invalid_later(name: &'static str, error: &'static str, frames: &[&[u8]]) -> Case {
    let expected = Outcomes {
        ok: 1,
        malformed: 1,
        ..NONE
    };
    Case {
        expected,
        error: Some((error, 1)),
        ..legal(name, frames)
    }
}

/// Cases in which the server's first frame is not valid SETTINGS.
fn first_frames() -> Vec<Case> {
    let ping = frame(kind::PING, 0, 0, &[0; 8]);
    let ack = frame(kind::SETTINGS, flag::ACK, 0, &[]);
    vec![
        invalid("HTTP/1.1", "http1", &[b"HTTP/1.1 400 Bad Request\r\n\r\n"]),
        invalid("SSH", "no_settings", &[b"SSH-2.0-OpenSSH_9.6\r\n"]),
        invalid("zeros", "no_settings", &[&[0; 64]]),
        invalid("PING first", "no_settings", &[&ping]),
        invalid("acknowledgment first", "no_settings", &[&ack]),
        invalid("GOAWAY first", "no_settings", &[&go_away(0, 0)]),
        invalid("response first", "no_settings", &[&ok(1)]),
        invalid(
            "SETTINGS of a stream",
            "frame_stream",
            &[&frame(kind::SETTINGS, 0, 1, &[])],
        ),
        invalid(
            "SETTINGS of 5 bytes",
            "frame_size",
            &[&frame(kind::SETTINGS, 0, 0, &[0; 5])],
        ),
        invalid(
            "too long SETTINGS",
            "frame_size",
            &[&frame(kind::SETTINGS, 0, 0, &[0; 6 * 2731])],
        ),
        invalid("push", "setting", &[&settings(&[(ENABLE_PUSH, 1)])]),
        invalid("push 2", "setting", &[&settings(&[(ENABLE_PUSH, 2)])]),
        invalid(
            "small frames",
            "setting",
            &[&settings(&[(MAX_FRAME_SIZE, 16_383)])],
        ),
        invalid(
            "large frames",
            "setting",
            &[&settings(&[(MAX_FRAME_SIZE, 1 << 24)])],
        ),
        invalid(
            "large window",
            "window_overflow",
            &[&settings(&[(INITIAL_WINDOW_SIZE, 1 << 31)])],
        ),
    ]
}

/// Cases for frames and their order (RFC 9113 sections 4 to 6).
fn frames() -> Vec<Case> {
    let ping = frame(kind::PING, 0, 0, &[1; 8]);
    let pong = frame(kind::PING, flag::ACK, 0, &[1; 8]);
    let priority = frame(kind::PRIORITY, 0, 9, &[0; 5]);
    let unknown = frame(0x42, 0xff, 7, b"???");
    let head = headers(1, OPEN, STATUS_200);
    let start = headers(1, flag::END_STREAM, &[]);
    let padded = |kind, flags, padding: u8, rest: &[u8]| {
        let payload = [&[padding], rest].concat();
        frame(kind, flags | flag::PADDED, 1, &payload)
    };
    let cases = [
        ("DATA of stream 0", "frame_stream", data(0, 0, b"x")),
        (
            "HEADERS of stream 0",
            "frame_stream",
            headers(0, LAST, STATUS_200),
        ),
        ("RST_STREAM of stream 0", "frame_stream", reset(0, 0)),
        (
            "PRIORITY of stream 0",
            "frame_stream",
            frame(kind::PRIORITY, 0, 0, &[0; 5]),
        ),
        (
            "CONTINUATION of stream 0",
            "frame_stream",
            continuation(0, OPEN, &[]),
        ),
        (
            "PING of a stream",
            "frame_stream",
            frame(kind::PING, 0, 1, &[0; 8]),
        ),
        (
            "GOAWAY of a stream",
            "frame_stream",
            frame(kind::GOAWAY, 0, 1, &[0; 8]),
        ),
        (
            "PING of 7 bytes",
            "frame_size",
            frame(kind::PING, 0, 0, &[0; 7]),
        ),
        (
            "RST_STREAM of 3 bytes",
            "frame_size",
            frame(kind::RST_STREAM, 0, 1, &[0; 3]),
        ),
        (
            "PRIORITY of 4 bytes",
            "frame_size",
            frame(kind::PRIORITY, 0, 1, &[0; 4]),
        ),
        (
            "GOAWAY of 7 bytes",
            "frame_size",
            frame(kind::GOAWAY, 0, 0, &[0; 7]),
        ),
        (
            "WINDOW_UPDATE of 5 bytes",
            "frame_size",
            frame(kind::WINDOW_UPDATE, 0, 1, &[0; 5]),
        ),
        (
            "acknowledgment with a setting",
            "frame_size",
            frame(kind::SETTINGS, flag::ACK, 0, &[0; 6]),
        ),
        (
            "long DATA",
            "frame_size",
            data(1, 0, &[0; LARGEST_FRAME + 1]),
        ),
        (
            "long HEADERS",
            "frame_size",
            headers(1, LAST, &[0; LARGEST_FRAME + 1]),
        ),
        (
            "long unknown frame",
            "frame_size",
            frame(0x42, 0, 0, &[0; LARGEST_FRAME + 1]),
        ),
        (
            "padded HEADERS without length",
            "frame_size",
            headers(1, LAST | flag::PADDED, &[]),
        ),
        (
            "padded HEADERS",
            "padding",
            padded(kind::HEADERS, LAST, 2, STATUS_200),
        ),
        (
            "HEADERS with half a priority",
            "frame_size",
            headers(1, LAST | flag::PRIORITY, &[0; 4]),
        ),
        ("HEADERS on an idle stream", "idle_stream", ok(5)),
        ("HEADERS on a server's stream", "idle_stream", ok(2)),
        ("DATA on an idle stream", "idle_stream", data(5, 0, b"x")),
        (
            "RST_STREAM on an idle stream",
            "idle_stream",
            reset(5, CANCEL),
        ),
        (
            "WINDOW_UPDATE on an idle stream",
            "idle_stream",
            window_update(5, 1),
        ),
        (
            "CONTINUATION without HEADERS",
            "continuation",
            continuation(1, OPEN, STATUS_200),
        ),
        (
            "PUSH_PROMISE",
            "push",
            frame(kind::PUSH_PROMISE, OPEN, 1, &[0, 0, 0, 2, 0x82]),
        ),
        (
            "WINDOW_UPDATE of 0",
            "zero_window_update",
            window_update(0, 0),
        ),
        (
            "WINDOW_UPDATE of 0 for a stream",
            "zero_window_update",
            window_update(1, 0),
        ),
        (
            "window overflow",
            "window_overflow",
            window_update(0, LARGEST_WINDOW),
        ),
        (
            "window overflow of a stream",
            "window_overflow",
            window_update(1, LARGEST_WINDOW),
        ),
        ("field 0", "invalid_index", headers(1, LAST, &[0x80])),
        (
            "field beyond the tables",
            "invalid_index",
            headers(1, LAST, &[0xbe]),
        ),
        (
            "half a field",
            "truncated",
            headers(1, LAST, &[0x88, 0, 5, b'x']),
        ),
        (
            "endless integer",
            "integer_overflow",
            headers(1, LAST, &[0xff; 20]),
        ),
        (
            "large table",
            "table_too_large",
            headers(1, LAST, &[0x3f, 0xe2, 0x1f, 0x88]),
        ),
        (
            "late size update",
            "misplaced_size_update",
            headers(1, LAST, &[0x88, 0x20]),
        ),
        (
            "end-of-string symbol",
            "end_of_string",
            headers(1, LAST, &[0x88, 0, 0x84, 0xff, 0xff, 0xff, 0xff, 0]),
        ),
    ];
    let mut all: Vec<Case> = cases
        .iter()
        .map(|(name, error, bytes)| invalid(name, error, &[bytes]))
        .collect();
    all.extend([
        invalid("PING between fragments", "continuation", &[&start, &ping]),
        invalid(
            "DATA between fragments",
            "continuation",
            &[&start, &data(1, 0, b"x")],
        ),
        invalid(
            "unknown frame between fragments",
            "continuation",
            &[&start, &unknown],
        ),
        invalid(
            "CONTINUATION of another stream",
            "continuation",
            &[&start, &continuation(3, OPEN, &[])],
        ),
        invalid(
            "9 CONTINUATIONs",
            "too_many_continuations",
            &[&start, &continuation(1, 0, &[]).repeat(9)],
        ),
        invalid(
            "CONTINUATION flood",
            "too_many_continuations",
            &[&start, &continuation(1, 0, &[0x88]).repeat(10_000)],
        ),
        invalid(
            "long field block",
            "block_too_large",
            &[&start, &continuation(1, 0, &[0; LARGEST_FRAME]).repeat(5)],
        ),
        invalid(
            "expansion by the table",
            "list_too_large",
            &[&headers(1, LAST, &bomb())],
        ),
        invalid(
            "padded DATA without length",
            "frame_size",
            &[&head, &data(1, flag::PADDED, &[])],
        ),
        invalid(
            "padded DATA",
            "padding",
            &[&head, &padded(kind::DATA, 0, 3, b"xy")],
        ),
        invalid(
            "window overflow by SETTINGS",
            "window_overflow",
            &[
                &window_update(1, 1),
                &settings(&[(INITIAL_WINDOW_SIZE, LARGEST_WINDOW)]),
            ],
        ),
        invalid(
            "GOAWAY that increases",
            "go_away_increased",
            &[&go_away(3, 0), &go_away(5, 0)],
        ),
        invalid("PING flood", "flood", &[&ping.repeat(2_000)]),
        invalid("PING ACK flood", "flood", &[&pong.repeat(2_000)]),
        invalid("SETTINGS flood", "flood", &[&SETTINGS.repeat(2_000)]),
        invalid("PRIORITY flood", "flood", &[&priority.repeat(2_000)]),
        invalid(
            "flood of unknown frames",
            "flood",
            &[&unknown.repeat(2_000)],
        ),
        invalid("GOAWAY flood", "flood", &[&go_away(3, 0).repeat(2_000)]),
        invalid(
            "flood of empty DATA",
            "flood",
            &[&head, &data(1, 0, &[]).repeat(2_000)],
        ),
        invalid(
            "flood of padding",
            "flood",
            &[&head, &padded(kind::DATA, 0, 1, &[0]).repeat(2_000)],
        ),
        invalid_later(
            "DATA after the end",
            "stream_closed",
            &[&ok(1), &data(1, 0, b"x")],
        ),
        invalid_later("HEADERS after the end", "stream_closed", &[&ok(1), &ok(1)]),
        legal(
            "unknown frames and settings",
            &[&unknown, &settings(&[(0xfe, 9)]), &ok(3), &ok(1)],
        ),
        legal(
            "PRIORITY on any stream",
            &[&priority, &ok(3), &ok(1), &priority],
        ),
        legal("many PINGs", &[&ping.repeat(900), &ok(3), &ok(1)]),
        legal(
            "padding of 255",
            &[
                &padded(kind::HEADERS, OPEN, 255, &[STATUS_200, &[0; 255]].concat()),
                &padded(kind::DATA, flag::END_STREAM, 255, &[b'x'; 260]),
                &ok(3),
            ],
        ),
        legal(
            "HEADERS with a priority",
            &[
                &headers(1, LAST | flag::PRIORITY, &[0, 0, 0, 0, 9, 0x88]),
                &ok(3),
            ],
        ),
        legal(
            "8 CONTINUATIONs",
            &[
                &start,
                &continuation(1, 0, &[]).repeat(7),
                &continuation(1, OPEN, STATUS_200),
                &ok(3),
            ],
        ),
        legal(
            "RST_STREAM after the end",
            &[&ok(1), &reset(1, 0).repeat(5_000), &ok(3)],
        ),
        legal(
            "WINDOW_UPDATE after the end",
            &[&ok(1), &window_update(1, LARGEST_WINDOW).repeat(3), &ok(3)],
        ),
        legal(
            "two shutdowns",
            &[&go_away(LARGEST_WINDOW, 0), &ok(1), &go_away(3, 0), &ok(3)],
        ),
        legal(
            "limit on streams lowered to 0",
            &[&settings(&[(MAX_CONCURRENT_STREAMS, 0)]), &ok(1), &ok(3)],
        ),
        legal(
            "SETTINGS at their limits",
            &[
                &settings(&[
                    (HEADER_TABLE_SIZE, u32::MAX),
                    (ENABLE_PUSH, 0),
                    (MAX_CONCURRENT_STREAMS, u32::MAX),
                    (INITIAL_WINDOW_SIZE, LARGEST_WINDOW),
                    (MAX_FRAME_SIZE, (1 << 24) - 1),
                ]),
                &settings(&[(INITIAL_WINDOW_SIZE, 0)]),
                &ok(1),
                &ok(3),
            ],
        ),
    ]);
    all
}

/// Returns a field block of 4 KiB that decodes to 4 MiB.
fn bomb() -> Vec<u8> {
    let mut block = STATUS_200.to_vec();
    // A literal with indexing whose value has 1,000 bytes: 127 + 0x69 + 0x06 * 128.
    block.extend_from_slice(&[0x40, 1, b'x', 0x7f, 0xe9, 0x06]);
    block.extend_from_slice(&[b'y'; 1000]);
    block.extend_from_slice(&[0xbe; 4000]);
    block
}

/// Cases for responses (RFC 9113 section 8).
fn responses() -> Vec<Case> {
    let head = headers(1, OPEN, STATUS_200);
    let status = |text: &str| field(":status", text);
    let length_5 = headers(1, OPEN, &block("content-length", "5"));
    let interim = headers(1, OPEN, &field(":status", "103"));
    let end = flag::END_STREAM;
    let blocks = [
        ("no status", "pseudo_field", field("a", "b")),
        ("empty head", "pseudo_field", vec![]),
        (
            "two statuses",
            "pseudo_field",
            [STATUS_200, STATUS_200].concat(),
        ),
        (
            "late status",
            "pseudo_field",
            [&field("a", "b"), STATUS_200].concat(),
        ),
        (
            "pseudo-header of a request",
            "pseudo_field",
            block(":path", "/"),
        ),
        ("unknown pseudo-header", "pseudo_field", block(":x", "y")),
        ("status 101", "status", status("101")),
        ("status with 2 digits", "status", status("20")),
        ("status 000", "status", status("000")),
        ("status with a sign", "status", status("+20")),
        ("upper-case name", "field_name", block("Server", "x")),
        ("empty name", "field_name", block("", "x")),
        ("name with a space", "field_name", block("a b", "x")),
        (
            "line break in a value",
            "field_value",
            block("a", "b\r\nc: d"),
        ),
        ("NUL in a value", "field_value", block("a", "\0")),
        ("space before a value", "field_value", block("a", " b")),
        (
            "connection",
            "connection_field",
            block("connection", "close"),
        ),
        (
            "keep-alive",
            "connection_field",
            block("keep-alive", "timeout=5"),
        ),
        (
            "transfer-encoding",
            "connection_field",
            block("transfer-encoding", "chunked"),
        ),
        ("upgrade", "connection_field", block("upgrade", "h2c")),
        (
            "length in words",
            "content_length",
            block("content-length", "five"),
        ),
        (
            "negative length",
            "content_length",
            block("content-length", "-1"),
        ),
        (
            "large length",
            "content_length",
            block("content-length", "99999999999999999999"),
        ),
        (
            "length without a body",
            "body_length",
            block("content-length", "5"),
        ),
        (
            "two lengths",
            "content_length",
            [block("content-length", "0"), field("content-length", "5")].concat(),
        ),
    ];
    let mut all: Vec<Case> = blocks
        .iter()
        .map(|(name, error, block)| malformed(name, error, &[&headers(1, LAST, block)]))
        .collect();
    all.extend([
        malformed(
            "DATA before HEADERS",
            "data_before_head",
            &[&data(1, end, b"x")],
        ),
        malformed(
            "DATA after 1xx",
            "data_before_head",
            &[&interim, &data(1, 0, b"x")],
        ),
        malformed(
            "long body",
            "body_length",
            &[&length_5, &data(1, end, b"123456")],
        ),
        malformed(
            "short body",
            "body_length",
            &[&length_5, &data(1, end, b"1234")],
        ),
        malformed(
            "trailers after a short body",
            "body_length",
            &[&length_5, &headers(1, LAST, &field("a", "b"))],
        ),
        malformed(
            "body of 204",
            "body_length",
            &[&headers(1, OPEN, &[0x89]), &data(1, end, b"x")],
        ),
        malformed(
            "trailers without an end",
            "trailers_without_end",
            &[&head, &headers(1, OPEN, &field("a", "b"))],
        ),
        malformed(
            "status in trailers",
            "pseudo_field",
            &[&head, &headers(1, LAST, STATUS_200)],
        ),
        malformed(
            "end after 1xx",
            "interim_end",
            &[&headers(1, LAST, &field(":status", "103"))],
        ),
        malformed("1xx flood", "too_many_interim", &[&interim.repeat(5_000)]),
        malformed(
            "frames after a rejected head",
            "pseudo_field",
            &[
                &headers(1, OPEN, &field("a", "b")),
                &data(1, 0, b"x"),
                &data(1, end, b"x"),
            ],
        ),
        reset_by_server(
            "INTERNAL_ERROR",
            "stream_reset_internal_error",
            &[&reset(1, INTERNAL_ERROR)],
        ),
        reset_by_server("NO_ERROR", "stream_reset_no_error", &[&reset(1, 0)]),
        reset_by_server("unknown code", "stream_reset", &[&reset(1, u32::MAX)]),
        reset_by_server(
            "reset after the head",
            "stream_reset_cancel",
            &[&head, &reset(1, CANCEL)],
        ),
        reset_by_server(
            "refused after the head",
            "stream_reset",
            &[&head, &reset(1, REFUSED_STREAM)],
        ),
        legal(
            "1xx before the head",
            &[&interim.repeat(16), &ok(1), &ok(3)],
        ),
        legal(
            "trailers",
            &[
                &head,
                &data(1, 0, b"x"),
                &headers(1, LAST, &field("a", "b")),
                &ok(3),
            ],
        ),
        legal(
            "equal lengths",
            &[
                &headers(1, OPEN, &block("content-length", "5, 5")),
                &data(1, 0, b"123"),
                &data(1, 0, &[]),
                &data(1, end, b"45"),
                &ok(3),
            ],
        ),
        legal(
            "body in turn",
            &[
                &length_5,
                &headers(3, OPEN, STATUS_200),
                &data(3, 0, b"x"),
                &data(1, 0, b"123"),
                &data(3, end, b"x"),
                &data(1, 0, b"45"),
                &data(1, end, &[]),
            ],
        ),
    ]);
    all
}

/// The server's end of a connection.
struct Peer(TcpStream);

impl Peer {
    /// Waits for the preface of a new connection.
    fn new(mut stream: TcpStream) -> Option<Self> {
        read_preface(&mut stream).then_some(Peer(stream))
    }

    /// Waits for the preface of a new connection, and sends SETTINGS.
    fn with_settings(stream: TcpStream, values: &[(u16, u32)]) -> Option<Self> {
        let mut peer = Self::new(stream)?;
        peer.send(&settings(values));
        Some(peer)
    }

    fn send(&mut self, bytes: &[u8]) {
        // The client may have closed the connection.
        let _ = self.0.write_all(bytes);
    }

    /// Waits for a frame of a type.
    fn next(&mut self, kind: u8) -> Option<(FrameHeader, Vec<u8>)> {
        loop {
            let frame = read_frame(&mut self.0)?;
            if frame.0.kind == kind {
                return Some(frame);
            }
        }
    }

    /// Waits for a request. Returns its stream and its field block.
    fn request(&mut self) -> Option<(u32, Vec<u8>)> {
        let (header, block) = self.next(kind::HEADERS)?;
        Some((header.stream, block))
    }

    /// Waits for the end of the connection. Returns whether the client announced it.
    fn drain(mut self) -> bool {
        let mut last = None;
        while let Some((header, _)) = read_frame(&mut self.0) {
            last = Some(header.kind);
        }
        last == Some(kind::GOAWAY)
    }
}

/// Runs a load. Returns a description of the fault if the load does not end or panics.
fn bounded(plan: Plan) -> Result<Run, String> {
    let stop = StopFlag::default();
    let (send, ended) = channel();
    let flag = stop.clone();
    thread::spawn(move || {
        let _ = send.send(run_with(plan, None, &flag));
    });
    ended.recv_timeout(ENDLESS).map_err(|error| {
        stop.stop();
        match error {
            RecvTimeoutError::Timeout => "does not end".to_owned(),
            RecvTimeoutError::Disconnected => "panics".to_owned(),
        }
    })
}

/// Sends the case's bytes after the first request of each connection. Returns the difference from
/// the expected result.
fn fault(case: &Case, has_settings: bool, one_by_one: bool, backend: Backend) -> Option<String> {
    let (server, closed) = respond_with(case.bytes.clone(), has_settings, one_by_one);
    let plan = http2(closed_plan(1, 2), 2, server, backend);
    let run = match bounded(plan) {
        Ok(run) => run,
        Err(fault) => return Some(fault),
    };
    let errors: Vec<(&str, u64)> = (run.end.errors.iter())
        .map(|(name, count)| (name.as_str(), *count))
        .collect();
    if Outcomes::from(&run.end.counts) != case.expected || errors != Vec::from_iter(case.error) {
        return Some(format!("{:?}, errors {errors:?}", run.end.counts));
    }
    // The kernel may drop the GOAWAY if the client closes the connection with unread bytes.
    let is_read = !one_by_one && case.bytes.len() <= FEW_BYTES;
    let must_announce = case.expected.malformed == 2 && is_read;
    (must_announce && closed.recv() != Ok(true)).then(|| "no GOAWAY".to_owned())
}

/// Starts a server that sends the same bytes on every connection. The receiver gets one value per
/// connection: whether the client announced its end.
fn respond_with(
    bytes: Vec<u8>,
    has_settings: bool,
    one_by_one: bool,
) -> (SocketAddr, Receiver<bool>) {
    let (send, closed) = channel();
    let server = serve(move |stream, _| {
        let Some(mut peer) = Peer::new(stream) else {
            return;
        };
        if has_settings {
            peer.send(SETTINGS);
        }
        if peer.request().is_none() {
            return;
        }
        if one_by_one {
            bytes.iter().for_each(|byte| peer.send(&[*byte]));
        } else {
            peer.send(&bytes);
        }
        let _ = send.send(peer.drain());
    });
    (server, closed)
}

fn check_all(cases: &[Case], has_settings: bool, backend: Backend) {
    let mut faults = Vec::new();
    for case in cases {
        for one_by_one in [false, true] {
            if one_by_one && case.bytes.len() > FEW_BYTES {
                continue;
            }
            let fault = fault(case, has_settings, one_by_one, backend);
            faults.extend(fault.map(|fault| format!("{} ({one_by_one}): {fault}", case.name)));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

fn judges_every_first_frame(backend: Backend) {
    check_all(&first_frames(), false, backend);
}

fn judges_every_frame(backend: Backend) {
    let mut cases = frames();
    cases.extend(responses());
    check_all(&cases, true, backend);
}

fn rejects_data_beyond_the_window(backend: Backend) {
    let frames = [headers(1, OPEN, STATUS_200), data(1, 0, &[0; 2_000])].concat();
    let (server, _closed) = respond_with(frames, true, false);
    let mut plan = http2(closed_plan(1, 2), 2, server, backend);
    plan.http = Http::V2(Http2 {
        streams: 2,
        window_bytes: 1_000,
        ..Http2::default()
    });
    let end = bounded(plan).unwrap().end;
    assert_eq!(end.counts.malformed, 2);
    assert_eq!(end.errors["window_exceeded"], 2);
}

/// The server closes each connection after a number of bytes. A request without a response is sent
/// again once.
fn survives_a_close_at_every_byte(backend: Backend) {
    let length_5 = block("content-length", "5");
    let response = |stream| {
        let head = headers(stream, OPEN, &length_5);
        [head, data(stream, flag::END_STREAM, b"12345")].concat()
    };
    let bytes = [SETTINGS, &response(1), &response(3)].concat();
    let mut faults = Vec::new();
    for length in 0..bytes.len() {
        let part = bytes[..length].to_vec();
        let server = serve(move |stream, _| {
            if let Some(mut peer) = Peer::new(stream)
                && peer.request().is_some()
            {
                peer.send(&part);
            }
        });
        let plan = http2(closed_plan(1, 2), 2, server, backend);
        match bounded(plan) {
            Ok(run) => {
                let counts = &run.end.counts;
                let first = SETTINGS.len() + response(1).len();
                let is_right = counts.ok + counts.reset + counts.malformed == 2
                    && (counts.ok > 0) == (length >= first)
                    && run.end.errors.values().sum::<u64>() == 2 - counts.ok;
                if !is_right {
                    faults.push(format!("{length}: {counts:?} {:?}", run.end.errors));
                }
            }
            Err(fault) => faults.push(format!("{length}: {fault}")),
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// A server and the load on it.
struct Script {
    name: &'static str,
    serve: fn(TcpStream, u64) -> Option<()>,
    streams: u32,
    requests: u64,
    /// Length of the request body in bytes.
    body: usize,
    /// Length of a request header in bytes.
    header: usize,
    expected: Outcomes,
    /// An error that occurs once per request without a response.
    error: Option<&'static str>,
}

const SCRIPT: Script = Script {
    name: "",
    serve: |_, _| None,
    streams: 2,
    requests: 4,
    body: 0,
    header: 0,
    expected: NONE,
    error: None,
};

const fn all_ok(ok: u64) -> Outcomes {
    Outcomes { ok, ..NONE }
}

const fn all_timed_out(timed_out: u64) -> Outcomes {
    Outcomes { timed_out, ..NONE }
}

/// Responds to all requests.
fn respond(mut peer: Peer) -> Option<()> {
    loop {
        let (stream, _) = peer.request()?;
        peer.send(&ok(stream));
    }
}

fn scripts() -> Vec<Script> {
    vec![
        Script {
            name: "a shutdown before any request is processed",
            serve: |stream, _| {
                let mut peer = Peer::with_settings(stream, &[])?;
                peer.request()?;
                peer.send(&go_away(0, 0xb));
                peer.drain();
                None
            },
            expected: Outcomes {
                rejected: 4,
                ..NONE
            },
            error: Some("go_away"),
            ..SCRIPT
        },
        Script {
            name: "a shutdown without an end",
            serve: |stream, _| {
                let mut peer = Peer::with_settings(stream, &[])?;
                peer.request()?;
                peer.send(&go_away(LARGEST_WINDOW, 0));
                peer.drain();
                None
            },
            expected: all_timed_out(4),
            ..SCRIPT
        },
        Script {
            name: "a shutdown between two requests",
            serve: |stream, number| {
                let mut peer = Peer::with_settings(stream, &[])?;
                if number > 0 {
                    return respond(peer);
                }
                peer.request()?;
                peer.send(&[go_away(LARGEST_WINDOW, 0), go_away(3, 0), ok(1), ok(3)].concat());
                peer.drain();
                None
            },
            streams: 4,
            expected: all_ok(4),
            ..SCRIPT
        },
        Script {
            name: "refusal of all requests",
            serve: |stream, _| {
                let mut peer = Peer::with_settings(stream, &[])?;
                loop {
                    let (stream, _) = peer.request()?;
                    peer.send(&reset(stream, REFUSED_STREAM));
                }
            },
            expected: Outcomes {
                rejected: 4,
                ..NONE
            },
            error: Some("stream_refused"),
            ..SCRIPT
        },
        Script {
            name: "a flood of resets",
            serve: |stream, _| {
                let mut peer = Peer::with_settings(stream, &[])?;
                loop {
                    let (stream, _) = peer.request()?;
                    peer.send(&reset(stream, CANCEL).repeat(10));
                }
            },
            streams: 10,
            requests: 1_000,
            expected: Outcomes {
                reset: 1_000,
                ..NONE
            },
            error: Some("stream_reset_cancel"),
            ..SCRIPT
        },
        Script {
            name: "no SETTINGS",
            serve: |stream, _| {
                Peer::new(stream)?.drain();
                None
            },
            expected: all_timed_out(4),
            ..SCRIPT
        },
        Script {
            name: "no SETTINGS, with bodies",
            serve: |stream, _| {
                Peer::new(stream)?.drain();
                None
            },
            body: 100_000,
            expected: all_timed_out(4),
            ..SCRIPT
        },
        Script {
            name: "no streams",
            serve: |stream, _| {
                Peer::with_settings(stream, &[(MAX_CONCURRENT_STREAMS, 0)])?.drain();
                None
            },
            expected: all_timed_out(4),
            ..SCRIPT
        },
        Script {
            name: "no streams after the first responses",
            serve: |stream, _| {
                let mut peer = Peer::with_settings(stream, &[])?;
                peer.request()?;
                let none = settings(&[(MAX_CONCURRENT_STREAMS, 0)]);
                peer.send(&[none, ok(1), ok(3)].concat());
                peer.drain();
                None
            },
            expected: all_ok(4),
            ..SCRIPT
        },
        Script {
            name: "refusal, then no streams",
            serve: |stream, _| {
                let mut peer = Peer::with_settings(stream, &[])?;
                peer.request()?;
                let none = settings(&[(MAX_CONCURRENT_STREAMS, 0)]);
                let refused = [reset(1, REFUSED_STREAM), reset(3, REFUSED_STREAM)].concat();
                peer.send(&[none, refused].concat());
                peer.drain();
                None
            },
            requests: 2,
            expected: Outcomes {
                rejected: 2,
                ..NONE
            },
            error: Some("stream_refused"),
            ..SCRIPT
        },
        Script {
            name: "no streams for a time",
            serve: |stream, _| {
                let mut peer = Peer::with_settings(stream, &[])?;
                peer.request()?;
                let none = settings(&[(MAX_CONCURRENT_STREAMS, 0)]);
                peer.send(&[none, ok(1), ok(3)].concat());
                thread::sleep(Duration::from_millis(100));
                peer.send(&settings(&[(MAX_CONCURRENT_STREAMS, 1)]));
                respond(peer_after(peer, 1))
            },
            requests: 6,
            expected: all_ok(6),
            ..SCRIPT
        },
        Script {
            name: "fewer streams than are open",
            serve: |stream, _| {
                let mut peer = Peer::with_settings(stream, &[])?;
                peer.request()?;
                let one = settings(&[(MAX_CONCURRENT_STREAMS, 1)]);
                peer.send(&[one, ok(1), ok(3), ok(5), ok(7)].concat());
                respond(peer_after(peer, 3))
            },
            streams: 4,
            requests: 12,
            expected: all_ok(12),
            ..SCRIPT
        },
        Script {
            name: "a server that does not read",
            serve: |stream, _| {
                let mut peer = Peer::new(stream)?;
                let windows = settings(&[(INITIAL_WINDOW_SIZE, LARGEST_WINDOW)]);
                let credit = window_update(0, LARGEST_WINDOW - 65_535);
                peer.send(&[windows, credit].concat());
                thread::sleep(ENDLESS);
                None
            },
            body: 10_000_000,
            expected: all_timed_out(4),
            ..SCRIPT
        },
        Script {
            name: "a server that does not read heads",
            serve: |stream, _| {
                let _peer = Peer::with_settings(stream, &[])?;
                thread::sleep(ENDLESS);
                None
            },
            streams: 1_000,
            requests: 1_000,
            header: 8_000,
            expected: all_timed_out(1_000),
            ..SCRIPT
        },
        Script {
            name: "no credit",
            serve: |stream, _| {
                Peer::with_settings(stream, &[(INITIAL_WINDOW_SIZE, 0)])?.drain();
                None
            },
            body: 100_000,
            expected: all_timed_out(4),
            ..SCRIPT
        },
        Script {
            name: "a negative window",
            serve: |stream, _| {
                let mut peer = Peer::with_settings(stream, &[(INITIAL_WINDOW_SIZE, 50_000)])?;
                upload_after_a_smaller_window(&mut peer)?;
                peer.drain();
                None
            },
            streams: 1,
            requests: 1,
            body: 60_000,
            expected: all_ok(1),
            ..SCRIPT
        },
        Script {
            name: "responses before the end of uploads",
            serve: |stream, _| {
                let mut peer = Peer::with_settings(stream, &[])?;
                loop {
                    let (stream, _) = peer.request()?;
                    peer.send(&[ok(stream), reset(stream, 0)].concat());
                }
            },
            body: 1_000_000,
            expected: all_ok(4),
            ..SCRIPT
        },
        Script {
            name: "an endless body",
            serve: |stream, _| {
                let mut peer = Peer::with_settings(stream, &[])?;
                peer.request()?;
                peer.send(&[headers(1, OPEN, STATUS_200), headers(3, OPEN, STATUS_200)].concat());
                for _ in 0..20_000 {
                    let part = [data(1, 0, &[0; 100]), data(3, 0, &[0; 100])].concat();
                    peer.0.write_all(&part).ok()?;
                    thread::sleep(Duration::from_micros(100));
                }
                None
            },
            requests: 2,
            expected: all_timed_out(2),
            ..SCRIPT
        },
        Script {
            name: "a late response that changes the table",
            serve: |stream, _| {
                let mut peer = Peer::with_settings(stream, &[])?;
                peer.request()?;
                peer.request()?;
                // The stream has timed out. The second response refers to the field of the first.
                let x = [STATUS_200, &[0x40, 1, b'x', 1, b'y']].concat();
                let late = [headers(1, OPEN, &x), data(1, flag::END_STREAM, b"late")].concat();
                peer.send(&[late, headers(3, LAST, &[0x88, 0xbe])].concat());
                peer.drain();
                None
            },
            streams: 1,
            requests: 2,
            expected: Outcomes {
                ok: 1,
                timed_out: 1,
                ..NONE
            },
            ..SCRIPT
        },
        Script {
            name: "a table of 0 bytes, then of 4,096",
            serve: |stream, _| {
                let mut peer = Peer::with_settings(stream, &[])?;
                peer.request()?;
                let none = settings(&[(HEADER_TABLE_SIZE, 0)]);
                let some = settings(&[(HEADER_TABLE_SIZE, 4_096)]);
                peer.send(&[none, some, ok(1)].concat());
                let (stream, block) = peer.request()?;
                if block[0] & 0xe0 == 0x20 {
                    peer.send(&ok(stream));
                }
                peer.drain();
                None
            },
            streams: 1,
            requests: 2,
            expected: all_ok(2),
            ..SCRIPT
        },
        Script {
            name: "the end of a connection with 100 uploads",
            serve: |stream, _| {
                let mut peer = Peer::with_settings(stream, &[])?;
                peer.request()?;
                None
            },
            streams: 100,
            requests: 100,
            body: 10,
            expected: Outcomes { reset: 100, ..NONE },
            ..SCRIPT
        },
        Script {
            name: "a PING for each request",
            serve: |stream, _| {
                let mut peer = Peer::with_settings(stream, &[])?;
                let ping = frame(kind::PING, 0, 0, &[1; 8]);
                loop {
                    let (stream, _) = peer.request()?;
                    peer.send(&[&ping[..], &ok(stream)].concat());
                }
            },
            streams: 10,
            requests: 5_000,
            expected: all_ok(5_000),
            ..SCRIPT
        },
        Script {
            name: "a frame header in two receive buffers",
            serve: |stream, _| {
                let mut peer = Peer::with_settings(stream, &[])?;
                // About half of the bytes are frame headers, so many buffers end in one.
                let length = block("content-length", "400");
                let mut responses = Vec::new();
                for stream in (1..200).step_by(2) {
                    responses.extend(headers(stream, OPEN, &length));
                    responses.extend(data(stream, 0, &[0; 10]).repeat(39));
                    responses.extend(data(stream, flag::END_STREAM, &[0; 10]));
                }
                for _ in 0..100 {
                    peer.request()?;
                }
                peer.send(&responses);
                peer.drain();
                None
            },
            streams: 100,
            requests: 100,
            expected: all_ok(100),
            ..SCRIPT
        },
        Script {
            name: "an end before the preface",
            serve: |_, _| None,
            expected: Outcomes { reset: 4, ..NONE },
            ..SCRIPT
        },
    ]
}

/// Skips requests that were answered before they arrived.
fn peer_after(mut peer: Peer, requests: u32) -> Peer {
    for _ in 0..requests {
        peer.request();
    }
    peer
}

/// Receives 50,000 bytes, reduces the window by 49,000, and grants the rest of 60,000 bytes.
fn upload_after_a_smaller_window(peer: &mut Peer) -> Option<()> {
    let mut received = 0;
    while received < 50_000 {
        received += peer.next(kind::DATA)?.1.len();
    }
    // The window is -49,000 afterwards, so this credit leaves it at 0.
    peer.send(
        &[
            settings(&[(INITIAL_WINDOW_SIZE, 1_000)]),
            window_update(1, 49_000),
        ]
        .concat(),
    );
    peer.0
        .set_read_timeout(Some(Duration::from_millis(50)))
        .ok()?;
    if received > 50_000 || peer.next(kind::DATA).is_some() {
        return None;
    }
    peer.0.set_read_timeout(None).ok()?;
    peer.send(&window_update(1, 10_000));
    while received < 60_000 {
        received += peer.next(kind::DATA)?.1.len();
    }
    peer.send(&ok(1));
    Some(())
}

fn every_load_ends(backend: Backend) {
    let mut faults = Vec::new();
    for script in scripts() {
        let serve_connection = script.serve;
        let server = serve(move |stream, number| {
            serve_connection(stream, number);
        });
        let mut plan = Plan {
            timeout: Duration::from_millis(300),
            ..closed_plan(1, script.requests)
        };
        if script.body > 0 {
            plan.request.method = "POST".to_owned();
            plan.request.body = RequestBody::unrecorded(vec![7; script.body]);
        }
        if script.header > 0 {
            plan.request.headers = vec![("X".to_owned(), "x".repeat(script.header))];
        }
        match bounded(http2(plan, script.streams, server, backend)) {
            Ok(run) => {
                let end = &run.end;
                let missing = script.requests - end.counts.ok;
                let has_error =
                    (script.error).is_none_or(|name| end.errors.get(name) == Some(&missing));
                if Outcomes::from(&end.counts) != script.expected || !has_error {
                    let text = format!("{}: {:?} {:?}", script.name, end.counts, end.errors);
                    faults.push(text);
                }
            }
            Err(fault) => faults.push(format!("{}: {fault}", script.name)),
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Bodies of requests that have timed out are not kept, even if the server never sends SETTINGS.
fn waiting_bodies_take_bounded_memory(backend: Backend) {
    const BODY: usize = 60_000;
    const REQUESTS: u64 = 8_000;
    let server = serve(|stream, _| {
        Peer::new(stream).map(Peer::drain);
    });
    let mut plan = with_mix(closed_plan(1, REQUESTS), &[1]);
    let request = &mut plan.mix.as_mut().unwrap().requests[0].request;
    request.method = "POST".to_owned();
    let body = ["{seq}", &"x".repeat(BODY)].concat();
    request.body = RequestBody::unrecorded(body.into_bytes());
    plan.timeout = Duration::from_millis(20);
    let before = peak_memory();
    let run = bounded(http2(plan, 200, server, backend)).unwrap();
    assert_eq!(run.end.counts.timed_out, REQUESTS);
    let more = peak_memory() - before;
    assert!(more < REQUESTS * BODY as u64 / 2, "{more} bytes");
}

/// Returns the peak resident memory of this process in bytes.
fn peak_memory() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib * 1024
}
