//! Sends one request to a server and reads the response.

mod grpc;
mod http2;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use floodmark_host::ProcessPlacement;
use floodmark_load::tls::{Stream, Tls, TlsFailure, connect, secure};
use floodmark_plan::spec::HttpVersion;
use floodmark_record::origin::Origin;
use floodmark_record::plan::{Http, Http2};
use floodmark_record::tls::failure_fix;
use floodmark_record::units::show_duration;
use floodmark_wire::h2::Scheme;
use floodmark_wire::{Reader, RequestSpec, request_bytes};

use crate::manifest::WorkloadRequest;
use http2::Http2Exchange;

pub use grpc::{check_call, check_health};

/// Maximum time from a stop request until the wait for a response ends.
const STOP_INTERVAL: Duration = Duration::from_millis(100);

/// Limits for one response.
#[derive(Debug, Clone, Copy)]
pub struct ProbeLimits<'a> {
    /// Maximum time for a complete response.
    pub timeout: Duration,
    /// Maximum length of a response, in bytes.
    pub length: usize,
    /// Flag that ends the wait for a response.
    pub stop: Option<&'a AtomicBool>,
}

impl ProbeLimits<'_> {
    /// Returns the maximum length of the next read. The timeout starts at `begin`.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] after the timeout, [`io::ErrorKind::Interrupted`] after a stop
    /// request.
    fn wait(&self, begin: Instant) -> io::Result<Duration> {
        let left = self.timeout.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(left.min(STOP_INTERVAL))
    }
}

/// Limits for the response to a workload's request.
const LIMITS: ProbeLimits<'_> = ProbeLimits {
    timeout: Duration::from_secs(2),
    length: 1 << 20,
    stop: None,
};

/// A complete response.
#[derive(Debug)]
pub struct ProbeResponse {
    /// Status code.
    pub status: u16,
    /// Body.
    pub body: Vec<u8>,
    /// Whether the connection may carry another request.
    pub keeps_connection: bool,
}

/// A server, as a probe reaches it.
#[derive(Debug, Clone, Copy)]
pub struct ProbeTarget<'a> {
    /// Where the probe is sent from.
    pub from: &'a ProcessPlacement,
    /// Address of the server.
    pub address: SocketAddr,
    /// HTTP version. Without TLS, HTTP/2 is used with prior knowledge, and `auto` means HTTP/1.1.
    pub http: HttpVersion,
    /// TLS settings; `None` for plaintext.
    pub tls: Option<&'a Tls>,
    /// Source of the settings, which determines their names in messages.
    pub origin: Origin,
}

/// Sends a request from the client's host on a new connection.
///
/// # Errors
/// No complete response arrives within 2 s.
pub fn request(
    target: ProbeTarget<'_>,
    asked: WorkloadRequest<'_>,
) -> Result<ProbeResponse, String> {
    send_asked(target, asked).1
}

/// Sends a request from the client's host on a new connection, and returns the status of the
/// response. The response may be longer than 1 MiB or incomplete after 2 s.
///
/// # Errors
/// No complete response head arrives within 2 s, or the body is invalid or truncated.
pub fn status(target: ProbeTarget<'_>, asked: WorkloadRequest<'_>) -> Result<u16, String> {
    match send_asked(target, asked) {
        (Some(status), _) => Ok(status),
        (None, response) => response.map(|response| response.status),
    }
}

fn send_asked(
    target: ProbeTarget<'_>,
    asked: WorkloadRequest<'_>,
) -> (Option<u16>, Result<ProbeResponse, String>) {
    let authority = target.address.to_string();
    let json = [("Content-Type".to_owned(), "application/json".to_owned())];
    let headers: &[(String, String)] = match asked.body {
        "" => &[],
        _ => &json,
    };
    let request = RequestSpec {
        method: asked.method,
        path: asked.path,
        authority: &authority,
        headers,
        body: asked.body.as_bytes(),
        close: true,
    };
    send(target, &request, LIMITS)
}

/// Sends a request from the client's host on a new connection. Returns the status, if any, and the
/// response.
///
/// The response is an error if the request is invalid, or if no complete response arrives within the
/// limits.
pub fn send(
    target: ProbeTarget<'_>,
    request: &RequestSpec<'_>,
    limits: ProbeLimits<'_>,
) -> (Option<u16>, Result<ProbeResponse, String>) {
    let mut status = None;
    let response = target.from.within(|| {
        let begin = Instant::now();
        let (mut stream, is_http2) = open(target, begin, limits)?;
        let scheme = match target.tls {
            Some(_) => Scheme::Https,
            None => Scheme::Http,
        };
        let (mut first, mut second);
        let (reader, bytes): (&mut dyn ResponseReader, Vec<u8>) = if is_http2 {
            let exchange = Http2Exchange::new(request, scheme);
            second = exchange.map_err(io::Error::other)?;
            let bytes = second.take_output();
            (&mut second, bytes)
        } else {
            first = Reader::new();
            (
                &mut first,
                request_bytes(request).map_err(io::Error::other)?,
            )
        };
        stream.write_all(&bytes)?;
        stream.flush()?;
        let response = receive(&mut *stream, reader, begin, limits);
        status = reader.status();
        response
    });
    let response = response
        .and_then(|response| response)
        .map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("no response within {}", show_duration(limits.timeout))
            }
            io::ErrorKind::Interrupted => "interrupted".to_owned(),
            _ => with_fix(&error, target.origin),
        });
    (status, response)
}

/// Describes an error, and adds the fix for a failed TLS handshake.
pub(crate) fn with_fix(error: &io::Error, origin: Origin) -> String {
    let failure = error.get_ref().and_then(|inner| inner.downcast_ref());
    match failure {
        Some(failure @ TlsFailure { name, .. }) => {
            format!("{failure}; {}", failure_fix(name, origin))
        }
        None => error.to_string(),
    }
}

/// Opens a connection within the limits. The timeout starts at `begin`. Returns whether the
/// connection carries HTTP/2.
fn open(
    target: ProbeTarget<'_>,
    begin: Instant,
    limits: ProbeLimits<'_>,
) -> io::Result<(Box<dyn Stream>, bool)> {
    let stream = connect(&target.address.into(), limits.timeout)?;
    let Some(tls) = target.tls else {
        return Ok((stream, target.http == HttpVersion::V2));
    };
    let http = match target.http {
        HttpVersion::V1 => Some(Http::V1),
        HttpVersion::V2 => Some(Http::V2(Http2::default())),
        HttpVersion::Auto => None,
    };
    let stream = secure(tls, http, stream, || limits.wait(begin))?;
    let is_http2 = stream.is_http2();
    Ok((Box::new(stream), is_http2))
}

/// Reads one response at a time from a connection.
pub(crate) trait ResponseReader {
    /// Prepares for the response to the next request.
    fn begin(&mut self);

    /// Reads bytes from the server, and appends the body to `body`. If `bytes` is empty, the server
    /// closed the connection. Returns the status of a complete response, and whether the connection
    /// may carry another request.
    ///
    /// # Errors
    /// The response is invalid, truncated or refused.
    fn read(&mut self, bytes: &[u8], body: &mut Vec<u8>) -> Result<Option<(u16, bool)>, String>;

    /// Takes the bytes to send to the server.
    fn take_output(&mut self) -> Vec<u8>;

    /// Returns the status of the current response if its head has arrived.
    fn status(&self) -> Option<u16>;
}

impl ResponseReader for Reader {
    fn begin(&mut self) {
        self.expect_response(false);
    }

    fn read(&mut self, bytes: &[u8], body: &mut Vec<u8>) -> Result<Option<(u16, bool)>, String> {
        let response = match bytes {
            [] => self.end(),
            bytes => self.feed(bytes, body).map(|fed| fed.response),
        };
        response
            .map(|response| response.map(|response| (response.status, response.keep_alive)))
            .map_err(|error| format!("not an HTTP/1.1 response: {error}"))
    }

    fn take_output(&mut self) -> Vec<u8> {
        Vec::new()
    }

    fn status(&self) -> Option<u16> {
        Reader::status(self)
    }
}

/// Reads one response, which must be complete within the limits. The timeout starts at `begin`.
/// Returns [`io::ErrorKind::Interrupted`] after a stop request.
pub(crate) fn receive(
    stream: &mut dyn Stream,
    reader: &mut dyn ResponseReader,
    begin: Instant,
    limits: ProbeLimits<'_>,
) -> io::Result<ProbeResponse> {
    let failed = |what: String| Err(io::Error::other(what));
    let limit = limits.length;
    reader.begin();
    let (mut body, mut buffer, mut length) = (Vec::new(), [0; 64 << 10], 0);
    loop {
        stream.set_read_timeout(limits.wait(begin)?)?;
        let n = match stream.read(&mut buffer) {
            // A read fails with EAGAIN when its timeout ends, and with EINTR after a signal handler
            // has run or the process was suspended (signal(7)).
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) =>
            {
                continue;
            }
            // Some TLS servers close connections without close_notify.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
            read => read?,
        };
        length += n;
        if length > limit {
            return failed(format!("the response is longer than {limit} bytes"));
        }
        match reader.read(&buffer[..n], &mut body) {
            Ok(Some((status, keeps_connection))) => {
                return Ok(ProbeResponse {
                    status,
                    body,
                    keeps_connection,
                });
            }
            Ok(None) if n > 0 => {}
            Ok(None) => {
                return failed("the connection was closed without a response".to_owned());
            }
            Err(error) => return failed(error),
        }
        stream.write_all(&reader.take_output())?;
        stream.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn probe(address: SocketAddr) -> Result<ProbeResponse, String> {
        request(
            of(&ProcessPlacement::default(), address),
            WorkloadRequest::get("/"),
        )
    }

    fn of(from: &ProcessPlacement, address: SocketAddr) -> ProbeTarget<'_> {
        ProbeTarget {
            from,
            address,
            http: HttpVersion::V1,
            tls: None,
            origin: Origin::default(),
        }
    }

    fn server(response: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let read = stream.read(&mut [0; 1024]).unwrap();
            assert!(read > 0);
            // The client may close the connection before it has read a long response.
            let _ = stream.write_all(response);
        });
        address
    }

    #[test]
    fn reads_complete_responses() {
        let with_length = server(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        let response = probe(with_length).unwrap();
        assert_eq!((response.status, &response.body[..]), (200, &b"hello"[..]));
        let until_close = server(b"HTTP/1.0 404 No\r\n\r\ngone");
        assert_eq!(probe(until_close).unwrap().status, 404);
    }

    #[test]
    fn a_status_needs_no_complete_body() {
        let status = |response| {
            let get = WorkloadRequest::get("/");
            status(of(&ProcessPlacement::default(), server(response)), get)
        };
        assert_eq!(
            status(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"),
            Ok(404)
        );
        let mut long =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 2 << 20).into_bytes();
        long.resize(long.len() + (2 << 20), b'.');
        let long: &[u8] = long.leak();
        assert_eq!(status(long), Ok(200));
        let error = probe(server(long)).unwrap_err();
        assert_eq!(error, "the response is longer than 1048576 bytes");
        assert!(status(b"HTTP/1.1 2").is_err());
    }

    #[test]
    fn describes_invalid_responses() {
        let other = probe(server(b"SSH-2.0-x\r\n")).unwrap_err();
        assert!(other.contains("HTTP/1.1"), "{other}");
        let none = probe(server(b"")).unwrap_err();
        assert!(none.contains("without a response"), "{none}");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = listener.local_addr().unwrap();
        drop(listener);
        assert_eq!(probe(closed).unwrap_err(), "connection refused");
    }
}
