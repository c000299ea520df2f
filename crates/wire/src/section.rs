//! Sections: lines of text that end with an empty line, such as a head or trailers.
//!
//! A section that arrives in one piece is parsed in place. Other sections are collected in a
//! buffer.

use crate::error::ReadError;

/// Maximum length of a body or chunk, in bytes. No server means a longer one, and the response would
/// only end with the timeout.
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

    /// Checks the first few bytes of a section before their line is complete.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Head;

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
