//! Frames (RFC 9113 sections 4 and 6): parsing of frames from a server, and encoding of frames from
//! a client.

use super::error::{ConnectionError, ErrorCode};

/// The bytes that a client sends first, before its SETTINGS (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Maximum payload of a frame that every peer accepts, in bytes (RFC 9113 section 4.2).
pub const MIN_MAX_FRAME_BYTES: u32 = 1 << 14;

/// Initial size of all flow-control windows, in bytes (RFC 9113 section 6.9.2).
pub const DEFAULT_WINDOW_BYTES: u32 = 65_535;

/// Maximum size of a flow-control window, in bytes (RFC 9113 section 6.9.1). Also the maximum
/// stream identifier (section 5.1.1).
pub const MAX_31_BITS: u32 = (1 << 31) - 1;

/// Frame types (RFC 9113 section 6). Receivers ignore other types.
pub mod kind {
    #![allow(missing_docs, reason = "the RFC defines these names")]
    pub const DATA: u8 = 0x0;
    pub const HEADERS: u8 = 0x1;
    pub const PRIORITY: u8 = 0x2;
    pub const RST_STREAM: u8 = 0x3;
    pub const SETTINGS: u8 = 0x4;
    pub const PUSH_PROMISE: u8 = 0x5;
    pub const PING: u8 = 0x6;
    pub const GOAWAY: u8 = 0x7;
    pub const WINDOW_UPDATE: u8 = 0x8;
    pub const CONTINUATION: u8 = 0x9;
}

/// Frame flags (RFC 9113 section 6).
pub mod flag {
    #![allow(missing_docs, reason = "the RFC defines these names")]
    pub const ACK: u8 = 0x1;
    pub const END_STREAM: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// The fixed start of a frame (RFC 9113 section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Length of the payload, in bytes (24 bits).
    pub length: u32,
    /// One of the [`kind`]s, or an unknown type.
    pub kind: u8,
    /// The meaning of the bits depends on the type.
    pub flags: u8,
    /// Stream identifier (31 bits), or 0 for the connection.
    pub stream: u32,
}

impl FrameHeader {
    /// Encoded length, in bytes.
    pub const BYTES: usize = 9;

    /// Parses a header. The reserved bit is ignored.
    #[must_use]
    pub fn parse(bytes: [u8; Self::BYTES]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = bytes;
        FrameHeader {
            length: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & MAX_31_BITS,
        }
    }

    /// Encodes the header.
    #[must_use]
    pub fn bytes(&self) -> [u8; Self::BYTES] {
        let [_, a, b, c] = self.length.to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }

    /// Returns whether a flag is set.
    #[must_use]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Checks the length and the stream of a frame from a server.
    ///
    /// # Errors
    /// The header violates a rule for its type. The rules that depend on the payload or on other
    /// frames are not checked.
    pub(super) fn check(&self) -> Result<(), ConnectionError> {
        let length = self.length;
        if length > MIN_MAX_FRAME_BYTES {
            return Err(ConnectionError::FrameSize);
        }
        // Whether the frame refers to a stream, and whether its length is allowed.
        let (on_stream, has_legal_length) = match self.kind {
            kind::DATA | kind::HEADERS | kind::CONTINUATION => (true, true),
            kind::PRIORITY => (true, length == 5),
            kind::RST_STREAM => (true, length == 4),
            kind::SETTINGS if self.has(flag::ACK) => (false, length == 0),
            kind::SETTINGS => (false, length.is_multiple_of(6)),
            kind::PUSH_PROMISE => return Err(ConnectionError::Push),
            kind::PING => (false, length == 8),
            kind::GOAWAY => (false, length >= 8),
            kind::WINDOW_UPDATE => (self.stream > 0, length == 4),
            _ => return Ok(()),
        };
        if on_stream != (self.stream > 0) {
            return Err(ConnectionError::FrameStream);
        }
        if has_legal_length {
            Ok(())
        } else {
            Err(ConnectionError::FrameSize)
        }
    }
}

/// A frame from a server, except DATA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// Start of a field block (section 6.2).
    Headers(&'a [u8]),
    /// Next part of a field block (section 6.10).
    Continuation(&'a [u8]),
    /// End of a stream (section 6.4).
    Reset(ErrorCode),
    /// Settings (section 6.5), 6 bytes each. [`Setting::parse`] reads them.
    Settings(&'a [u8]),
    /// Acknowledgment of SETTINGS.
    SettingsAck,
    /// A PING that must be answered with the same bytes (section 6.7).
    Ping([u8; 8]),
    /// The answer to a PING.
    Pong([u8; 8]),
    /// Start of a shutdown (section 6.8).
    GoAway {
        /// Highest stream that the server may have processed.
        last: u32,
        /// Reason for the shutdown.
        code: ErrorCode,
    },
    /// Credit for flow control, in bytes (section 6.9).
    WindowUpdate(u32),
    /// PRIORITY, which is deprecated, or a frame of an unknown type (sections 5.3 and 5.5).
    Ignored,
}

impl<'a> Frame<'a> {
    /// Parses the payload of a frame whose header passed [`FrameHeader::check`].
    ///
    /// # Errors
    /// The padding is longer than the frame, or a WINDOW_UPDATE adds zero bytes.
    pub fn parse(header: &FrameHeader, payload: &'a [u8]) -> Result<Self, ConnectionError> {
        assert_eq!(payload.len(), header.length as usize, "length of a payload");
        let is_ack = header.has(flag::ACK);
        let number = |at: usize| {
            let bytes = payload[at..at + 4].try_into();
            u32::from_be_bytes(bytes.expect("four bytes"))
        };
        let octets = || payload.try_into().expect("the header was checked");
        Ok(match header.kind {
            kind::HEADERS => Frame::Headers(fragment(header, payload)?),
            kind::CONTINUATION => Frame::Continuation(payload),
            kind::RST_STREAM => Frame::Reset(ErrorCode(number(0))),
            kind::SETTINGS if is_ack => Frame::SettingsAck,
            kind::SETTINGS => Frame::Settings(payload),
            kind::PING if is_ack => Frame::Pong(octets()),
            kind::PING => Frame::Ping(octets()),
            kind::GOAWAY => Frame::GoAway {
                last: number(0) & MAX_31_BITS,
                code: ErrorCode(number(4)),
            },
            kind::WINDOW_UPDATE => match number(0) & MAX_31_BITS {
                0 => return Err(ConnectionError::ZeroWindowUpdate),
                increment => Frame::WindowUpdate(increment),
            },
            _ => Frame::Ignored,
        })
    }
}

/// Returns the part of a HEADERS frame between the optional fields and the padding.
fn fragment<'a>(header: &FrameHeader, payload: &'a [u8]) -> Result<&'a [u8], ConnectionError> {
    let mut rest = payload;
    let mut padding = 0;
    if header.has(flag::PADDED) {
        let (&first, after) = rest.split_first().ok_or(ConnectionError::FrameSize)?;
        padding = usize::from(first);
        rest = after;
    }
    if header.has(flag::PRIORITY) {
        rest = rest.get(5..).ok_or(ConnectionError::FrameSize)?;
    }
    let length = rest.len().checked_sub(padding);
    length
        .map(|length| &rest[..length])
        .ok_or(ConnectionError::Padding)
}

/// A setting (RFC 9113 section 6.5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// Maximum size of the dynamic table for HPACK, in bytes.
    HeaderTableSize(u32),
    /// Whether the server may push responses: 0 or 1.
    EnablePush(u32),
    /// Maximum number of open streams.
    MaxConcurrentStreams(u32),
    /// Initial size of the flow-control window of a stream, in bytes.
    InitialWindowSize(u32),
    /// Maximum payload of a frame, in bytes.
    MaxFrameSize(u32),
    /// Maximum size of a field section, in bytes, with an overhead of 32 bytes per field.
    MaxHeaderListSize(u32),
    /// An unknown setting, which receivers ignore.
    Unknown(u16, u32),
}

impl Setting {
    /// Parses the payload of a SETTINGS frame from a server, whose length is a multiple of 6.
    ///
    /// Each item is an error if its value is illegal.
    pub fn parse(payload: &[u8]) -> impl Iterator<Item = Result<Setting, ConnectionError>> {
        let (chunks, _) = payload.as_chunks::<6>();
        chunks.iter().map(|&[a, b, value @ ..]| {
            let value = u32::from_be_bytes(value);
            match u16::from_be_bytes([a, b]) {
                1 => Ok(Setting::HeaderTableSize(value)),
                // Only clients may enable push.
                2 if value > 0 => Err(ConnectionError::Setting),
                2 => Ok(Setting::EnablePush(value)),
                3 => Ok(Setting::MaxConcurrentStreams(value)),
                4 if value > MAX_31_BITS => Err(ConnectionError::WindowOverflow),
                4 => Ok(Setting::InitialWindowSize(value)),
                5 if !(MIN_MAX_FRAME_BYTES..1 << 24).contains(&value) => {
                    Err(ConnectionError::Setting)
                }
                5 => Ok(Setting::MaxFrameSize(value)),
                6 => Ok(Setting::MaxHeaderListSize(value)),
                id => Ok(Setting::Unknown(id, value)),
            }
        })
    }

    fn bytes(self) -> [u8; 6] {
        let (id, value) = match self {
            Setting::HeaderTableSize(value) => (1, value),
            Setting::EnablePush(value) => (2, value),
            Setting::MaxConcurrentStreams(value) => (3, value),
            Setting::InitialWindowSize(value) => (4, value),
            Setting::MaxFrameSize(value) => (5, value),
            Setting::MaxHeaderListSize(value) => (6, value),
            Setting::Unknown(id, value) => (id, value),
        };
        let ([a, b], [c, d, e, f]) = (id.to_be_bytes(), value.to_be_bytes());
        [a, b, c, d, e, f]
    }
}

/// Appends a frame. The payload must be shorter than 2^24 bytes.
fn write(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let header = FrameHeader {
        length: payload.len() as u32,
        kind,
        flags,
        stream,
    };
    out.extend_from_slice(&header.bytes());
    out.extend_from_slice(payload);
}

/// Appends SETTINGS.
pub fn settings(settings: &[Setting], out: &mut Vec<u8>) {
    let payload: Vec<u8> = settings
        .iter()
        .flat_map(|setting| setting.bytes())
        .collect();
    write(kind::SETTINGS, 0, 0, &payload, out);
}

/// Appends an acknowledgment of SETTINGS.
pub fn settings_ack(out: &mut Vec<u8>) {
    write(kind::SETTINGS, flag::ACK, 0, &[], out);
}

/// Appends a PING.
pub fn ping(payload: [u8; 8], out: &mut Vec<u8>) {
    write(kind::PING, 0, 0, &payload, out);
}

/// Appends the answer to a PING.
pub fn pong(payload: [u8; 8], out: &mut Vec<u8>) {
    write(kind::PING, flag::ACK, 0, &payload, out);
}

/// Appends credit for a stream, or for the connection (stream 0).
pub fn window_update(stream: u32, bytes: u32, out: &mut Vec<u8>) {
    write(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes(), out);
}

/// Appends the end of a stream.
pub fn reset(stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    write(kind::RST_STREAM, 0, stream, &code.0.to_be_bytes(), out);
}

/// Appends a GOAWAY. A client without push has processed no stream of the server, so the last
/// stream is 0.
pub fn go_away(code: ErrorCode, out: &mut Vec<u8>) {
    let payload = u64::from(code.0).to_be_bytes();
    write(kind::GOAWAY, 0, 0, &payload, out);
}

/// Appends DATA. `part` must not exceed the peer's maximum frame size.
pub fn data(stream: u32, part: &[u8], end: bool, out: &mut Vec<u8>) {
    let flags = if end { flag::END_STREAM } else { 0 };
    write(kind::DATA, flags, stream, part, out);
}

/// Appends a field block that `write_block` appends. A block that is longer than
/// [`MIN_MAX_FRAME_BYTES`] continues in CONTINUATION frames.
pub fn headers(
    stream: u32,
    end_stream: bool,
    out: &mut Vec<u8>,
    write_block: impl FnOnce(&mut Vec<u8>),
) {
    const PIECE: usize = MIN_MAX_FRAME_BYTES as usize;
    const HEADER: usize = FrameHeader::BYTES;
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    write_block(out);
    let block = out.len() - start - HEADER;
    let frames = block.div_ceil(PIECE).max(1);
    out.resize(out.len() + (frames - 1) * HEADER, 0);
    // The pieces move by the headers before them, starting with the last piece.
    for i in (0..frames).rev() {
        let length = PIECE.min(block - i * PIECE);
        let from = start + HEADER + i * PIECE;
        let to = from + i * HEADER;
        if i > 0 {
            out.copy_within(from..from + length, to);
        }
        let (kind, mut flags) = match i {
            0 => (kind::HEADERS, u8::from(end_stream) * flag::END_STREAM),
            _ => (kind::CONTINUATION, 0),
        };
        if i + 1 == frames {
            flags |= flag::END_HEADERS;
        }
        let header = FrameHeader {
            length: length as u32,
            kind,
            flags,
            stream,
        };
        out[to - HEADER..to].copy_from_slice(&header.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(kind: u8, flags: u8, stream: u32, length: u32) -> FrameHeader {
        FrameHeader {
            length,
            kind,
            flags,
            stream,
        }
    }

    /// Checks and parses the only frame in `bytes`.
    fn parse(bytes: &[u8]) -> Result<(u32, Frame<'_>), ConnectionError> {
        let (first, payload) = bytes.split_first_chunk().unwrap();
        let header = FrameHeader::parse(*first);
        header.check()?;
        Ok((header.stream, Frame::parse(&header, payload)?))
    }

    #[test]
    fn checks_length_and_stream_of_each_type() {
        use ConnectionError::*;
        for (kind, flags, stream, length, expected) in [
            (kind::DATA, 0, 1, 1 << 14, Ok(())),
            (kind::DATA, 0, 1, (1 << 14) + 1, Err(FrameSize)),
            (kind::DATA, 0, 0, 0, Err(FrameStream)),
            (kind::HEADERS, 0, 1, 0, Ok(())),
            (kind::HEADERS, 0, 0, 0, Err(FrameStream)),
            (kind::PRIORITY, 0, 2, 5, Ok(())),
            (kind::PRIORITY, 0, 2, 4, Err(FrameSize)),
            (kind::PRIORITY, 0, 0, 5, Err(FrameStream)),
            (kind::RST_STREAM, 0, 1, 4, Ok(())),
            (kind::RST_STREAM, 0, 1, 5, Err(FrameSize)),
            (kind::RST_STREAM, 0, 0, 4, Err(FrameStream)),
            (kind::SETTINGS, 0, 0, 12, Ok(())),
            (kind::SETTINGS, 0, 0, 13, Err(FrameSize)),
            (kind::SETTINGS, 0, 1, 12, Err(FrameStream)),
            (kind::SETTINGS, flag::ACK, 0, 0, Ok(())),
            (kind::SETTINGS, flag::ACK, 0, 6, Err(FrameSize)),
            (kind::PUSH_PROMISE, 0, 1, 4, Err(Push)),
            (kind::PING, 0, 0, 8, Ok(())),
            (kind::PING, 0, 0, 7, Err(FrameSize)),
            (kind::PING, 0, 1, 8, Err(FrameStream)),
            (kind::GOAWAY, 0, 0, 20, Ok(())),
            (kind::GOAWAY, 0, 0, 7, Err(FrameSize)),
            (kind::GOAWAY, 0, 1, 8, Err(FrameStream)),
            (kind::WINDOW_UPDATE, 0, 0, 4, Ok(())),
            (kind::WINDOW_UPDATE, 0, 1, 4, Ok(())),
            (kind::WINDOW_UPDATE, 0, 1, 5, Err(FrameSize)),
            (kind::CONTINUATION, 0, 0, 1, Err(FrameStream)),
            (0xa, 0xff, 0, 100, Ok(())),
        ] {
            let header = header(kind, flags, stream, length);
            assert_eq!(header.check(), expected, "{header:?}");
        }
    }

    #[test]
    fn parses_frames_that_it_encodes() {
        let frame = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            write(&mut out);
            out
        };
        let bytes = frame(&|out| ping(*b"abcdefgh", out));
        assert_eq!(parse(&bytes), Ok((0, Frame::Ping(*b"abcdefgh"))));
        let bytes = frame(&|out| pong(*b"abcdefgh", out));
        assert_eq!(parse(&bytes), Ok((0, Frame::Pong(*b"abcdefgh"))));
        let bytes = frame(&|out| window_update(3, 5, out));
        assert_eq!(parse(&bytes), Ok((3, Frame::WindowUpdate(5))));
        let bytes = frame(&|out| window_update(3, 0, out));
        assert_eq!(parse(&bytes), Err(ConnectionError::ZeroWindowUpdate));
        let bytes = frame(&|out| reset(3, ErrorCode::CANCEL, out));
        assert_eq!(parse(&bytes), Ok((3, Frame::Reset(ErrorCode::CANCEL))));
        let code = ErrorCode::ENHANCE_YOUR_CALM;
        let bytes = frame(&|out| go_away(code, out));
        assert_eq!(parse(&bytes), Ok((0, Frame::GoAway { last: 0, code })));
        let bytes = frame(&settings_ack);
        assert_eq!(parse(&bytes), Ok((0, Frame::SettingsAck)));
        let bytes = frame(&|out| data(5, b"body", true, out));
        assert_eq!(bytes, b"\0\0\x04\0\x01\0\0\0\x05body");
    }

    #[test]
    fn parses_settings_that_it_encodes() {
        let all = [
            Setting::HeaderTableSize(0),
            Setting::EnablePush(0),
            Setting::MaxConcurrentStreams(100),
            Setting::InitialWindowSize(MAX_31_BITS),
            Setting::MaxFrameSize(1 << 14),
            Setting::MaxHeaderListSize(7),
            Setting::Unknown(8, 9),
        ];
        let mut out = Vec::new();
        settings(&all, &mut out);
        let Ok((0, Frame::Settings(payload))) = parse(&out) else {
            panic!("{out:?}");
        };
        let parsed: Result<Vec<_>, _> = Setting::parse(payload).collect();
        assert_eq!(parsed.unwrap(), all);
        for (setting, error) in [
            (Setting::EnablePush(1), ConnectionError::Setting),
            (
                Setting::InitialWindowSize(1 << 31),
                ConnectionError::WindowOverflow,
            ),
            (Setting::MaxFrameSize(1 << 24), ConnectionError::Setting),
            (
                Setting::MaxFrameSize((1 << 14) - 1),
                ConnectionError::Setting,
            ),
        ] {
            let parsed: Vec<_> = Setting::parse(&setting.bytes()).collect();
            assert_eq!(parsed, [Err(error)]);
        }
    }

    #[test]
    fn removes_padding_and_priority() {
        let parse = |flags, payload: &'static [u8]| {
            let header = header(kind::HEADERS, flags, 1, payload.len() as u32);
            Frame::parse(&header, payload)
        };
        let both = flag::PADDED | flag::PRIORITY;
        assert_eq!(parse(0, b"ab"), Ok(Frame::Headers(b"ab")));
        assert_eq!(parse(flag::PADDED, b"\x01ab"), Ok(Frame::Headers(b"a")));
        assert_eq!(parse(flag::PADDED, b"\x02ab"), Ok(Frame::Headers(b"")));
        assert_eq!(
            parse(flag::PADDED, b"\x03ab"),
            Err(ConnectionError::Padding)
        );
        assert_eq!(parse(flag::PADDED, b""), Err(ConnectionError::FrameSize));
        assert_eq!(parse(both, b"\x0112345ab"), Ok(Frame::Headers(b"a")));
        assert_eq!(parse(both, b"\x001234"), Err(ConnectionError::FrameSize));
    }

    proptest! {
        #[test]
        fn parses_headers_that_it_encodes(bytes in any::<[u8; 9]>()) {
            let header = FrameHeader::parse(bytes);
            prop_assert_eq!(FrameHeader::parse(header.bytes()), header);
        }

        /// The fragments of a block of any length are frames of legal size, in order.
        #[test]
        fn splits_long_blocks(length in 0usize..60_000, end_stream in any::<bool>()) {
            let block: Vec<u8> = (0..length).map(|i| (i * 7 / 3) as u8).collect();
            let mut out = b"before".to_vec();
            headers(9, end_stream, &mut out, |out| out.extend_from_slice(&block));
            let mut rest = &out[6..];
            let mut joined = Vec::new();
            let mut count = 0;
            while let Some((first, after)) = rest.split_first_chunk() {
                let header = FrameHeader::parse(*first);
                prop_assert_eq!(header.check(), Ok(()));
                prop_assert_eq!(header.stream, 9);
                prop_assert_eq!(header.kind, if count == 0 { kind::HEADERS } else { kind::CONTINUATION });
                prop_assert_eq!(header.has(flag::END_STREAM), count == 0 && end_stream);
                let (payload, after) = after.split_at(header.length as usize);
                joined.extend_from_slice(payload);
                prop_assert_eq!(header.has(flag::END_HEADERS), after.is_empty());
                rest = after;
                count += 1;
            }
            prop_assert_eq!(joined, block);
            prop_assert_eq!(count, length.div_ceil(1 << 14).max(1));
        }
    }
}
