//! Tests for every kind of framing and every rejection. Each test uses the smallest possible input.

use super::*;
use crate::{MAX_HEADERS, MAX_SECTION_BYTES};

/// Feeds the input as the response to one request, and closes the connection.
/// The input is fed first as a whole, and then byte by byte.
fn read(
    input: &[u8],
    to_head_request: bool,
) -> Result<(Option<Response>, Vec<u8>, usize), ReadError> {
    let whole = feed_in(input.len().max(1), input, to_head_request);
    let by_byte = feed_in(1, input, to_head_request);
    assert_eq!(whole, by_byte);
    whole
}

fn feed_in(
    piece: usize,
    input: &[u8],
    to_head_request: bool,
) -> Result<(Option<Response>, Vec<u8>, usize), ReadError> {
    let mut reader = Reader::new();
    let mut body = Vec::new();
    let mut consumed = 0;
    reader.expect_response(to_head_request);
    for part in input.chunks(piece) {
        let fed = reader.feed(part, &mut body)?;
        consumed += fed.consumed;
        if fed.response.is_some() {
            return Ok((fed.response, body, consumed));
        }
        assert_eq!(fed.consumed, part.len());
        assert!(reader.started());
    }
    Ok((reader.end()?, body, consumed))
}

fn response(text: &str) -> (u16, bool, String, usize) {
    let (response, body, consumed) = read(text.as_bytes(), false).unwrap();
    let response = response.unwrap();
    assert_eq!(response.body_bytes, body.len() as u64);
    let body = String::from_utf8(body).unwrap();
    (response.status, response.keep_alive, body, consumed)
}

fn error(text: &str) -> ReadError {
    read(text.as_bytes(), false).unwrap_err()
}

#[test]
fn a_reader_is_small() {
    assert!(size_of::<Reader>() <= 64, "{}", size_of::<Reader>());
}

#[test]
fn reads_bodies_with_a_content_length() {
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, and more";
    let whole = text.len() - ", and more".len();
    assert_eq!(response(text), (200, true, "hello".into(), whole));
    let text = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(response(text), (404, true, String::new(), text.len()));
}

#[test]
fn reads_chunks_with_extensions_and_trailers() {
    let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=1\r\nhello\r\n1\r\n!\r\n0\r\nETag: a\r\nX: y\r\n\r\n";
    assert_eq!(response(text), (200, true, "hello!".into(), text.len()));
    let text =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n";
    assert_eq!(response(text), (200, false, String::new(), text.len()));
}

#[test]
fn reads_close_delimited_bodies() {
    let text = "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\nall the rest";
    assert_eq!(
        response(text),
        (200, false, "all the rest".into(), text.len())
    );
    let text = "HTTP/1.0 200 OK\r\n\r\n";
    assert_eq!(response(text), (200, false, String::new(), text.len()));
}

#[test]
fn skips_interim_heads() {
    let one = "HTTP/1.1 100 Continue\r\n\r\n";
    let last = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
    let most = one.repeat(usize::from(MAX_INTERIM) - 1) + last;
    assert_eq!(response(&most), (204, true, String::new(), most.len()));
    assert_eq!(error(&(one.to_owned() + &most)), ReadError::TooManyInterim);
    assert_eq!(error(one), ReadError::TruncatedHead);
}

#[test]
fn reads_responses_without_a_body() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let (got, body, consumed) = read((head.to_owned() + "HTTP/").as_bytes(), true).unwrap();
    assert_eq!(
        (got.unwrap().body_bytes, body, consumed),
        (0, vec![], head.len())
    );
    for status in [204, 304] {
        let text = format!("HTTP/1.1 {status} x\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(response(&text), (status, true, String::new(), text.len()));
    }
    // A response to HEAD ends with its head. The same response to GET would end when the connection
    // closes.
    let (got, ..) = read(b"HTTP/1.1 200 OK\r\n\r\n", true).unwrap();
    assert!(got.unwrap().keep_alive);
}

#[test]
fn reads_several_responses_in_one_buffer() {
    let one = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
    let input = one.repeat(3);
    let mut reader = Reader::new();
    let mut rest = &input[..];
    for _ in 0..3 {
        reader.expect_response(false);
        assert!(!reader.started());
        let fed = reader.feed(rest, &mut ()).unwrap();
        assert_eq!(
            (fed.consumed, fed.response.unwrap().body_bytes),
            (one.len(), 2)
        );
        rest = &rest[fed.consumed..];
    }
    assert_eq!(reader.end(), Ok(None));
}

#[test]
fn accepts_a_close_without_bytes() {
    assert_eq!(read(b"", false), Ok((None, vec![], 0)));
    let mut reader = Reader::new();
    assert_eq!(reader.feed(b"", &mut ()).unwrap().consumed, 0);
    assert_eq!(reader.end(), Ok(None));
}

#[test]
fn refuses_truncated_responses() {
    for (text, expected) in [
        ("H", ReadError::TruncatedHead),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n",
            ReadError::TruncatedHead,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
            ReadError::TruncatedBody,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            ReadError::TruncatedChunks,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n",
            ReadError::TruncatedChunks,
        ),
    ] {
        assert_eq!(error(text), expected, "{text:?}");
    }
}

#[test]
fn refuses_responses_that_are_not_http() {
    for (text, expected) in [
        ("SSH-2.0-OpenSSH\r\n", ReadError::NotHttp),
        ("<html>", ReadError::NotHttp),
        ("\r\nHTTP/1.1 200 OK\r\n\r\n", ReadError::NotHttp),
        ("HTTP/2 200\r\n\r\n", ReadError::IllegalVersion),
        ("HTTP/1.12 200 OK\r\n\r\n", ReadError::IllegalVersion),
        ("HTTP/1.1 20 OK\r\n\r\n", ReadError::IllegalStatus),
        ("HTTP/1.1 2000 OK\r\n\r\n", ReadError::IllegalStatus),
        ("HTTP/1.1 099 OK\r\n\r\n", ReadError::IllegalStatus),
        ("HTTP/1.1  200 OK\r\n\r\n", ReadError::IllegalStatus),
        ("HTTP/1.1 200 \x01\r\n\r\n", ReadError::IllegalStatus),
    ] {
        assert_eq!(error(text), expected, "{text:?}");
    }
}

#[test]
fn refuses_invalid_headers() {
    for (lines, expected) in [
        ("no colon\r\n", ReadError::GarbageHeader),
        ("Space : a\r\n", ReadError::GarbageHeader),
        (": a\r\n", ReadError::GarbageHeader),
        ("A: b\0\r\n", ReadError::GarbageHeader),
        ("A: b\rc\r\n", ReadError::GarbageHeader),
        ("A: b\r\n c\r\n", ReadError::ObsoleteFolding),
        ("A: b\r\n\tc\r\n", ReadError::ObsoleteFolding),
        ("A b\r\n c\r\n", ReadError::GarbageHeader),
        ("Content-Length: 5x\r\n", ReadError::GarbageContentLength),
        (
            "Content-Length: 18446744073709551616\r\n",
            ReadError::GarbageContentLength,
        ),
        ("Content-Length:\r\n", ReadError::GarbageContentLength),
        (
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            ReadError::ConflictingContentLength,
        ),
        (
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            ReadError::LengthAndTransferEncoding,
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            ReadError::LengthAndTransferEncoding,
        ),
        (
            "Transfer-Encoding: gzip\r\n",
            ReadError::UnsupportedTransferCoding,
        ),
        (
            "Transfer-Encoding: chunked, gzip\r\n",
            ReadError::UnsupportedTransferCoding,
        ),
    ] {
        let text = format!("HTTP/1.1 200 OK\r\n{lines}\r\nbody");
        assert_eq!(error(&text), expected, "{lines:?}");
    }
    let text = "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(error(text), ReadError::TransferEncodingInHttp10);
    let text = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n";
    assert_eq!(error(text), ReadError::UnexpectedUpgrade);
}

#[test]
fn refuses_invalid_chunks() {
    for (chunks, expected) in [
        ("x\r\n", ReadError::GarbageChunkSize),
        ("5\n", ReadError::GarbageChunkSize),
        ("fffffffffffffffff\r\n", ReadError::ChunkSizeOverflow),
        ("3\r\nhello\r\n", ReadError::GarbageChunkEnd),
        ("0\r\n\n", ReadError::GarbageTrailer),
        ("0\r\nno colon\r\n\r\n", ReadError::GarbageTrailer),
        ("0\r\nA: b\r\n c\r\n\r\n", ReadError::ObsoleteFolding),
    ] {
        let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
        assert_eq!(error(&text), expected, "{chunks:?}");
    }
}

#[test]
fn limits_heads_and_trailers() {
    let head = |lines: usize| format!("HTTP/1.1 204 x\r\n{}\r\n", "A: b\r\n".repeat(lines));
    assert_eq!(response(&head(MAX_HEADERS)).0, 204);
    assert_eq!(error(&head(MAX_HEADERS + 1)), ReadError::TooManyHeaders);

    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    let trailers = |lines: usize| format!("{chunked}{}\r\n", "A: b\r\n".repeat(lines));
    assert_eq!(response(&trailers(MAX_HEADERS)).0, 200);
    assert_eq!(error(&trailers(MAX_HEADERS + 1)), ReadError::TooManyHeaders);

    for (before, too_large) in [
        ("HTTP/1.1 204 x\r\n", ReadError::HeadTooLarge),
        ("", ReadError::TrailersTooLarge),
    ] {
        let start = if before.is_empty() { chunked } else { "" };
        let room = MAX_SECTION_BYTES - before.len() - "A: \r\n\r\n".len();
        let longest = |room: usize| format!("{start}{before}A: {}\r\n\r\n", "b".repeat(room));
        let whole = longest(room);
        assert_eq!(response(&whole).3, whole.len());
        assert_eq!(error(&longest(room + 1)), too_large);
        // The input has no line ending, and the illegal byte is beyond the limit.
        let endless = format!("{start}{before}A: {}\0", "b".repeat(MAX_SECTION_BYTES));
        assert_eq!(error(&endless), too_large);
    }
}

#[test]
fn refuses_unsolicited_bytes() {
    let mut reader = Reader::new();
    assert_eq!(reader.feed(b"H", &mut ()), Err(ReadError::Unsolicited));
    assert_eq!(reader.end(), Err(ReadError::Unsolicited));

    let mut reader = Reader::new();
    reader.expect_response(false);
    let kept = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab";
    let fed = reader.feed(kept, &mut ()).unwrap();
    assert_eq!(
        reader.feed(&kept[fed.consumed..], &mut ()),
        Err(ReadError::Unsolicited)
    );

    for closing in [
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "HTTP/1.0 204 No Content\r\n\r\n",
    ] {
        let mut reader = Reader::new();
        reader.expect_response(false);
        let fed = reader.feed(closing.as_bytes(), &mut ()).unwrap();
        assert!(!fed.response.unwrap().keep_alive);
        reader.expect_response(false);
        assert_eq!(reader.feed(b"", &mut ()).unwrap().consumed, 0);
        assert_eq!(reader.feed(b"H", &mut ()), Err(ReadError::DataAfterClose));
    }
}

#[test]
fn repeats_its_first_error() {
    let mut reader = Reader::new();
    reader.expect_response(false);
    assert_eq!(reader.feed(b"nonsense", &mut ()), Err(ReadError::NotHttp));
    reader.expect_response(false);
    let good = b"HTTP/1.1 204 No Content\r\n\r\n";
    assert_eq!(reader.feed(good, &mut ()), Err(ReadError::NotHttp));
    assert_eq!(reader.end(), Err(ReadError::NotHttp));
}
