//! A minimal request reader for a test server. A body must have a `Content-Length`.

use httparse::{EMPTY_HEADER, Request, Status};

/// Maximum length of a head, in bytes.
pub const HEAD_LIMIT: usize = 64 * 1024;

/// Maximum number of headers in a head.
const HEADERS: usize = 100;

/// The head of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHead {
    /// Length of the head, in bytes.
    pub length: usize,
    /// Length of the body, in bytes.
    pub body: u64,
    /// Whether the request has the header `Connection: close`.
    pub close: bool,
    /// Whether the request is a readiness probe.
    pub is_probe: bool,
}

/// Path of readiness probes. Probes are not logged.
const PROBE: &str = "/ready";

/// An invalid or unsupported request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadRequest;

/// Parses the head at the start of `input`. Returns `None` if the head is incomplete.
pub fn read_head(input: &[u8]) -> Result<Option<RequestHead>, BadRequest> {
    let mut headers = [EMPTY_HEADER; HEADERS];
    let mut request = Request::new(&mut headers);
    let length = match request.parse(input) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if input.len() <= HEAD_LIMIT => return Ok(None),
        _ => return Err(BadRequest),
    };
    let mut head = RequestHead {
        length,
        body: 0,
        close: request.version == Some(0),
        is_probe: request.path == Some(PROBE),
    };
    for header in request.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            let digits = std::str::from_utf8(header.value).map_err(|_| BadRequest)?;
            head.body = digits.trim().parse().map_err(|_| BadRequest)?;
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(BadRequest);
        } else if header.name.eq_ignore_ascii_case("connection") {
            head.close = header.value.eq_ignore_ascii_case(b"close");
        }
    }
    Ok(Some(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_length_and_close() {
        let text =
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
        let head = read_head(text).unwrap().unwrap();
        assert_eq!(
            (head.length, head.body, head.close),
            (text.len() - 5, 5, true)
        );
        for cut in 0..text.len() - 5 {
            assert_eq!(read_head(&text[..cut]), Ok(None), "{cut}");
        }
    }

    #[test]
    fn refuses_what_it_cannot_frame() {
        for bad in [
            &b"\x16\x03\x01\x02\x00"[..],
            b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert_eq!(read_head(bad), Err(BadRequest));
        }
        assert_eq!(read_head(&[b'A'; HEAD_LIMIT + 1]), Err(BadRequest));
    }
}
