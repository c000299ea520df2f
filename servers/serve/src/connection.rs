//! Serves one connection over HTTP/1.1, or passes it to [`http2`].

use std::future::poll_fn;
use std::net::TcpStream as StdStream;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use hyper::server::conn::http1;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, sink};
use tokio::time::timeout;

use crate::http2;
use crate::pace::Pace;
use crate::service::service;
use crate::settings::Limits;
use crate::socket::{ConnectionSocket, Transport};
use crate::worker::Worker;

/// Maximum time to read and discard the rest of a request after an early response. An immediate
/// close would reset the connection, and the client could lose the response (RFC 9112, section
/// 9.6).
const LINGER: Duration = Duration::from_secs(1);
/// Maximum number of bytes to discard after an early response.
const LINGER_BYTES: u64 = 1 << 20;
/// Minimum size of hyper's buffer, in bytes.
const MIN_BUFFER: usize = 8192;

/// Returns hyper's configuration for these limits.
pub(crate) fn http(limits: &Limits) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.half_close(true) // a client that has closed its sending direction still gets its response
        .header_read_timeout(None) // the worker's scan is cheaper
        .max_header_size(limits.head_bytes)
        .max_buf_size(limits.head_bytes.max(MIN_BUFFER))
        .writev(false);
    if limits.headers != Limits::default().headers {
        // An explicit limit makes hyper allocate memory for each head, so do not set the default.
        http.max_headers(limits.headers);
    }
    http
}

/// Registers a connection, and returns the task that serves it until it ends.
pub(crate) fn serve(worker: Rc<Worker>, stream: StdStream) -> impl Future<Output = ()> {
    let connection = RegisteredConnection::new(worker);
    async move {
        let RegisteredConnection { worker, pace, .. } = &connection;
        let socket = ConnectionSocket::new(stream, Rc::clone(pace), Rc::clone(&worker.register));
        if let Some((received, stream)) = serve_http1(&connection, socket).await {
            let socket = http2::with_received(received, stream);
            // Box the future, so that it does not enlarge the future of every connection.
            Box::pin(http2::serve(&connection, socket)).await;
        }
    }
}

/// Serves a connection over HTTP/1.1 until it ends. If the client sends the HTTP/2 connection
/// preface instead of a request, returns the received bytes and the stream.
pub(crate) async fn serve_http1<T: Transport>(
    RegisteredConnection { worker, pace, .. }: &RegisteredConnection,
    socket: T,
) -> Option<(Bytes, T::Stream)> {
    let service = service(Rc::clone(worker), Rc::clone(pace));
    let mut connection = worker.http.serve_connection(socket, service);
    let mut is_http2 = false;
    let whole = poll_fn(|cx| {
        pace.remember(cx.waker());
        if pace.cut.get() {
            return Poll::Ready(false);
        }
        match connection.poll_without_shutdown(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(!pace.linger.get()),
            Poll::Ready(Err(error)) => {
                is_http2 = error.is_parse_version_h2();
                pace.linger.set(true);
                Poll::Ready(false)
            }
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    let lingers = !whole && pace.linger.get() && !pace.cut.get();
    let http1::Parts { io, read_buf, .. } = connection.into_parts();
    if lingers {
        match io.into_stream() {
            // hyper has read the HTTP/2 preface but has not responded.
            Ok(stream) if is_http2 => return Some((read_buf, stream)),
            // Box the future, so that it does not enlarge the future of every connection.
            Ok(stream) => Box::pin(linger(stream)).await,
            Err(_) => {} // the event loop is out of memory
        }
    } else {
        io.finish(whole).await;
    }
    None
}

/// Closes the sending direction and discards received bytes, so that the client can read the last
/// response.
pub(crate) async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let drain = async {
        stream.shutdown().await?;
        copy(&mut stream.take(LINGER_BYTES), &mut sink()).await
    };
    // A client that continues to send afterwards gets a reset.
    let _ = timeout(LINGER, drain).await;
}

/// A registered connection of a worker. Dropping the value removes the connection.
pub(crate) struct RegisteredConnection {
    pub(crate) worker: Rc<Worker>,
    pub(crate) pace: Rc<Pace>,
    number: usize,
}

impl RegisteredConnection {
    pub(crate) fn new(worker: Rc<Worker>) -> Self {
        let (number, pace) = worker.register.add();
        RegisteredConnection {
            worker,
            pace,
            number,
        }
    }

    /// Waits for `step`. Returns `None` if the connection must end first.
    pub(crate) async fn unless_cut<T>(&self, step: impl Future<Output = T>) -> Option<T> {
        let mut step = pin!(step);
        poll_fn(|cx| {
            self.pace.remember(cx.waker());
            if self.pace.cut.get() {
                return Poll::Ready(None);
            }
            step.as_mut().poll(cx).map(Some)
        })
        .await
    }
}

impl Drop for RegisteredConnection {
    fn drop(&mut self) {
        self.worker.register.remove(self.number);
        self.worker.release();
    }
}
