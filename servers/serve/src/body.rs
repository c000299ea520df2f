//! Reads request bodies.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::{Body, Incoming};

/// A reason why a body cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFault {
    /// The body is longer than the limit.
    TooLong,
    /// The body is malformed or incomplete.
    Malformed,
}

/// Reads the body of a request up to `limit` bytes.
pub(crate) async fn read_body(
    request: &mut Request<Incoming>,
    limit: u64,
) -> Result<Bytes, BodyFault> {
    if request.body().size_hint().lower() > limit {
        return Err(BodyFault::TooLong);
    }
    let mut left = limit;
    // Most bodies have one frame, which needs no copy.
    let mut first = Bytes::new();
    let mut whole = Vec::new();
    while let Some(frame) = request.body_mut().frame().await {
        let frame = frame.map_err(|_| BodyFault::Malformed)?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let rest = left.checked_sub(data.len() as u64);
        left = rest.ok_or(BodyFault::TooLong)?;
        if first.is_empty() {
            first = data;
        } else {
            if whole.is_empty() {
                whole.extend_from_slice(&first);
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(if whole.is_empty() {
        first
    } else {
        whole.into()
    })
}
