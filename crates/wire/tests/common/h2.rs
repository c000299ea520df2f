//! Properties of the HTTP/2 session and of the HPACK decoder that hold for any input.
//!
//! They are used by this crate's tests and by the fuzz targets.

use std::sync::Arc;

use floodmark_wire::RequestSpec;
use floodmark_wire::h2::frame::FrameHeader;
use floodmark_wire::h2::hpack::{Decoder, HpackError};
use floodmark_wire::h2::{
    Config, ConnectionError, ErrorCode, Event, EventSink, RequestHeads, Scheme, Session,
    request_fields,
};

use super::check::Random;

/// Events and output of a session.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    /// Events and fields as text. Consecutive data of a stream is one item.
    pub items: Vec<String>,
    /// Stream and bytes of the latest item, if that item is data.
    data: Option<(u32, Vec<u8>)>,
    /// The bytes that the session sent.
    pub output: Vec<u8>,
    /// The client's reactions to the events since the last ones.
    reactions: Vec<Reaction>,
}

/// A call of the session after an event.
#[derive(Debug, PartialEq, Eq)]
enum Reaction {
    /// Opens another stream.
    Open,
    /// Sends a part of a request body.
    Send(u32),
    /// Resets a stream.
    Reset(u32),
}

impl Transcript {
    fn push(&mut self, item: String) {
        let data = self.data.take();
        let data = data.map(|(stream, bytes)| format!("data {stream} {bytes:?}"));
        self.items.extend(data.into_iter().chain([item]));
    }

    /// Takes the bytes that the session sends.
    fn drain(&mut self, session: &mut Session) {
        let length = session.output().len();
        self.output.extend_from_slice(session.output());
        session.sent(length);
    }
}

impl EventSink for Transcript {
    fn event(&mut self, event: Event<'_>) {
        self.reactions.extend(match event {
            Event::Head { end: true, .. }
            | Event::Data { end: true, .. }
            | Event::Trailers { .. }
            | Event::Reset { .. }
            | Event::Refused { .. }
            | Event::Malformed { .. } => Some(Reaction::Open),
            Event::Head { stream, .. } if stream % 8 == 7 => Some(Reaction::Reset(stream)),
            Event::WindowUpdate { stream } => Some(Reaction::Send(stream)),
            _ => None,
        });
        let Event::Data { stream, bytes, end } = event else {
            return self.push(format!("{event:?}"));
        };
        assert!(end || !bytes.is_empty(), "an event without content");
        match &mut self.data {
            Some((last, all)) if *last == stream => all.extend_from_slice(bytes),
            _ => {
                self.push(format!("data of {stream}"));
                self.data = Some((stream, bytes.to_vec()));
            }
        }
        if end {
            self.push(format!("end {stream}"));
        }
    }

    fn field(&mut self, stream: u32, name: &[u8], value: &[u8]) {
        self.push(format!("field {stream} {name:?} {value:?}"));
    }
}

/// Reads `input` as the bytes from a server, in pieces whose lengths come from `next_length`. The
/// client has sent a HEAD request, POST requests with unfinished bodies, and GET requests.
///
/// The client reacts to events after every fourth frame, so its calls do not depend on the pieces.
pub fn read(
    input: &[u8],
    mut next_length: impl FnMut() -> usize,
) -> (Transcript, Result<(), ConnectionError>) {
    let fields = ["GET", "HEAD", "POST"].map(|method| {
        let spec = RequestSpec {
            method,
            path: "/",
            authority: "test",
            headers: &[],
            body: b"",
            close: false,
        };
        request_fields(&spec, Scheme::Http, Some(0)).expect("a legal request")
    });
    let [get, head, post] = [0, 1, 2];
    let config = Config {
        max_streams: 6,
        stream_window: 1000,
        connection_window: 65_535,
        ..Config::default()
    };
    let mut session = Session::new(&config, Arc::new(RequestHeads::new(&fields)));
    let mut requests = [get, head, post, get, post, get].into_iter().cycle();
    let mut open = |session: &mut Session| {
        let request = requests.next().expect("an endless iterator");
        session.request(request, request == post, |_, _| ())
    };
    for _ in 0..config.max_streams {
        open(&mut session).expect("six streams may be open");
    }
    let mut transcript = Transcript::default();
    let mut rest = input;
    while !rest.is_empty() {
        let (frames, after) = rest.split_at(four_frames(rest));
        rest = after;
        let mut frames_left = frames;
        while !frames_left.is_empty() {
            let length = next_length().clamp(1, frames_left.len());
            let (piece, after) = frames_left.split_at(length);
            frames_left = after;
            let result = session.feed(piece, &mut transcript);
            transcript.drain(&mut session);
            if result.is_err() {
                return (transcript, result);
            }
        }
        for reaction in std::mem::take(&mut transcript.reactions) {
            if let Reaction::Send(stream) = reaction {
                let sent = session.send_body(stream, &[b'x'; 1000], stream % 8 == 1);
                transcript.push(format!("sent {stream} {sent:?}"));
                continue;
            }
            if let Reaction::Reset(stream) = reaction {
                session.reset(stream, ErrorCode::CANCEL);
            }
            let opened = open(&mut session);
            transcript.push(format!("opened {opened:?}"));
        }
        transcript.drain(&mut session);
        assert!(session.open_streams() <= config.max_streams);
    }
    (transcript, Ok(()))
}

/// Returns the length of the first four frames in `input`.
fn four_frames(input: &[u8]) -> usize {
    let mut rest = input;
    for _ in 0..4 {
        let Some((header, payload)) = rest.split_first_chunk() else {
            return input.len();
        };
        let length = FrameHeader::parse(*header).length as usize;
        rest = &payload[length.min(payload.len())..];
    }
    input.len() - rest.len()
}

/// Checks that every split of an input gives the same events and answers.
///
/// # Panics
/// Panics if a property does not hold.
pub fn check_session(input: &[u8]) {
    let whole = read(input, || usize::MAX);
    let mut random = Random::of(input);
    for longest in [1, 12, 40, 1000] {
        let split = read(input, || 1 + random.below(longest));
        assert_eq!(whole, split);
    }
}

/// Checks HPACK blocks with tables of several sizes. Returns whether one of the tables suits all
/// blocks.
///
/// # Panics
/// Panics if a property does not hold.
pub fn check_hpack(input: &[u8]) -> bool {
    let results = [0, 100, 4096, 10_000].map(|table_bytes| check_blocks(input, table_bytes));
    results.iter().any(Result::is_ok)
}

/// Checks that decoded fields stay within the limit, and that they can be encoded and decoded again.
/// In the input, each block follows a byte with its length.
fn check_blocks(input: &[u8], table_bytes: u32) -> Result<(), HpackError> {
    const LIST_BYTES: usize = 2000;
    let mut decoder = Decoder::new(table_bytes, LIST_BYTES);
    let mut second = Decoder::new(4096, LIST_BYTES);
    let mut rest = input;
    while let Some((&length, after)) = rest.split_first() {
        let (block, after) = after.split_at(after.len().min(length.into()));
        rest = after;
        let (fields, result) = decode(&mut decoder, block);
        let size = |(name, value): &(Vec<u8>, Vec<u8>)| name.len() + value.len() + 32;
        assert!(fields.iter().map(size).sum::<usize>() <= LIST_BYTES);
        assert_eq!(decode(&mut second, &encode(&fields)), (fields, Ok(())));
        result?;
    }
    Ok(())
}

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn decode(decoder: &mut Decoder, block: &[u8]) -> (Fields, Result<(), HpackError>) {
    let mut fields = Vec::new();
    let result = decoder.decode(block, |name, value| {
        fields.push((name.to_vec(), value.to_vec()));
    });
    (fields, result)
}

/// Encodes fields as literals with incremental indexing.
fn encode(fields: &Fields) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0x40);
        for text in [name, value] {
            let length = text.len();
            match length.checked_sub(127) {
                None => block.push(length as u8),
                Some(more) => block.extend([0x7f, more as u8 | 0x80, (more >> 7) as u8]),
            }
            block.extend_from_slice(text);
        }
    }
    block
}
