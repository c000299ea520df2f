//! An independent HTTP client, because contract checks must not rely on floodmark's own response
//! reader.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Response timeout, long enough for a JVM that has just started.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum length of a response head, in bytes.
const MAX_HEAD: u64 = 64 * 1024;

/// A kept connection.
pub struct ContractConnection(BufReader<TcpStream>);

/// A complete response.
#[derive(Debug)]
pub struct ContractResponse {
    /// Status code.
    pub status: u16,
    head: String,
    /// Body as text.
    pub body: String,
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct ContractRequest<'a> {
    /// Method.
    pub method: &'a str,
    /// Path with query.
    pub path: &'a str,
    /// `Content-Type` and body.
    pub content: Option<(&'a str, &'a str)>,
}

impl<'a> ContractRequest<'a> {
    /// Creates a GET request.
    pub fn get(path: &'a str) -> Self {
        ContractRequest {
            method: "GET",
            path,
            content: None,
        }
    }

    /// Creates a POST request with a JSON body.
    pub fn post(path: &'a str, body: &'a str) -> Self {
        ContractRequest {
            method: "POST",
            path,
            content: Some(("application/json", body)),
        }
    }

    /// Returns the request as text, with additional header lines.
    pub fn text(&self, headers: &str) -> String {
        let ContractRequest { method, path, .. } = self;
        let rest = self.content.map_or("\r\n".to_owned(), |(kind, body)| {
            let length = body.len();
            format!("Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}")
        });
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}{rest}")
    }
}

impl ContractConnection {
    /// Connects to a server.
    pub fn to(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&server, TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(ContractConnection(BufReader::new(stream)))
    }

    /// Sends text. Errors are ignored because a server may refuse a request early and close the
    /// connection. The response is still checked.
    pub fn send(&mut self, text: &str) {
        let _ = self.0.get_mut().write_all(text.as_bytes());
    }

    /// Sends a request and reads its response.
    pub fn request(&mut self, request: ContractRequest<'_>) -> io::Result<ContractResponse> {
        self.send(&request.text(""));
        self.response()
    }

    /// Reads one response. The response must have a `Content-Length`.
    pub fn response(&mut self) -> io::Result<ContractResponse> {
        let mut head = String::new();
        let mut lines = self.0.by_ref().take(MAX_HEAD);
        while !head.ends_with("\r\n\r\n") {
            if lines.read_line(&mut head)? == 0 {
                return Err(invalid("response head is incomplete or too long"));
            }
        }
        let mut response = ContractResponse {
            status: status(&head).ok_or_else(|| invalid("response is not HTTP/1.1"))?,
            head,
            body: String::new(),
        };
        if response.header("transfer-encoding").is_some() {
            return Err(invalid("response has a Transfer-Encoding"));
        }
        let length = response.header("content-length").map(str::parse::<usize>);
        let Some(Ok(length)) = length else {
            return Err(invalid("response has no Content-Length"));
        };
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        response.body =
            String::from_utf8(body).map_err(|_| invalid("response body is not UTF-8"))?;
        Ok(response)
    }

    /// Returns whether the server closes the connection without sending more data.
    pub fn is_closed(&mut self) -> bool {
        match self.0.fill_buf() {
            Ok(rest) => rest.is_empty(),
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

impl ContractResponse {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1);
        lines.find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

fn status(head: &str) -> Option<u16> {
    let rest = head.strip_prefix("HTTP/1.1 ")?;
    rest.get(..3)?.parse().ok()
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}
