//! Responses that were not ok.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of statuses for which a response is kept.
pub const MAX_STATUSES: usize = 5;

/// Maximum number of bytes of a body that are kept.
pub const MAX_EXCERPT: usize = 200;

/// The first response with a given status that is not ok.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotOkResponse {
    /// Status code.
    pub status: u16,
    /// The first 200 bytes of the body. Control characters are escaped, and bytes that are not UTF-8
    /// are replaced. If the body is longer, the text ends with `…`.
    pub body: String,
}

impl NotOkResponse {
    /// Creates a response from its status and body. `body` may be truncated, but not to fewer than
    /// [`MAX_EXCERPT`] + 1 bytes.
    #[must_use]
    pub fn new(status: u16, body: &[u8]) -> Self {
        let excerpt = body.get(..MAX_EXCERPT);
        let text = String::from_utf8_lossy(excerpt.unwrap_or(body));
        // The cut may have split a character.
        let text = match excerpt {
            Some(_) => text.trim_end_matches(char::REPLACEMENT_CHARACTER),
            None => &text,
        };
        let mut escaped = String::with_capacity(text.len());
        for character in text.chars() {
            match character.is_control() {
                true => escaped.extend(character.escape_default()),
                false => escaped.push(character),
            }
        }
        if body.len() > MAX_EXCERPT {
            escaped.push('…');
        }
        NotOkResponse {
            status,
            body: escaped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_short_and_harmless() {
        let of = |body: &[u8]| NotOkResponse::new(500, body).body;
        assert_eq!(of(b"a\r\n\x1b[31m\xffb"), "a\\r\\n\\u{1b}[31m\u{fffd}b");
        assert_eq!(of("é".repeat(100).as_bytes()), "é".repeat(100));
        let cut = of(format!("x{}", "é".repeat(100)).as_bytes());
        assert_eq!(cut, format!("x{}…", "é".repeat(99)));
    }
}
