//! TLS records: their header, their kinds, and how they are cut out of a stream.

use super::failure::Failure;

/// Length of a record's header.
pub const HEADER: usize = 5;

/// Longest plaintext of a record (RFC 8446, section 5.1).
pub const LONGEST_PLAIN: usize = 1 << 14;

/// Longest fragment behind a header: TLS 1.2 allows its protection to add this much to a plaintext, TLS 1.3 less.
pub const LONGEST_FRAGMENT: usize = LONGEST_PLAIN + 2048;

/// Longest record.
pub const LONGEST: usize = HEADER + LONGEST_FRAGMENT;

/// What a record holds (RFC 8446, section 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Content {
    /// A change of keys; without meaning in TLS 1.3.
    ChangeCipherSpec = 20,
    /// A close or a failure.
    Alert = 21,
    /// Handshake messages, or parts of them.
    Handshake = 22,
    /// The application's bytes.
    Data = 23,
}

impl Content {
    /// The kind with this number.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        match number {
            20 => Some(Content::ChangeCipherSpec),
            21 => Some(Content::Alert),
            22 => Some(Content::Handshake),
            23 => Some(Content::Data),
            _ => None,
        }
    }
}

/// A record's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the record says it holds; in TLS 1.3 the truth is sealed with the content.
    pub content: Content,
    /// Length of what follows.
    pub length: usize,
    /// Its bytes.
    pub bytes: [u8; HEADER],
}

impl Header {
    /// A header of the version that both TLS 1.2 and 1.3 write.
    #[must_use]
    pub fn new(content: Content, length: usize) -> Self {
        let [high, low] = (length as u16).to_be_bytes();
        Header {
            content,
            length,
            bytes: [content as u8, 3, 3, high, low],
        }
    }

    /// Reads a header.
    ///
    /// # Errors
    /// Bytes that begin no record.
    pub fn read(bytes: [u8; HEADER]) -> Result<Self, Failure> {
        let length = usize::from(u16::from_be_bytes([bytes[3], bytes[4]]));
        match Content::of(bytes[0]).filter(|_| bytes[1] == 3) {
            Some(_) if length > LONGEST_FRAGMENT => Err(Failure::record_too_long(length)),
            Some(content) => Ok(Header {
                content,
                length,
                bytes,
            }),
            None => Err(Failure::not_tls(bytes)),
        }
    }

    /// The header at the front of `stream`, where all of it is there.
    ///
    /// # Errors
    /// Bytes that begin no record.
    pub fn first(stream: &[u8]) -> Result<Option<Self>, Failure> {
        stream
            .first_chunk()
            .map(|bytes| Self::read(*bytes))
            .transpose()
    }
}
