//! The reader of answers: one per connection, fed with whatever the socket gave.

use crate::answer::{Answer, BodySink, Fed};
use crate::chunked::Chunks;
use crate::error::ReadError;
use crate::head::{Framing, Head, Trailers};
use crate::section::Partial;

/// Most interim (1xx) heads before an answer.
pub const MAX_INTERIM: u8 = 16;

/// Reads the answers of one connection from its bytes, in any pieces.
///
/// ```
/// use floodmark_wire::Reader;
///
/// let mut reader = Reader::new();
/// let mut body = Vec::new();
/// reader.expect_answer(false);
/// let fed = reader.feed(b"HTTP/1.1 200 OK\r\nContent-Len", &mut body)?;
/// assert_eq!(fed.answer, None);
/// let fed = reader.feed(b"gth: 5\r\n\r\nhello", &mut body)?;
/// assert_eq!(fed.answer.map(|answer| answer.status), Some(200));
/// assert_eq!(body, b"hello");
/// # Ok::<(), floodmark_wire::ReadError>(())
/// ```
#[derive(Debug, Default)]
pub struct Reader {
    state: State,
    /// A head or trailers split over reads; empty and without memory otherwise.
    partial: Partial,
    body_bytes: u64,
    status: u16,
    keep_alive: bool,
    to_head_request: bool,
    /// 1xx heads seen before the answer.
    interim: u8,
}

#[derive(Debug, Default)]
enum State {
    /// No answer is expected.
    #[default]
    Idle,
    Head,
    Length {
        left: u64,
    },
    Chunked(Chunks),
    Trailers,
    UntilClose,
    /// The last answer said that none follows, or the connection was closed.
    Closed,
    Failed(ReadError),
}

impl Reader {
    /// A reader for a fresh connection.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Says that a request has been sent (`to_head_request`: with HEAD, so that the answer has no body) and prepares
    /// for its answer. To be called once per answer, when the one before is whole; several requests sent ahead are
    /// for the caller to count. Without effect once the connection failed or is to be closed.
    pub fn expect_answer(&mut self, to_head_request: bool) {
        debug_assert!(
            matches!(self.state, State::Idle | State::Closed | State::Failed(_)),
            "the answer before is not whole"
        );
        if let State::Idle = self.state {
            self.state = State::Head;
            self.to_head_request = to_head_request;
            self.interim = 0;
            self.body_bytes = 0;
        }
    }

    /// Whether any byte of the answer under way, a 1xx before it included, has been seen.
    #[must_use]
    pub fn started(&self) -> bool {
        match self.state {
            State::Idle | State::Closed | State::Failed(_) => false,
            State::Head => self.interim > 0 || !self.partial.is_empty(),
            State::Length { .. } | State::Chunked(_) | State::Trailers | State::UntilClose => true,
        }
    }

    /// Takes bytes from the connection and hands the body on. Consumes at most up to the end of one answer; whatever
    /// is left of the input then belongs to the next one, and is to be fed again after
    /// [`expect_answer`](Self::expect_answer).
    ///
    /// # Errors
    /// The bytes are not an answer that can be trusted, or none was due; the same error again on every later call.
    #[inline]
    pub fn feed(&mut self, input: &[u8], body: &mut impl BodySink) -> Result<Fed, ReadError> {
        let mut consumed = 0;
        while consumed < input.len() {
            match self.step(&input[consumed..], body) {
                Ok((length, whole)) => {
                    consumed += length;
                    if whole {
                        let answer = Some(self.finish());
                        return Ok(Fed { consumed, answer });
                    }
                }
                Err(error) => return Err(self.fail(error)),
            }
        }
        let answer = None;
        Ok(Fed { consumed, answer })
    }

    /// Says that the peer has closed the connection. The answer, if its end was marked by that; `None` if nothing of an
    /// answer had come.
    ///
    /// # Errors
    /// `Truncated…` within an answer, and the error of an earlier [`feed`](Self::feed) again.
    pub fn end(&mut self) -> Result<Option<Answer>, ReadError> {
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

    /// One state's share of the input (never empty): how much of it, and whether the answer is whole.
    #[inline]
    fn step(&mut self, input: &[u8], body: &mut impl BodySink) -> Result<(usize, bool), ReadError> {
        match &mut self.state {
            State::Head => {
                let (length, head) = self.partial.take::<Head>(input)?;
                let whole = head.map_or(Ok(false), |head| self.begin(head))?;
                Ok((length, whole))
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

    /// Turns to the body that a head announces; whether there is none.
    #[inline]
    fn begin(&mut self, head: Head) -> Result<bool, ReadError> {
        if head.status < 200 {
            return self.interim(head.status).map(|()| false);
        }
        self.status = head.status;
        // RFC 9112 section 6.3 rule 1: these end with their head, whatever it says of a body.
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
    fn finish(&mut self) -> Answer {
        self.state = if self.keep_alive {
            State::Idle
        } else {
            State::Closed
        };
        Answer {
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

#[cfg(test)]
mod tests;
