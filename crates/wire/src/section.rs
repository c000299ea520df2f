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
        if !self.is_empty() {
            return self.append::<S>(input);
        }
        let window = &input[..input.len().min(MAX_SECTION_BYTES)];
        S::start(window)?;
        match parse::<S>(window)? {
            Some((length, parsed)) => Ok((length, Some(parsed))),
            None if window.len() == MAX_SECTION_BYTES => Err(S::TOO_LARGE),
            None => {
                self.bytes.extend_from_slice(window);
                Ok((window.len(), None))
            }
        }
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
        // Parsing again only at a line's end bounds the work on a head that drips in byte by byte.
        if more.contains(&b'\n')
            && let Some((length, parsed)) = parse::<S>(&self.bytes)?
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

/// Parses, and refuses only what stands in whole lines, so that the verdict does not depend on where reads were split.
#[inline]
fn parse<S: Section>(bytes: &[u8]) -> Result<Option<(usize, S::Parsed)>, ReadError> {
    S::parse(bytes).or_else(|_| {
        let whole_lines = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        S::parse(&bytes[..whole_lines])
    })
}
