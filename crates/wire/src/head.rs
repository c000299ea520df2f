//! The sections of a response: the head (status line and headers) and the trailers after a chunked
//! body. Three of the headers determine the framing.
//!
//! A section consists of lines of text and ends with an empty line. A section that arrives in one
//! piece is parsed in place. Other sections are collected in a buffer.

use std::mem::MaybeUninit;

use httparse::{ParserConfig, Response, Status};

use crate::error::ReadError;

/// Maximum length of a body or chunk, in bytes. A larger length can only be an error: a client that
/// waited for such a body would time out.
pub(crate) const MAX_LENGTH: u64 = 1 << 60;

/// Maximum size of a head or a trailer section, in bytes.
pub const MAX_SECTION_BYTES: usize = 64 * 1024;

/// Maximum number of headers or trailers, equal to hyper's default.
pub const MAX_HEADERS: usize = 100;

/// A kind of section.
pub(crate) trait Section {
    /// The content of a complete section.
    type Parsed;
    /// The error for a section that does not end within [`MAX_SECTION_BYTES`].
    const TOO_LARGE: ReadError;

    /// Checks the first few bytes of a section before its first line is complete.
    fn start(bytes: &[u8]) -> Result<(), ReadError>;
    /// Parses a section at the start of `bytes`.
    /// Returns the section's length and content, or `None` if the section is incomplete.
    fn parse(bytes: &[u8]) -> Result<Option<(usize, Self::Parsed)>, ReadError>;
}

/// The part of a section that has arrived. It is kept only if the section spans several reads.
#[derive(Debug, Default)]
pub(crate) struct Partial {
    bytes: Vec<u8>,
}

impl Partial {
    /// Number of bytes at the start of a section that [`Section::start`] checks.
    const START: usize = 8;

    /// Returns whether no section is in progress.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Frees the memory.
    pub fn clear(&mut self) {
        self.bytes = Vec::new();
    }

    /// Reads the next bytes of a section.
    /// Returns the number of bytes consumed, and the content once the section is complete.
    #[inline]
    pub fn take<S: Section>(
        &mut self,
        input: &[u8],
    ) -> Result<(usize, Option<S::Parsed>), ReadError> {
        if self.is_empty() {
            let window = &input[..input.len().min(MAX_SECTION_BYTES)];
            S::start(window)?;
            if let Ok(Some((length, parsed))) = S::parse(window) {
                return Ok((length, Some(parsed)));
            }
        }
        self.append::<S>(input)
    }

    #[cold]
    fn append<S: Section>(
        &mut self,
        input: &[u8],
    ) -> Result<(usize, Option<S::Parsed>), ReadError> {
        let had = self.bytes.len();
        let more = &input[..input.len().min(MAX_SECTION_BYTES - had)];
        self.bytes.extend_from_slice(more);
        if had < Self::START {
            S::start(&self.bytes)?;
        }
        // Check only complete lines, so that the result does not depend on how reads were split.
        // One check per complete line also limits the work on a head that arrives byte by byte.
        if let Some(newline) = more.iter().rposition(|&b| b == b'\n')
            && let Some((length, parsed)) = S::parse(&self.bytes[..had + newline + 1])?
        {
            self.clear();
            return Ok((length - had, Some(parsed)));
        }
        if self.bytes.len() == MAX_SECTION_BYTES {
            return Err(S::TOO_LARGE);
        }
        Ok((more.len(), None))
    }
}

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
            return other_protocol(bytes);
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

/// Returns the error for a response that does not start with `HTTP/`. Bytes that may become the
/// start of a known protocol are not yet an error.
#[cold]
fn other_protocol(bytes: &[u8]) -> Result<(), ReadError> {
    // Record type `alert`, and the major version of all TLS versions (RFC 8446, section 5.1).
    const ALERT: [Option<u8>; 2] = [Some(21), Some(3)];
    // A short SETTINGS frame: length (a multiple of 6), type, no flags, stream 0 (RFC 9113, sections
    // 4.1 and 6.5.1). No start of it contains a line feed, which would complete a line.
    const SETTINGS: [Option<u8>; 8] = {
        const ZERO: Option<u8> = Some(0);
        [ZERO, ZERO, None, Some(4), ZERO, ZERO, ZERO, ZERO]
    };
    let is_start = |(byte, expected): (&u8, &Option<u8>)| match expected {
        Some(expected) => byte == expected,
        None => byte % 6 == 0,
    };
    for (pattern, error) in [(&ALERT[..], ReadError::Tls), (&SETTINGS, ReadError::Http2)] {
        if bytes.iter().zip(pattern).all(is_start) {
            let is_complete = bytes.len() >= pattern.len();
            return if is_complete { Err(error) } else { Ok(()) };
        }
    }
    Err(ReadError::NotHttp)
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

/// The framing headers of one head, collected header by header.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    pub length: Option<u64>,
    pub chunked: bool,
    /// Whether `close` is among the `Connection` options.
    pub close: bool,
    /// Whether `keep-alive` is among the `Connection` options.
    pub keep_alive: bool,
}

impl Fields {
    /// Reads one header of any name.
    #[inline]
    pub fn take(&mut self, name: &str, value: &[u8]) -> Result<(), ReadError> {
        // Comparing the length and the first letter excludes nearly all headers before names are
        // compared.
        match (name.len(), name.as_bytes()[0] | 0x20) {
            (10, b'c') if name.eq_ignore_ascii_case("connection") => self.connection(value),
            (14, b'c') if name.eq_ignore_ascii_case("content-length") => {
                return self.content_length(value);
            }
            (17, b't') if name.eq_ignore_ascii_case("transfer-encoding") => {
                return self.transfer_encoding(value);
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads a list of options (RFC 9110 section 7.6.1), which may span several lines.
    #[inline]
    fn connection(&mut self, value: &[u8]) {
        // This is the most common spelling.
        if value == b"keep-alive" {
            self.keep_alive = true;
            return;
        }
        for option in value.split(|&b| b == b',') {
            let option = option.trim_ascii();
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// Reads a decimal number, which may be repeated on one or several lines if all copies are
    /// equal. RFC 9112 section 6.3 rule 5 allows this, because some intermediaries merge or copy
    /// the line.
    pub(crate) fn content_length(&mut self, value: &[u8]) -> Result<(), ReadError> {
        for one in value.split(|&b| b == b',') {
            let length = decimal(one.trim_ascii()).filter(|length| *length <= MAX_LENGTH);
            let length = length.ok_or(ReadError::GarbageContentLength)?;
            if self.length.replace(length).is_some_and(|l| l != length) {
                return Err(ReadError::ConflictingContentLength);
            }
        }
        Ok(())
    }

    /// Accepts only `chunked`, once.
    ///
    /// floodmark sends no `TE` header, so a server may use only `chunked` (RFC 9112 section 7.4).
    /// `chunked` must not be applied twice (section 6.1).
    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), ReadError> {
        if self.chunked || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
            return Err(ReadError::UnsupportedTransferCoding);
        }
        self.chunked = true;
        Ok(())
    }
}

/// Parses `1*DIGIT`: a decimal number without a sign or white space. Returns `None` for any other
/// text, or if the number overflows.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |n, &b| {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        n.checked_mul(10)?.checked_add(u64::from(digit))
    })
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
            (b"\x15\x03\x03", Err(ReadError::Tls)),
            (b"\x16\x03\x03", Err(ReadError::NotHttp)),
            (b"\0\0\x12\x04\0\0\0\0\0", Err(ReadError::Http2)),
            (b"\0\0\x12\x04", Ok(())),
            (b"\0\0\n", Err(ReadError::NotHttp)),
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

    fn of(lines: &[(&str, &str)]) -> Result<Fields, ReadError> {
        let mut fields = Fields::default();
        for (name, value) in lines {
            fields.take(name, value.as_bytes())?;
        }
        Ok(fields)
    }

    fn length(values: &[&str]) -> Result<Option<u64>, ReadError> {
        let lines: Vec<_> = values.iter().map(|v| ("Content-Length", *v)).collect();
        of(&lines).map(|f| f.length)
    }

    #[test]
    fn parses_content_lengths() {
        assert_eq!(length(&["0"]), Ok(Some(0)));
        assert_eq!(length(&["00042"]), Ok(Some(42)));
        let longest = MAX_LENGTH.to_string();
        assert_eq!(length(&[&longest]), Ok(Some(MAX_LENGTH)));
        assert_eq!(length(&["5", "5"]), Ok(Some(5)));
        assert_eq!(length(&["5, 5,5"]), Ok(Some(5)));
        for garbage in [
            "",
            "1152921504606846977",
            "+5",
            "-5",
            "5 5",
            "5,",
            ",5",
            "0x5",
            "5.0",
            "five",
            "18446744073709551616",
            "٥",
        ] {
            assert_eq!(
                length(&[garbage]),
                Err(ReadError::GarbageContentLength),
                "{garbage:?}"
            );
        }
        for conflict in [&["5", "6"][..], &["5, 6"], &["5,5", "6"]] {
            assert_eq!(length(conflict), Err(ReadError::ConflictingContentLength));
        }
    }

    #[test]
    fn accepts_only_the_chunked_transfer_coding() {
        assert!(of(&[("transfer-encoding", "chunked")]).unwrap().chunked);
        assert!(of(&[("Transfer-Encoding", "Chunked")]).unwrap().chunked);
        for bad in [
            "",
            "gzip",
            "chunked, gzip",
            "gzip, chunked",
            "chunked, chunked",
            "chunked;q=1",
            "identity",
        ] {
            assert_eq!(
                of(&[("Transfer-Encoding", bad)]),
                Err(ReadError::UnsupportedTransferCoding),
                "{bad:?}"
            );
        }
        let twice = [("Transfer-Encoding", "chunked"); 2];
        assert_eq!(of(&twice), Err(ReadError::UnsupportedTransferCoding));
    }

    #[test]
    fn connection_options_are_lists() {
        let fields = of(&[("CONNECTION", "foo, Close ,bar")]).unwrap();
        assert!(fields.close && !fields.keep_alive);
        let fields = of(&[("Connection", "Keep-Alive"), ("connection", "closed")]).unwrap();
        assert!(fields.keep_alive && !fields.close);
    }

    #[test]
    fn ignores_headers_with_similar_names() {
        let same = [
            ("Content-MD5", "x"),
            ("Cookie-Set", "close"),
            ("Content-Length2", "x"),
            ("Content-Lengtx", "x"),
        ];
        assert_eq!(of(&same), Ok(Fields::default()));
    }

    #[test]
    fn allocates_only_for_a_split_head() {
        let head = b"HTTP/1.1 204 No Content\r\nA: b\r\n\r\n";
        let mut partial = Partial::default();
        let (consumed, whole) = partial.take::<Head>(head).unwrap();
        assert!(consumed == head.len() && whole.is_some());
        assert_eq!(partial.bytes.capacity(), 0);

        let (consumed, whole) = partial.take::<Head>(&head[..30]).unwrap();
        assert!(consumed == 30 && whole.is_none());
        assert_eq!(partial.bytes, head[..30]);
        let (consumed, whole) = partial.take::<Head>(&head[30..]).unwrap();
        assert!(consumed == head.len() - 30 && whole.is_some());
        assert_eq!(partial.bytes.capacity(), 0);
    }
}
