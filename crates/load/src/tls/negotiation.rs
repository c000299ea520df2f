//! Negotiates the version of HTTP before a load.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use floodmark_record::plan::{Address, Http, Http2};
use floodmark_record::units::show_duration;
use rustls::{ClientConfig, ClientConnection, Error, StreamOwned};

use super::Tls;
use super::config::{HTTP_1_1, HTTP_2};
use crate::failure::TlsFailure;

/// A connection whose reads and writes have a timeout.
pub trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// Returns whether a server chooses HTTP/2 (ALPN, RFC 7301). Does one TLS handshake that offers
/// HTTP/2 and HTTP/1.1. `timeout` limits the wait for the connection, and each wait for the server
/// during the handshake.
///
/// # Errors
/// The server is unreachable, or the handshake fails. Returns the reason.
pub fn chooses_http2(tls: &Tls, address: &Address, timeout: Duration) -> Result<bool, String> {
    let (config, sender) = tls.for_thread();
    let mut config = Arc::unwrap_or_clone(config);
    config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1_1.to_vec()];
    let of_rustls = |error: &io::Error| {
        let error = error.get_ref()?.downcast_ref::<Error>()?;
        Some(TlsFailure::from_rustls(error, &[], sender.exchange(), false).detail)
    };
    handshake(config, tls, address, timeout).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("no response within {}", show_duration(timeout))
        }
        ErrorKind::UnexpectedEof => TlsFailure::closed_in_handshake(None).detail,
        _ => of_rustls(&error).unwrap_or_else(|| error.to_string()),
    })
}

fn handshake(
    config: ClientConfig,
    tls: &Tls,
    address: &Address,
    timeout: Duration,
) -> io::Result<bool> {
    let mut client =
        ClientConnection::new(Arc::new(config), tls.name.clone()).map_err(io::Error::other)?;
    let mut stream = connect(address, timeout)?;
    while client.is_handshaking() {
        client.complete_io(&mut stream)?;
    }
    client.send_close_notify();
    // The server has made its choice, so an error while closing does not matter.
    let _ = client.complete_io(&mut stream);
    Ok(client.alpn_protocol() == Some(HTTP_2))
}

/// Performs a TLS handshake that offers only HTTP/2.
///
/// # Errors
/// The handshake fails.
pub fn secure_http2(tls: &Tls, mut stream: Box<dyn Stream>) -> io::Result<Box<dyn Stream>> {
    let tls = tls.clone().with_http(Http::V2(Http2::default()));
    let (config, sender) = tls.for_thread();
    let explain = |error: io::Error| {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        match inner {
            Some(inner) => TlsFailure::from_rustls(inner, &[], sender.exchange(), true).into(),
            None => error,
        }
    };
    let mut client = ClientConnection::new(config, tls.name).map_err(io::Error::other)?;
    while client.is_handshaking() {
        client.complete_io(&mut stream).map_err(&explain)?;
    }
    Ok(Box::new(StreamOwned::new(client, stream)))
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
