//! The rules in RFC 9113, sections 4 to 8, for a client that reads frames, in section order.
//!
//! Each row names the section of its rule. These tests cover the other rules:
//!
//! | sections | rules | tests |
//! |---|---|---|
//! | 3.4, 6.5.1 | preface and SETTINGS of both sides | `starts_with_preface_settings_and_credit`, `recognizes_other_protocols` |
//! | 4.2, 6.10 | size and order of the client's frames | `frame::tests::splits_long_blocks`, `bodies_respect_flow_control` |
//! | 4.3.1 | compression of requests | `requests_follow_the_size_of_the_servers_table` |
//! | 5.1.1, 5.1.2, 6.8 | identifiers and number of streams | `streams::tests`, `identifiers_are_used_up`, `a_server_limits_streams`, `a_shutdown_closes_the_streams_above_the_last` |
//! | 6.5.2, 6.9, 6.9.2 | flow control in both directions | `bodies_respect_flow_control`, `credit_returns_when_half_a_window_is_used`, `the_window_of_the_connection_is_a_limit` |
//! | 8.1, 8.7 | responses before the end of a request, refusals | `bodies_respect_flow_control`, `resets_end_streams`, `a_refusal_after_the_head_is_a_reset` |
//! | 8.1.1 | responses without content | `responses_without_body_end_with_their_head` |
//! | 8.2, 8.3 | fields of requests | `request::tests` |
//! | 10.5 | limits | `floods_are_limited`, `floods_take_bounded_memory`, `interim_responses_are_limited` |
//!
//! The rules of RFC 7541 are tested in `hpack`. The limits on blocks are floodmark's own.

use super::*;
use Reaction::{Accepts, Fails, Rejects};

/// What the client must do.
enum Reaction {
    /// End the connection.
    Fails(ConnectionError, ErrorCode),
    /// Reset stream 1 after these events, and continue with stream 3.
    Rejects(Vec<Event<'static>>, Malformed),
    /// Report these events and send these bytes.
    Accepts(Vec<Event<'static>>, Vec<u8>),
}

/// Section, rule, the server's frames after its SETTINGS, and the reaction. Streams 1 and 3 are open.
type Row = (&'static str, &'static str, Vec<u8>, Reaction);

/// Section, rule, the server's frames, and the error with its code.
type FaultRow<'a> = (
    &'static str,
    &'static str,
    &'a [&'a [u8]],
    ConnectionError,
    ErrorCode,
);

const OPEN: u8 = flag::END_HEADERS;
const LAST: u8 = flag::END_HEADERS | flag::END_STREAM;
/// Flags that no frame type defines.
const UNDEFINED: u8 = 0xd2;
const RESERVED_BIT: u32 = 1 << 31;
static LONGEST: [u8; 1 << 14] = [0; 1 << 14];
static TOO_LONG: [u8; (1 << 14) + 1] = [0; (1 << 14) + 1];

fn ok(stream: u32) -> Vec<u8> {
    section(stream, true, OK)
}

fn reset(stream: u32, code: ErrorCode) -> Vec<u8> {
    encoded(|out| frame::reset(stream, code, out))
}

fn window(stream: u32, bytes: u32) -> Vec<u8> {
    encoded(|out| frame::window_update(stream, bytes, out))
}

fn go_away(last: u32, code: u32) -> Vec<u8> {
    let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
    raw(kind::GOAWAY, 0, 0, &payload)
}

fn priority(stream: u32) -> Vec<u8> {
    raw(kind::PRIORITY, 0, stream, &[0; 5])
}

fn padded(kind: u8, flags: u8, padding: u8, rest: &[u8]) -> Vec<u8> {
    raw(kind, flags | flag::PADDED, 1, &[&[padding], rest].concat())
}

/// Returns the block of a response with status 200 and one more field.
fn with_field(name: &str, value: &str) -> Vec<u8> {
    [OK, &literal(name, value)].concat()
}

fn literal(name: &str, value: &str) -> Vec<u8> {
    let (name, value) = (name.as_bytes(), value.as_bytes());
    [&[0, name.len() as u8], name, &[value.len() as u8], value].concat()
}

/// The events of a complete response without a body.
fn done(stream: u32) -> Vec<Event<'static>> {
    vec![head_event(stream, None, true)]
}

#[rustfmt::skip]
fn violations() -> Vec<Row> {
    use ConnectionError::{
        BlockTooLarge, Continuation, FrameSize, FrameStream, GoAwayIncreased, Hpack, IdleStream,
        Padding, Push, StreamClosed, TooManyContinuations, WindowOverflow, ZeroWindowUpdate,
    };
    const ILLEGAL: ConnectionError = ConnectionError::Setting;
    const PROTOCOL: ErrorCode = ErrorCode::PROTOCOL_ERROR;
    const SIZE: ErrorCode = ErrorCode::FRAME_SIZE_ERROR;
    const FLOW: ErrorCode = ErrorCode::FLOW_CONTROL_ERROR;
    const COMPRESSION: ErrorCode = ErrorCode::COMPRESSION_ERROR;
    const CLOSED: ErrorCode = ErrorCode::STREAM_CLOSED;
    let head = section(1, false, OK);
    let ended = ok(1);
    let cancelled = reset(1, ErrorCode::CANCEL);
    let half = raw(kind::HEADERS, 0, 1, OK);
    let next = |stream, flags| raw(kind::CONTINUATION, flags, stream, b"");
    let of_stream = |kind, stream, length: usize| raw(kind, 0, stream, &vec![0; length]);
    let setting = |setting| settings(&[setting]);
    let trailers = section(1, true, TRAILERS);
    let frames: &[FaultRow<'_>] = &[
        ("4.2", "long DATA", &[&head, &raw(kind::DATA, 0, 1, &TOO_LONG)], FrameSize, SIZE),
        ("4.2", "long HEADERS", &[&raw(kind::HEADERS, OPEN, 1, &TOO_LONG)], FrameSize, SIZE),
        ("4.2", "long CONTINUATION", &[&half, &raw(kind::CONTINUATION, 0, 1, &TOO_LONG)], FrameSize, SIZE),
        ("4.2", "long SETTINGS", &[&of_stream(kind::SETTINGS, 0, 6 * 2731)], FrameSize, SIZE),
        ("4.2", "long GOAWAY", &[&of_stream(kind::GOAWAY, 0, TOO_LONG.len())], FrameSize, SIZE),
        ("4.2", "long unknown frame", &[&raw(0x42, 0, 0, &TOO_LONG)], FrameSize, SIZE),
        ("4.3", "a block that cannot be decompressed", &[&section(1, true, b"\xbe")], Hpack(HpackError::InvalidIndex), COMPRESSION),
        ("4.3", "a block that ends within a field", &[&section(1, true, b"\x88\0\x05x")], Hpack(HpackError::Truncated), COMPRESSION),
        ("4.3", "an invalid block on a stream that the client reset", &[&data(1, b"x", false), &section(1, true, b"\xbe")], Hpack(HpackError::InvalidIndex), COMPRESSION),
        ("4.3.1", "a table that is larger than SETTINGS allow", &[&section(1, true, b"\x3f\xe2\x1f\x88")], Hpack(HpackError::TableTooLarge), COMPRESSION),
        ("4.3.1", "a size update after a field", &[&section(1, true, b"\x88\x20")], Hpack(HpackError::MisplacedSizeUpdate), COMPRESSION),
        ("5.1", "HEADERS on an idle stream", &[&ok(5)], IdleStream, PROTOCOL),
        ("5.1", "DATA on an idle stream", &[&data(5, b"x", true)], IdleStream, PROTOCOL),
        ("5.1", "padded DATA on an idle stream", &[&raw(kind::DATA, flag::PADDED, 5, b"\x01xy")], IdleStream, PROTOCOL),
        ("5.1", "RST_STREAM on an idle stream", &[&reset(5, ErrorCode::CANCEL)], IdleStream, PROTOCOL),
        ("5.1", "WINDOW_UPDATE on an idle stream", &[&window(5, 1)], IdleStream, PROTOCOL),
        ("5.1", "unfinished HEADERS on an idle stream", &[&raw(kind::HEADERS, 0, 5, b"")], IdleStream, PROTOCOL),
        ("5.1", "HEADERS after END_STREAM", &[&ended, &ended], StreamClosed, CLOSED),
        ("5.1", "DATA after END_STREAM", &[&ended, &data(1, b"", true)], StreamClosed, CLOSED),
        ("5.1", "HEADERS after trailers", &[&head, &trailers, &trailers], StreamClosed, CLOSED),
        ("5.1", "DATA after trailers", &[&head, &trailers, &data(1, b"x", false)], StreamClosed, CLOSED),
        ("5.1", "HEADERS after RST_STREAM", &[&cancelled, &ended], StreamClosed, CLOSED),
        ("5.1", "DATA after RST_STREAM", &[&cancelled, &data(1, b"", true)], StreamClosed, CLOSED),
        ("5.1.1", "HEADERS on a server-initiated stream", &[&ok(2)], IdleStream, PROTOCOL),
        ("5.1.1", "DATA on a server-initiated stream", &[&data(2, b"x", true)], IdleStream, PROTOCOL),
        ("5.1.1", "RST_STREAM on a server-initiated stream", &[&reset(2, ErrorCode::CANCEL)], IdleStream, PROTOCOL),
        ("5.1.1", "WINDOW_UPDATE on a server-initiated stream", &[&window(2, 1)], IdleStream, PROTOCOL),
        ("6.1", "DATA on stream 0", &[&data(0, b"x", false)], FrameStream, PROTOCOL),
        ("6.1", "padding as long as the payload", &[&head, &padded(kind::DATA, 0, 3, b"xy")], Padding, PROTOCOL),
        ("6.1", "padding without a length", &[&head, &raw(kind::DATA, flag::PADDED, 1, b"")], FrameSize, SIZE),
        ("6.2", "HEADERS on stream 0", &[&ok(0)], FrameStream, PROTOCOL),
        ("6.2", "padding as long as the block", &[&padded(kind::HEADERS, LAST, 2, OK)], Padding, PROTOCOL),
        ("6.2", "padding as long as block and priority", &[&padded(kind::HEADERS, LAST | flag::PRIORITY, 7, b"\0\0\0\0\0\x88")], Padding, PROTOCOL),
        ("6.2", "HEADERS padding without a length", &[&raw(kind::HEADERS, LAST | flag::PADDED, 1, b"")], FrameSize, SIZE),
        ("6.2", "half a priority", &[&raw(kind::HEADERS, LAST | flag::PRIORITY, 1, &[0; 4])], FrameSize, SIZE),
        ("6.3", "PRIORITY on stream 0", &[&priority(0)], FrameStream, PROTOCOL),
        ("6.3", "PRIORITY of 4 bytes", &[&of_stream(kind::PRIORITY, 1, 4)], FrameSize, SIZE),
        ("6.3", "PRIORITY of 6 bytes", &[&of_stream(kind::PRIORITY, 1, 6)], FrameSize, SIZE),
        ("6.4", "RST_STREAM on stream 0", &[&reset(0, ErrorCode::CANCEL)], FrameStream, PROTOCOL),
        ("6.4", "RST_STREAM of 3 bytes", &[&of_stream(kind::RST_STREAM, 1, 3)], FrameSize, SIZE),
        ("6.4", "RST_STREAM of 5 bytes", &[&of_stream(kind::RST_STREAM, 1, 5)], FrameSize, SIZE),
        ("6.5", "acknowledgment with a setting", &[&raw(kind::SETTINGS, flag::ACK, 0, &[0; 6])], FrameSize, SIZE),
        ("6.5", "SETTINGS on a stream", &[&of_stream(kind::SETTINGS, 1, 0)], FrameStream, PROTOCOL),
        ("6.5", "acknowledgment on a stream", &[&raw(kind::SETTINGS, flag::ACK, 1, b"")], FrameStream, PROTOCOL),
        ("6.5", "SETTINGS of 5 bytes", &[&of_stream(kind::SETTINGS, 0, 5)], FrameSize, SIZE),
        ("6.5.2", "ENABLE_PUSH of 1", &[&setting(Setting::EnablePush(1))], ILLEGAL, PROTOCOL),
        ("6.5.2", "ENABLE_PUSH of 2", &[&setting(Setting::EnablePush(2))], ILLEGAL, PROTOCOL),
        ("6.5.2", "initial window above the maximum", &[&setting(Setting::InitialWindowSize(1 << 31))], WindowOverflow, FLOW),
        ("6.5.2", "frame size below the minimum", &[&setting(Setting::MaxFrameSize((1 << 14) - 1))], ILLEGAL, PROTOCOL),
        ("6.5.2", "frame size above the maximum", &[&setting(Setting::MaxFrameSize(1 << 24))], ILLEGAL, PROTOCOL),
        ("6.6", "PUSH_PROMISE", &[&raw(kind::PUSH_PROMISE, OPEN, 1, b"\0\0\0\x02\x82")], Push, PROTOCOL),
        ("6.6", "PUSH_PROMISE on stream 0", &[&raw(kind::PUSH_PROMISE, OPEN, 0, b"\0\0\0\x02\x82")], Push, PROTOCOL),
        ("6.7", "PING on a stream", &[&of_stream(kind::PING, 1, 8)], FrameStream, PROTOCOL),
        ("6.7", "PING of 7 bytes", &[&of_stream(kind::PING, 0, 7)], FrameSize, SIZE),
        ("6.7", "PING of 9 bytes", &[&of_stream(kind::PING, 0, 9)], FrameSize, SIZE),
        ("6.8", "GOAWAY on a stream", &[&of_stream(kind::GOAWAY, 1, 8)], FrameStream, PROTOCOL),
        ("6.8", "GOAWAY of 7 bytes", &[&of_stream(kind::GOAWAY, 0, 7)], FrameSize, SIZE),
        ("6.8", "the last stream increases", &[&go_away(1, 0), &go_away(3, 0)], GoAwayIncreased, PROTOCOL),
        ("6.9", "WINDOW_UPDATE of 3 bytes", &[&of_stream(kind::WINDOW_UPDATE, 1, 3)], FrameSize, SIZE),
        ("6.9", "WINDOW_UPDATE of 5 bytes", &[&of_stream(kind::WINDOW_UPDATE, 0, 5)], FrameSize, SIZE),
        ("6.9", "zero credit for the connection", &[&window(0, 0)], ZeroWindowUpdate, PROTOCOL),
        ("6.9", "zero credit for a stream", &[&window(1, 0)], ZeroWindowUpdate, PROTOCOL),
        ("6.9", "zero credit and the reserved bit", &[&raw(kind::WINDOW_UPDATE, 0, 1, b"\x80\0\0\0")], ZeroWindowUpdate, PROTOCOL),
        ("6.9.1", "overflow of the connection's window", &[&window(0, MAX_31_BITS)], WindowOverflow, FLOW),
        ("6.9.1", "overflow of a stream's window", &[&window(1, MAX_31_BITS)], WindowOverflow, FLOW),
        ("6.9.2", "window overflow due to SETTINGS", &[&window(1, 1), &setting(Setting::InitialWindowSize(MAX_31_BITS))], WindowOverflow, FLOW),
        ("6.10", "CONTINUATION on stream 0", &[&next(0, OPEN)], FrameStream, PROTOCOL),
        ("6.10", "CONTINUATION without HEADERS", &[&next(1, OPEN)], Continuation, PROTOCOL),
        ("6.10", "CONTINUATION after END_HEADERS", &[&head, &next(1, OPEN)], Continuation, PROTOCOL),
        ("6.10", "CONTINUATION after the last one", &[&half, &next(1, OPEN), &next(1, OPEN)], Continuation, PROTOCOL),
        ("6.10", "CONTINUATION on another stream", &[&half, &next(3, OPEN)], Continuation, PROTOCOL),
        ("6.10", "PUSH_PROMISE in a block", &[&half, &raw(kind::PUSH_PROMISE, OPEN, 1, b"\0\0\0\x02\x82")], Push, PROTOCOL),
        ("10.5", "too many CONTINUATIONs", &[&half, &next(1, 0).repeat(9)], TooManyContinuations, COMPRESSION),
        ("10.5", "a long block", &[&raw(kind::HEADERS, 0, 1, &LONGEST), &raw(kind::CONTINUATION, 0, 1, &LONGEST).repeat(4)], BlockTooLarge, COMPRESSION),
    ];
    let row = |(section, rule, frames, error, code): &(_, _, &[&[u8]], _, _)| {
        (*section, *rule, frames.concat(), Fails(*error, *code))
    };
    let mut rows: Vec<Row> = frames.iter().map(row).collect();
    let between = [
        ("DATA in a block", data(1, b"x", false)),
        ("HEADERS in a block", ok(3)),
        ("HEADERS on the same stream in a block", ok(1)),
        ("PRIORITY in a block", priority(1)),
        ("RST_STREAM in a block", reset(1, ErrorCode::CANCEL)),
        ("SETTINGS in a block", settings(&[])),
        ("PING in a block", of_stream(kind::PING, 0, 8)),
        ("GOAWAY in a block", go_away(3, 0)),
        ("WINDOW_UPDATE in a block", window(0, 1)),
        ("an unknown frame in a block", raw(0x42, 0, 1, b"")),
    ];
    rows.extend(between.map(|(rule, frame)| {
        let input = [half.clone(), frame].concat();
        ("6.10", rule, input, Fails(Continuation, PROTOCOL))
    }));
    rows
}

#[rustfmt::skip]
fn malformed_responses() -> Vec<Row> {
    use Malformed::*;
    let status = |text: &str| literal(":status", text);
    let blocks: Vec<(&str, &str, Vec<u8>, Malformed)> = vec![
        ("8.2.1", "an empty name", with_field("", "b"), FieldName),
        ("8.2.1", "an upper-case name", with_field("Server", "b"), FieldName),
        ("8.2.1", "a name with a space", with_field("a b", "b"), FieldName),
        ("8.2.1", "a name with a colon", with_field("a:", "b"), FieldName),
        ("8.2.1", "a name with a control character", with_field("a\x01", "b"), FieldName),
        ("8.2.1", "a name with DEL", with_field("a\x7f", "b"), FieldName),
        ("8.2.1", "a name that is not ASCII", with_field("\u{e9}", "b"), FieldName),
        ("8.2.1", "NUL in a value", with_field("a", "b\0"), FieldValue),
        ("8.2.1", "LF in a value", with_field("a", "b\nc"), FieldValue),
        ("8.2.1", "CR in a value", with_field("a", "b\rc"), FieldValue),
        ("8.2.1", "a space before a value", with_field("a", " b"), FieldValue),
        ("8.2.1", "a space after a value", with_field("a", "b "), FieldValue),
        ("8.2.1", "a tab before a value", with_field("a", "\tb"), FieldValue),
        ("8.2.1", "a tab after a value", with_field("a", "b\t"), FieldValue),
        ("8.2.2", "connection", with_field("connection", "close"), ConnectionField),
        ("8.2.2", "proxy-connection", with_field("proxy-connection", "close"), ConnectionField),
        ("8.2.2", "keep-alive", with_field("keep-alive", "timeout=5"), ConnectionField),
        ("8.2.2", "transfer-encoding", with_field("transfer-encoding", "chunked"), ConnectionField),
        ("8.2.2", "upgrade", with_field("upgrade", "h2c"), ConnectionField),
        ("8.2.2", "te", with_field("te", "gzip"), ConnectionField),
        ("8.3", "a pseudo-header after a field", [literal("a", "b"), OK.to_vec()].concat(), PseudoField),
        ("8.3", "a repeated pseudo-header", [OK, OK].concat(), PseudoField),
        ("8.3", "a request pseudo-header", with_field(":path", "/"), PseudoField),
        ("8.3", "an undefined pseudo-header", with_field(":x", "y"), PseudoField),
        ("8.3", "a pseudo-header without a name", with_field(":", "y"), PseudoField),
        ("8.3", "an upper-case pseudo-header", literal(":Status", "200"), PseudoField),
        ("8.3.2", "no fields", vec![], PseudoField),
        ("8.3.2", "no status", literal("a", "b"), PseudoField),
        ("8.3.2", "an empty status", status(""), Status),
        ("8.3.2", "a status of 2 digits", status("20"), Status),
        ("8.3.2", "a status of 4 digits", status("2000"), Status),
        ("8.3.2", "a status below 100", status("099"), Status),
        ("8.3.2", "a status that is not a number", status("2x0"), Status),
        ("8.3.2", "a status with a space", status("200 "), Status),
        ("8.6", "status 101", status("101"), Status),
        ("8.1.1", "a length without a body", with_field("content-length", "5"), BodyLength),
        ("8.1.1", "a length that is not a number", with_field("content-length", "-1"), ContentLength),
        ("8.1.1", "different lengths", [OK, &literal("content-length", "0"), &literal("content-length", "1")].concat(), ContentLength),
    ];
    let row = |(section, rule, block, reason): (_, _, Vec<u8>, _)| {
        let head = super::section(1, true, &block);
        (section, rule, head, Rejects(vec![], reason))
    };
    let mut rows: Vec<Row> = blocks.into_iter().map(row).collect();
    let head = section(1, false, OK);
    let length_5 = section(1, false, OK_LENGTH_5);
    let interim = section(1, false, EARLY_HINTS);
    let trailers = section(1, true, TRAILERS);
    let started = |length| vec![head_event(1, length, false)];
    let late = [&head[..], &section(1, false, EARLY_HINTS)].concat();
    rows.extend([
        ("8.1", "DATA before HEADERS", data(1, b"x", true), Rejects(vec![], DataBeforeHead)),
        ("8.1", "empty DATA before HEADERS", data(1, b"", true), Rejects(vec![], DataBeforeHead)),
        ("8.1", "DATA after an interim response", [interim.clone(), data(1, b"x", true)].concat(), Rejects(vec![], DataBeforeHead)),
        ("8.1", "an interim response that ends the stream", section(1, true, EARLY_HINTS), Rejects(vec![], InterimEnd)),
        ("8.1", "an interim response after the final one", late, Rejects(started(None), PseudoField)),
        ("8.1", "trailers that do not end the stream", [head.clone(), section(1, false, TRAILERS)].concat(), Rejects(started(None), TrailersWithoutEnd)),
        ("8.1", "trailers before a response", trailers.clone(), Rejects(vec![], PseudoField)),
        ("8.1", "a status in trailers", [head.clone(), ok(1)].concat(), Rejects(started(None), PseudoField)),
        ("8.1", "an illegal name in trailers", [head.clone(), section(1, true, &literal("A", "b"))].concat(), Rejects(started(None), FieldName)),
        ("8.1.1", "a body longer than its content-length", [length_5.clone(), data(1, b"123456", true)].concat(), Rejects(started(Some(5)), BodyLength)),
        ("8.1.1", "a body shorter than its content-length", [length_5.clone(), data(1, b"1234", true)].concat(), Rejects(started(Some(5)), BodyLength)),
        ("8.1.1", "trailers after a short body", [length_5, trailers].concat(), Rejects(started(Some(5)), BodyLength)),
        (
            "8.1.1",
            "a body of 204",
            [section(1, false, b"\x89"), data(1, b"x", true)].concat(),
            Rejects(
                vec![Event::Head {
                    stream: 1,
                    status: 204,
                    content_length: None,
                    end: false,
                }],
                BodyLength,
            ),
        ),
    ]);
    rows
}

fn legal_frames() -> Vec<Row> {
    let head = section(1, false, OK);
    let pong = |payload: [u8; 8]| encoded(|out| frame::pong(payload, out));
    let ack = encoded(frame::settings_ack);
    let trailers = section(1, true, TRAILERS);
    let all_flags = |kind, stream, payload: &[u8]| raw(kind, 0xff, stream, payload);
    let no_ack = UNDEFINED | flag::END_HEADERS | flag::PADDED | flag::PRIORITY;
    let cancel = Event::Reset {
        stream: 1,
        code: ErrorCode::CANCEL,
    };
    let event = |last, code| Event::GoAway {
        last,
        code: ErrorCode(code),
    };
    let body = |part_of: &'static [u8]| vec![head_event(1, None, false), part(1, part_of, false)];
    let rejected = encoded(|out| frame::reset(1, ErrorCode::PROTOCOL_ERROR, out));
    let inserting = [OK, b"\x40\x01x\x01y", b"\0\x01A\x01b"].concat();
    vec![
        (
            "4.1",
            "the reserved bit is ignored",
            ok(1 | RESERVED_BIT),
            Accepts(done(1), vec![]),
        ),
        (
            "4.1",
            "undefined flags are ignored",
            raw(kind::HEADERS, LAST | UNDEFINED, 1, OK),
            Accepts(done(1), vec![]),
        ),
        (
            "4.1",
            "undefined flags of DATA",
            [
                head.clone(),
                raw(
                    kind::DATA,
                    UNDEFINED | flag::PRIORITY | flag::END_HEADERS,
                    1,
                    b"x",
                ),
            ]
            .concat(),
            Accepts(body(b"x"), vec![]),
        ),
        (
            "4.1",
            "undefined flags of CONTINUATION",
            [
                raw(kind::HEADERS, flag::END_STREAM, 1, b""),
                all_flags(kind::CONTINUATION, 1, OK),
            ]
            .concat(),
            Accepts(done(1), vec![]),
        ),
        (
            "4.1",
            "undefined flags of SETTINGS and PING",
            [
                raw(kind::SETTINGS, no_ack, 0, b""),
                raw(kind::PING, no_ack, 0, &[7; 8]),
            ]
            .concat(),
            Accepts(vec![Event::Settings], [ack.clone(), pong([7; 8])].concat()),
        ),
        (
            "4.1",
            "undefined flags of RST_STREAM",
            all_flags(kind::RST_STREAM, 1, &[0, 0, 0, 8]),
            Accepts(vec![cancel], vec![]),
        ),
        (
            "4.1",
            "undefined flags of GOAWAY",
            all_flags(kind::GOAWAY, 0, &[0, 0, 0, 3, 0, 0, 0, 0]),
            Accepts(vec![event(3, 0)], vec![]),
        ),
        (
            "4.1",
            "undefined flags of WINDOW_UPDATE",
            all_flags(kind::WINDOW_UPDATE, 1, &[0, 0, 0, 1]),
            Accepts(vec![Event::WindowUpdate { stream: 1 }], vec![]),
        ),
        (
            "4.2",
            "DATA of the maximum size",
            [head.clone(), raw(kind::DATA, 0, 1, &LONGEST)].concat(),
            Accepts(body(&LONGEST), vec![]),
        ),
        (
            "4.2",
            "an unknown frame of the maximum size",
            [raw(0x42, 0, 0, &LONGEST), ok(1)].concat(),
            Accepts(done(1), vec![]),
        ),
        (
            "4.3",
            "a rejected response changes the table",
            [section(1, true, &inserting), section(3, true, b"\x88\xbe")].concat(),
            Accepts(
                [vec![malformed(1, Malformed::FieldName)], done(3)].concat(),
                rejected.clone(),
            ),
        ),
        (
            "4.3",
            "blocks after a reset change the table",
            [
                data(1, b"x", false),
                section(1, true, &inserting),
                section(3, true, b"\x88\xbe"),
            ]
            .concat(),
            Accepts(
                [vec![malformed(1, Malformed::DataBeforeHead)], done(3)].concat(),
                rejected.clone(),
            ),
        ),
        (
            "4.3",
            "an empty block in HEADERS",
            [
                raw(kind::HEADERS, flag::END_STREAM, 1, b""),
                raw(kind::CONTINUATION, OPEN, 1, OK),
            ]
            .concat(),
            Accepts(done(1), vec![]),
        ),
        (
            "5.1",
            "RST_STREAM after END_STREAM",
            [ok(1), reset(1, ErrorCode::NO_ERROR).repeat(2)].concat(),
            Accepts(done(1), vec![]),
        ),
        (
            "5.1",
            "WINDOW_UPDATE after END_STREAM",
            [ok(1), window(1, MAX_31_BITS).repeat(2)].concat(),
            Accepts(done(1), vec![]),
        ),
        (
            "5.1",
            "PRIORITY after END_STREAM",
            [ok(1), priority(1)].concat(),
            Accepts(done(1), vec![]),
        ),
        (
            "5.1",
            "frames on a stream that the client reset",
            [
                data(1, b"x", false),
                section(1, false, OK),
                data(1, b"y", true),
                window(1, MAX_31_BITS).repeat(2),
                reset(1, ErrorCode::CANCEL),
                ok(3),
            ]
            .concat(),
            Accepts(
                [vec![malformed(1, Malformed::DataBeforeHead)], done(3)].concat(),
                rejected,
            ),
        ),
        (
            "5.1",
            "PRIORITY on idle streams",
            [priority(2), priority(99), ok(1)].concat(),
            Accepts(done(1), vec![]),
        ),
        (
            "5.4.2",
            "RST_STREAM is not answered",
            reset(1, ErrorCode::CANCEL),
            Accepts(vec![cancel], vec![]),
        ),
        (
            "5.5",
            "unknown frames on any stream",
            [
                raw(0x42, 0xff, 0, b"?"),
                raw(0x42, 0, 2, b"?"),
                raw(0xff, 0, 1, b"?"),
                ok(1),
                raw(0x10, 0, 1, b"?"),
            ]
            .concat(),
            Accepts(done(1), vec![]),
        ),
        (
            "6.1",
            "padding of the maximum length",
            [head.clone(), padded(kind::DATA, 0, 255, &[b'x'; 256])].concat(),
            Accepts(body(b"x"), vec![]),
        ),
        (
            "6.1",
            "only padding",
            [
                head.clone(),
                padded(kind::DATA, 0, 2, &[0; 2]),
                data(1, b"", true),
            ]
            .concat(),
            Accepts(vec![head_event(1, None, false), part(1, b"", true)], vec![]),
        ),
        (
            "6.2",
            "HEADERS with padding and priority",
            padded(
                kind::HEADERS,
                LAST | flag::PRIORITY,
                1,
                b"\x80\0\0\x01\xff\x88\0",
            ),
            Accepts(done(1), vec![]),
        ),
        (
            "6.5.2",
            "unknown settings are ignored",
            settings(&[Setting::Unknown(0xf0f0, 1), Setting::MaxHeaderListSize(0)]),
            Accepts(vec![Event::Settings], ack.clone()),
        ),
        (
            "6.5.2",
            "ENABLE_PUSH of 0",
            settings(&[Setting::EnablePush(0)]),
            Accepts(vec![Event::Settings], ack.clone()),
        ),
        (
            "6.5.3",
            "SETTINGS are acknowledged in order",
            [settings(&[]), raw(kind::PING, 0, 0, &[7; 8]), settings(&[])].concat(),
            Accepts(
                vec![Event::Settings; 2],
                [ack.clone(), pong([7; 8]), ack.clone()].concat(),
            ),
        ),
        (
            "6.5.3",
            "an acknowledgment is not answered",
            ack,
            Accepts(vec![], vec![]),
        ),
        (
            "6.7",
            "a PING is answered",
            raw(kind::PING, 0, 0, b"abcdefgh"),
            Accepts(vec![], pong(*b"abcdefgh")),
        ),
        (
            "6.7",
            "the answer to a PING is not answered",
            pong(*b"abcdefgh"),
            Accepts(vec![Event::Pong(*b"abcdefgh")], vec![]),
        ),
        (
            "6.8",
            "two shutdowns",
            [go_away(MAX_31_BITS, 0), ok(1), go_away(3, 0), ok(3)].concat(),
            Accepts(
                [
                    vec![event(MAX_31_BITS, 0)],
                    done(1),
                    vec![event(3, 0)],
                    done(3),
                ]
                .concat(),
                vec![],
            ),
        ),
        (
            "6.8",
            "frames above the last stream are ignored",
            [
                go_away(1, 2),
                section(3, false, OK),
                data(3, b"x", true),
                ok(1),
            ]
            .concat(),
            Accepts([vec![event(1, 2)], done(1)].concat(), vec![]),
        ),
        (
            "6.8",
            "the reserved bit of the last stream",
            go_away(3 | RESERVED_BIT, 0),
            Accepts(vec![event(3, 0)], vec![]),
        ),
        (
            "6.9",
            "the reserved bit of a window increment",
            raw(kind::WINDOW_UPDATE, 0, 0, b"\x80\0\0\x01"),
            Accepts(vec![Event::WindowUpdate { stream: 0 }], vec![]),
        ),
        (
            "6.9.1",
            "the largest windows",
            [
                window(0, MAX_31_BITS - 65_535),
                window(1, MAX_31_BITS - 65_535),
            ]
            .concat(),
            Accepts(
                vec![
                    Event::WindowUpdate { stream: 0 },
                    Event::WindowUpdate { stream: 1 },
                ],
                vec![],
            ),
        ),
        (
            "6.10",
            "the most CONTINUATIONs",
            [
                raw(kind::HEADERS, flag::END_STREAM, 1, OK),
                raw(kind::CONTINUATION, 0, 1, b"").repeat(7),
                raw(kind::CONTINUATION, OPEN, 1, b""),
            ]
            .concat(),
            Accepts(done(1), vec![]),
        ),
        (
            "7",
            "unknown error codes",
            [reset(1, ErrorCode(u32::MAX)), go_away(3, 99)].concat(),
            Accepts(
                vec![
                    Event::Reset {
                        stream: 1,
                        code: ErrorCode(u32::MAX),
                    },
                    event(3, 99),
                ],
                vec![],
            ),
        ),
        (
            "8.1",
            "interim responses",
            [section(1, false, EARLY_HINTS).repeat(2), ok(1)].concat(),
            Accepts(done(1), vec![]),
        ),
        (
            "8.1",
            "trailers without data",
            [head.clone(), trailers].concat(),
            Accepts(
                vec![head_event(1, None, false), Event::Trailers { stream: 1 }],
                vec![],
            ),
        ),
        (
            "8.1",
            "empty trailers",
            [head.clone(), section(1, true, b"")].concat(),
            Accepts(
                vec![head_event(1, None, false), Event::Trailers { stream: 1 }],
                vec![],
            ),
        ),
        (
            "8.1",
            "a response without content ends with DATA",
            [head, data(1, b"", true)].concat(),
            Accepts(vec![head_event(1, None, false), part(1, b"", true)], vec![]),
        ),
        (
            "8.1.1",
            "304 with the length of another response",
            section(1, true, &[b"\x8b", &OK_LENGTH_5[1..]].concat()),
            Accepts(
                vec![Event::Head {
                    stream: 1,
                    status: 304,
                    content_length: Some(5),
                    end: true,
                }],
                vec![],
            ),
        ),
        (
            "8.2.1",
            "names and values of any legal bytes",
            section(1, true, &with_field("!#$%&'*+-.^_`|~09az", "\u{e9} \t\x7f")),
            Accepts(done(1), vec![]),
        ),
        (
            "8.2.2",
            "te with the value trailers",
            section(1, true, &with_field("te", "trailers")),
            Accepts(done(1), vec![]),
        ),
        (
            "8.3.2",
            "the highest status",
            section(1, true, &literal(":status", "999")),
            Accepts(
                vec![Event::Head {
                    stream: 1,
                    status: 999,
                    content_length: None,
                    end: true,
                }],
                vec![],
            ),
        ),
        (
            "8.7",
            "a refused request",
            reset(1, ErrorCode::REFUSED_STREAM),
            Accepts(vec![Event::Refused { stream: 1 }], vec![]),
        ),
    ]
}

/// Collects events as text and merges consecutive pieces of data into one event.
#[derive(Default, PartialEq, Debug)]
struct Transcript {
    events: Vec<String>,
    data: Vec<u8>,
}

impl EventSink for Transcript {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Data { bytes, end, .. } = event {
            self.data.extend_from_slice(bytes);
            if !end {
                return;
            }
        }
        let data = std::mem::take(&mut self.data);
        self.events.push(format!(
            "{data:?} {}",
            match event {
                Event::Data { stream, .. } => format!("end of {stream}"),
                event => format!("{event:?}"),
            }
        ));
    }
}

/// Reads a row's frames in pieces of at most `length` bytes. Returns a description of the first
/// difference from the expected reaction.
fn fault(input: &[u8], reaction: &Reaction, length: usize) -> Option<String> {
    let mut session = session(2);
    let mut seen = Transcript::default();
    let result = input
        .chunks(length)
        .try_for_each(|piece| session.feed(piece, &mut seen));
    let answers = output(&mut session);
    let expect = |events: &[Event<'static>]| {
        let mut expected = Transcript::default();
        events.iter().for_each(|event| expected.event(*event));
        expected
    };
    let mut differs = match reaction {
        Fails(error, code) => {
            let goaway = encoded(|out| frame::go_away(*code, out));
            let request = session.request(GET, false, |_, _| ());
            result != Err(*error)
                || session.feed(b"", &mut seen) != result
                || request != Err(Unavailable::Closing)
                || !answers.ends_with(&goaway)
        }
        Rejects(events, reason) => {
            let events = [&events[..], &[malformed(1, *reason)]].concat();
            let reset = reset(1, ErrorCode::PROTOCOL_ERROR);
            result != Ok(()) || seen != expect(&events) || answers != reset
        }
        Accepts(events, expected) => {
            result != Ok(()) || seen != expect(events) || answers != *expected
        }
    };
    if let Rejects(..) = reaction {
        // Frames in transit are ignored, and the other stream continues.
        let more = [data(1, b"x", false), section(1, true, TRAILERS), ok(3)];
        let mut other = Transcript::default();
        differs |= session.feed(&more.concat(), &mut other) != Ok(()) || other != expect(&done(3));
    }
    differs.then(|| format!("{result:?} {seen:?} {answers:?}"))
}

#[test]
fn follows_each_rule_of_rfc_9113() {
    let mut faults = Vec::new();
    let rows = [violations(), malformed_responses(), legal_frames()];
    for (section, rule, input, reaction) in rows.into_iter().flatten() {
        for length in [1, 7, usize::MAX] {
            let fault = fault(&input, &reaction, length);
            faults.extend(fault.map(|fault| format!("section {section}, {rule}: {fault}")));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
