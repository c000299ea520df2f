//! One request to a server that is being got ready: whether it answers, and what.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use floodmark_host::Side;
use floodmark_wire::{Reader, RequestSpec, request_bytes};

use crate::manifest::Asked;

/// Longest wait for one answer; it is asked again where it may yet come.
const PATIENCE: Duration = Duration::from_secs(2);

/// Largest answer that is read, bytes.
const LARGEST: usize = 1 << 20;

/// A whole answer.
#[derive(Debug)]
pub struct Answered {
    /// Status code.
    pub status: u16,
    /// Body, at most [`LARGEST`] bytes with its head.
    pub body: Vec<u8>,
}

/// Asks a server as its client does, on a connection of its own that is closed after it.
///
/// # Errors
/// Nobody listens, no whole answer came in time, or it is none of HTTP/1.1; in words.
pub fn ask(from: &Side, address: SocketAddr, asked: Asked<'_>) -> Result<Answered, String> {
    let authority = address.to_string();
    let json = [("Content-Type".to_owned(), "application/json".to_owned())];
    let request = request_bytes(&RequestSpec {
        method: asked.method,
        path: asked.path,
        authority: &authority,
        headers: match asked.body {
            "" => &[],
            _ => &json,
        },
        body: asked.body.as_bytes(),
        close: true,
    })
    .map_err(|error| error.to_string())?;
    let exchanged = from.within(|| exchange(address, &request));
    exchanged
        .and_then(|answer| answer)
        .map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => "nobody listens".to_owned(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("no answer within {} s", PATIENCE.as_secs())
            }
            _ => error.to_string(),
        })
}

fn exchange(address: SocketAddr, request: &[u8]) -> io::Result<Answered> {
    let begin = Instant::now();
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(request)?;
    let mut reader = Reader::new();
    reader.expect_answer(false);
    let mut body = Vec::new();
    let mut buffer = [0; 8192];
    let mut read = 0;
    loop {
        let left = PATIENCE.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let n = match stream.read(&mut buffer) {
            // A read with a time limit is not resumed after a signal, nor after the machine was suspended (signal(7)).
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        read += n;
        if read > LARGEST {
            return Err(io::Error::other(format!(
                "the answer has more than {LARGEST} bytes"
            )));
        }
        let answer = match n {
            0 => reader.end(),
            n => reader.feed(&buffer[..n], &mut body).map(|fed| fed.answer),
        };
        match answer {
            Ok(Some(answer)) => {
                return Ok(Answered {
                    status: answer.status,
                    body,
                });
            }
            Ok(None) if n > 0 => {}
            Ok(None) => {
                return Err(io::Error::other(
                    "it closed the connection without an answer",
                ));
            }
            Err(error) => return Err(io::Error::other(format!("no HTTP/1.1 answer: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Answers one connection with `answer`, after it has read a request.
    fn server(answer: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let read = stream.read(&mut [0; 1024]).unwrap();
            assert!(read > 0);
            stream.write_all(answer).unwrap();
        });
        address
    }

    #[test]
    fn answers_are_read_whole() {
        let address = server(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        let answered = ask(&Side::default(), address, Asked::get("/")).unwrap();
        assert_eq!((answered.status, &answered.body[..]), (200, &b"hello"[..]));
        let until_close = server(b"HTTP/1.0 404 No\r\n\r\ngone");
        assert_eq!(
            ask(&Side::default(), until_close, Asked::get("/"))
                .unwrap()
                .status,
            404
        );
    }

    #[test]
    fn what_is_no_answer_is_said() {
        assert!(
            ask(&Side::default(), server(b"SSH-2.0-x\r\n"), Asked::get("/"))
                .unwrap_err()
                .contains("HTTP/1.1")
        );
        assert!(
            ask(&Side::default(), server(b""), Asked::get("/"))
                .unwrap_err()
                .contains("without an answer")
        );
        let free = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        assert_eq!(
            ask(&Side::default(), free, Asked::get("/")).unwrap_err(),
            "nobody listens"
        );
    }
}
