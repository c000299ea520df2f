//! Does one of the pure parts of a request a given number of times, so that its instructions can be counted:
//! `cargo xtask performance` runs it under callgrind twice and divides the difference.

use std::hint::black_box;
use std::process::ExitCode;

use floodmark_wire::{Reader, RequestSpec, request_bytes};

/// As a server of one file answers: nine headers.
const TYPICAL: &[u8] = b"HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Sat, 01 Jan 2000 00:00:00 GMT\r\n\
Content-Type: text/plain\r\nContent-Length: 11\r\nLast-Modified: Sat, 01 Jan 2000 00:00:00 GMT\r\n\
Connection: keep-alive\r\nETag: \"386d4380-b\"\r\nCache-Control: no-cache\r\nAccept-Ranges: bytes\r\n\r\nHello World";

/// The least that an answer may be.
const LEAST: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nHello World";

/// A body of unknown length.
const CHUNKED: &[u8] =
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nHello \r\n5\r\nWorld\r\n0\r\n\r\n";

/// Reads `count` answers that come in the given pieces.
fn read(pieces: &[&[u8]], count: u64) {
    let mut reader = Reader::new();
    let mut body = Vec::with_capacity(64);
    for _ in 0..count {
        body.clear();
        reader.expect_answer(false);
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
    let (Some(part), Some(Ok(count))) = (part, count.map(|count| count.parse())) else {
        eprintln!("give a part (typical, least, chunked, split, request) and how often to do it");
        return ExitCode::from(2);
    };
    match part.as_str() {
        "typical" => read(&[TYPICAL], count),
        "least" => read(&[LEAST], count),
        "chunked" => read(&[CHUNKED], count),
        "split" => read(&[&TYPICAL[..100], &TYPICAL[100..]], count),
        "request" => build(count),
        _ => {
            eprintln!("no part is called {part}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
