//! Negotiates the version of HTTP before a load.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use floodmark_record::plan::Address;
use rustls::ClientConnection;

use super::Tls;
use super::config::{HTTP_1_1, HTTP_2};

/// A connection whose reads and writes have a timeout.
trait Stream: Read + Write {}

impl Stream for TcpStream {}
impl Stream for UnixStream {}

/// Returns whether a server chooses HTTP/2 (ALPN, RFC 7301). Does one TLS handshake that offers
/// HTTP/2 and HTTP/1.1. `timeout` limits the wait for the connection, and each wait for the server
/// during the handshake.
///
/// # Errors
/// The server is unreachable, or the handshake fails.
pub fn chooses_http2(tls: &Tls, address: &Address, timeout: Duration) -> io::Result<bool> {
    let mut config = tls.config.clone();
    config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1_1.to_vec()];
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

fn connect(address: &Address, timeout: Duration) -> io::Result<Box<dyn Stream>> {
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
