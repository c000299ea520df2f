//! The reader's output: a response, the bytes consumed, and the sink for its body.

/// A complete response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// Status code, 100 to 999.
    pub status: u16,
    /// Whether the connection may carry another request (RFC 9112 section 9.3).
    pub keep_alive: bool,
    /// Bytes of the body, without chunk framing.
    pub body_bytes: u64,
}

/// What one call of [`Reader::feed`](crate::Reader::feed) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fed {
    /// Bytes of the input that were consumed; the rest belongs to whatever follows the response.
    pub consumed: usize,
    /// The response, once it is complete.
    pub response: Option<Response>,
}

/// Receives the body of a response part by part, in order, without chunk framing.
pub trait BodySink {
    /// Receives the next part, which is never empty.
    fn body(&mut self, part: &[u8]);
}

/// Discards the body.
impl BodySink for () {
    #[inline]
    fn body(&mut self, _part: &[u8]) {}
}

/// Collects the body; the caller limits its size.
impl BodySink for Vec<u8> {
    fn body(&mut self, part: &[u8]) {
        self.extend_from_slice(part);
    }
}
