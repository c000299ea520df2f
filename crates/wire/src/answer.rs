//! What a reader hands out: the answer, what it consumed, and where bodies go.

/// A whole answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
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
    /// Bytes of the input that are done with; the rest belongs to what follows the answer.
    pub consumed: usize,
    /// The answer, if it became whole.
    pub answer: Option<Answer>,
}

/// Takes the body of an answer, part by part, in order, without chunk framing.
pub trait BodySink {
    /// The next part; never empty.
    fn body(&mut self, part: &[u8]);
}

/// Drops the body.
impl BodySink for () {
    #[inline]
    fn body(&mut self, _part: &[u8]) {}
}

/// Collects the body; the caller bounds it.
impl BodySink for Vec<u8> {
    fn body(&mut self, part: &[u8]) {
        self.extend_from_slice(part);
    }
}
