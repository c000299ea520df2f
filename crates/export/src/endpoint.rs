//! The HTTP endpoint for Prometheus.

use std::convert::Infallible;
use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::prometheus::ExpositionFormat;
use crate::shared::SharedMetrics;

/// Path of the metrics.
pub const METRICS_PATH: &str = "/metrics";
/// Maximum number of connections. Further connections wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 64;
/// Maximum time to send a request head.
const HEAD_TIME: Duration = Duration::from_secs(2);
/// Maximum duration of a connection. Each connection serves one request.
const CONNECTION_TIME: Duration = Duration::from_secs(5);
/// Maximum size of a request head in bytes.
const MAX_HEAD: usize = 16 * 1024;
/// Pause after `accept` has failed for lack of file descriptors or memory.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Serves the metrics until the task is dropped. The listener must be non-blocking.
pub(crate) async fn serve(listener: StdListener, shared: Arc<SharedMetrics>) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // The semaphore is never closed.
    while let Ok(permit) = Arc::clone(&free).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(EXHAUSTED_PAUSE).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            // A client that is too slow or sends an invalid request only loses its connection.
            let _ = timeout(CONNECTION_TIME, connection(stream, shared)).await;
            drop(permit);
        });
    }
}

async fn connection(stream: TcpStream, shared: Arc<SharedMetrics>) -> hyper::Result<()> {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = respond(&request, &shared);
        async { Ok::<_, Infallible>(response) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .keep_alive(false)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

fn respond(request: &Request<Incoming>, shared: &SharedMetrics) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allowed);
        return response;
    }
    if request.uri().path() != METRICS_PATH {
        return plain(StatusCode::NOT_FOUND, "the metrics are at /metrics\n");
    }
    let accept: Vec<&str> = request
        .headers()
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    let format = ExpositionFormat::negotiate(Some(&accept.join(",")));
    let mut response = Response::new(Full::new(shared.exposition(format)));
    let content_type = HeaderValue::from_static(format.content_type());
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
