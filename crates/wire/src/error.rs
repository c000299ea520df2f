//! Why bytes of a server were refused.

use crate::chunked::{MAX_EXTENSION_BYTES, MAX_SIZE_DIGITS};
use crate::reader::MAX_INTERIM;
use crate::section::{MAX_HEADERS, MAX_SECTION_BYTES};

/// Why an answer was refused. After any of these the connection is of no further use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The first bytes are not `HTTP/`.
    #[error(
        "not HTTP: the answer does not begin with \"HTTP/\"; is another protocol (TLS?) spoken on this port?"
    )]
    NotHttp,
    /// A version other than 1.0 and 1.1.
    #[error("illegal HTTP version: an answer must begin with \"HTTP/1.1 \" or \"HTTP/1.0 \"")]
    IllegalVersion,
    /// The status is not three digits from 100 on, or the reason holds a control character.
    #[error(
        "illegal status line: the status must be three digits from 100 on, the reason free of control characters"
    )]
    IllegalStatus,
    /// A header line that is none: no colon, or an illegal byte in a name, value or line end.
    #[error("garbage in the headers: a line that is not \"name: value\" or holds an illegal byte")]
    GarbageHeader,
    /// A header continued on a line that begins with white space (RFC 9112 section 5.2).
    #[error("a header is continued on the next line (line folding), which HTTP/1.1 forbids")]
    ObsoleteFolding,
    /// More than [`MAX_HEADERS`] headers, or as many trailers.
    #[error("more than {MAX_HEADERS} headers")]
    TooManyHeaders,
    /// Status line and headers over [`MAX_SECTION_BYTES`].
    #[error("the head (status line and headers) is longer than {MAX_SECTION_BYTES} bytes")]
    HeadTooLarge,
    /// A `Content-Length` that is not a decimal number of 64 bits.
    #[error("Content-Length is not a plain decimal number below 2^64")]
    GarbageContentLength,
    /// Several `Content-Length` that differ.
    #[error("several Content-Length values that differ")]
    ConflictingContentLength,
    /// `Content-Length` together with `Transfer-Encoding`: the body has two ends, as in response splitting.
    #[error("both Content-Length and Transfer-Encoding: where the body ends is ambiguous")]
    LengthAndTransferEncoding,
    /// A `Transfer-Encoding` other than exactly `chunked`.
    #[error(
        "unsupported Transfer-Encoding: only \"chunked\" alone is, none other was offered in the request"
    )]
    UnsupportedTransferCoding,
    /// `Transfer-Encoding` in an answer of HTTP/1.0 (RFC 9112 section 6.1: its framing is faulty).
    #[error("Transfer-Encoding in an HTTP/1.0 answer: its framing cannot be trusted")]
    TransferEncodingInHttp10,
    /// `101 Switching Protocols`.
    #[error("the server switches protocols (101); do not send an Upgrade header")]
    UnexpectedUpgrade,
    /// More than [`MAX_INTERIM`] 1xx before the answer.
    #[error("more than {MAX_INTERIM} interim (1xx) heads before the answer")]
    TooManyInterim,
    /// A chunk-size line that is none.
    #[error(
        "garbage in a chunk-size line: it must be hexadecimal digits, an optional extension, CR LF"
    )]
    GarbageChunkSize,
    /// A chunk size of more than 16 hexadecimal digits.
    #[error("a chunk size has more than {MAX_SIZE_DIGITS} hexadecimal digits")]
    ChunkSizeOverflow,
    /// Chunk extensions of one body over 16 KiB.
    #[error("the chunk extensions of one body are longer than {MAX_EXTENSION_BYTES} bytes")]
    ChunkExtensionsTooLarge,
    /// No CR LF after the data of a chunk.
    #[error(
        "no CR LF after the data of a chunk: the chunk is longer or shorter than its size says"
    )]
    GarbageChunkEnd,
    /// A trailer that is no header line, or does not end in CR LF.
    #[error("garbage in the trailers: a line that is not \"name: value\" ended by CR LF")]
    GarbageTrailer,
    /// Trailers over [`MAX_SECTION_BYTES`].
    #[error("the trailers are longer than {MAX_SECTION_BYTES} bytes")]
    TrailersTooLarge,
    /// The connection was closed within a head.
    #[error("the connection was closed within the head of an answer")]
    TruncatedHead,
    /// The connection was closed before the body had its `Content-Length`.
    #[error("the connection was closed before the whole Content-Length had come")]
    TruncatedBody,
    /// The connection was closed within a chunked body or its trailers.
    #[error("the connection was closed before the last chunk and the end of its trailers")]
    TruncatedChunks,
    /// Bytes after an answer that said the connection would be closed.
    #[error("bytes after an answer that said the connection would be closed")]
    DataAfterClose,
    /// Bytes while no answer was expected.
    #[error(
        "bytes from the server while no answer was expected: a body longer than its length, or one answer too many"
    )]
    Unsolicited,
}

impl ReadError {
    /// Every reason.
    pub const ALL: [ReadError; 25] = [
        Self::NotHttp,
        Self::IllegalVersion,
        Self::IllegalStatus,
        Self::GarbageHeader,
        Self::ObsoleteFolding,
        Self::TooManyHeaders,
        Self::HeadTooLarge,
        Self::GarbageContentLength,
        Self::ConflictingContentLength,
        Self::LengthAndTransferEncoding,
        Self::UnsupportedTransferCoding,
        Self::TransferEncodingInHttp10,
        Self::UnexpectedUpgrade,
        Self::TooManyInterim,
        Self::GarbageChunkSize,
        Self::ChunkSizeOverflow,
        Self::ChunkExtensionsTooLarge,
        Self::GarbageChunkEnd,
        Self::GarbageTrailer,
        Self::TrailersTooLarge,
        Self::TruncatedHead,
        Self::TruncatedBody,
        Self::TruncatedChunks,
        Self::DataAfterClose,
        Self::Unsolicited,
    ];

    /// The stable id under which the reason is counted.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotHttp => "not_http",
            Self::IllegalVersion => "illegal_version",
            Self::IllegalStatus => "illegal_status",
            Self::GarbageHeader => "garbage_header",
            Self::ObsoleteFolding => "obsolete_folding",
            Self::TooManyHeaders => "too_many_headers",
            Self::HeadTooLarge => "head_too_large",
            Self::GarbageContentLength => "garbage_content_length",
            Self::ConflictingContentLength => "conflicting_content_length",
            Self::LengthAndTransferEncoding => "length_and_transfer_encoding",
            Self::UnsupportedTransferCoding => "unsupported_transfer_coding",
            Self::TransferEncodingInHttp10 => "transfer_encoding_in_http10",
            Self::UnexpectedUpgrade => "unexpected_upgrade",
            Self::TooManyInterim => "too_many_interim",
            Self::GarbageChunkSize => "garbage_chunk_size",
            Self::ChunkSizeOverflow => "chunk_size_overflow",
            Self::ChunkExtensionsTooLarge => "chunk_extensions_too_large",
            Self::GarbageChunkEnd => "garbage_chunk_end",
            Self::GarbageTrailer => "garbage_trailer",
            Self::TrailersTooLarge => "trailers_too_large",
            Self::TruncatedHead => "truncated_head",
            Self::TruncatedBody => "truncated_body",
            Self::TruncatedChunks => "truncated_chunks",
            Self::DataAfterClose => "data_after_close",
            Self::Unsolicited => "unsolicited",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_snake_case() {
        let mut names: Vec<_> = ReadError::ALL.iter().map(ReadError::name).collect();
        for name in &names {
            assert!(
                name.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                "{name}"
            );
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ReadError::ALL.len());
    }
}
