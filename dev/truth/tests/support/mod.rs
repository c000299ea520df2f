//! A plain client for tests of the server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use floodmark_truth::{Scenario, TruthServer};

/// A request.
pub const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: t\r\n\r\n";
/// Starts a server.
pub fn start(scenario: Scenario) -> TruthServer {
    TruthServer::start(scenario).unwrap()
}

/// Connects to a server.
pub fn connect(server: &TruthServer) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream
}

/// Reads one response that has a `Content-Length`.
pub fn response(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer).unwrap();
        assert_ne!(n, 0, "closed after {:?}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&buffer[..n]);
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.split("Content-Length: ").nth(1).unwrap();
            let length: usize = length.lines().next().unwrap().parse().unwrap();
            if body.len() >= length {
                assert_eq!(body.len(), length);
                return text.into_owned();
            }
        }
    }
}

/// Sends a request and reads the response.
pub fn exchange(stream: &mut TcpStream) -> String {
    stream.write_all(GET).unwrap();
    response(stream)
}
