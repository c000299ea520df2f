//! The server's side of HTTP/2 on plain sockets. Requests are not decompressed.

use std::io::{Read, Write};
use std::net::SocketAddr;

use floodmark_record::plan::{Backend, Http, Http2, Plan};
use floodmark_wire::h2::frame::{FrameHeader, PREFACE, flag, kind};

/// Empty SETTINGS.
pub const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

/// Field block for `:status: 200`, encoded as an index into the static table.
pub const STATUS_200: &[u8] = b"\x88";

/// Returns the plan, changed to HTTP/2 with a number of streams and to another server.
pub fn http2(plan: Plan, streams: u32, server: SocketAddr, backend: Backend) -> Plan {
    let http = Http::V2(Http2 {
        streams,
        ..Http2::default()
    });
    Plan {
        http,
        backend,
        target: Plan::of(server.into()).target,
        ..plan
    }
}

/// Returns an encoded frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader {
        length: payload.len() as u32,
        kind,
        flags,
        stream,
    };
    [&header.bytes()[..], payload].concat()
}

/// Reads the preface. Returns whether it arrived.
pub fn read_preface(stream: &mut impl Read) -> bool {
    let mut preface = [0; PREFACE.len()];
    stream.read_exact(&mut preface).is_ok() && preface == *PREFACE
}

/// Reads a frame. Returns `None` at the end of the connection.
pub fn read_frame(stream: &mut impl Read) -> Option<(FrameHeader, Vec<u8>)> {
    let mut header = [0; FrameHeader::BYTES];
    stream.read_exact(&mut header).ok()?;
    let header = FrameHeader::parse(header);
    let mut payload = vec![0; header.length as usize];
    stream.read_exact(&mut payload).ok()?;
    Some((header, payload))
}

/// Responds to every request on a connection with status 200 and the body `hello`.
pub fn respond_on_all_streams(stream: &mut (impl Read + Write)) {
    respond_with(stream, |id| {
        let head = frame(kind::HEADERS, flag::END_HEADERS, id, STATUS_200);
        let body = frame(kind::DATA, flag::END_STREAM, id, b"hello");
        [head, body].concat()
    });
}

/// Responds to every gRPC call on a connection with a message and status OK.
pub fn respond_to_calls(stream: &mut (impl Read + Write)) {
    // Literal fields without indexing (RFC 7541, section 6.2.2).
    const TRAILERS: &[u8] = b"\0\x0bgrpc-status\x010\0\x0cgrpc-message\x06so%20x";
    respond_with(stream, |id| {
        let head = frame(kind::HEADERS, flag::END_HEADERS, id, STATUS_200);
        let body = frame(kind::DATA, 0, id, b"\0\0\0\0\x02ab");
        let flags = flag::END_HEADERS | flag::END_STREAM;
        let trailers = frame(kind::HEADERS, flags, id, TRAILERS);
        [head, body, trailers].concat()
    });
}

/// Responds to every request on a connection. `response` returns the frames for a stream.
fn respond_with(stream: &mut (impl Read + Write), response: impl Fn(u32) -> Vec<u8>) {
    if !read_preface(stream) || stream.write_all(SETTINGS).is_err() {
        return;
    }
    while let Some((header, _)) = read_frame(stream) {
        if header.kind != kind::HEADERS {
            continue;
        }
        if stream.write_all(&response(header.stream)).is_err() {
            return;
        }
    }
}
