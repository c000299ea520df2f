//! Reads lines of limited length.

use std::io::{self, BufRead, Read};

/// Appends the rest of the next line to `line`, without its line feed. Returns whether the line is
/// complete.
///
/// If the line is incomplete, a later call can complete it.
///
/// # Errors
/// The source cannot be read, or the line is longer than `limit` bytes.
pub fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>, limit: usize) -> io::Result<bool> {
    let room = (limit + 1).saturating_sub(line.len()) as u64;
    reader.take(room).read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(true);
    }
    if line.len() > limit {
        Err(io::Error::other(format!(
            "a line is longer than {limit} bytes"
        )))
    } else {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completes_a_line_over_several_reads() {
        let mut line = Vec::new();
        assert!(!read_line(&mut &b"ab"[..], &mut line, 4).unwrap());
        assert!(!read_line(&mut &b""[..], &mut line, 4).unwrap());
        let mut rest = &b"cd\nnext\n"[..];
        assert!(read_line(&mut rest, &mut line, 4).unwrap());
        assert_eq!(line, b"abcd");
        assert_eq!(rest, b"next\n");
    }

    #[test]
    fn refuses_a_line_over_the_limit() {
        let mut line = Vec::new();
        let error = read_line(&mut &b"abcde\n"[..], &mut line, 4).unwrap_err();
        assert_eq!(error.to_string(), "a line is longer than 4 bytes");
        assert!(line.len() <= 5, "{line:?}");
    }
}
