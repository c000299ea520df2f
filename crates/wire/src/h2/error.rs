//! Error codes of HTTP/2, and reasons for rejecting frames and responses from a server.

use strum::{EnumString, IntoStaticStr};

use super::hpack::HpackError;
use super::session::{MAX_CONTINUATIONS, MAX_OUTPUT_BYTES};
use crate::head::MAX_SECTION_BYTES;
use crate::reader::MAX_INTERIM;

/// Error code in RST_STREAM and GOAWAY frames (RFC 9113 section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// No error: a graceful shutdown.
    pub const NO_ERROR: Self = Self(0x0);
    /// A violation of the protocol without a more specific code.
    pub const PROTOCOL_ERROR: Self = Self(0x1);
    /// An internal error of the server.
    pub const INTERNAL_ERROR: Self = Self(0x2);
    /// More data than the flow-control window allows.
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    /// A frame on a stream that is closed.
    pub const STREAM_CLOSED: Self = Self(0x5);
    /// A frame with an invalid length.
    pub const FRAME_SIZE_ERROR: Self = Self(0x6);
    /// The server did not process the request. It may be sent again (section 8.7).
    pub const REFUSED_STREAM: Self = Self(0x7);
    /// The stream is no longer needed.
    pub const CANCEL: Self = Self(0x8);
    /// A field block that cannot be decompressed.
    pub const COMPRESSION_ERROR: Self = Self(0x9);
    /// Behavior that may cause excessive load.
    pub const ENHANCE_YOUR_CALM: Self = Self(0xb);
    /// The server answers this request only over HTTP/1.1.
    pub const HTTP_1_1_REQUIRED: Self = Self(0xd);

    /// Returns the name in the RFC, or `None` for an unknown code.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        NAMES.get(self.0 as usize).copied()
    }

    /// Returns the code with this name in the RFC, if there is one.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let code = NAMES.iter().position(|of_code| *of_code == name)?;
        Some(Self(code as u32))
    }
}

/// Names of the error codes, starting at 0 (RFC 9113 section 7).
const NAMES: [&str; 14] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

/// Reason for rejecting the bytes on a connection. The connection cannot be used afterwards.
///
/// Where the RFC requires only a stream error for an invalid frame, this client reports a
/// connection error (RFC 9113 section 5.4.1 allows this).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, EnumString, IntoStaticStr)]
#[cfg_attr(test, derive(strum::VariantNames))]
#[strum(serialize_all = "snake_case")]
pub enum ConnectionError {
    /// The first bytes are `HTTP/`.
    #[error("the server speaks HTTP/1.1, but the connection uses HTTP/2")]
    Http1,
    /// The first frame is not SETTINGS (RFC 9113 section 3.4).
    #[error("the server does not speak HTTP/2: its first frame is not SETTINGS")]
    NoSettings,
    /// A frame exceeds the maximum frame size, or its length does not match its type (RFC 9113
    /// sections 4.2 and 6).
    #[error("a frame has an invalid length (RFC 9113 section 4.2)")]
    FrameSize,
    /// A frame that refers to a stream has stream 0, or a frame that refers to the connection has
    /// another stream (RFC 9113 section 6).
    #[error("a frame of this type is not allowed on this stream (RFC 9113 section 6)")]
    FrameStream,
    /// The padding is longer than the frame (RFC 9113 sections 6.1 and 6.2).
    #[error("the padding of a frame is longer than the frame (RFC 9113 section 6.1)")]
    Padding,
    /// A frame refers to a stream that no request opened (RFC 9113 section 5.1).
    #[error("a frame refers to a stream that is not open yet (RFC 9113 section 5.1)")]
    IdleStream,
    /// A frame refers to a stream that the server has ended (RFC 9113 section 5.1).
    #[error("a frame arrived after the server ended its stream (RFC 9113 section 5.1)")]
    StreamClosed,
    /// A CONTINUATION frame does not follow a HEADERS frame, or another frame interrupts a field
    /// block (RFC 9113 section 6.10).
    #[error("a field block is not contiguous (RFC 9113 section 6.10)")]
    Continuation,
    /// A field block has more than [`MAX_CONTINUATIONS`] CONTINUATION frames.
    #[error(
        "a field block has more than {MAX_CONTINUATIONS} CONTINUATION frames, the maximum that floodmark accepts"
    )]
    TooManyContinuations,
    /// A compressed field block exceeds [`MAX_SECTION_BYTES`].
    #[error(
        "a compressed field block is longer than {MAX_SECTION_BYTES} bytes, the maximum that floodmark accepts"
    )]
    BlockTooLarge,
    /// The server pushes a response, which our SETTINGS disable (RFC 9113 section 8.4).
    #[error("the server sent PUSH_PROMISE, which SETTINGS disabled (RFC 9113 section 8.4)")]
    Push,
    /// A setting has an illegal value (RFC 9113 section 6.5.2).
    #[error("the server's SETTINGS contain an illegal value (RFC 9113 section 6.5.2)")]
    Setting,
    /// The initial window size in SETTINGS, or the sum of WINDOW_UPDATE frames, exceeds 2^31 - 1
    /// bytes (RFC 9113 sections 6.5.2 and 6.9.1).
    #[error("a flow-control window exceeds 2^31 - 1 bytes (RFC 9113 section 6.9.1)")]
    WindowOverflow,
    /// A WINDOW_UPDATE frame adds zero bytes (RFC 9113 section 6.9).
    #[error("a WINDOW_UPDATE frame adds zero bytes (RFC 9113 section 6.9)")]
    ZeroWindowUpdate,
    /// The server sent more data than our flow-control windows allow (RFC 9113 section 6.9.1).
    #[error("the server sent more data than the flow-control window allows (RFC 9113 section 6.9)")]
    WindowExceeded,
    /// A GOAWAY frame names a higher stream than a previous one (RFC 9113 section 6.8).
    #[error("the last stream in GOAWAY increased (RFC 9113 section 6.8)")]
    GoAwayIncreased,
    /// More frames without effect on a request arrived than
    /// [`Config::idle_frames`](super::Config::idle_frames).
    #[error("the server flooded the connection with frames that do not belong to a response")]
    Flood,
    /// The server sends frames that must be answered, but does not read the answers. The answers
    /// exceed twice [`MAX_OUTPUT_BYTES`].
    #[error(
        "more than {} bytes are waiting to be sent, because the server does not read",
        2 * MAX_OUTPUT_BYTES
    )]
    OutputFull,
    /// A field block cannot be decompressed.
    #[error(transparent)]
    #[strum(disabled)]
    Hpack(#[from] HpackError),
}

impl ConnectionError {
    /// Returns the stable name under which connections rejected for this reason are counted.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hpack(error) => error.into(),
            error => error.into(),
        }
    }

    /// Returns the error with this name, if there is one.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let of_field_block = || name.parse().map(Self::Hpack);
        name.parse().or_else(|_| of_field_block()).ok()
    }

    /// Returns the code for the GOAWAY frame.
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            Self::FrameSize => ErrorCode::FRAME_SIZE_ERROR,
            Self::StreamClosed => ErrorCode::STREAM_CLOSED,
            Self::WindowOverflow | Self::WindowExceeded => ErrorCode::FLOW_CONTROL_ERROR,
            Self::Flood | Self::OutputFull => ErrorCode::ENHANCE_YOUR_CALM,
            // Each field block that is not decompressed (RFC 9113 section 4.3).
            Self::TooManyContinuations | Self::BlockTooLarge | Self::Hpack(_) => {
                ErrorCode::COMPRESSION_ERROR
            }
            _ => ErrorCode::PROTOCOL_ERROR,
        }
    }
}

/// Reason for rejecting a response (RFC 9113 section 8.1.1). Other streams on the connection
/// continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, EnumString, IntoStaticStr)]
#[cfg_attr(test, derive(strum::VariantNames))]
#[strum(serialize_all = "snake_case")]
pub enum Malformed {
    /// A header's name is empty, or contains an upper-case letter or another illegal byte (RFC 9113
    /// section 8.2.1).
    #[error(
        "a header name contains an upper-case letter or an illegal byte (RFC 9113 section 8.2.1)"
    )]
    FieldName,
    /// A header's value contains NUL, CR or LF, or starts or ends with white space (RFC 9113
    /// section 8.2.1).
    #[error(
        "a header value contains an illegal byte, or starts or ends with white space (RFC 9113 section 8.2.1)"
    )]
    FieldValue,
    /// A header such as `connection` belongs to HTTP/1.1 (RFC 9113 section 8.2.2).
    #[error(
        "the response has a header for HTTP/1.1 connections, such as \"connection\" (RFC 9113 section 8.2.2)"
    )]
    ConnectionField,
    /// `:status` is missing, repeated or late, or there is another pseudo-header (RFC 9113 section
    /// 8.3).
    #[error(
        "the pseudo-header \":status\" is missing or repeated, or there is an invalid pseudo-header (RFC 9113 section 8.3)"
    )]
    PseudoField,
    /// The status is not three digits from 100 to 999, or is 101 (RFC 9113 sections 8.3.2 and 8.6).
    #[error("illegal status: expected three digits from 100 to 999, except 101")]
    Status,
    /// `content-length` is not a decimal number of at most 2^60. Equal repetitions, such as `5, 5`,
    /// are accepted.
    #[error(
        "content-length is not a decimal number of at most 2^60, or its repetitions differ (RFC 9110 section 8.6)"
    )]
    ContentLength,
    /// The body is longer or shorter than `content-length`, or a response without a body has data
    /// (RFC 9113 section 8.1.1).
    #[error(
        "the body's length differs from content-length, or a response without a body has data (RFC 9113 section 8.1.1)"
    )]
    BodyLength,
    /// Data arrived before the final response head (RFC 9113 section 8.1).
    #[error("data arrived before the response head (RFC 9113 section 8.1)")]
    DataBeforeHead,
    /// An interim (1xx) response ends the stream (RFC 9113 section 8.1).
    #[error("the stream ends after an interim (1xx) response (RFC 9113 section 8.1)")]
    InterimEnd,
    /// More than [`MAX_INTERIM`] 1xx responses came before the final response.
    #[error("more than {MAX_INTERIM} interim (1xx) responses before the final response")]
    TooManyInterim,
    /// Trailers do not end the stream (RFC 9113 section 8.1).
    #[error("the trailers do not end the stream (RFC 9113 section 8.1)")]
    TrailersWithoutEnd,
}

impl Malformed {
    /// Returns the stable name under which responses rejected for this reason are counted.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the reason with this name, if there is one.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// Reason why a session cannot send another request now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unavailable {
    /// All streams are in use: [`Session::stream_limit`](super::Session::stream_limit) requests are
    /// open.
    Streams,
    /// At least [`MAX_OUTPUT_BYTES`] are waiting to be sent.
    Output,
    /// The connection failed, the server sent GOAWAY, or all stream identifiers are used. Open
    /// another connection.
    Closing,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use strum::VariantNames;

    use super::*;
    use crate::ReadError;

    #[test]
    fn names_are_stable() {
        assert_eq!(ConnectionError::NoSettings.name(), "no_settings");
        let error = ConnectionError::from(HpackError::InvalidIndex);
        assert_eq!(error.name(), "invalid_index");
        assert_eq!(ConnectionError::named("invalid_index"), Some(error));
        let error = ConnectionError::NoSettings;
        assert_eq!(ConnectionError::named(error.name()), Some(error));
        for no_error in ["hpack", "body_length"] {
            assert_eq!(ConnectionError::named(no_error), None);
        }
        assert_eq!(Malformed::BodyLength.name(), "body_length");
        assert_eq!(Malformed::named("body_length"), Some(Malformed::BodyLength));
        assert_eq!(ErrorCode::REFUSED_STREAM.name(), Some("REFUSED_STREAM"));
        assert_eq!(
            ErrorCode::ENHANCE_YOUR_CALM.name(),
            Some("ENHANCE_YOUR_CALM")
        );
        assert_eq!(ErrorCode(14).name(), None);
        assert_eq!(ErrorCode::named("CANCEL"), Some(ErrorCode::CANCEL));
        assert_eq!(ErrorCode::named(""), None);
    }

    #[test]
    fn blocks_that_are_not_decompressed_are_compression_errors() {
        for error in [
            ConnectionError::TooManyContinuations,
            ConnectionError::BlockTooLarge,
            ConnectionError::Hpack(HpackError::ListTooLarge),
        ] {
            assert_eq!(error.code(), ErrorCode::COMPRESSION_ERROR);
        }
    }

    #[test]
    fn names_are_distinct() {
        let lists = [
            ReadError::VARIANTS,
            ConnectionError::VARIANTS,
            HpackError::VARIANTS,
            Malformed::VARIANTS,
        ];
        let mut names = HashSet::new();
        let mut repeated = lists.concat();
        repeated.retain(|name| !names.insert(*name));
        // The same limit applies to both versions of HTTP.
        let interim = (ReadError::TooManyInterim, Malformed::TooManyInterim);
        assert_eq!(repeated, [interim.0.name()]);
        assert_eq!(interim.0.name(), interim.1.name());
        assert_eq!(interim.0.to_string(), interim.1.to_string());
    }
}
