//! Serves a connection over HTTP/2. With TLS, ALPN has selected HTTP/2. Without TLS, the client's
//! first bytes are the connection preface instead of a request (prior knowledge, RFC 9113, sections
//! 3.3 and 3.4).

use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io::Cursor;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_LENGTH, HeaderValue};
use hyper::rt::{Executor, Read, Write};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, join};
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio::time::timeout;

use crate::connection::RegisteredConnection;
use crate::http::HttpResponse;
use crate::pace::Pace;
use crate::service::{count_response, respond};
use crate::settings::Limits;
use crate::worker::Worker;

/// Maximum time for a client to respond to the GOAWAY that ends its connection. An immediate close
/// would reset the connection, and the client could lose the GOAWAY.
const GOAWAY_TIME: Duration = Duration::from_secs(1);

/// Serves a connection until it ends.
///
/// To end a connection, the server sends a GOAWAY and serves the open streams.
pub(crate) async fn serve(
    RegisteredConnection { worker, pace, .. }: &RegisteredConnection,
    socket: impl Read + Write + Unpin,
) {
    let http = http(&worker.shared.limits);
    let streams = Rc::new(Streams {
        worker: Rc::clone(worker),
        pace: Rc::clone(pace),
        open: Cell::new(0),
    });
    let service = service_fn(|request| {
        let stream = OpenStream::new(&streams);
        async { Ok::<_, Infallible>(stream.respond(request).await) }
    });
    let mut connection = pin!(http.serve_connection(socket, service));
    let is_cut = poll_fn(|cx| {
        streams.progress();
        if streams.pace.cut.get() {
            return Poll::Ready(true);
        }
        if streams.pace.is_last.get() {
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx).map(|_| false)
    })
    .await;
    if is_cut {
        connection.as_mut().graceful_shutdown();
        // A client that does not respond to the GOAWAY gets a reset.
        let _ = timeout(GOAWAY_TIME, connection).await;
    }
}

/// Returns the socket of a connection whose first bytes have already been received.
pub(crate) fn with_received(received: Bytes, stream: TcpStream) -> impl Read + Write + Unpin {
    let (reader, writer) = stream.into_split();
    TokioIo::new(join(Cursor::new(received).chain(reader), writer))
}

/// Returns hyper's configuration for these limits.
fn http(limits: &Limits) -> http2::Builder<LocalExecutor> {
    let mut http = http2::Builder::new(LocalExecutor);
    http.max_concurrent_streams(limits.streams.get())
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX));
    http
}

/// Runs each stream as a task of the worker's thread.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output: 'static> + 'static> Executor<F> for LocalExecutor {
    fn execute(&self, stream: F) {
        spawn_local(stream);
    }
}

/// The streams of a connection.
struct Streams {
    worker: Rc<Worker>,
    pace: Rc<Pace>,
    /// Number of streams whose response is not complete.
    open: Cell<usize>,
}

impl Streams {
    /// Records that the connection made progress.
    fn progress(&self) {
        let now = self.worker.register.now.get();
        self.pace.progressed(self.open.get(), now);
    }
}

/// An open stream. Dropping the value closes the stream.
struct OpenStream(Rc<Streams>);

impl OpenStream {
    fn new(streams: &Rc<Streams>) -> Self {
        streams.open.set(streams.open.get() + 1);
        streams.progress();
        OpenStream(Rc::clone(streams))
    }

    /// Returns the response to the stream's request, and ends the connection if necessary.
    async fn respond(self, request: Request<Incoming>) -> HttpResponse {
        let Streams { worker, pace, .. } = &*self.0;
        let is_head = request.method() == Method::HEAD;
        let response = respond(Rc::clone(worker), Rc::clone(pace), request).await;
        if count_response(worker) {
            pace.is_last.set(true);
        }
        if is_head {
            without_body(response)
        } else {
            response
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let Streams { open, .. } = &*self.0;
        open.set(open.get() - 1);
        self.0.progress();
    }
}

/// Returns the response to a HEAD request. hyper removes the body only from HTTP/1.1 responses.
fn without_body(response: HttpResponse) -> HttpResponse {
    let (mut head, body) = response.into_parts();
    if let Some(length @ 1..) = body.size_hint().exact() {
        head.headers
            .insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    HttpResponse::from_parts(head, Default::default())
}
