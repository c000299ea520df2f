//! Properties of the reader that hold for any input.
//!
//! They are used by this crate's tests and by the fuzz target.

use floodmark_wire::{ReadError, Reader, Response};

/// The result of reading all bytes on one connection.
#[derive(Debug, PartialEq, Eq)]
pub struct Transcript {
    /// Complete responses with their bodies.
    pub responses: Vec<(Response, Vec<u8>)>,
    /// Position in the input at which each response ended.
    pub ends: Vec<usize>,
    /// The bytes after the last complete response.
    pub rest: Vec<u8>,
    /// The error that ended reading, or `Ok` if the connection was closed.
    pub end: Result<(), ReadError>,
}

/// Reads `input` as a sequence of responses, in pieces whose lengths come from `next_length`.
pub fn read(
    input: &[u8],
    to_head_request: bool,
    mut next_length: impl FnMut() -> usize,
) -> Transcript {
    let mut reader = Reader::new();
    let mut body = Vec::new();
    let mut responses = Vec::new();
    let mut ends = Vec::new();
    let mut at = 0;
    reader.expect_response(to_head_request);
    let end = 'read: loop {
        if at == input.len() {
            break match reader.end() {
                Ok(Some(response)) => {
                    responses.push((response, std::mem::take(&mut body)));
                    ends.push(at);
                    Ok(())
                }
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
        }
        let end_of_piece = at + next_length().clamp(1, input.len() - at);
        while at < end_of_piece {
            let piece = &input[at..end_of_piece];
            let fed = match reader.feed(piece, &mut body) {
                Ok(fed) => fed,
                Err(error) => break 'read Err(error),
            };
            assert!(
                fed.consumed <= piece.len(),
                "the reader consumed more bytes than it was fed"
            );
            at += fed.consumed;
            match fed.response {
                Some(response) => {
                    responses.push((response, std::mem::take(&mut body)));
                    ends.push(at);
                    assert!(
                        !reader.started(),
                        "a response started before it was expected"
                    );
                    reader.expect_response(to_head_request);
                }
                None => {
                    assert_eq!(
                        fed.consumed,
                        piece.len(),
                        "the reader left input unread although no response was complete"
                    );
                    assert!(reader.started());
                }
            }
        }
    };
    Transcript {
        responses,
        ends,
        rest: body,
        end,
    }
}

/// Checks that every split of an input gives the same result, and that each response matches its
/// bytes.
///
/// # Panics
/// Panics if a property does not hold.
pub fn check(input: &[u8]) {
    for to_head_request in [false, true] {
        let whole = read(input, to_head_request, || usize::MAX);
        assert_eq!(whole, read(input, to_head_request, || 1));
        let mut random = Random::of(input);
        for longest in [7, 40, 1000] {
            let split = read(input, to_head_request, || 1 + random.below(longest));
            assert_eq!(whole, split);
        }
        let starts = std::iter::once(0).chain(whole.ends.iter().copied());
        for ((response, body), (start, &end)) in whole.responses.iter().zip(starts.zip(&whole.ends))
        {
            check_response(response, body, &input[start..end], to_head_request);
        }
    }
}

fn check_response(response: &Response, body: &[u8], raw: &[u8], to_head_request: bool) {
    assert_eq!(response.body_bytes, body.len() as u64);
    let (head, after) = final_head(raw);
    assert_eq!(status(&head), response.status);
    if to_head_request || matches!(response.status, 204 | 304) {
        assert!(
            body.is_empty() && after.is_empty(),
            "a response that cannot have a body has one"
        );
        return;
    }
    match declared_length(&head) {
        Some(length) => {
            assert_eq!(response.body_bytes, length);
            assert_eq!(body, after);
        }
        None if after.len() != body.len() => {
            assert!(
                after.len() > body.len() && after.ends_with(b"\r\n\r\n"),
                "not chunked"
            );
        }
        None => assert!(
            body == after && !response.keep_alive,
            "nothing marks the end of the body"
        ),
    }
}

/// Returns the lines of the final head, after any 1xx responses, and the bytes after that head.
/// This simple parser is independent of the reader's code.
fn final_head(mut raw: &[u8]) -> (Vec<String>, &[u8]) {
    loop {
        let mut lines = Vec::new();
        loop {
            let newline = raw.iter().position(|&b| b == b'\n').expect("a whole head");
            let line = String::from_utf8_lossy(&raw[..newline]);
            let line = line.trim_end_matches('\r').to_ascii_lowercase();
            raw = &raw[newline + 1..];
            if line.is_empty() {
                break;
            }
            lines.push(line);
        }
        if status(&lines) >= 200 {
            return (lines, raw);
        }
    }
}

fn status(head: &[String]) -> u16 {
    head[0][9..12].parse().expect("three digits")
}

fn declared_length(head: &[String]) -> Option<u64> {
    let value = head
        .iter()
        .find_map(|line| line.strip_prefix("content-length:"))?;
    let first = value
        .split(',')
        .next()
        .expect("`split` yields at least one part");
    Some(first.trim().parse().expect("a length"))
}

/// The random number generator SplitMix64 (Steele, Lea, Flood 2014). Its quality is sufficient for
/// choosing splits and mutations.
pub struct Random(pub u64);

impl Random {
    /// Derives the seed from the bytes, so that a failure can be reproduced from its input alone.
    pub fn of(bytes: &[u8]) -> Random {
        let fnv = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Random(bytes.iter().fold(0xcbf2_9ce4_8422_2325, fnv))
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as usize % bound
    }
}
