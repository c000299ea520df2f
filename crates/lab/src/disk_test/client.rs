//! A client that sends one request at a time, and a parser for recorded responses.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use floodmark_wire::Reader;

use crate::probe::{ProbeLimits, ProbeResponse, receive};

/// Limits for one response.
pub(super) const LIMITS: ProbeLimits<'_> = ProbeLimits {
    timeout: Duration::from_secs(5),
    length: 1 << 20,
    stop: None,
};
/// Maximum number of attempts to connect from an unused client port.
const MAX_CONNECTS: usize = 100;

/// Numbers of the requests sent on each connection, in order, by client port. Each connection uses
/// a different port.
#[derive(Debug, Default)]
pub(super) struct SentRequests(Mutex<BTreeMap<u16, Vec<u64>>>);

impl SentRequests {
    /// Adds a connection. Returns false if the port was used before.
    fn add_connection(&self, port: u16) -> bool {
        let mut ports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !ports.contains_key(&port);
        ports.entry(port).or_default();
        is_new
    }

    fn add(&self, port: u16, number: u64) {
        let mut ports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ports.entry(port).or_default().push(number);
    }

    /// Returns the request numbers by client port.
    pub(super) fn into_numbers(self) -> BTreeMap<u16, Vec<u64>> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

struct OpenConnection {
    stream: TcpStream,
    reader: Reader,
    port: u16,
}

/// A client with one connection. The client reconnects if the server closes the connection after a
/// response.
pub(super) struct DiskClient<'a> {
    server: SocketAddr,
    sent: &'a SentRequests,
    connection: Option<OpenConnection>,
}

impl<'a> DiskClient<'a> {
    pub(super) fn new(server: SocketAddr, sent: &'a SentRequests) -> Self {
        DiskClient {
            server,
            sent,
            connection: None,
        }
    }

    /// Sends a request and waits for the response.
    pub(super) fn send(&mut self, number: u64, request: &[u8]) -> io::Result<ProbeResponse> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        self.sent.add(connection.port, number);
        let begin = Instant::now();
        let OpenConnection { stream, reader, .. } = &mut connection;
        stream.write_all(request)?;
        let response = receive(stream, reader, begin, LIMITS)?;
        self.connection = response.keeps_connection.then_some(connection);
        Ok(response)
    }

    fn connect(&self) -> io::Result<OpenConnection> {
        for _ in 0..MAX_CONNECTS {
            let stream = TcpStream::connect_timeout(&self.server, LIMITS.timeout)?;
            let port = stream.local_addr()?.port();
            if self.sent.add_connection(port) {
                stream.set_write_timeout(Some(LIMITS.timeout))?;
                stream.set_nodelay(true)?;
                let reader = Reader::new();
                return Ok(OpenConnection {
                    stream,
                    reader,
                    port,
                });
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }
}

/// Returns the status and body of each complete response in the bytes that a server sent on one
/// socket. Bytes on other sockets, such as a runtime's internal sockets, contain no responses.
pub(super) fn responses(mut bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let (mut reader, mut responses) = (Reader::new(), Vec::new());
    loop {
        let mut body = Vec::new();
        reader.expect_response(false);
        let Ok(fed) = reader.feed(bytes, &mut body) else {
            return responses;
        };
        let Some(response) = fed.response else {
            return responses;
        };
        responses.push((response.status, body));
        bytes = &bytes[fed.consumed..];
        if !response.keep_alive {
            return responses;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_complete_responses_only() {
        let response = |body: &str| {
            let length = body.len();
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")
        };
        let refusal = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 1\r\n\r\n9";
        let text = [
            &response("7"),
            refusal,
            &response("12"),
            &response("13")[..30],
        ]
        .concat();
        let expected = [(200, &b"7"[..]), (503, b"9"), (200, b"12")];
        let expected = expected.map(|(status, body)| (status, body.to_vec()));
        assert_eq!(responses(text.as_bytes()), expected);
        assert_eq!(responses(b"\x01\x01"), []);
        assert_eq!(responses(b""), []);
    }

    #[test]
    fn a_port_is_used_for_one_connection() {
        let sent = SentRequests::default();
        assert!(sent.add_connection(5000) && sent.add_connection(5001));
        sent.add(5000, 1);
        sent.add(5001, 2);
        sent.add(5000, 3);
        assert!(!sent.add_connection(5000));
        let expected = BTreeMap::from([(5000, vec![1, 3]), (5001, vec![2])]);
        assert_eq!(sent.into_numbers(), expected);
    }
}
