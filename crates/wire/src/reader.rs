//! The response reader and its output. Each connection has one reader, which is fed with the
//! received bytes.

use crate::chunked::Chunks;
use crate::error::ReadError;
use crate::head::{Framing, Head, Partial, Trailers};

/// Maximum number of interim (1xx) responses before the final response.
pub const MAX_INTERIM: u8 = 16;

/// Reads the responses on one connection from received bytes, in pieces of any size.
///
/// ```
/// use floodmark_wire::Reader;
///
/// let mut reader = Reader::new();
/// let mut body = Vec::new();
/// reader.expect_response(false);
/// let fed = reader.feed(b"HTTP/1.1 200 OK\r\nContent-Len", &mut body)?;
/// assert_eq!(fed.response, None);
/// let fed = reader.feed(b"gth: 5\r\n\r\nhello", &mut body)?;
/// assert_eq!(fed.response.map(|response| response.status), Some(200));
/// assert_eq!(body, b"hello");
/// # Ok::<(), floodmark_wire::ReadError>(())
/// ```
#[derive(Debug, Default)]
pub struct Reader {
    state: State,
    /// A head or trailer section that is split over several reads. Otherwise, the field is empty
    /// and has no allocated memory.
    partial: Partial,
    body_bytes: u64,
    status: u16,
    keep_alive: bool,
    to_head_request: bool,
    /// Number of 1xx responses so far before the final response.
    interim: u8,
}

#[derive(Debug, Default)]
enum State {
    /// No response is expected.
    #[default]
    Idle,
    Head,
    Length {
        left: u64,
    },
    Chunked(Chunks),
    Trailers,
    UntilClose,
    /// The last response did not allow another request, or the peer closed the connection.
    Closed,
    Failed(ReadError),
}

impl Reader {
    /// Creates a reader for a new connection.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Prepares the reader for the response to a request that was sent.
    ///
    /// A response to a HEAD request (`to_head_request`) has no body.
    ///
    /// Call this method once per response, after the previous response is complete. The caller
    /// keeps track of pipelined requests. A call has no effect if the connection has failed or must
    /// be closed.
    pub fn expect_response(&mut self, to_head_request: bool) {
        debug_assert!(
            matches!(self.state, State::Idle | State::Closed | State::Failed(_)),
            "the previous response is incomplete"
        );
        if let State::Idle = self.state {
            self.state = State::Head;
            self.to_head_request = to_head_request;
            self.interim = 0;
            self.body_bytes = 0;
        }
    }

    /// Returns whether any byte of the current response has arrived, including a preceding 1xx
    /// response.
    #[must_use]
    pub fn started(&self) -> bool {
        match self.state {
            State::Idle | State::Closed | State::Failed(_) => false,
            State::Head => self.interim > 0 || !self.partial.is_empty(),
            State::Length { .. } | State::Chunked(_) | State::Trailers | State::UntilClose => true,
        }
    }

    /// Returns the status of the current response, once its head has arrived and while its body is
    /// incomplete.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        let has_head = self.started() && !matches!(self.state, State::Head);
        has_head.then_some(self.status)
    }

    /// Returns whether the current response ends when the peer closes the connection.
    #[must_use]
    pub fn ends_with_connection(&self) -> bool {
        matches!(self.state, State::UntilClose)
    }

    /// Reads bytes from the connection, and passes the body to `body`. One call consumes at most
    /// the rest of one response. Feed the remaining bytes after the next call to
    /// [`expect_response`](Self::expect_response).
    ///
    /// # Errors
    /// The bytes are not a valid response, or no response is expected. Every later call returns the
    /// same error.
    #[inline]
    pub fn feed(&mut self, input: &[u8], body: &mut impl BodySink) -> Result<Fed, ReadError> {
        let mut consumed = 0;
        while consumed < input.len() {
            match self.step(&input[consumed..], body) {
                Ok((length, complete)) => {
                    consumed += length;
                    if complete {
                        let response = Some(self.finish());
                        return Ok(Fed { consumed, response });
                    }
                }
                Err(error) => return Err(self.fail(error)),
            }
        }
        let response = None;
        Ok(Fed { consumed, response })
    }

    /// Reports that the peer closed the connection. Returns the response if this close marks the
    /// end of the response, or `None` if no byte of a response had arrived.
    ///
    /// # Errors
    /// Returns a `Truncated…` error if the response is incomplete, or the error that an earlier
    /// call to [`feed`](Self::feed) returned.
    pub fn end(&mut self) -> Result<Option<Response>, ReadError> {
        let error = match self.state {
            State::UntilClose => return Ok(Some(self.finish())),
            State::Head if self.started() => ReadError::TruncatedHead,
            State::Idle | State::Head | State::Closed => {
                self.state = State::Closed;
                return Ok(None);
            }
            State::Length { .. } => ReadError::TruncatedBody,
            State::Chunked(_) | State::Trailers => ReadError::TruncatedChunks,
            State::Failed(error) => error,
        };
        Err(self.fail(error))
    }

    /// Consumes as much input as the current state needs. The input is never empty. Returns the
    /// number of bytes consumed, and whether the response is complete.
    #[inline]
    fn step(&mut self, input: &[u8], body: &mut impl BodySink) -> Result<(usize, bool), ReadError> {
        match &mut self.state {
            State::Head => {
                let (length, head) = self.partial.take::<Head>(input)?;
                let complete = head.map_or(Ok(false), |head| self.begin(head))?;
                Ok((length, complete))
            }
            State::Length { left } => {
                let part =
                    usize::try_from(*left).map_or(input, |left| &input[..left.min(input.len())]);
                body.body(part);
                self.body_bytes += part.len() as u64;
                *left -= part.len() as u64;
                Ok((part.len(), *left == 0))
            }
            State::Chunked(chunks) => {
                let (length, last) = chunks.take(input, |part| {
                    self.body_bytes += part.len() as u64;
                    body.body(part);
                })?;
                if last {
                    self.state = State::Trailers;
                }
                Ok((length, false))
            }
            State::Trailers => {
                let (length, end) = self.partial.take::<Trailers>(input)?;
                Ok((length, end.is_some()))
            }
            State::UntilClose => {
                body.body(input);
                self.body_bytes += input.len() as u64;
                Ok((input.len(), false))
            }
            State::Idle => Err(ReadError::Unsolicited),
            State::Closed => Err(ReadError::DataAfterClose),
            State::Failed(error) => Err(*error),
        }
    }

    /// Prepares the reader for the body that a head describes. Returns whether there is no body.
    #[inline]
    fn begin(&mut self, head: Head) -> Result<bool, ReadError> {
        if head.status < 200 {
            return self.interim(head.status).map(|()| false);
        }
        self.status = head.status;
        // RFC 9112 section 6.3 rule 1: such responses end with their head, regardless of their
        // headers.
        if self.to_head_request || matches!(head.status, 204 | 304) {
            self.keep_alive = head.keep_alive;
            return Ok(true);
        }
        self.keep_alive = head.keep_alive && head.framing != Framing::UntilClose;
        self.state = match head.framing {
            Framing::Length(0) => return Ok(true),
            Framing::Length(left) => State::Length { left },
            Framing::Chunked => State::Chunked(Chunks::default()),
            Framing::UntilClose => State::UntilClose,
        };
        Ok(false)
    }

    #[cold]
    fn interim(&mut self, status: u16) -> Result<(), ReadError> {
        if status == 101 {
            return Err(ReadError::UnexpectedUpgrade);
        }
        if self.interim == MAX_INTERIM {
            return Err(ReadError::TooManyInterim);
        }
        self.interim += 1;
        Ok(())
    }

    #[inline]
    fn finish(&mut self) -> Response {
        self.state = if self.keep_alive {
            State::Idle
        } else {
            State::Closed
        };
        Response {
            status: self.status,
            keep_alive: self.keep_alive,
            body_bytes: self.body_bytes,
        }
    }

    #[cold]
    fn fail(&mut self, error: ReadError) -> ReadError {
        self.partial.clear();
        self.state = State::Failed(error);
        error
    }
}

/// A complete response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// Status code, 100 to 999.
    pub status: u16,
    /// Whether the connection may carry another request (RFC 9112 section 9.3).
    pub keep_alive: bool,
    /// Length of the body in bytes, excluding chunk framing.
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

#[cfg(test)]
mod tests;
