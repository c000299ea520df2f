//! Reasons for rejecting bytes from a server.

use strum::{EnumString, IntoStaticStr};

use crate::chunked::{MAX_EXTENSION_BYTES, MAX_SIZE_DIGITS};
use crate::head::{MAX_HEADERS, MAX_SECTION_BYTES};
use crate::reader::MAX_INTERIM;

/// Reason for rejecting a response. The connection cannot be used afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, EnumString, IntoStaticStr)]
#[cfg_attr(test, derive(strum::VariantNames))]
#[strum(serialize_all = "snake_case")]
pub enum ReadError {
    /// The first bytes are not `HTTP/`.
    #[error("the response is not HTTP/1.1: it does not start with \"HTTP/\"")]
    NotHttp,
    /// The first bytes are a TLS alert, which servers send in response to plain HTTP.
    #[error("the server speaks TLS, but the request was plain HTTP")]
    Tls,
    /// The first bytes are an HTTP/2 SETTINGS frame.
    #[error("the server speaks HTTP/2, but the request was HTTP/1.1")]
    Http2,
    /// The version is neither 1.0 nor 1.1.
    #[error("illegal HTTP version: a response must start with \"HTTP/1.1 \" or \"HTTP/1.0 \"")]
    IllegalVersion,
    /// The status is not three digits from 100 to 999, or the reason phrase contains a control
    /// character.
    #[error(
        "illegal status line: the status must be three digits from 100 to 999, and the reason phrase must not contain control characters"
    )]
    IllegalStatus,
    /// A header line has no colon, or contains an illegal byte in its name, value or line ending.
    #[error("malformed header: a line is not \"name: value\" or contains an illegal byte")]
    GarbageHeader,
    /// A header continues on a line that starts with white space (RFC 9112 section 5.2).
    #[error("a header is continued on the next line (line folding), which HTTP/1.1 forbids")]
    ObsoleteFolding,
    /// There are more than [`MAX_HEADERS`] headers or trailers.
    #[error("the response has more than {MAX_HEADERS} headers, the maximum that floodmark accepts")]
    TooManyHeaders,
    /// The status line and headers exceed [`MAX_SECTION_BYTES`].
    #[error(
        "the head of the response (status line and headers) is longer than {MAX_SECTION_BYTES} bytes, the maximum that \
         floodmark accepts"
    )]
    HeadTooLarge,
    /// A `Content-Length` is not a decimal number of at most 2^60.
    #[error("Content-Length is not a plain decimal number of at most 2^60 (RFC 9110 section 8.6)")]
    GarbageContentLength,
    /// There are several `Content-Length` values, and they differ.
    #[error("the response has different Content-Length values (RFC 9112 section 6.3)")]
    ConflictingContentLength,
    /// Both `Content-Length` and `Transfer-Encoding` are present. The end of the body is then
    /// ambiguous, which enables response splitting.
    #[error(
        "the response has both Content-Length and Transfer-Encoding, so the end of its body is ambiguous (RFC 9112 \
         section 6.3)"
    )]
    LengthAndTransferEncoding,
    /// A `Transfer-Encoding` is not exactly `chunked`.
    #[error(
        "unsupported Transfer-Encoding: only \"chunked\" is allowed, because the request offered no other coding"
    )]
    UnsupportedTransferCoding,
    /// An HTTP/1.0 response has a `Transfer-Encoding` (RFC 9112 section 6.1).
    #[error("an HTTP/1.0 response has a Transfer-Encoding, so its framing cannot be trusted")]
    TransferEncodingInHttp10,
    /// The server sent `101 Switching Protocols`.
    #[error("the server switches protocols (101); do not send an Upgrade header")]
    UnexpectedUpgrade,
    /// More than [`MAX_INTERIM`] 1xx responses came before the final response.
    #[error("more than {MAX_INTERIM} interim (1xx) responses before the final response")]
    TooManyInterim,
    /// A chunk-size line is malformed.
    #[error(
        "malformed chunk-size line: expected hexadecimal digits, an optional extension and CR LF"
    )]
    GarbageChunkSize,
    /// A chunk size has more than 16 hexadecimal digits, or exceeds 2^60 bytes.
    #[error(
        "a chunk size exceeds 2^60 bytes or has more than {MAX_SIZE_DIGITS} hexadecimal digits"
    )]
    ChunkSizeOverflow,
    /// The chunk extensions of one body exceed 16 KiB.
    #[error(
        "the chunk extensions of one body are longer than {MAX_EXTENSION_BYTES} bytes, the maximum that floodmark accepts"
    )]
    ChunkExtensionsTooLarge,
    /// The data of a chunk is not followed by CR LF.
    #[error(
        "no CR LF after the data of a chunk: the data is longer or shorter than the chunk size"
    )]
    GarbageChunkEnd,
    /// A trailer is not a header line, or does not end in CR LF.
    #[error("malformed trailer: a line is not \"name: value\" followed by CR LF")]
    GarbageTrailer,
    /// The trailers exceed [`MAX_SECTION_BYTES`].
    #[error(
        "the trailers are longer than {MAX_SECTION_BYTES} bytes, the maximum that floodmark accepts"
    )]
    TrailersTooLarge,
    /// The connection was closed before the whole head of a response arrived.
    #[error("the connection was closed before the whole response head arrived")]
    TruncatedHead,
    /// The connection was closed before the body reached the length in `Content-Length`.
    #[error("the connection was closed before the whole body (Content-Length) arrived")]
    TruncatedBody,
    /// The connection was closed within a chunked body or its trailers.
    #[error("the connection was closed within a chunked body or its trailers")]
    TruncatedChunks,
    /// The timeout ended a response without a length: its head has neither `Content-Length` nor
    /// `Transfer-Encoding`, so its body ends when the connection is closed (RFC 9112 section 6.3).
    #[error(
        "the response has neither Content-Length nor chunked encoding, so it ends when the server closes the connection, \
         but the connection stayed open (RFC 9112 section 6.3)"
    )]
    UnknownLength,
    /// Bytes arrived after a response with `Connection: close`, or after an HTTP/1.0 response
    /// without `Connection: keep-alive`.
    #[error(
        "the server sent bytes after a response that ended the connection (Connection: close, or HTTP/1.0 without keep-alive)"
    )]
    DataAfterClose,
    /// Bytes arrived while no response was expected.
    #[error(
        "unexpected bytes from the server: the body is longer than its Content-Length, or there is an extra response"
    )]
    Unsolicited,
}

impl ReadError {
    /// Returns the stable name under which responses rejected for this reason are counted.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Returns the error with this name, if there is one.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// Returns whether the first bytes show that the server does not speak HTTP/1.1.
    #[must_use]
    pub fn is_other_protocol(self) -> bool {
        matches!(self, Self::NotHttp | Self::Tls | Self::Http2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_snake_case() {
        assert_eq!(ReadError::NotHttp.name(), "not_http");
        assert_eq!(
            ReadError::TransferEncodingInHttp10.name(),
            "transfer_encoding_in_http10"
        );
        let error = ReadError::UnknownLength;
        assert_eq!(ReadError::named(error.name()), Some(error));
        assert_eq!(ReadError::named("connect_refused"), None);
    }
}
