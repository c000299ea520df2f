//! Negotiates the version of HTTP before a load.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use floodmark_record::plan::{Address, Http};
use floodmark_record::units::show_duration;
use rustls::{ClientConnection, StreamOwned};

use super::Tls;
use super::config::{CertificateSender, HTTP_1_1, HTTP_2, alpn};
use crate::failure::TlsFailure;

/// A connection whose reads and writes have a timeout.
pub trait Stream: Read + Write {
    /// Sets the maximum time that a read waits. A read that waits longer fails with
    /// [`ErrorKind::WouldBlock`].
    ///
    /// # Errors
    /// The timeout is zero.
    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        TcpStream::set_read_timeout(self, Some(timeout))
    }
}

impl Stream for UnixStream {
    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        UnixStream::set_read_timeout(self, Some(timeout))
    }
}

impl Stream for SecureStream {
    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.stream.sock.set_read_timeout(timeout)
    }
}

/// Returns whether a server chooses HTTP/2 (ALPN, RFC 7301). Does one TLS handshake that offers
/// HTTP/2 and HTTP/1.1. `timeout` limits both connecting and the handshake.
///
/// # Errors
/// The server is unreachable, or the handshake fails. Returns the reason.
pub fn chooses_http2(tls: &Tls, address: &Address, timeout: Duration) -> Result<bool, String> {
    let secured = connect(address, timeout)
        .and_then(|stream| secure(tls, None, stream, until(Instant::now() + timeout)));
    let mut secured = secured.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("no response within {}", show_duration(timeout))
        }
        _ => error.to_string(),
    })?;
    secured.stream.conn.send_close_notify();
    // The server has made its choice, so an error while closing does not matter.
    let _ = secured.flush();
    Ok(secured.is_http2())
}

/// A connection protected by TLS. Errors contain a [`TlsFailure`], unless the inner connection
/// failed.
pub struct SecureStream {
    stream: StreamOwned<ClientConnection, Box<dyn Stream>>,
    sender: Arc<CertificateSender>,
    offers_only_http2: bool,
}

impl SecureStream {
    /// Returns whether the server chose HTTP/2.
    #[must_use]
    pub fn is_http2(&self) -> bool {
        self.stream.conn.alpn_protocol() == Some(HTTP_2)
    }

    /// Replaces a rustls error with an explanation. A server that uses TLS 1.3 rejects the client's
    /// certificate after the handshake.
    fn explain(&self, error: io::Error) -> io::Error {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        inner
            .map(|inner| {
                let exchange = self.sender.exchange();
                TlsFailure::from_rustls(inner, &[], exchange, self.offers_only_http2).into()
            })
            .unwrap_or(error)
    }
}

impl Read for SecureStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer);
        read.map_err(|error| self.explain(error))
    }
}

impl Write for SecureStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.stream.write(bytes);
        written.map_err(|error| self.explain(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.stream.flush();
        flushed.map_err(|error| self.explain(error))
    }
}

/// Returns a `wait` function for [`secure`] that returns the time left until `end`.
pub fn until(end: Instant) -> impl FnMut() -> io::Result<Duration> {
    move || match end.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

/// Performs a TLS handshake that offers an HTTP version; `None` offers HTTP/2 and HTTP/1.1. `wait`
/// returns the maximum duration of the next read, or an error that ends the handshake.
///
/// # Errors
/// The handshake fails, or `wait` returns an error. The error contains a [`TlsFailure`], unless the
/// connection failed.
pub fn secure(
    tls: &Tls,
    http: Option<Http>,
    stream: Box<dyn Stream>,
    mut wait: impl FnMut() -> io::Result<Duration>,
) -> io::Result<SecureStream> {
    let (config, sender) = tls.for_thread();
    let mut config = Arc::unwrap_or_clone(config);
    config.alpn_protocols = match http {
        Some(http) => vec![alpn(http).to_vec()],
        None => vec![HTTP_2.to_vec(), HTTP_1_1.to_vec()],
    };
    let client = ClientConnection::new(Arc::new(config), tls.name.clone());
    let mut secured = SecureStream {
        stream: StreamOwned::new(client.map_err(io::Error::other)?, stream),
        sender,
        offers_only_http2: matches!(http, Some(Http::V2(_))),
    };
    while secured.stream.conn.is_handshaking() {
        let StreamOwned { conn, sock } = &mut secured.stream;
        sock.set_read_timeout(wait()?)?;
        if let Err(error) = conn.complete_io(sock) {
            return Err(match error.kind() {
                // A read fails with EAGAIN when its timeout expires, and with EINTR after a signal
                // handler has run or the process was suspended (signal(7)).
                ErrorKind::Interrupted | ErrorKind::WouldBlock => continue,
                ErrorKind::UnexpectedEof => TlsFailure::closed_in_handshake(None).into(),
                _ => secured.explain(error),
            });
        }
    }
    if secured.offers_only_http2 && !secured.is_http2() {
        return Err(TlsFailure::http2_not_chosen().into());
    }
    Ok(secured)
}

/// Opens a connection. `timeout` limits the wait for it, and each read and write.
///
/// # Errors
/// The server is unreachable.
pub fn connect(address: &Address, timeout: Duration) -> io::Result<Box<dyn Stream>> {
    let limit = Some(timeout);
    match address {
        Address::Ip(address) => {
            let stream = TcpStream::connect_timeout(address, timeout)?;
            stream.set_read_timeout(limit)?;
            stream.set_write_timeout(limit)?;
            Ok(Box::new(stream))
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(limit)?;
            stream.set_write_timeout(limit)?;
            Ok(Box::new(stream))
        }
    }
}
