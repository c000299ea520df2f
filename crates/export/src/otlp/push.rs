//! Sends a request to an OpenTelemetry collector.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::messages::ExportResponse;
use super::url::OtlpUrl;

/// Maximum time to send a request and receive the response.
pub(crate) const PUSH_TIME: Duration = Duration::from_secs(2);
/// Maximum size of a response body in bytes.
const MAX_RESPONSE: usize = 64 * 1024;

/// Reason why metrics were not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PushError {
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("invalid request: {0}")]
    Request(#[from] hyper::http::Error),
    #[error("the collector responded with status {0}")]
    Status(StatusCode),
    #[error("the collector's response is invalid")]
    Response,
    #[error("the collector rejected {0} data points: {1}")]
    Rejected(i64, String),
    #[error("no response within {} s", PUSH_TIME.as_secs())]
    TimedOut,
}

/// Sends an encoded request. Does not follow redirects, and does not retry, because the next
/// request contains the same totals.
pub(crate) async fn push(url: &OtlpUrl, body: Vec<u8>) -> Result<(), PushError> {
    let sent = timeout(PUSH_TIME, send(url, body)).await;
    sent.unwrap_or(Err(PushError::TimedOut))
}

async fn send(url: &OtlpUrl, body: Vec<u8>) -> Result<(), PushError> {
    let stream = TcpStream::connect((&*url.host, url.port)).await;
    let stream = stream.map_err(PushError::Connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::post(&url.path)
        .header(HOST, &url.authority)
        .header(CONTENT_TYPE, "application/x-protobuf")
        .header(USER_AGENT, concat!("floodmark/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(Bytes::from(body)))?;
    let connection = tokio::spawn(connection);
    let received = async {
        let response = sender.send_request(request).await?;
        if !response.status().is_success() {
            return Err(PushError::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), MAX_RESPONSE);
        body.collect().await.map_err(|_| PushError::Response)
    };
    let received = received.await;
    connection.abort();
    let response = ExportResponse::decode(received?.to_bytes());
    let response = response.map_err(|_| PushError::Response)?;
    match response.partial_success {
        Some(partial) if partial.rejected_data_points > 0 => Err(PushError::Rejected(
            partial.rejected_data_points,
            partial.error_message,
        )),
        _ => Ok(()),
    }
}
