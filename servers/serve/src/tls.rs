//! Serves connections with TLS. ALPN selects the HTTP version; a client without ALPN gets HTTP/1.1.

use std::io;
use std::net::TcpStream as StdStream;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::connection::{RegisteredConnection, linger, serve_http1};
use crate::http2;
use crate::pace::{Pace, Register};
use crate::socket::Transport;
use crate::worker::Worker;

/// ALPN protocol ID of HTTP/2 (RFC 9113, section 3.2).
const HTTP_2: &[u8] = b"h2";
/// ALPN protocol ID of HTTP/1.1 (RFC 7301, section 6).
const HTTP_1_1: &[u8] = b"http/1.1";
/// Response to a client that starts with a request instead of a TLS handshake.
const NOT_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n\
    Content-Length: 53\r\nConnection: close\r\n\r\n\
    {\"error\": \"this port serves https; use an https URL\"}";
/// Maximum time to send the rest of the last response and end the TLS session.
const FINISH_TIME: Duration = Duration::from_secs(1);

/// Returns a TLS acceptor that uses this certificate and its key.
pub(crate) fn acceptor(certified: Arc<CertifiedKey>) -> TlsAcceptor {
    let provider = Arc::new(ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring supports the default versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1_1.to_vec()];
    // All clients then use the same cipher suite, so encryption costs the server the same in a
    // comparison of clients.
    config.ignore_client_order = true;
    Arc::new(config).into()
}

/// Registers a connection, and returns the task that serves it until it ends.
///
/// The limits on a request and on an idle connection apply to the handshake, from its first byte.
pub(crate) fn serve(
    worker: Rc<Worker>,
    acceptor: TlsAcceptor,
    stream: StdStream,
) -> impl Future<Output = ()> {
    let connection = RegisteredConnection::new(worker);
    async move {
        let handshake = connection.unless_cut(handshake(&connection, acceptor, stream));
        let Some(Ok(stream)) = handshake.await else {
            return;
        };
        let RegisteredConnection { worker, pace, .. } = &connection;
        // The limit on idle connections applies from the end of the handshake.
        pace.sent(worker.register.now.get());
        pace.responded();
        if stream.get_ref().1.alpn_protocol() == Some(HTTP_2) {
            http2::serve(&connection, TokioIo::new(stream)).await;
            return;
        }
        let socket = TokioIo::new(SecuredSocket {
            stream,
            pace: Rc::clone(pace),
            register: Rc::clone(&worker.register),
        });
        // Without ALPN, HTTP/2 is not allowed (RFC 9113, section 3.2).
        if let Some((_, stream)) = serve_http1(&connection, socket).await {
            linger(stream).await;
        }
    }
}

/// Performs the handshake of a connection. Refuses a client that does not start with a handshake.
async fn handshake(
    RegisteredConnection { worker, pace, .. }: &RegisteredConnection,
    acceptor: TlsAcceptor,
    stream: StdStream,
) -> io::Result<TlsStream<TcpStream>> {
    let mut stream = TcpStream::from_std(stream)?;
    let mut first = [0];
    let received = stream.peek(&mut first).await?;
    // A client that has not sent anything is idle.
    if received > 0 {
        pace.received(worker.register.now.get());
    }
    if first[0].is_ascii_uppercase() {
        stream.write_all(NOT_TLS).await?;
        linger(stream).await;
        return Err(io::ErrorKind::InvalidData.into());
    }
    match acceptor.accept(stream).into_fallible().await {
        Ok(stream) => Ok(stream),
        Err((error, stream)) => {
            // The client must receive the alert that refuses its handshake.
            linger(stream).await;
            Err(error)
        }
    }
}

/// A TLS stream that records the progress of its connection.
struct SecuredSocket {
    stream: TlsStream<TcpStream>,
    pace: Rc<Pace>,
    register: Rc<Register>,
}

impl Transport for TokioIo<SecuredSocket> {
    type Stream = TlsStream<TcpStream>;

    /// Sends the rest of the last response and a close_notify alert (RFC 9112, section 9.8).
    async fn finish(self, _: bool) {
        let mut stream = self.into_inner().stream;
        // Sending fails if the connection has already ended.
        let _ = timeout(FINISH_TIME, stream.shutdown()).await;
    }

    fn into_stream(self) -> io::Result<TlsStream<TcpStream>> {
        Ok(self.into_inner().stream)
    }
}

impl AsyncRead for SecuredSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            this.pace.received(this.register.now.get());
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SecuredSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(cx, bytes);
        match polled {
            Poll::Pending => this.pace.write_blocked.set(true),
            Poll::Ready(_) => this.pace.sent(this.register.now.get()),
        }
        polled
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_flush(cx);
        match polled {
            Poll::Pending => this.pace.write_blocked.set(true),
            // Without this condition, each flush would count as progress.
            Poll::Ready(_) if this.pace.write_blocked.get() => {
                this.pace.sent(this.register.now.get());
            }
            Poll::Ready(_) => {}
        }
        polled
    }

    /// Flushes only. [`Transport::finish`] ends the TLS session.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}
