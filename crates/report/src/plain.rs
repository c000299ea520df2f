//! Escapes text from servers, URLs and command lines for a terminal.

use std::borrow::Cow;

use maud::Render;

/// Maximum length of displayed text, in characters. "…" replaces the rest.
pub const MAX_LENGTH: usize = 2_000;

/// Returns `text` as one line that cannot control a terminal.
///
/// Line breaks and tabs become spaces, so that no text can forge a line. Control characters (C0,
/// DEL, C1) and invisible characters that reorder or hide text become escapes such as `\u{1b}`.
/// Text longer than [`MAX_LENGTH`] characters is truncated.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    if text.chars().nth(MAX_LENGTH).is_none() && !text.chars().any(is_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len().min(4 * MAX_LENGTH));
    for (i, c) in text.chars().enumerate() {
        if i == MAX_LENGTH {
            out.push('…');
            break;
        }
        match c {
            '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => out.push(' '),
            c if is_control(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Returns whether a character can control a terminal or hide text.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Line and paragraph separators, direction marks and overrides ("Trojan Source",
            // CVE-2021-42574).
            '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}'
            // Invisible characters: zero-width space and joiners, word joiner, byte-order mark, tag
            // characters.
            | '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// Text that a user or a server may have chosen. maud escapes HTML. This type also escapes control
/// characters and characters that reorder text.
pub(crate) struct Harmless<'a>(pub(crate) &'a str);

impl Render for Harmless<'_> {
    fn render_to(&self, buffer: &mut String) {
        line(self.0).as_ref().render_to(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keeps_ordinary_text() {
        for text in ["", "http://127.0.0.1:8080/a?b=c", "251 µs – größer", "日本"] {
            assert!(matches!(line(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn shows_escape_sequences_as_text() {
        assert_eq!(line("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(line("\u{9b}31m"), "\\u{9b}31m");
        assert_eq!(line("bell\u{7}"), "bell\\u{7}");
        assert_eq!(line("\u{202e}gnp.exe"), "\\u{202e}gnp.exe");
    }

    #[test]
    fn removes_line_breaks() {
        assert_eq!(line("a\r\nvalidity  valid"), "a  validity  valid");
    }

    #[test]
    fn cuts_long_text() {
        let text = line(&"x".repeat(MAX_LENGTH + 1)).into_owned();
        assert_eq!(text.chars().count(), MAX_LENGTH + 1);
        assert!(text.ends_with('…'));
        assert_eq!(line(&"x".repeat(MAX_LENGTH)).len(), MAX_LENGTH);
    }

    proptest! {
        #[test]
        fn no_control_character_passes(text in any::<String>()) {
            prop_assert!(!line(&text).chars().any(is_control));
        }
    }
}
