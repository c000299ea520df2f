//! A client that sends one request at a time, a parser for recorded responses, and a traced run of
//! the server.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use floodmark_check::FoundItems;
use floodmark_disk::Trace;
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

/// The requests that a client sent on one connection.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ConnectionRequests {
    /// Request numbers, in sending order.
    pub numbers: Vec<u64>,
    /// Number of responses that the client received.
    pub received: usize,
}

/// The requests sent on each connection, by client port. Each connection uses a different port.
#[derive(Debug, Default)]
pub(super) struct SentRequests(Mutex<BTreeMap<u16, ConnectionRequests>>);

impl SentRequests {
    /// Adds a connection. Returns false if the port was used before.
    fn add_connection(&self, port: u16) -> bool {
        let mut ports = self.ports();
        let is_new = !ports.contains_key(&port);
        ports.entry(port).or_default();
        is_new
    }

    fn add(&self, port: u16, number: u64) {
        self.ports().entry(port).or_default().numbers.push(number);
    }

    /// Counts the response to the last request on a connection.
    fn add_response(&self, port: u16) {
        self.ports().entry(port).or_default().received += 1;
    }

    /// Returns whether every request received a response.
    pub(super) fn is_answered(&self) -> bool {
        let ports = self.ports();
        let mut connections = ports.values();
        connections.all(|requests| requests.received == requests.numbers.len())
    }

    fn ports(&self) -> MutexGuard<'_, BTreeMap<u16, ConnectionRequests>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the requests by client port.
    pub(super) fn into_connections(self) -> BTreeMap<u16, ConnectionRequests> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

struct OpenConnection {
    stream: TcpStream,
    reader: Reader,
    port: u16,
}

/// A client with one connection. The client reconnects if the server closes the connection or does
/// not respond.
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
        self.sent.add_response(connection.port);
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
pub(super) fn responses(bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    read(bytes).0
}

/// Returns whether the last response ends when the server closes the connection.
pub(super) fn ends_at_close(bytes: &[u8]) -> bool {
    matches!(read(bytes).1.end(), Ok(Some(_)))
}

/// Returns the complete responses, and the reader in its final state.
fn read(mut bytes: &[u8]) -> (Vec<(u16, Vec<u8>)>, Reader) {
    let (mut reader, mut responses) = (Reader::new(), Vec::new());
    loop {
        let mut body = Vec::new();
        reader.expect_response(false);
        let Ok(fed) = reader.feed(bytes, &mut body) else {
            return (responses, reader);
        };
        let Some(response) = fed.response else {
            return (responses, reader);
        };
        responses.push((response.status, body));
        bytes = &bytes[fed.consumed..];
        if !response.keep_alive {
            return (responses, reader);
        }
    }
}

/// A traced run of the server.
///
/// A trace contains responses but no requests. A client sends one request at a time on a
/// connection, so the nth response on a connection belongs to the nth request. The client's port
/// identifies the connection.
#[derive(Debug, Default)]
pub(super) struct TracedRun {
    pub trace: Trace,
    /// Port on which the server listened.
    pub port: u16,
    /// Requests sent on each connection, by the client's port.
    pub sent: BTreeMap<u16, ConnectionRequests>,
    /// Items of a set, read back after the clients stopped. `None` for other checks, and for a run
    /// with an injected fault.
    pub found: Option<Result<FoundItems, String>>,
}

impl TracedRun {
    /// Returns the requests that a client sent to a socket of the server. Returns `None` for
    /// sockets without a client.
    pub(super) fn requests(&self, socket: u64) -> Option<&ConnectionRequests> {
        let ports = self.trace.ports.get(&socket)?;
        let ports = (ports.local == self.port).then_some(ports)?;
        self.sent.get(&ports.peer)
    }

    /// Returns the number of requests that clients sent.
    pub(super) fn count(&self) -> u64 {
        let counts = self.sent.values().map(|requests| requests.numbers.len());
        counts.sum::<usize>() as u64
    }

    /// Returns the number of responses that clients received.
    pub(super) fn received(&self) -> u64 {
        let counts = self.sent.values().map(|requests| requests.received);
        counts.sum::<usize>() as u64
    }
}

#[cfg(test)]
impl TracedRun {
    /// Returns a run with connections from ports 5000 and 5001 to port 80, and with other sockets
    /// of the server. The client received one response on each connection.
    pub(super) fn of_sends(sent: &[(u64, Vec<u8>)]) -> Self {
        use std::sync::Arc;

        use floodmark_disk::{Operation, TcpPorts, TracedCall};

        let calls = sent.iter().map(|(socket, bytes)| TracedCall {
            began: 1,
            ended: 2,
            operation: Operation::Send {
                socket: *socket,
                bytes: Arc::from(&bytes[..]),
            },
        });
        let sockets = [
            (1, (80, 5001)),
            (2, (80, 5000)),
            (3, (81, 5000)),
            (4, (80, 6000)),
        ];
        let sockets = sockets.map(|(socket, (local, peer))| (socket, TcpPorts { local, peer }));
        let requests = |numbers| ConnectionRequests {
            numbers,
            received: 1,
        };
        let trace = Trace {
            calls: calls.collect(),
            ports: BTreeMap::from(sockets),
            ..Trace::default()
        };
        TracedRun {
            trace,
            port: 80,
            sent: BTreeMap::from([
                (5000, requests(vec![1, 3, 5])),
                (5001, requests(vec![2, 4])),
            ]),
            found: None,
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
        assert!(!ends_at_close(text.as_bytes()));
        for without_length in ["HTTP/1.0 200 OK\r\n\r\n7", "HTTP/1.1 200 OK\r\n\r\n"] {
            let text = [&response("7"), without_length].concat();
            assert_eq!(responses(text.as_bytes()), expected[..1]);
            assert!(ends_at_close(text.as_bytes()));
        }
    }

    #[test]
    fn a_port_is_used_for_one_connection() {
        let sent = SentRequests::default();
        assert!(sent.add_connection(5000) && sent.add_connection(5001));
        sent.add(5000, 1);
        sent.add(5001, 2);
        sent.add_response(5000);
        sent.add(5000, 3);
        assert!(!sent.add_connection(5000));
        let requests = |numbers, received| ConnectionRequests { numbers, received };
        let expected = [
            (5000, requests(vec![1, 3], 1)),
            (5001, requests(vec![2], 0)),
        ];
        assert_eq!(sent.into_connections(), BTreeMap::from(expected));
    }
}
