//! Builds responses.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

/// A response whose length is known.
pub(crate) type HttpResponse = Response<Full<Bytes>>;

/// Returns a response with status 200.
pub(crate) fn ok(content_type: &'static str, body: Bytes) -> HttpResponse {
    let mut response = Response::new(Full::new(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Returns an error response with a one-line JSON body.
pub(crate) fn refusal(
    status: StatusCode,
    reason: &str,
    header: Option<(HeaderName, &'static str)>,
) -> HttpResponse {
    let reason = serde_json::Value::from(reason);
    let body = format!("{{\"error\": {reason}}}");
    let mut response = ok("application/json", Bytes::from(body));
    *response.status_mut() = status;
    if let Some((name, value)) = header {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}
