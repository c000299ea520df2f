//! The reader's output: a response, the number of bytes consumed, and the sink for the body.

/// A complete response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// Status code, 100 to 999.
    pub status: u16,
    /// Whether the connection may carry another request (RFC 9112 section 9.3).
    pub keep_alive: bool,
    /// Length of the body in bytes, without chunk framing.
    pub body_bytes: u64,
}

/// Result of a call to [`Reader::feed`](crate::Reader::feed).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fed {
    /// Number of input bytes that were consumed. The remaining bytes come after the response.
    pub consumed: usize,
    /// The response, once it is complete.
    pub response: Option<Response>,
}

/// Receives the body of a response in consecutive parts, without chunk framing.
pub trait BodySink {
    /// Receives the next part, which is never empty.
    fn body(&mut self, part: &[u8]);
}

/// Discards the body.
impl BodySink for () {
    #[inline]
    fn body(&mut self, _part: &[u8]) {}
}

/// Collects the body. The caller limits its size.
impl BodySink for Vec<u8> {
    fn body(&mut self, part: &[u8]) {
        self.extend_from_slice(part);
    }
}
