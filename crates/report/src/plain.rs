//! Text from servers, URLs and command lines on its way to a terminal or a file that a terminal may show.

use std::borrow::Cow;
use std::fmt::Write;

/// The longest text that is shown of one URL, reason or detail, in characters; the rest becomes "…".
pub const LONGEST: usize = 2_000;

/// `text` as one line that cannot act on a terminal.
///
/// Line breaks and tabs become spaces, so nobody can forge a line of ours. Control characters (C0, DEL,
/// C1), which start escape sequences, and the invisible characters that reorder or hide text become visible
/// escapes such as `\u{1b}`. Anything beyond [`LONGEST`] characters is cut.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    if text.chars().nth(LONGEST).is_none() && !text.chars().any(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len().min(4 * LONGEST));
    for (i, c) in text.chars().enumerate() {
        if i == LONGEST {
            out.push('…');
            break;
        }
        match c {
            '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => out.push(' '),
            c if acts(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Whether a character does something to a terminal rather than stand for itself.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Line and paragraph separators, marks and overrides of direction ("Trojan Source", CVE-2021-42574).
            '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}'
            // Invisible: zero-width space and joiners, word joiner, byte-order mark, tag characters.
            | '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_text_is_left_alone() {
        for text in ["", "http://127.0.0.1:8080/a?b=c", "251 µs – größer", "日本"] {
            assert!(matches!(line(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn escape_sequences_become_visible() {
        assert_eq!(line("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(line("\u{9b}31m"), "\\u{9b}31m");
        assert_eq!(line("bell\u{7}"), "bell\\u{7}");
        assert_eq!(line("\u{202e}gnp.exe"), "\\u{202e}gnp.exe");
    }

    #[test]
    fn a_line_stays_one_line() {
        assert_eq!(line("a\r\nvalidity  valid"), "a  validity  valid");
    }

    #[test]
    fn overlong_text_is_cut() {
        let text = line(&"x".repeat(LONGEST + 1)).into_owned();
        assert_eq!(text.chars().count(), LONGEST + 1);
        assert!(text.ends_with('…'));
        assert_eq!(line(&"x".repeat(LONGEST)).len(), LONGEST);
    }

    proptest! {
        #[test]
        fn nothing_that_acts_comes_through(text in any::<String>()) {
            prop_assert!(!line(&text).chars().any(acts));
        }
    }
}
