//! Reads a response or encodes a request COUNT times, so that the instructions can be counted.
//!
//! `cargo xtask performance` runs this program under callgrind with two numbers of requests, and
//! divides the difference in instructions by the difference in requests.

use std::hint::black_box;
use std::process::ExitCode;

use floodmark_wire::{Reader, RequestSpec, request_bytes};

/// A typical response from a static file server, with nine headers.
const TYPICAL: &[u8] = b"HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Sat, 01 Jan 2000 00:00:00 GMT\r\n\
Content-Type: text/plain\r\nContent-Length: 11\r\nLast-Modified: Sat, 01 Jan 2000 00:00:00 GMT\r\n\
Connection: keep-alive\r\nETag: \"386d4380-b\"\r\nCache-Control: no-cache\r\nAccept-Ranges: bytes\r\n\r\nHello World";

/// The smallest valid response with a body.
const LEAST: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nHello World";

/// A chunked response.
const CHUNKED: &[u8] =
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nHello \r\n5\r\nWorld\r\n0\r\n\r\n";

/// Reads `count` responses that arrive in the given pieces.
fn read(pieces: &[&[u8]], count: u64) {
    let mut reader = Reader::new();
    let mut body = Vec::with_capacity(64);
    for _ in 0..count {
        body.clear();
        reader.expect_response(false);
        for piece in pieces {
            let fed = reader.feed(black_box(piece), &mut body);
            assert!(fed.is_ok_and(|fed| fed.consumed == piece.len()));
        }
        assert_eq!(black_box(&body).len(), 11);
    }
}

fn build(count: u64) {
    let spec = RequestSpec {
        method: "GET",
        path: "/",
        authority: "127.0.0.1:8080",
        headers: &[],
        body: b"",
        close: false,
    };
    for _ in 0..count {
        assert!(request_bytes(black_box(&spec)).is_ok_and(|bytes| !black_box(bytes).is_empty()));
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (part, count) = (arguments.next(), arguments.next());
    let count = count.and_then(|count| count.parse().ok()).unwrap_or(0);
    match part.as_deref() {
        Some("typical") => read(&[TYPICAL], count),
        Some("least") => read(&[LEAST], count),
        Some("chunked") => read(&[CHUNKED], count),
        Some("split") => read(&[&TYPICAL[..100], &TYPICAL[100..]], count),
        Some("request") => build(count),
        _ => {
            eprintln!("usage: instructions typical|least|chunked|split|request COUNT");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
