//! Lines of text up to an empty one (a head, or trailers), parsed where they lie if they came in one piece, and
//! gathered in a buffer if not.

use crate::error::ReadError;

/// Largest head, and largest trailers, in bytes.
pub const MAX_SECTION_BYTES: usize = 64 * 1024;

/// Most headers in a head, and most trailers: hyper's default.
pub const MAX_HEADERS: usize = 100;

/// A kind of section.
pub(crate) trait Section {
    /// What a whole one says.
    type Parsed;
    /// The error when it has no end within [`MAX_SECTION_BYTES`].
    const TOO_LARGE: ReadError;

    /// Judges the first few bytes before their line is whole.
    fn start(bytes: &[u8]) -> Result<(), ReadError>;
    /// Parses a section at the front of `bytes`: its length and what it says, or `None` if it is not whole yet.
    fn parse(bytes: &[u8]) -> Result<Option<(usize, Self::Parsed)>, ReadError>;
}

/// The part of a section that has come, kept only while the section is split over reads.
#[derive(Debug, Default)]
pub(crate) struct Partial {
    bytes: Vec<u8>,
}

impl Partial {
    /// How many bytes at the front of a section [`Section::start`] looks at.
    const START: usize = 8;

    /// Whether a section is under way.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Gives the memory back.
    pub fn clear(&mut self) {
        self.bytes = Vec::new();
    }

    /// Takes the next bytes of a section: how many were consumed, and what it says if that made it whole.
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
        // Only whole lines are judged, so that the verdict does not depend on where reads were split; and only when a
        // line became whole, which bounds the work on a head that drips in byte by byte.
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
    fn memory_is_taken_only_for_a_split_head_and_given_back() {
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
