//! Properties of the HTTP/2 session and of the HPACK decoder that hold for any input.
//!
//! They are used by this crate's tests and by the fuzz targets.

use std::sync::Arc;

use floodmark_wire::RequestSpec;
use floodmark_wire::h2::hpack::{Decoder, HpackError};
use floodmark_wire::h2::{
    Config, ConnectionError, Event, EventSink, RequestHeads, Scheme, Session, request_fields,
};

use super::check::Random;

/// Events and output of a session.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    /// Events and fields as text. Consecutive data of a stream is one item.
    pub items: Vec<String>,
    /// Stream and bytes of data, if no other item followed.
    data: Option<(u32, Vec<u8>)>,
    /// The bytes that the session sent.
    pub output: Vec<u8>,
}

impl Transcript {
    fn push(&mut self, item: String) {
        let data = self.data.take();
        let data = data.map(|(stream, bytes)| format!("data {stream} {bytes:?}"));
        self.items.extend(data.into_iter().chain([item]));
    }
}

impl EventSink for Transcript {
    fn event(&mut self, event: Event<'_>) {
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
    for request in [get, head, post, get, post, get] {
        let opened = session.request(request, request == post, |_, _| ());
        opened.expect("six streams may be open");
    }
    let mut transcript = Transcript::default();
    let mut rest = input;
    let mut result = Ok(());
    while !rest.is_empty() && result.is_ok() {
        let (piece, after) = rest.split_at(next_length().clamp(1, rest.len()));
        rest = after;
        result = session.feed(piece, &mut transcript);
        let count = session.output().len();
        transcript.output.extend_from_slice(session.output());
        session.sent(count);
    }
    assert!(session.open_streams() <= 6);
    (transcript, result)
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

/// Checks that decoded fields stay within the limit, and that they can be encoded and decoded again.
/// In the input, each block follows a byte with its length.
///
/// # Panics
/// Panics if a property does not hold.
pub fn check_hpack(input: &[u8]) {
    const LIST_BYTES: usize = 2000;
    for table_bytes in [0, 100, 4096, 10_000] {
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
            if result.is_err() {
                break;
            }
        }
    }
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
