//! The status line and headers of a response, and the trailers after a chunked body.

use std::mem::MaybeUninit;

use httparse::{ParserConfig, Response, Status};

use crate::error::ReadError;
use crate::fields::Fields;
use crate::section::{MAX_HEADERS, Section};

/// The rule that determines the end of a body (RFC 9112 section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// The body ends after this many bytes.
    Length(u64),
    /// The body ends after the last chunk.
    Chunked,
    /// The body ends when the connection is closed.
    UntilClose,
}

/// The parts of a head that the reader needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub status: u16,
    /// Whether the HTTP version and the `Connection` header allow another request. The framing may
    /// still rule out another request.
    pub keep_alive: bool,
    pub framing: Framing,
}

impl Section for Head {
    type Parsed = Head;
    const TOO_LARGE: ReadError = ReadError::HeadTooLarge;

    #[inline]
    fn start(bytes: &[u8]) -> Result<(), ReadError> {
        const START: [u8; 7] = *b"HTTP/1.";
        if bytes.starts_with(&START) && matches!(bytes.get(7), None | Some(b'0' | b'1')) {
            return Ok(());
        }
        let name = &bytes[..bytes.len().min(5)];
        if name != &START[..name.len()] {
            return Err(ReadError::NotHttp);
        }
        if START.starts_with(bytes) {
            return Ok(());
        }
        Err(ReadError::IllegalVersion)
    }

    // This function is inlined, because returning the result through memory would account for a
    // tenth of the cost of reading a response.
    #[inline(always)]
    fn parse(bytes: &[u8]) -> Result<Option<(usize, Head)>, ReadError> {
        let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut response = Response::new(&mut []);
        let length = match ParserConfig::default().parse_response_with_uninit_headers(
            &mut response,
            bytes,
            &mut headers,
        ) {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) => return Ok(None),
            Err(error) => return Err(head_error(error, bytes)),
        };
        let status = match response.code {
            Some(status) if status >= 100 => status,
            _ => return Err(ReadError::IllegalStatus),
        };
        let http11 = response.version == Some(1);

        let mut fields = Fields::default();
        for header in response.headers.iter() {
            fields.take(header.name, header.value)?;
        }
        let framing = match (fields.chunked, fields.length) {
            (true, Some(_)) => return Err(ReadError::LengthAndTransferEncoding),
            (true, None) if !http11 => return Err(ReadError::TransferEncodingInHttp10),
            (true, None) => Framing::Chunked,
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::UntilClose,
        };
        // RFC 9112 section 9.3: `close` takes precedence. HTTP/1.1 connections persist by default.
        // HTTP/1.0 connections persist only with `keep-alive`.
        let keep_alive = !fields.close && (http11 || fields.keep_alive);
        let head = Head {
            status,
            keep_alive,
            framing,
        };
        Ok(Some((length, head)))
    }
}

#[cold]
fn head_error(error: httparse::Error, bytes: &[u8]) -> ReadError {
    match error {
        httparse::Error::Version => ReadError::IllegalVersion,
        httparse::Error::Status => ReadError::IllegalStatus,
        httparse::Error::TooManyHeaders => ReadError::TooManyHeaders,
        _ if folded(bytes, |whole| Head::parse(whole).is_ok()) => ReadError::ObsoleteFolding,
        _ => ReadError::GarbageHeader,
    }
}

/// Returns whether a section is illegal only because a line starts with white space.
/// Only the first such line is considered.
fn folded(bytes: &[u8], fine: impl Fn(&[u8]) -> bool) -> bool {
    bytes
        .windows(2)
        .position(|w| w[0] == b'\n' && matches!(w[1], b' ' | b'\t'))
        .is_some_and(|newline| fine(&bytes[..=newline]))
}

/// The trailer section. Its syntax is checked, and its content is discarded.
pub(crate) struct Trailers;

impl Section for Trailers {
    type Parsed = ();
    const TOO_LARGE: ReadError = ReadError::TrailersTooLarge;

    #[inline]
    fn start(_bytes: &[u8]) -> Result<(), ReadError> {
        Ok(())
    }

    #[inline]
    fn parse(bytes: &[u8]) -> Result<Option<(usize, ())>, ReadError> {
        if bytes.starts_with(b"\r\n") {
            return Ok(Some((2, ())));
        }
        parse_trailers(bytes)
    }
}

#[cold]
fn parse_trailers(bytes: &[u8]) -> Result<Option<(usize, ())>, ReadError> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    match httparse::parse_headers(bytes, &mut headers) {
        Ok(Status::Partial) => Ok(None),
        // httparse accepts a lone LF as a line ending, which RFC 9112 allows in a head. The chunked
        // coding (section 7.1) does not allow a lone LF. Readers that disagree about the end of a
        // body enable attacks.
        Ok(Status::Complete((length, _))) if lone_lf(&bytes[..length]) => {
            Err(ReadError::GarbageTrailer)
        }
        Ok(Status::Complete((length, _))) => Ok(Some((length, ()))),
        Err(httparse::Error::TooManyHeaders) => Err(ReadError::TooManyHeaders),
        Err(_) if folded(bytes, |whole| parse_trailers(whole).is_ok()) => {
            Err(ReadError::ObsoleteFolding)
        }
        Err(_) => Err(ReadError::GarbageTrailer),
    }
}

fn lone_lf(bytes: &[u8]) -> bool {
    (0..bytes.len()).any(|i| bytes[i] == b'\n' && (i == 0 || bytes[i - 1] != b'\r'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Option<Head>, ReadError> {
        Head::parse(text.as_bytes()).map(|parsed| parsed.map(|(_, head)| head))
    }

    #[test]
    fn keep_alive_follows_version_and_connection() {
        for (head_text, expected) in [
            ("HTTP/1.1 200 OK\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", false),
            (
                "HTTP/1.1 200 OK\r\nConnection: keep-alive, close\r\n\r\n",
                false,
            ),
            ("HTTP/1.0 200 OK\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n\r\n", true),
        ] {
            let parsed = head(head_text).unwrap().unwrap();
            assert_eq!(parsed.keep_alive, expected, "{head_text:?}");
        }
    }

    #[test]
    fn lone_lf_ends_a_head_line() {
        let parsed = head("HTTP/1.1 200\nContent-Length: 3\n\n")
            .unwrap()
            .unwrap();
        assert_eq!(parsed.framing, Framing::Length(3));
    }

    #[test]
    fn rejects_non_http_at_the_first_bytes() {
        for (bytes, expected) in [
            (&b"H"[..], Ok(())),
            (b"HTTP/", Ok(())),
            (b"HTTP/1.1", Ok(())),
            (b"\x15\x03\x03", Err(ReadError::NotHttp)),
            (b"\r\nHTTP/1.1 200", Err(ReadError::NotHttp)),
            (b"http/1.1", Err(ReadError::NotHttp)),
            (b"HTTPS", Err(ReadError::NotHttp)),
            (b"HTTP/2", Err(ReadError::IllegalVersion)),
            (b"HTTP/1.2", Err(ReadError::IllegalVersion)),
            (b"HTTP/11", Err(ReadError::IllegalVersion)),
        ] {
            assert_eq!(Head::start(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn trailers_end_in_cr_lf() {
        let parse = |text: &str| Trailers::parse(text.as_bytes()).map(|p| p.map(|(n, ())| n));
        assert_eq!(parse("\r\nrest"), Ok(Some(2)));
        assert_eq!(parse("A: b\r\nC: d\r\n\r\nrest"), Ok(Some(14)));
        assert_eq!(parse("A: b\r\n"), Ok(None));
        assert_eq!(parse("A: b\n\r\n"), Err(ReadError::GarbageTrailer));
        assert_eq!(parse("\n"), Err(ReadError::GarbageTrailer));
        assert_eq!(parse("A b\r\n"), Err(ReadError::GarbageTrailer));
        assert_eq!(parse("A: b\r\n c\r\n\r\n"), Err(ReadError::ObsoleteFolding));
    }
}
