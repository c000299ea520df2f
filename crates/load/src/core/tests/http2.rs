//! Simulated HTTP/2 servers.

use rand_core::Rng;

use crate::clock::Ns;

const MS: Ns = 1_000_000;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADER_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const UNKNOWN: u8 = 0x42;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A server's action, and its delay.
pub enum Answer {
    Bytes(Ns, Vec<u8>),
    End(Ns),
    Broke(Ns),
}

/// What an HTTP/2 server does.
#[derive(Clone, Copy, Default)]
pub struct Http2Behavior {
    /// Maximum number of streams per connection; a random number if `None`.
    pub max_streams: Option<u32>,
    /// Whether the server does not process some requests, so that the client sends them again.
    pub refuses: bool,
    /// Whether the server misbehaves in every way.
    pub is_hostile: bool,
}

/// The server's side of a connection.
#[derive(Default)]
pub struct Http2Server {
    has_preface: bool,
    last_stream: u32,
    /// Highest stream that the server processes, if it refuses requests and has sent a GOAWAY.
    last_processed: Option<u32>,
}

/// Returns the type, the flags and the stream of each frame. `bytes` contains only whole frames.
fn frames(bytes: &[u8]) -> impl Iterator<Item = (u8, u8, u32)> {
    let mut rest = bytes.strip_prefix(PREFACE).unwrap_or(bytes);
    std::iter::from_fn(move || {
        let header = rest.first_chunk::<HEADER_BYTES>()?;
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        rest = &rest[HEADER_BYTES + length..];
        let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        Some((header[3], header[4], stream))
    })
}

/// Returns the streams of the requests in the output of a client.
pub fn requests_in(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let of_request = |(kind, _, stream)| (kind == HEADERS).then_some(stream);
    frames(bytes).filter_map(of_request)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

pub fn settings(max_streams: u32) -> Vec<u8> {
    setting(3, max_streams)
}

fn setting(id: u8, value: u32) -> Vec<u8> {
    let payload = [&[0, id], &value.to_be_bytes()[..]].concat();
    frame(SETTINGS, 0, 0, &payload)
}

/// Returns SETTINGS and credit that allow request bodies of any length.
pub fn unlimited_credit() -> Vec<u8> {
    const LARGEST: u32 = (1 << 31) - 1;
    let credit = (LARGEST - 65_535).to_be_bytes();
    [setting(4, LARGEST), frame(WINDOW_UPDATE, 0, 0, &credit)].concat()
}

fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

pub fn go_away(last: u32) -> Vec<u8> {
    let payload = [last.to_be_bytes(), 0u32.to_be_bytes()].concat();
    frame(GO_AWAY, 0, 0, &payload)
}

/// Returns a complete response without a body.
pub fn response(stream: u32) -> Vec<u8> {
    head(stream, 0x88, END_STREAM)
}

/// Returns a response head with an indexed status.
fn head(stream: u32, status: u8, end: u8) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | end, stream, &[status])
}

impl Http2Server {
    /// Reads bytes from the client. Returns the server's reaction.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        behavior: Http2Behavior,
        random: &mut impl Rng,
    ) -> Vec<Answer> {
        let mut answers = Vec::new();
        if !self.has_preface {
            assert!(bytes.starts_with(PREFACE));
            self.has_preface = true;
            let chosen = [1, 3, 100][(random.next_u64() % 3) as usize];
            let max_streams = behavior.max_streams.unwrap_or(chosen);
            answers.push(Answer::Bytes(0, settings(max_streams)));
        }
        for (kind, flags, stream) in frames(bytes) {
            if kind == HEADERS {
                assert!(stream > self.last_stream && flags & END_STREAM != 0);
                self.last_stream = stream;
                self.answer(stream, behavior, random, &mut answers);
            }
        }
        answers
    }

    fn answer(
        &mut self,
        stream: u32,
        behavior: Http2Behavior,
        random: &mut impl Rng,
        answers: &mut Vec<Answer>,
    ) {
        if self.last_processed.is_some_and(|last| stream > last) {
            return;
        }
        let mut below = |n: u64| random.next_u64() % n;
        let mut some_time = || match below(20) {
            0 => below(400 * MS),
            1..5 => below(20 * MS),
            _ => below(MS / 3),
        };
        let at = some_time();
        let later = at + some_time();
        let mut send = |at, bytes| answers.push(Answer::Bytes(at, bytes));
        let kinds = match behavior {
            Http2Behavior {
                is_hostile: true, ..
            } => 40,
            Http2Behavior { refuses: true, .. } if self.last_processed.is_none() => 7,
            _ => 3,
        };
        let kind = below(kinds);
        match kind {
            4.. if !behavior.is_hostile => {
                let last = [stream, stream.saturating_sub(4), 0][kind as usize - 4];
                self.last_processed = Some(last);
                send(at, go_away(last));
                if last == stream {
                    send(at, response(stream));
                }
            }
            0 => send(at, response(stream)),
            1 => {
                send(at, head(stream, 0x88, 0));
                send(later, frame(DATA, END_STREAM, stream, b"12345"));
            }
            2 => {
                let whole = [
                    head(stream, 0x88, 0),
                    frame(DATA, END_STREAM, stream, b"12345"),
                ];
                send(at, whole.concat());
            }
            3 => send(at, reset(stream, 7)),
            4 => send(at, reset(stream, 2)),
            5 => send(at, go_away(stream)),
            6 => send(at, go_away(stream.saturating_sub(4))),
            7 => send(at, go_away(0)),
            8 => {}
            9 => {
                send(at, head(stream, 0x88, 0));
                answers.push(Answer::End(later));
            }
            10 => answers.push(Answer::End(at)),
            11 => answers.push(Answer::Broke(at)),
            12 => send(at, settings(below(9) as u32)),
            13 => send(at, b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
            // Status 404 and 500.
            14 => send(at, head(stream, 0x8d, END_STREAM)),
            15 => send(at, head(stream, 0x8e, END_STREAM)),
            // A head without a status.
            16 => send(at, frame(HEADERS, END_HEADERS | END_STREAM, stream, &[])),
            17 => {
                send(at, head(stream, 0x88, 0));
                send(later, reset(stream, 2));
            }
            // A response on a stream that may not be open yet.
            18 => send(at, head(stream + 2, 0x88, END_STREAM)),
            19 => {
                send(at, go_away(stream));
                answers.push(Answer::End(later));
            }
            20 => send(at, [frame(PING, 0, 0, &[0; 8]), response(stream)].concat()),
            21 => {
                send(at, frame(HEADERS, END_HEADERS, stream, b"\x08\x03103"));
                send(later, response(stream));
            }
            // A reset after the end of the response.
            22 => {
                send(at, response(stream));
                send(later, reset(stream, 0));
            }
            // A graceful shutdown.
            23 => {
                send(at, go_away(u32::MAX >> 1));
                send(later, go_away(stream));
            }
            24 => send(
                at,
                [setting(4, below(100_000) as u32), response(stream)].concat(),
            ),
            25 => send(
                at,
                frame(PUSH_PROMISE, END_HEADERS, stream, b"\0\0\0\x02\x88"),
            ),
            // Frames of other streams may arrive within the field block.
            26 => {
                send(at, frame(HEADERS, END_STREAM, stream, &[]));
                send(later, frame(CONTINUATION, END_HEADERS, stream, &[0x88]));
            }
            27 => send(at, frame(DATA, END_STREAM, stream, b"12345")),
            28 => {
                let credit = frame(WINDOW_UPDATE, 0, stream, &[0, 0, 0, 1]);
                let unknown = frame(UNKNOWN, 0xff, stream, b"?");
                send(at, [unknown, credit, response(stream)].concat());
            }
            _ => send(at, response(stream)),
        }
    }
}
