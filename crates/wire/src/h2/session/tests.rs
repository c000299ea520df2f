//! Tests for the session: its requests, its settings and its limits. `rules` contains the rules for
//! the server's frames.

mod rules;

use super::*;
use crate::h2::hpack::HpackError;
use crate::h2::{FieldValue, RequestField};

/// `:status: 200`.
const OK: &[u8] = b"\x88";
/// `:status: 103`.
const EARLY_HINTS: &[u8] = b"\x08\x03103";
/// `:status: 200`, `content-length: 5`.
const OK_LENGTH_5: &[u8] = b"\x88\x0f\x0d\x015";
/// `a: b`.
const TRAILERS: &[u8] = b"\0\x01a\x01b";

/// Indices of the requests in [`heads`].
const GET: usize = 0;
const HEAD: usize = 1;
const POST: usize = 2;

fn heads() -> Arc<RequestHeads> {
    let field = |(name, value): (&str, &str)| RequestField {
        name: name.to_owned(),
        value: FieldValue::Constant(value.to_owned()),
    };
    let requests = ["GET", "HEAD", "POST"].map(|method| {
        let fields = [
            (":method", method),
            (":path", "/test"),
            ("x-shared", "value"),
        ];
        fields.map(field).to_vec()
    });
    Arc::new(RequestHeads::new(&requests))
}

/// Returns a session that received empty SETTINGS.
fn connected(config: Config) -> Session {
    let mut session = Session::new(&config, heads());
    feed(&mut session, &settings(&[]), &[Event::Settings]);
    session
}

/// Sends a request. A POST request has a body.
fn open(session: &mut Session, index: usize) -> u32 {
    session.request(index, index == POST, |_, _| ()).unwrap()
}

/// Returns a session that received empty SETTINGS, with open streams 1, 3, … and no output.
fn session(streams: u32) -> Session {
    let mut session = connected(Config {
        max_streams: streams,
        ..Config::default()
    });
    for _ in 0..streams {
        open(&mut session, GET);
    }
    output(&mut session);
    session
}

/// Removes and returns the output.
fn output(session: &mut Session) -> Vec<u8> {
    let output = session.output().to_vec();
    session.sent(output.len());
    assert!(session.output().is_empty());
    output
}

fn feed(session: &mut Session, input: &[u8], expected: &[Event<'_>]) {
    let mut rest = expected.iter();
    let result = session.feed(input, &mut |event: Event<'_>| {
        assert_eq!(Some(&event), rest.next());
    });
    assert_eq!((result, rest.next()), (Ok(()), None));
}

/// Feeds input that violates the protocol. The input may cause events first.
fn fail(session: &mut Session, input: &[u8]) -> ConnectionError {
    let mut ignore = |_: Event<'_>| ();
    let error = session.feed(input, &mut ignore).unwrap_err();
    assert!(
        session
            .output()
            .ends_with(&encoded(|out| frame::go_away(error.code(), out)))
    );
    assert_eq!(session.feed(b"", &mut ignore), Err(error));
    let result = session.request(GET, false, |_, _| ());
    assert_eq!(result, Err(Unavailable::Closing));
    error
}

fn encoded(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn settings(settings: &[Setting]) -> Vec<u8> {
    encoded(|out| frame::settings(settings, out))
}

fn section(stream: u32, end: bool, block: &[u8]) -> Vec<u8> {
    encoded(|out| frame::headers(stream, end, out, |out| out.extend_from_slice(block)))
}

fn data(stream: u32, part: &[u8], end: bool) -> Vec<u8> {
    encoded(|out| frame::data(stream, part, end, out))
}

fn raw(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader {
        length: payload.len() as u32,
        kind,
        flags,
        stream,
    };
    [&header.bytes()[..], payload].concat()
}

fn head_event(stream: u32, content_length: Option<u64>, end: bool) -> Event<'static> {
    Event::Head {
        stream,
        status: 200,
        content_length,
        end,
    }
}

fn part(stream: u32, bytes: &[u8], end: bool) -> Event<'_> {
    Event::Data { stream, bytes, end }
}

fn malformed(stream: u32, reason: Malformed) -> Event<'static> {
    Event::Malformed { stream, reason }
}

#[test]
fn starts_with_preface_settings_and_credit() {
    let config = Config {
        header_table: 100,
        ..Config::default()
    };
    let expected = [
        &PREFACE[..],
        &settings(&[
            Setting::HeaderTableSize(100),
            Setting::EnablePush(0),
            Setting::InitialWindowSize(1 << 20),
            Setting::MaxHeaderListSize(1 << 16),
        ]),
        &encoded(|out| frame::window_update(0, (16 << 20) - 65_535, out)),
    ];
    assert_eq!(Session::new(&config, heads()).output(), expected.concat());
    let config = Config {
        max_streams: 0,
        stream_window: 0,
        connection_window: 0,
        header_table: u32::MAX,
        ..config
    };
    let session = Session::new(&config, heads());
    assert_eq!(session.stream_limit(), 1);
    let expected = [
        &PREFACE[..],
        &settings(&[
            Setting::HeaderTableSize(65_536),
            Setting::EnablePush(0),
            Setting::InitialWindowSize(2),
            Setting::MaxHeaderListSize(1 << 16),
        ]),
    ];
    assert_eq!(session.output(), expected.concat());
}

#[test]
fn reads_a_response_with_body_and_trailers() {
    let mut session = session(2);
    let input = [
        section(3, false, EARLY_HINTS),
        section(3, false, OK_LENGTH_5),
        section(1, true, OK),
        data(3, b"he", false),
        data(3, b"", false),
        raw(kind::DATA, flag::PADDED, 3, b"\x03llo\0\0\0"),
        section(3, true, TRAILERS),
    ]
    .concat();
    let events = [
        head_event(3, Some(5), false),
        head_event(1, None, true),
        part(3, b"he", false),
        part(3, b"llo", false),
        Event::Trailers { stream: 3 },
    ];
    feed(&mut session, &input, &events);
    assert_eq!(session.open_streams(), 0);
    assert!(session.output().is_empty());
}

#[test]
fn passes_fields_of_final_heads_and_trailers() {
    struct Names(Vec<(u32, String)>);
    impl EventSink for Names {
        fn event(&mut self, _event: Event<'_>) {}
        fn reads_fields(&self) -> bool {
            true
        }

        fn field(&mut self, stream: u32, name: &[u8], value: &[u8]) {
            let text = [name, b"=", value].concat();
            self.0.push((stream, String::from_utf8(text).unwrap()));
        }
    }
    let mut session = session(1);
    let hints = [EARLY_HINTS, TRAILERS].concat();
    let input = [
        section(1, false, &hints),
        section(1, false, OK_LENGTH_5),
        data(1, b"hello", false),
        section(1, true, TRAILERS),
        // The stream is closed for the client, which must not pass its fields.
        section(3, true, OK_LENGTH_5),
    ];
    let mut names = Names(Vec::new());
    session.feed(&input[..4].concat(), &mut names).unwrap();
    open(&mut session, GET);
    session.reset(3, ErrorCode::CANCEL);
    session.feed(&input[4], &mut names).unwrap();
    let expected = [(1, "content-length=5".to_owned()), (1, "a=b".to_owned())];
    assert_eq!(names.0, expected);
}

/// An identical field block has a different meaning after the table changes, and in trailers.
#[test]
fn repeated_heads_are_decoded_with_the_current_table() {
    let mut session = session(6);
    // `content-length: 0` or `1`, inserted into the table, and the newest entry of the table.
    let [insert_0, insert_1] = [b"\x88\x5c\x010", b"\x88\x5c\x011"];
    let newest = b"\x88\xbe";
    let head = |stream, length, end| Event::Head {
        stream,
        status: 200,
        content_length: Some(length),
        end,
    };
    for (stream, block) in [(1, &insert_0[..]), (3, newest), (5, newest)] {
        feed(
            &mut session,
            &section(stream, true, block),
            &[head(stream, 0, true)],
        );
    }
    let input = [section(7, false, insert_1), section(9, false, newest)].concat();
    feed(
        &mut session,
        &input,
        &[head(7, 1, false), head(9, 1, false)],
    );
    feed(
        &mut session,
        &section(9, true, newest),
        &[Event::Malformed {
            stream: 9,
            reason: Malformed::PseudoField,
        }],
    );
    // A size update empties the table.
    let error = fail(&mut session, &section(11, false, b"\x20\x88\xbe"));
    assert_eq!(error, HpackError::InvalidIndex.into());
}

#[test]
fn responses_without_body_end_with_their_head() {
    let mut session = connected(Config {
        max_streams: 3,
        ..Config::default()
    });
    for index in [HEAD, GET, HEAD] {
        open(&mut session, index);
    }
    let not_modified = [&b"\x8b"[..], &OK_LENGTH_5[1..]].concat();
    let input = [
        section(1, true, OK_LENGTH_5),
        section(3, true, &not_modified),
        section(5, false, OK_LENGTH_5),
        data(5, b"hello", true),
    ];
    let events = [
        head_event(1, Some(5), true),
        Event::Head {
            stream: 3,
            status: 304,
            content_length: Some(5),
            end: true,
        },
        head_event(5, Some(5), false),
        malformed(5, Malformed::BodyLength),
    ];
    feed(&mut session, &input.concat(), &events);
}

#[test]
fn interim_responses_are_limited() {
    let mut session = session(1);
    let limit = usize::from(MAX_INTERIM);
    feed(
        &mut session,
        &section(1, false, EARLY_HINTS).repeat(limit),
        &[],
    );
    let events = [malformed(1, Malformed::TooManyInterim)];
    feed(&mut session, &section(1, false, EARLY_HINTS), &events);
}

#[test]
fn nothing_follows_the_goaway_of_a_failed_session() {
    let mut session = session(1);
    session.reset(1, ErrorCode::CANCEL);
    let stream = open(&mut session, POST);
    fail(&mut session, &raw(kind::PUSH_PROMISE, 0, 1, OK));
    output(&mut session);
    assert_eq!(session.send_body(stream, b"x", true), None);
    session.reset(stream, ErrorCode::CANCEL);
    session.ping([0; 8]);
    session.go_away();
    assert!(session.output().is_empty());
}

#[test]
fn recognizes_other_protocols() {
    let new = || Session::new(&Config::default(), heads());
    let http1 = b"HTTP/1.1 400 Bad Request\r\n\r\n";
    assert_eq!(fail(&mut new(), http1), ConnectionError::Http1);
    let input = b"\x15\x03\x01\0\x02\x02\x28\0\0";
    assert_eq!(fail(&mut new(), input), ConnectionError::NoSettings);
    let input = encoded(frame::settings_ack);
    assert_eq!(fail(&mut new(), &input), ConnectionError::NoSettings);
    let input = encoded(|out| frame::ping([0; 8], out));
    assert_eq!(fail(&mut new(), &input), ConnectionError::NoSettings);
}

#[test]
fn joins_a_head_of_several_frames() {
    let mut session = session(1);
    let mut input = raw(kind::HEADERS, flag::END_STREAM, 1, b"");
    for i in 0..MAX_CONTINUATIONS {
        let is_last = i + 1 == MAX_CONTINUATIONS;
        let flags = if is_last { flag::END_HEADERS } else { 0 };
        input.extend(raw(
            kind::CONTINUATION,
            flags,
            1,
            if i == 3 { OK } else { b"" },
        ));
    }
    feed(&mut session, &input, &[head_event(1, None, true)]);
}

#[test]
fn a_large_head_needs_no_more_memory() {
    let mut session = session(1);
    let field = [&b"\0\x01a\x64"[..], &[b'x'; 100]].concat();
    let input = section(1, true, &[OK, &field.repeat(480)].concat());
    assert!(input.len() > 3 * 16_384);
    let capacities = |session: &Session| [session.partial.capacity(), session.block.capacity()];
    let before = capacities(&session);
    let mut heads = 0;
    for piece in input.chunks(1000) {
        let mut count = |event: Event<'_>| heads += usize::from(event == head_event(1, None, true));
        session.feed(piece, &mut count).unwrap();
    }
    assert_eq!(heads, 1);
    assert_eq!(capacities(&session), before);
}

#[test]
fn answers_settings_and_pings() {
    let mut session = session(1);
    let input = [
        settings(&[
            Setting::MaxConcurrentStreams(7),
            Setting::MaxFrameSize(20_000),
        ]),
        encoded(|out| frame::ping(*b"12345678", out)),
        encoded(|out| frame::pong(*b"abcdefgh", out)),
        encoded(frame::settings_ack),
        raw(kind::PRIORITY, 0, 9, b"\0\0\0\0\0"),
        raw(0x10, 0xff, 1, b"unknown"),
    ];
    let events = [Event::Settings, Event::Pong(*b"abcdefgh")];
    feed(&mut session, &input.concat(), &events);
    assert_eq!(
        session.peer(),
        &PeerSettings {
            header_table: 4096,
            max_streams: Some(7),
            stream_window: 65_535,
            max_frame: 20_000,
        }
    );
    let expected = [
        encoded(frame::settings_ack),
        encoded(|out| frame::pong(*b"12345678", out)),
    ];
    assert_eq!(output(&mut session), expected.concat());
    session.ping(*b"abcdefgh");
    session.go_away();
    let expected = [
        encoded(|out| frame::ping(*b"abcdefgh", out)),
        encoded(|out| frame::go_away(ErrorCode::NO_ERROR, out)),
    ];
    assert_eq!(output(&mut session), expected.concat());
}

#[test]
fn floods_are_limited() {
    for frame in [
        encoded(|out| frame::ping([0; 8], out)),
        encoded(|out| frame::pong([0; 8], out)),
        settings(&[]),
        encoded(frame::settings_ack),
        raw(kind::GOAWAY, 0, 0, &[0; 8]),
        raw(0x10, 0, 0, b""),
    ] {
        let mut session = session(1);
        let mut ignore = |_: Event<'_>| ();
        for _ in 0..2 {
            session.renew_idle_frames();
            let limit = Config::default().idle_frames as usize;
            session.feed(&frame.repeat(limit), &mut ignore).unwrap();
            output(&mut session);
        }
        assert_eq!(fail(&mut session, &frame), ConnectionError::Flood);
    }
    let mut session = session(1);
    session
        .feed(&section(1, false, OK), &mut |_: Event<'_>| ())
        .unwrap();
    let error = fail(&mut session, &data(1, b"", false).repeat(1001));
    assert_eq!(error, ConnectionError::Flood);
}

/// A server that measures the round-trip time may send a PING for each frame of a request.
#[test]
fn sending_renews_the_limit_of_idle_frames() {
    let mut session = session(1);
    session.reset(1, ErrorCode::CANCEL);
    let mut ignore = |_: Event<'_>| ();
    let limit = Config::default().idle_frames as usize;
    let pings = encoded(|out| frame::ping([0; 8], out)).repeat(limit);
    session.feed(&pings, &mut ignore).unwrap();
    let stream = open(&mut session, POST);
    output(&mut session);
    session.feed(&pings, &mut ignore).unwrap();
    assert_eq!(session.send_body(stream, b"x", false), Some(1));
    session.feed(&pings, &mut ignore).unwrap();
    // Nothing is sent.
    assert_eq!(session.send_body(stream, b"", false), Some(0));
    assert_eq!(fail(&mut session, &pings), ConnectionError::Flood);
}

/// A server that never reads cannot make the session grow, even if it sends as many frames as the
/// idle-frame limit allows.
#[test]
fn floods_take_bounded_memory() {
    let update = |stream| encoded(|out| frame::window_update(stream, 1, out));
    let reset = |stream| encoded(|out| frame::reset(stream, ErrorCode::CANCEL, out));
    let block = [OK, b"\x40\x01x\x01y"].concat();
    // Stream 1 is open, the client reset stream 3, and the server ended stream 5.
    let floods = [
        settings(&[Setting::InitialWindowSize(7), Setting::Unknown(99, 99)]),
        encoded(frame::settings_ack),
        encoded(|out| frame::ping([0; 8], out)),
        encoded(|out| frame::pong([0; 8], out)),
        raw(
            kind::GOAWAY,
            0,
            0,
            &[&[0, 0, 0, 5, 0, 0, 0, 0], &[b'd'; 1000][..]].concat(),
        ),
        raw(kind::PRIORITY, 0, 1, &[0; 5]),
        raw(0x42, 0, 1, &[0; 1000]),
        update(0),
        update(1),
        update(3),
        reset(3),
        reset(5),
        data(1, b"", false),
        data(1, b"x", false),
        data(3, b"x", false),
        section(1, false, EARLY_HINTS),
        section(3, false, &block),
        [
            raw(kind::HEADERS, 0, 3, &block),
            raw(kind::CONTINUATION, 0, 3, &block).repeat(7),
            raw(kind::CONTINUATION, flag::END_HEADERS, 3, &block),
        ]
        .concat(),
    ];
    for flood in floods {
        let mut session = connected(Config {
            max_streams: 3,
            stream_window: 1000,
            connection_window: 65_535,
            ..Config::default()
        });
        let mut ignore = |_: Event<'_>| ();
        for _ in 0..3 {
            open(&mut session, GET);
        }
        session.reset(3, ErrorCode::CANCEL);
        let start = [section(1, false, OK), section(5, true, OK)].concat();
        session.feed(&start, &mut ignore).unwrap();
        let capacities = |session: &Session| [session.partial.capacity(), session.block.capacity()];
        let before = capacities(&session);
        let many = flood.repeat(900);
        for _ in 0..300 {
            session.renew_idle_frames();
            if session.feed(&many, &mut ignore).is_err() {
                break;
            }
        }
        assert_eq!(capacities(&session), before, "{flood:?}");
        assert!(session.out.len() < 2 * MAX_OUTPUT_BYTES + 100, "{flood:?}");
        assert!(session.out.capacity() < 8 * MAX_OUTPUT_BYTES, "{flood:?}");
    }
}

#[test]
fn output_of_answers_is_limited() {
    let mut session = session(1);
    let pings = encoded(|out| frame::ping([0; 8], out)).repeat(1000);
    let error = loop {
        session.renew_idle_frames();
        if let Err(error) = session.feed(&pings, &mut |_: Event<'_>| ()) {
            break error;
        }
    };
    assert_eq!(error, ConnectionError::OutputFull);
    assert!(session.output().len() < 2 * MAX_OUTPUT_BYTES + 100);
}

#[test]
fn output_of_credit_is_limited() {
    let mut session = connected(Config {
        stream_window: 2,
        ..Config::default()
    });
    open(&mut session, GET);
    // Each byte returns credit.
    let input = [section(1, false, OK), data(1, b"x", false).repeat(20_000)];
    let error = fail(&mut session, &input.concat());
    assert_eq!(error, ConnectionError::OutputFull);
    assert!(session.output().len() < 2 * MAX_OUTPUT_BYTES + 100);
}

#[test]
fn a_server_limits_streams() {
    let config = Config {
        max_streams: 1000,
        ..Config::default()
    };
    let mut session = Session::new(&config, heads());
    assert_eq!(session.stream_limit(), 100);
    feed(&mut session, &settings(&[]), &[Event::Settings]);
    assert_eq!(session.stream_limit(), 1000);
    let request = |session: &mut Session| session.request(GET, false, |_, _| ());
    assert_eq!(request(&mut session), Ok(1));
    assert_eq!(request(&mut session), Ok(3));
    let lower = settings(&[Setting::MaxConcurrentStreams(1)]);
    feed(&mut session, &lower, &[Event::Settings]);
    assert_eq!(request(&mut session), Err(Unavailable::Streams));
    feed(
        &mut session,
        &section(1, true, OK),
        &[head_event(1, None, true)],
    );
    assert_eq!(request(&mut session), Err(Unavailable::Streams));
    feed(
        &mut session,
        &section(3, true, OK),
        &[head_event(3, None, true)],
    );
    assert_eq!(request(&mut session), Ok(5));
    let none = settings(&[Setting::MaxConcurrentStreams(0)]);
    feed(&mut session, &none, &[Event::Settings]);
    session.reset(5, ErrorCode::CANCEL);
    assert_eq!(session.open_streams(), 0);
    assert_eq!(request(&mut session), Err(Unavailable::Streams));
}

#[test]
fn identifiers_are_used_up() {
    let mut session = session(1);
    session.reset(1, ErrorCode::CANCEL);
    session.streams.next = MAX_31_BITS;
    let request = |session: &mut Session| session.request(GET, false, |_, _| ());
    assert_eq!(request(&mut session), Ok(MAX_31_BITS));
    assert_eq!(request(&mut session), Err(Unavailable::Streams));
    let input = section(MAX_31_BITS, true, OK);
    feed(&mut session, &input, &[head_event(MAX_31_BITS, None, true)]);
    assert_eq!(request(&mut session), Err(Unavailable::Closing));
    assert_eq!(session.open_streams(), 0);
}

#[test]
fn a_shutdown_closes_the_streams_above_the_last() {
    let mut session = session(3);
    let goaway = |last: u32, code: u32| {
        let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
        raw(kind::GOAWAY, 0, 0, &[&payload[..], b"debug data"].concat())
    };
    let event = |last, code| Event::GoAway {
        last,
        code: ErrorCode(code),
    };
    feed(
        &mut session,
        &goaway(MAX_31_BITS, 0),
        &[event(MAX_31_BITS, 0)],
    );
    assert_eq!(session.open_streams(), 3);
    let result = session.request(GET, false, |_, _| ());
    assert_eq!(result, Err(Unavailable::Closing));
    feed(&mut session, &goaway(3, 2), &[event(3, 2)]);
    assert_eq!(session.open_streams(), 2);
    let input = [section(5, true, OK), section(3, true, OK)].concat();
    feed(&mut session, &input, &[head_event(3, None, true)]);
}

#[test]
fn resets_end_streams() {
    let mut session = session(3);
    let input = [
        encoded(|out| frame::reset(1, ErrorCode::REFUSED_STREAM, out)),
        encoded(|out| frame::reset(3, ErrorCode(0xd), out)),
        section(5, true, OK),
        // A reset after the end has no effect.
        encoded(|out| frame::reset(5, ErrorCode::NO_ERROR, out)),
        encoded(|out| frame::window_update(5, 1, out)),
    ];
    let events = [
        Event::Refused { stream: 1 },
        Event::Reset {
            stream: 3,
            code: ErrorCode(0xd),
        },
        head_event(5, None, true),
    ];
    feed(&mut session, &input.concat(), &events);
    session.reset(5, ErrorCode::CANCEL);
    assert!(session.output().is_empty());
    assert_eq!(session.open_streams(), 0);
}

/// A request with a response was processed.
#[test]
fn a_refusal_after_the_head_is_a_reset() {
    let mut session = session(1);
    let code = ErrorCode::REFUSED_STREAM;
    let input = [
        section(1, false, OK),
        encoded(|out| frame::reset(1, code, out)),
    ];
    let events = [head_event(1, None, false), Event::Reset { stream: 1, code }];
    feed(&mut session, &input.concat(), &events);
}

#[test]
fn a_stream_can_be_reset_within_a_frame() {
    let mut session = session(2);
    let input = [
        section(1, false, OK),
        data(1, b"hello", true),
        section(3, true, OK),
    ]
    .concat();
    let (first, rest) = input.split_at(10 + 9 + 2);
    feed(
        &mut session,
        first,
        &[head_event(1, None, false), part(1, b"he", false)],
    );
    session.reset(1, ErrorCode::CANCEL);
    feed(&mut session, rest, &[head_event(3, None, true)]);
}

#[test]
fn credit_returns_when_half_a_window_is_used() {
    // An open stream and a stream that was reset: both have a window.
    for exceeded in [1, 3] {
        let mut session = connected(Config {
            max_streams: 3,
            stream_window: 20_000,
            connection_window: 65_535,
            ..Config::default()
        });
        for _ in 0..3 {
            open(&mut session, GET);
        }
        let events = [head_event(1, None, false)];
        feed(&mut session, &section(1, false, OK), &events);
        output(&mut session);
        // Padding counts: 1 + 9970 + 29 bytes.
        let payload = [&[29][..], &[b'x'; 9970], &[0; 29]].concat();
        let padded = raw(kind::DATA, flag::PADDED, 1, &payload);
        feed(&mut session, &padded, &[part(1, &[b'x'; 9970], false)]);
        let credit = encoded(|out| frame::window_update(1, 10_000, out));
        assert_eq!(output(&mut session), credit);
        // Data of streams that were reset counts for the connection, but returns no credit for the
        // streams.
        for stream in [3, 5] {
            session.reset(stream, ErrorCode::CANCEL);
            output(&mut session);
            feed(&mut session, &data(stream, &[0; 12_000], false), &[]);
        }
        let credit = encoded(|out| frame::window_update(0, 34_000, out));
        assert_eq!(output(&mut session), credit);
        let input = [9_999, 10_002].map(|length| data(exceeded, &vec![0; length], false));
        let error = fail(&mut session, &input.concat());
        assert_eq!(error, ConnectionError::WindowExceeded);
    }
}

#[test]
fn the_window_of_the_connection_is_a_limit() {
    let mut session = connected(Config {
        connection_window: 65_535,
        ..Config::default()
    });
    session.received = 65_535 - 10;
    open(&mut session, GET);
    let input = [section(1, false, OK), data(1, &[0; 11], false)].concat();
    assert_eq!(fail(&mut session, &input), ConnectionError::WindowExceeded);
}

#[test]
fn bodies_respect_flow_control() {
    let mut session = connected(Config {
        max_streams: 2,
        ..Config::default()
    });
    let setting = Setting::InitialWindowSize(20_000);
    feed(&mut session, &settings(&[setting]), &[Event::Settings]);
    let body = vec![b'x'; 50_000];
    let stream = open(&mut session, POST);
    output(&mut session);
    assert_eq!(session.send_body(stream, &body, true), Some(20_000));
    let expected = [
        data(stream, &body[..16_384], false),
        data(stream, &body[..20_000 - 16_384], false),
    ];
    assert_eq!(output(&mut session), expected.concat());
    let sent = session.send_body(stream, &body[20_000..], true);
    assert_eq!(sent, Some(0));
    // A smaller initial window makes the window negative.
    let setting = Setting::InitialWindowSize(15_000);
    feed(&mut session, &settings(&[setting]), &[Event::Settings]);
    let credit = encoded(|out| frame::window_update(stream, 5000, out));
    feed(&mut session, &credit, &[Event::WindowUpdate { stream }]);
    let sent = session.send_body(stream, &body[20_000..], true);
    assert_eq!(sent, Some(0));
    let credit = encoded(|out| frame::window_update(stream, 100_000, out));
    feed(&mut session, &credit, &[Event::WindowUpdate { stream }]);
    output(&mut session);
    let sent = session.send_body(stream, &body[20_000..], true);
    assert_eq!(sent, Some(30_000));
    assert!(output(&mut session).ends_with(&data(stream, &body[..30_000 - 16_384], true)));
    assert_eq!(session.send_body(stream, b"more", true), None);
    // 15,535 bytes are left in the window of the connection.
    let second = open(&mut session, POST);
    assert_eq!(session.send_body(second, &body, true), Some(15_000));
    let input = [
        encoded(|out| frame::window_update(second, 100_000, out)),
        encoded(|out| frame::window_update(0, 465, out)),
    ];
    let events = [second, 0].map(|stream| Event::WindowUpdate { stream });
    feed(&mut session, &input.concat(), &events);
    assert_eq!(session.send_body(second, &body, true), Some(1000));
    // A response before the end of the body ends the upload.
    output(&mut session);
    feed(
        &mut session,
        &section(second, true, OK),
        &[head_event(second, None, true)],
    );
    let cancel = encoded(|out| frame::reset(second, ErrorCode::CANCEL, out));
    assert_eq!(output(&mut session), cancel);
    assert_eq!(session.send_body(second, &body, true), None);
}

/// The end of a body needs no credit.
#[test]
fn a_body_can_end_with_an_empty_part() {
    let mut session = session(1);
    session.reset(1, ErrorCode::CANCEL);
    let setting = Setting::InitialWindowSize(1);
    feed(&mut session, &settings(&[setting]), &[Event::Settings]);
    let stream = open(&mut session, POST);
    output(&mut session);
    assert_eq!(session.send_body(stream, b"x", false), Some(1));
    assert_eq!(session.send_body(stream, b"", false), Some(0));
    assert_eq!(session.send_body(stream, b"", true), Some(0));
    let expected = [data(stream, b"x", false), data(stream, b"", true)];
    assert_eq!(output(&mut session), expected.concat());
    assert_eq!(session.send_body(stream, b"", true), None);
    // The upload is complete, so the end of the response does not reset the stream.
    let events = [head_event(stream, None, true)];
    feed(&mut session, &section(stream, true, OK), &events);
    assert!(session.output().is_empty());
}

#[test]
fn the_last_initial_window_of_a_frame_applies() {
    let mut session = session(1);
    let input = [
        encoded(|out| frame::window_update(1, 1, out)),
        settings(&[
            Setting::InitialWindowSize(MAX_31_BITS),
            Setting::InitialWindowSize(100),
        ]),
    ];
    let events = [Event::WindowUpdate { stream: 1 }, Event::Settings];
    feed(&mut session, &input.concat(), &events);
    assert_eq!(session.streams.get_open(1).unwrap().send_window, 101);
}

#[test]
fn output_of_requests_is_limited() {
    let mut session = session(1);
    session.reset(1, ErrorCode::CANCEL);
    let large = settings(&[Setting::InitialWindowSize(MAX_31_BITS)]);
    let credit = encoded(|out| frame::window_update(0, 1 << 20, out));
    let events = [Event::Settings, Event::WindowUpdate { stream: 0 }];
    feed(&mut session, &[large, credit].concat(), &events);
    output(&mut session);
    let stream = open(&mut session, POST);
    let sent = session.send_body(stream, &vec![0; 1 << 20], true);
    assert!(sent > Some(MAX_OUTPUT_BYTES / 2));
    assert_eq!(session.output().len(), MAX_OUTPUT_BYTES);
    assert_eq!(session.send_body(stream, b"x", true), Some(0));
    session.reset(stream, ErrorCode::CANCEL);
    let result = session.request(GET, false, |_, _| ());
    assert_eq!(result, Err(Unavailable::Output));
}

/// The first request inserts the shared fields, later ones refer to them, and a table that is too
/// small is never used again.
#[test]
fn requests_follow_the_size_of_the_servers_table() {
    let heads = heads();
    let get = &heads.heads[GET];
    let request = |session: &mut Session| {
        output(session);
        open(session, GET);
        output(session)[FrameHeader::BYTES..].to_vec()
    };
    let form = |form, update: &[u8]| {
        let mut block = update.to_vec();
        get.write(form, |_, _| (), &mut block);
        block
    };
    let resize = |session: &mut Session, sizes: &[u32]| {
        let sizes: Vec<_> = sizes
            .iter()
            .map(|&size| Setting::HeaderTableSize(size))
            .collect();
        feed(session, &settings(&sizes), &[Event::Settings]);
    };
    let new = || {
        connected(Config {
            max_streams: 100,
            ..Config::default()
        })
    };
    let mut session = new();
    assert_eq!(request(&mut session), form(Form::First, b""));
    assert_eq!(request(&mut session), form(Form::Later, b""));
    resize(&mut session, &[10_000]);
    assert_eq!(request(&mut session), form(Form::Later, b""));
    resize(&mut session, &[1000]);
    assert_eq!(request(&mut session), form(Form::Later, b"\x3f\xc9\x07"));
    assert_eq!(request(&mut session), form(Form::Later, b""));
    resize(&mut session, &[0, 4096]);
    assert_eq!(request(&mut session), form(Form::Static, b"\x20"));
    assert_eq!(request(&mut session), form(Form::Static, b""));
    let mut session = new();
    resize(&mut session, &[heads.table_bytes as u32 - 1]);
    let update = request(&mut session);
    assert!(update.ends_with(&form(Form::Static, b"")));
    let mut session = new();
    resize(&mut session, &[heads.table_bytes as u32]);
    let update = request(&mut session);
    assert!(update.ends_with(&form(Form::First, b"")));
    assert_eq!(request(&mut session), form(Form::Later, b""));
}
