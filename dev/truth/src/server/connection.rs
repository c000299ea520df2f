//! An HTTP/1.1 connection with pending input and output, and a minimal request reader. A request
//! with a body must have a `Content-Length` header.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;

use httparse::{EMPTY_HEADER, Request, Status};

use super::responses::ResponseStep;
use crate::log::ClosedBy;
use crate::sys;

/// Maximum pending input per connection, in bytes. The server disconnects a client that exceeds
/// this limit by pipelining.
const INPUT_LIMIT: usize = 4 * HEAD_LIMIT;

/// An HTTP/1.1 connection and its current request.
#[derive(Debug)]
pub struct Http1Connection {
    pub stream: TcpStream,
    /// Index of the connection, in order of acceptance.
    pub number: u64,
    /// Number of complete requests.
    pub requests: u64,
    /// Remaining steps of the current response; empty between requests.
    pub steps: VecDeque<ResponseStep>,
    /// Whether epoll reports when the connection becomes writable.
    pub awaits_writable: bool,
    /// Kernel timestamp of the last input, if available.
    pub stamp_ns: Option<u64>,
    /// Log entry of the current request; `None` before the first request and for a probe.
    pub entry: Option<usize>,
    input: Vec<u8>,
    head: Option<RequestHead>,
    body_left: u64,
    written: usize,
}

impl Http1Connection {
    pub fn new(stream: TcpStream, number: u64) -> Http1Connection {
        Http1Connection {
            stream,
            number,
            requests: 0,
            steps: VecDeque::new(),
            awaits_writable: false,
            stamp_ns: None,
            entry: None,
            input: Vec::new(),
            head: None,
            body_left: 0,
            written: 0,
        }
    }

    /// Reads once and returns the number of bytes. If there is more data, level-triggered epoll
    /// reports the connection again.
    ///
    /// # Errors
    /// The connection must be closed; the error states which side closes it. The server closes a
    /// connection whose input exceeds the limit.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, ClosedBy> {
        let (n, stamp_ns) = receive(&self.stream, buffer)?;
        if self.input.len() + n > INPUT_LIMIT {
            return Err(ClosedBy::Server);
        }
        if n > 0 {
            self.stamp_ns = stamp_ns;
        }
        // Bodies are counted but never stored.
        let body = self.body_left.min(n as u64) as usize;
        self.body_left -= body as u64;
        self.input.extend_from_slice(&buffer[body..n]);
        Ok(n)
    }

    /// Takes the next complete request, if any.
    pub fn take_request(&mut self) -> Result<Option<RequestHead>, BadRequest> {
        if self.head.is_none() {
            if self.input.is_empty() {
                return Ok(None);
            }
            let Some(head) = read_head(&self.input)? else {
                return Ok(None);
            };
            let here = (self.input.len() - head.length)
                .min(usize::try_from(head.body).unwrap_or(usize::MAX));
            self.input.drain(..head.length + here);
            self.body_left = head.body - here as u64;
            self.head = Some(head);
        }
        if self.body_left > 0 {
            return Ok(None);
        }
        Ok(self.head.take())
    }

    /// Writes the rest of the current step, whose content is `bytes`. Returns the number of bytes
    /// that the kernel accepted, and whether all bytes have been written.
    ///
    /// # Errors
    /// The client has closed the connection.
    pub fn write(&mut self, bytes: &Arc<[u8]>) -> io::Result<(usize, bool)> {
        match self.stream.write(&bytes[self.written..]) {
            Ok(n) if self.written + n == bytes.len() => {
                self.written = 0;
                Ok((n, true))
            }
            Ok(n) => {
                self.written += n;
                Ok((n, false))
            }
            Err(error) if is_temporary(&error) => Ok((0, false)),
            Err(error) => Err(error),
        }
    }
}

/// Reads once. Returns the number of bytes (0 if none have arrived) and their kernel timestamp.
///
/// # Errors
/// The client has closed the connection; the error states how.
pub fn receive(stream: &TcpStream, buffer: &mut [u8]) -> Result<(usize, Option<u64>), ClosedBy> {
    match sys::receive(stream.as_fd(), buffer) {
        Ok((0, _)) => Err(ClosedBy::Client),
        Ok(received) => Ok(received),
        Err(error) if is_temporary(&error) => Ok((0, None)),
        Err(_) => Err(ClosedBy::ClientReset),
    }
}

pub fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Maximum length of a head, in bytes.
const HEAD_LIMIT: usize = 64 * 1024;

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
    /// Number in the request's path, if any.
    pub number: Option<u64>,
}

/// Path of readiness probes. Probes are not logged.
const PROBE: &str = "/ready";

/// An invalid or unsupported request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadRequest;

/// Parses the head at the start of `input`. Returns `None` if the head is incomplete.
fn read_head(input: &[u8]) -> Result<Option<RequestHead>, BadRequest> {
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
        number: request.path.and_then(number_in),
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

/// Returns the number after the last `/` of a path, if any.
pub fn number_in(path: &str) -> Option<u64> {
    path.rsplit('/').next()?.parse().ok()
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
