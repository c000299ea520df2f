//! The fields of a response head or of trailers (RFC 9113 sections 8.1 to 8.3).

use super::error::Malformed;
use crate::head::Fields;

/// Collects the fields of one section that the session needs, and checks all fields.
#[derive(Debug, Default)]
pub(super) struct Section {
    is_trailers: bool,
    status: Option<u16>,
    framing: Fields,
    has_regular: bool,
    fault: Option<Malformed>,
}

impl Section {
    /// Creates an empty section. Trailers have no status.
    pub fn new(is_trailers: bool) -> Self {
        Section {
            is_trailers,
            ..Section::default()
        }
    }

    /// Reads a field. Returns whether it is a legal regular field of trailers or of a final
    /// response.
    #[inline]
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> bool {
        if self.fault.is_some() {
            return false;
        }
        let checked = match name.strip_prefix(b":") {
            Some(name) => self.pseudo(name, value),
            None => self.regular(name, value),
        };
        let is_final = self.is_trailers || self.status.is_some_and(|status| status >= 200);
        match checked {
            Ok(()) => is_final && self.has_regular,
            Err(fault) => {
                self.fault = Some(fault);
                false
            }
        }
    }

    fn pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), Malformed> {
        if self.is_trailers || self.has_regular || self.status.is_some() || name != b"status" {
            return Err(Malformed::PseudoField);
        }
        let [b'1'..=b'9', b'0'..=b'9', b'0'..=b'9'] = value else {
            return Err(Malformed::Status);
        };
        let digits = value.iter().map(|digit| u16::from(digit - b'0'));
        self.status = match digits.fold(0, |status, digit| status * 10 + digit) {
            101 => return Err(Malformed::Status),
            status => Some(status),
        };
        Ok(())
    }

    fn regular(&mut self, name: &[u8], value: &[u8]) -> Result<(), Malformed> {
        self.has_regular = true;
        let is_legal = |byte: &u8| matches!(byte, 0x21..=0x39 | 0x3b..=0x40 | 0x5b..=0x7e);
        if name.is_empty() || !name.iter().all(is_legal) {
            return Err(Malformed::FieldName);
        }
        let is_illegal = |byte: &u8| matches!(byte, b'\0' | b'\n' | b'\r');
        let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        // The percent-encoding of gRPC leaves spaces as they are, also at the ends of a message.
        let has_space = is_space(value.first()) || is_space(value.last());
        if value.iter().any(is_illegal) || (has_space && name != b"grpc-message") {
            return Err(Malformed::FieldValue);
        }
        if is_connection_field(name) || name == b"te" && value != b"trailers" {
            return Err(Malformed::ConnectionField);
        }
        if name == b"content-length" && !self.is_trailers {
            let length = self.framing.content_length(value);
            return length.map_err(|_| Malformed::ContentLength);
        }
        Ok(())
    }

    /// Returns the status, which is 0 for trailers, and `content-length`.
    ///
    /// # Errors
    /// The section is malformed.
    pub fn finish(self) -> Result<(u16, Option<u64>), Malformed> {
        match (self.fault, self.status) {
            (Some(fault), _) => Err(fault),
            (None, None) if !self.is_trailers => Err(Malformed::PseudoField),
            (None, status) => Ok((status.unwrap_or(0), self.framing.length)),
        }
    }
}

/// Returns whether a lower-case name belongs to HTTP/1.1 connections (RFC 9113 section 8.2.2).
#[inline]
pub(super) fn is_connection_field(name: &[u8]) -> bool {
    matches!(
        name,
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        is_trailers: bool,
        fields: &[(&str, &str)],
    ) -> Result<(u16, Option<u64>, usize), Malformed> {
        let mut section = Section::new(is_trailers);
        let passed = fields
            .iter()
            .filter(|(name, value)| section.field(name.as_bytes(), value.as_bytes()))
            .count();
        section
            .finish()
            .map(|(status, length)| (status, length, passed))
    }

    #[test]
    fn passes_regular_fields_of_final_responses() {
        let fields = [(":status", "200"), ("content-length", "5"), ("x", "")];
        assert_eq!(read(false, &fields), Ok((200, Some(5), 2)));
        let fields = [(":status", "103"), ("link", "</s.css>")];
        assert_eq!(read(false, &fields), Ok((103, None, 0)));
        assert_eq!(read(true, &[("grpc-status", "0")]), Ok((0, None, 1)));
        assert_eq!(read(true, &[]), Ok((0, None, 0)));
    }

    #[test]
    fn names_each_fault() {
        use Malformed::*;
        let faults: [(&[(&str, &str)], Malformed); 20] = [
            (&[], PseudoField),
            (&[("a", "b")], PseudoField),
            (&[("a", "b"), (":status", "200")], PseudoField),
            (&[(":status", "200"), (":status", "200")], PseudoField),
            (&[(":status", "200"), (":path", "/")], PseudoField),
            (&[(":status", "20")], Status),
            (&[(":status", "2000")], Status),
            (&[(":status", "099")], Status),
            (&[(":status", "20x")], Status),
            (&[(":status", "101")], Status),
            (&[(":status", "200"), ("", "")], FieldName),
            (&[(":status", "200"), ("Server", "x")], FieldName),
            (&[(":status", "200"), ("a:", "x")], FieldName),
            (&[(":status", "200"), ("a", "b\r\nc: d")], FieldValue),
            (&[(":status", "200"), ("a", " b")], FieldValue),
            (&[(":status", "200"), ("a", "b\t")], FieldValue),
            (
                &[(":status", "200"), ("connection", "close")],
                ConnectionField,
            ),
            (
                &[(":status", "200"), ("transfer-encoding", "chunked")],
                ConnectionField,
            ),
            (
                &[(":status", "200"), ("content-length", "+5")],
                ContentLength,
            ),
            (
                &[
                    (":status", "200"),
                    ("content-length", "5"),
                    ("content-length", "6"),
                ],
                ContentLength,
            ),
        ];
        for (fields, fault) in faults {
            assert_eq!(read(false, fields), Err(fault), "{fields:?}");
        }
        assert_eq!(read(true, &[(":status", "200")]), Err(PseudoField));
    }

    /// The first fault is reported, and no field passes after it.
    #[test]
    fn nothing_passes_after_a_fault() {
        let mut section = Section::new(false);
        assert!(!section.field(b":status", b"200"));
        assert!(!section.field(b"A", b""));
        assert!(!section.field(b"a", b" "));
        assert_eq!(section.finish(), Err(Malformed::FieldName));
    }
}
