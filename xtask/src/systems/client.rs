//! One connection to a server, by hand: what is tested must not be read by the code that users rely on.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for an answer: a virtual machine that has just started is slow.
const PATIENCE: Duration = Duration::from_secs(20);

/// Longest head that is read, bytes.
const LONGEST_HEAD: usize = 64 * 1024;

/// A kept connection.
pub struct Connection {
    stream: TcpStream,
    /// What has come beyond the last answer.
    rest: Vec<u8>,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    head: String,
    /// Body, as text.
    pub body: String,
}

/// A request: method, path, content type and body.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Method.
    pub method: &'a str,
    /// Path and query.
    pub path: &'a str,
    /// `Content-Type` and the body that it is of.
    pub content: Option<(&'a str, &'a str)>,
}

impl<'a> Request<'a> {
    /// A GET.
    pub fn get(path: &'a str) -> Self {
        Request {
            method: "GET",
            path,
            content: None,
        }
    }

    /// A POST of JSON.
    pub fn post(path: &'a str, body: &'a str) -> Self {
        Request {
            method: "POST",
            path,
            content: Some(("application/json", body)),
        }
    }

    /// As it is sent, with further header lines.
    pub fn text(&self, further: &str) -> String {
        let Request { method, path, .. } = self;
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{further}");
        match self.content {
            Some((kind, body)) => {
                let length = body.len();
                text.push_str(&format!(
                    "Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
                ));
            }
            None => text.push_str("\r\n"),
        }
        text
    }
}

impl Connection {
    /// Connects.
    pub fn to(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Connection {
            stream,
            rest: Vec::new(),
        })
    }

    /// Sends text as it stands. A server that has refused already may have closed: its answer is what counts.
    pub fn send(&mut self, text: &str) {
        let _ = self.stream.write_all(text.as_bytes());
    }

    /// Sends a request and reads its answer.
    pub fn ask(&mut self, request: Request<'_>) -> io::Result<Answer> {
        self.send(&request.text(""));
        self.answer()
    }

    /// Reads one answer, whose length must be told by `Content-Length`.
    pub fn answer(&mut self) -> io::Result<Answer> {
        let end = loop {
            if let Some(at) = self.rest.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if self.rest.len() > LONGEST_HEAD {
                return Err(wrong("the head of its answer does not end"));
            }
            self.more()?;
        };
        let head = String::from_utf8_lossy(&self.rest[..end]).into_owned();
        self.rest.drain(..end);
        let mut answer = Answer {
            status: status(&head).ok_or_else(|| wrong("its answer is none of HTTP/1.1"))?,
            head,
            body: String::new(),
        };
        if answer.header("transfer-encoding").is_some() {
            return Err(wrong("its answer has a Transfer-Encoding"));
        }
        let length = answer.header("content-length").map(str::parse::<usize>);
        let Some(Ok(length)) = length else {
            return Err(wrong("its answer has no Content-Length"));
        };
        while self.rest.len() < length {
            self.more()?;
        }
        let body: Vec<u8> = self.rest.drain(..length).collect();
        answer.body = String::from_utf8(body).map_err(|_| wrong("its body is no UTF-8"))?;
        Ok(answer)
    }

    /// Whether the server closes it and says nothing more.
    pub fn is_closed(&mut self) -> bool {
        let ended = match self.stream.read(&mut [0; 64]) {
            Ok(n) => n == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        };
        ended && self.rest.is_empty()
    }

    fn more(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer)? {
            0 => Err(wrong("it closed the connection within an answer")),
            n => {
                self.rest.extend_from_slice(&buffer[..n]);
                Ok(())
            }
        }
    }
}

impl Answer {
    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1);
        lines.find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The media type, without its parameters.
    pub fn kind(&self) -> &str {
        let kind = self.header("content-type").unwrap_or_default();
        kind.split(';').next().unwrap_or_default().trim()
    }
}

fn status(head: &str) -> Option<u16> {
    let rest = head.strip_prefix("HTTP/1.1 ")?;
    rest.get(..3)?.parse().ok()
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}
