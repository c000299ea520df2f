//! The three headers that frame a response: `Content-Length`, `Transfer-Encoding` and `Connection`.

use crate::error::ReadError;
use crate::section::MAX_LENGTH;

/// The framing headers of one head, collected header by header.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    pub length: Option<u64>,
    pub chunked: bool,
    /// Whether `close` is among the `Connection` options.
    pub close: bool,
    /// Whether `keep-alive` is among the `Connection` options.
    pub keep_alive: bool,
}

impl Fields {
    /// Reads one header of any name.
    #[inline]
    pub fn take(&mut self, name: &str, value: &[u8]) -> Result<(), ReadError> {
        // Comparing the length and the first letter excludes nearly all headers before names are
        // compared.
        match (name.len(), name.as_bytes()[0] | 0x20) {
            (10, b'c') if name.eq_ignore_ascii_case("connection") => self.connection(value),
            (14, b'c') if name.eq_ignore_ascii_case("content-length") => {
                return self.content_length(value);
            }
            (17, b't') if name.eq_ignore_ascii_case("transfer-encoding") => {
                return self.transfer_encoding(value);
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads a list of options (RFC 9110 section 7.6.1), which may span several lines.
    #[inline]
    fn connection(&mut self, value: &[u8]) {
        // This is the most common spelling.
        if value == b"keep-alive" {
            self.keep_alive = true;
            return;
        }
        for option in value.split(|&b| b == b',') {
            let option = option.trim_ascii();
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// Reads a decimal number, which may be repeated on one line or several if all copies are equal.
    /// RFC 9112 section 6.3 rule 5 allows this, because some intermediaries merge or copy the line.
    fn content_length(&mut self, value: &[u8]) -> Result<(), ReadError> {
        for one in value.split(|&b| b == b',') {
            let length = decimal(one.trim_ascii()).filter(|length| *length <= MAX_LENGTH);
            let length = length.ok_or(ReadError::GarbageContentLength)?;
            if self.length.replace(length).is_some_and(|l| l != length) {
                return Err(ReadError::ConflictingContentLength);
            }
        }
        Ok(())
    }

    /// Accepts only `chunked`, once.
    ///
    /// floodmark sends no `TE` header, so a server may use only `chunked` (RFC 9112 section 7.4).
    /// `chunked` must not be applied twice (section 6.1).
    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), ReadError> {
        if self.chunked || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
            return Err(ReadError::UnsupportedTransferCoding);
        }
        self.chunked = true;
        Ok(())
    }
}

/// Reads `1*DIGIT`: a number without sign, white space or overflow.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |n, &b| {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        n.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[(&str, &str)]) -> Result<Fields, ReadError> {
        let mut fields = Fields::default();
        for (name, value) in lines {
            fields.take(name, value.as_bytes())?;
        }
        Ok(fields)
    }

    fn length(values: &[&str]) -> Result<Option<u64>, ReadError> {
        let lines: Vec<_> = values.iter().map(|v| ("Content-Length", *v)).collect();
        of(&lines).map(|f| f.length)
    }

    #[test]
    fn parses_content_lengths() {
        assert_eq!(length(&["0"]), Ok(Some(0)));
        assert_eq!(length(&["00042"]), Ok(Some(42)));
        let longest = MAX_LENGTH.to_string();
        assert_eq!(length(&[&longest]), Ok(Some(MAX_LENGTH)));
        assert_eq!(length(&["5", "5"]), Ok(Some(5)));
        assert_eq!(length(&["5, 5,5"]), Ok(Some(5)));
        for garbage in [
            "",
            "1152921504606846977",
            "+5",
            "-5",
            "5 5",
            "5,",
            ",5",
            "0x5",
            "5.0",
            "five",
            "18446744073709551616",
            "٥",
        ] {
            assert_eq!(
                length(&[garbage]),
                Err(ReadError::GarbageContentLength),
                "{garbage:?}"
            );
        }
        for conflict in [&["5", "6"][..], &["5, 6"], &["5,5", "6"]] {
            assert_eq!(length(conflict), Err(ReadError::ConflictingContentLength));
        }
    }

    #[test]
    fn accepts_only_the_chunked_transfer_coding() {
        assert!(of(&[("transfer-encoding", "chunked")]).unwrap().chunked);
        assert!(of(&[("Transfer-Encoding", "Chunked")]).unwrap().chunked);
        for bad in [
            "",
            "gzip",
            "chunked, gzip",
            "gzip, chunked",
            "chunked, chunked",
            "chunked;q=1",
            "identity",
        ] {
            assert_eq!(
                of(&[("Transfer-Encoding", bad)]),
                Err(ReadError::UnsupportedTransferCoding),
                "{bad:?}"
            );
        }
        let twice = [("Transfer-Encoding", "chunked"); 2];
        assert_eq!(of(&twice), Err(ReadError::UnsupportedTransferCoding));
    }

    #[test]
    fn connection_options_are_lists() {
        let fields = of(&[("CONNECTION", "foo, Close ,bar")]).unwrap();
        assert!(fields.close && !fields.keep_alive);
        let fields = of(&[("Connection", "Keep-Alive"), ("connection", "closed")]).unwrap();
        assert!(fields.keep_alive && !fields.close);
    }

    #[test]
    fn ignores_headers_with_similar_names() {
        let same = [
            ("Content-MD5", "x"),
            ("Cookie-Set", "close"),
            ("Content-Length2", "x"),
            ("Content-Lengtx", "x"),
        ];
        assert_eq!(of(&same), Ok(Fields::default()));
    }
}
