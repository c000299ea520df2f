//! Valid responses with every kind of framing, and the expected result of reading each response.

use proptest::collection::vec;
use proptest::prelude::*;

/// An encoded response and its content.
#[derive(Debug, Clone)]
pub struct Sample {
    pub wire: Vec<u8>,
    pub status: u16,
    pub body: Vec<u8>,
    pub keep_alive: bool,
}

#[derive(Debug, Clone)]
enum Framing {
    /// Number of `Content-Length` headers.
    Length(usize),
    Chunked {
        /// Length and extension of each chunk. The body may end before the last chunk.
        chunks: Vec<(usize, String)>,
        trailers: Vec<String>,
    },
    UntilClose,
    /// 204 or 304.
    None(u16),
}

/// Generates any valid response. If `until_close` is set, the end of the connection may mark the
/// end of the response.
pub fn sample(until_close: bool) -> impl Strategy<Value = Sample> {
    let interim = vec(
        prop_oneof![
            Just("HTTP/1.1 100 Continue\r\n\r\n"),
            Just("HTTP/1.1 103 Early Hints\r\nLink: </s.css>; rel=preload\r\n\r\n"),
            Just("HTTP/1.1 102\r\nX:\r\n\r\n"),
        ],
        0..3,
    );
    let status = prop_oneof![Just(200u16), Just(404), Just(503), 200u16..=999]
        .prop_filter("these have no body", |s| !matches!(s, 204 | 304));
    (
        interim,
        status,
        prop_oneof![
            Just(""),
            Just(" "),
            Just(" OK"),
            Just(" Not\tReally \u{e9}")
        ],
        vec(header(), 0..8),
        framing(until_close),
        vec(any::<u8>(), 0..300),
        any::<bool>(),
    )
        .prop_map(
            |(interim, status, reason, headers, framing, body, keep_alive)| {
                let (status, body) = match framing {
                    Framing::None(status) => (status, vec![]),
                    _ => (status, body),
                };
                let keep_alive = keep_alive && !matches!(framing, Framing::UntilClose);
                let mut wire = interim.concat().into_bytes();
                wire.extend(format!("HTTP/1.1 {status}{reason}\r\n").bytes());
                let half = headers.len() / 2;
                wire.extend(headers[..half].concat().bytes());
                if !keep_alive {
                    wire.extend(b"Connection: close\r\n");
                }
                frame(&mut wire, &framing, &body, &headers[half..].concat());
                Sample {
                    wire,
                    status,
                    body,
                    keep_alive,
                }
            },
        )
}

/// Writes the framing header, the remaining headers and the body.
fn frame(wire: &mut Vec<u8>, framing: &Framing, body: &[u8], headers: &str) {
    match framing {
        Framing::Length(times) => {
            let line = format!("Content-Length: {}\r\n", body.len());
            wire.extend(line.repeat(*times).bytes());
        }
        Framing::Chunked { .. } => wire.extend(b"Transfer-Encoding: chunked\r\n"),
        Framing::UntilClose | Framing::None(_) => {}
    }
    wire.extend(headers.bytes());
    wire.extend(b"\r\n");
    let Framing::Chunked { chunks, trailers } = framing else {
        wire.extend(body);
        return;
    };
    let mut rest = body;
    for (length, extension) in chunks.iter().cycle() {
        let (chunk, after) = rest.split_at(rest.len().min(*length));
        wire.extend(format!("{:x}{extension}\r\n", chunk.len()).bytes());
        if chunk.is_empty() {
            break;
        }
        wire.extend(chunk);
        wire.extend(b"\r\n");
        rest = after;
    }
    wire.extend(trailers.concat().bytes());
    wire.extend(b"\r\n");
}

fn framing(until_close: bool) -> impl Strategy<Value = Framing> {
    let extension = prop_oneof![
        4 => Just(String::new()),
        1 => Just(" ".to_owned()),
        2 => "[ \t]{0,2};[ -~\t]{0,12}",
    ];
    let chunked = (vec((1usize..80, extension), 1..6), vec(header(), 0..3))
        .prop_map(|(chunks, trailers)| Framing::Chunked { chunks, trailers });
    prop_oneof![
        4 => (1usize..3).prop_map(Framing::Length),
        4 => chunked,
        1 => prop_oneof![Just(204), Just(304)].prop_map(Framing::None),
        u32::from(until_close) * 2 => Just(Framing::UntilClose),
    ]
}

/// Generates a header that does not affect framing.
fn header() -> impl Strategy<Value = String> {
    (
        "[XYZ][A-Za-z0-9!#$%&'*+.^_`|~-]{0,20}",
        "[ \t]{0,2}",
        "[!-~\u{e0}-\u{ff}][ -~\t]{0,40}|",
    )
        .prop_map(|(name, space, value)| format!("{name}:{space}{value}\r\n"))
}
