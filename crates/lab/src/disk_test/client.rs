//! A client that sends one request at a time, and the responses in recorded bytes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use floodmark_wire::{Reader, RequestError, RequestSpec, request_bytes};

use super::DiskCheck;

/// Maximum time to wait for a response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a body in bytes.
const MAX_BODY: usize = 1 << 20;

/// Returns the bytes of the request that the check sends.
pub(super) fn request(
    check: DiskCheck,
    path: &str,
    server: SocketAddr,
) -> Result<Vec<u8>, RequestError> {
    let json = [("Content-Type".to_owned(), "application/json".to_owned())];
    let authority = server.to_string();
    let (method, headers, body) = match check {
        DiskCheck::Sequence => ("GET", &[][..], &b""[..]),
        DiskCheck::Scoring => ("POST", &json[..], &br#"{"score":1}"#[..]),
    };
    request_bytes(&RequestSpec {
        method,
        path,
        authority: &authority,
        headers,
        body,
        close: false,
    })
}

/// A response with its body.
pub(super) struct CompleteResponse {
    pub status: u16,
    pub body: Vec<u8>,
    keeps_connection: bool,
}

/// A client with one connection, which it opens again if the server closes it after a response.
pub(super) struct DiskClient {
    server: SocketAddr,
    request: Vec<u8>,
    connection: Option<(TcpStream, Reader)>,
}

impl DiskClient {
    pub(super) fn new(server: SocketAddr, request: Vec<u8>) -> Self {
        DiskClient {
            server,
            request,
            connection: None,
        }
    }

    /// Sends the request and waits for the response.
    pub(super) fn send(&mut self) -> io::Result<CompleteResponse> {
        let (mut stream, mut reader) = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let stream = TcpStream::connect_timeout(&self.server, TIMEOUT)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.set_nodelay(true)?;
                (stream, Reader::new())
            }
        };
        stream.write_all(&self.request)?;
        let response = read(&mut stream, &mut reader)?;
        self.connection = response.keeps_connection.then_some((stream, reader));
        Ok(response)
    }
}

fn read(stream: &mut TcpStream, reader: &mut Reader) -> io::Result<CompleteResponse> {
    reader.expect_response(false);
    let (mut body, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let length = stream.read(&mut chunk)?;
        let response = match length {
            0 => reader.end().map_err(io::Error::other)?,
            _ => {
                let fed = reader.feed(&chunk[..length], &mut body);
                fed.map_err(io::Error::other)?.response
            }
        };
        match response {
            Some(response) => {
                return Ok(CompleteResponse {
                    status: response.status,
                    body,
                    keeps_connection: response.keep_alive,
                });
            }
            None if length == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            None if body.len() > MAX_BODY => return Err(io::ErrorKind::FileTooLarge.into()),
            None => {}
        }
    }
}

/// Returns the status and body of each complete response in the bytes that a server sent on one
/// socket. Other bytes, such as those of a runtime's own sockets, contain no response.
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
}
