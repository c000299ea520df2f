//! The chunked transfer coding (RFC 9112 section 7.1), excluding its trailers.

use crate::error::ReadError;
use crate::head::MAX_LENGTH;

/// Maximum number of hexadecimal digits in a chunk size, including leading zeros (64 bits).
pub(crate) const MAX_SIZE_DIGITS: u8 = 16;

/// Maximum total length of the chunk extensions in one body, including white space, in bytes. hyper
/// has the same limit.
pub(crate) const MAX_EXTENSION_BYTES: u16 = 16 * 1024;

/// Position of the reader within a chunked body.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    /// While the chunk size is being read: the value of its digits so far. Afterwards: the number
    /// of data bytes that are left in the chunk.
    left: u64,
    extension_bytes: u16,
    digits: u8,
    step: Step,
}

#[derive(Debug, Default, Clone, Copy)]
enum Step {
    #[default]
    Size,
    /// White space after the size.
    Padding,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
}

impl Chunks {
    /// Reads the next bytes of the body. Returns the number of bytes consumed, and whether these
    /// bytes include the whole size line of the last chunk.
    pub fn take(
        &mut self,
        input: &[u8],
        mut body: impl FnMut(&[u8]),
    ) -> Result<(usize, bool), ReadError> {
        let mut at = 0;
        while at < input.len() {
            if let Step::Data = self.step {
                let rest = &input[at..];
                let part =
                    usize::try_from(self.left).map_or(rest, |left| &rest[..left.min(rest.len())]);
                body(part);
                at += part.len();
                self.left -= part.len() as u64;
                if self.left == 0 {
                    self.step = Step::DataCr;
                }
                continue;
            }
            self.step = self.line_byte(input[at])?;
            at += 1;
            if let (Step::Data, 0) = (self.step, self.left) {
                return Ok((at, true));
            }
        }
        Ok((at, false))
    }

    /// Reads one byte outside the chunk data and returns the next step.
    fn line_byte(&mut self, byte: u8) -> Result<Step, ReadError> {
        match self.step {
            Step::Size => match byte {
                b'0'..=b'9' => self.digit(byte - b'0'),
                b'a'..=b'f' => self.digit(byte - b'a' + 10),
                b'A'..=b'F' => self.digit(byte - b'A' + 10),
                _ if self.digits == 0 => Err(ReadError::GarbageChunkSize),
                _ => self.after_size(byte),
            },
            Step::Padding => self.after_size(byte),
            Step::Extension => match byte {
                b'\r' => Ok(Step::SizeLf),
                b'\t' | b' '..=b'~' | 0x80.. => self.extension(Step::Extension),
                _ => Err(ReadError::GarbageChunkSize),
            },
            Step::SizeLf if byte == b'\n' => Ok(Step::Data),
            Step::SizeLf => Err(ReadError::GarbageChunkSize),
            Step::DataCr if byte == b'\r' => Ok(Step::DataLf),
            Step::DataLf if byte == b'\n' => {
                self.digits = 0;
                Ok(Step::Size)
            }
            Step::Data | Step::DataCr | Step::DataLf => Err(ReadError::GarbageChunkEnd),
        }
    }

    fn digit(&mut self, value: u8) -> Result<Step, ReadError> {
        if self.digits == MAX_SIZE_DIGITS {
            return Err(ReadError::ChunkSizeOverflow);
        }
        self.digits += 1;
        self.left = self.left << 4 | u64::from(value);
        if self.left <= MAX_LENGTH {
            Ok(Step::Size)
        } else {
            Err(ReadError::ChunkSizeOverflow)
        }
    }

    fn after_size(&mut self, byte: u8) -> Result<Step, ReadError> {
        match byte {
            b'\r' => Ok(Step::SizeLf),
            b';' => Ok(Step::Extension),
            b' ' | b'\t' => self.extension(Step::Padding),
            _ => Err(ReadError::GarbageChunkSize),
        }
    }

    fn extension(&mut self, step: Step) -> Result<Step, ReadError> {
        if self.extension_bytes == MAX_EXTENSION_BYTES {
            return Err(ReadError::ChunkExtensionsTooLarge);
        }
        self.extension_bytes += 1;
        Ok(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(usize, bool, String), ReadError> {
        let mut body = Vec::new();
        let (consumed, last) =
            Chunks::default().take(text.as_bytes(), |part| body.extend_from_slice(part))?;
        Ok((consumed, last, String::from_utf8(body).unwrap()))
    }

    #[test]
    fn joins_chunks() {
        assert_eq!(read("0\r\nrest"), Ok((3, true, String::new())));
        let text = "5\r\nhello\r\n00C ;a=\"b;c\";d\r\n, everybody!\r\n000;last\r\n";
        assert_eq!(
            read(text),
            Ok((text.len(), true, "hello, everybody!".into()))
        );
        assert_eq!(read("5\r\nhel"), Ok((6, false, "hel".into())));
    }

    #[test]
    fn names_each_kind_of_invalid_chunk() {
        use ReadError::*;
        for (text, expected) in [
            ("\r\n", GarbageChunkSize),
            (";a\r\n", GarbageChunkSize),
            (" 5\r\n", GarbageChunkSize),
            ("+5\r\n", GarbageChunkSize),
            ("0x5\r\n", GarbageChunkSize),
            ("5\n", GarbageChunkSize),
            ("5 5\r\n", GarbageChunkSize),
            ("5;a\n", GarbageChunkSize),
            ("5;a\0\r\n", GarbageChunkSize),
            ("5\rx", GarbageChunkSize),
            ("5\r\nhello0\r\n", GarbageChunkEnd),
            ("5\r\nhello\n", GarbageChunkEnd),
            ("5\r\nhello\rx", GarbageChunkEnd),
            ("5\r\nhello\r\n\r\n", GarbageChunkSize),
            ("10000000000000000\r\n", ChunkSizeOverflow),
            ("00000000000000005\r\n", ChunkSizeOverflow),
            ("1000000000000001", ChunkSizeOverflow),
        ] {
            assert_eq!(read(text), Err(expected), "{text:?}");
        }
        assert_eq!(read("FFFFFFFFFFFFFFF\r\nab"), Ok((19, false, "ab".into())));
    }

    #[test]
    fn extensions_of_a_body_are_bounded() {
        let half = "e".repeat(usize::from(MAX_EXTENSION_BYTES) / 2);
        let fits = format!("1;{half}\r\nx\r\n0;{half}\r\n");
        assert_eq!(read(&fits), Ok((fits.len(), true, "x".into())));
        let over = format!("1;{half}\r\nx\r\n0;{half} \r\n");
        assert_eq!(read(&over), Err(ReadError::ChunkExtensionsTooLarge));
        let padding = format!("1{}", " ".repeat(usize::from(MAX_EXTENSION_BYTES) + 1));
        assert_eq!(read(&padding), Err(ReadError::ChunkExtensionsTooLarge));
    }
}
