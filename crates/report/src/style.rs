//! Text style: color and width. The caller derives both from the terminal.

use crate::model::document::Emphasis;

/// Minimum width of drawn text. A narrower terminal wraps the text.
const MIN_WIDTH: usize = 40;

/// How text is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether colors (ANSI SGR sequences) are used.
    pub color: bool,
    /// Maximum number of columns in a line.
    pub width: usize,
}

impl Style {
    /// Returns the number of columns to draw.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.width.max(MIN_WIDTH)
    }

    /// Colors `text` by its emphasis. Returns the text unchanged if colors are disabled.
    #[must_use]
    pub fn paint(&self, emphasis: Emphasis, text: &str) -> String {
        match sgr(emphasis) {
            Some(code) if self.color => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            _ => text.to_owned(),
        }
    }
}

/// Uses only the eight basic colors, which every terminal supports and themes keep readable.
fn sgr(emphasis: Emphasis) -> Option<&'static str> {
    match emphasis {
        Emphasis::Plain | Emphasis::Step => None,
        Emphasis::Strong => Some("1"),
        Emphasis::Faint => Some("2"),
        Emphasis::Good => Some("32"),
        Emphasis::Warn => Some("33"),
        Emphasis::Bad => Some("31"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_no_escape_sequence_without_color() {
        let mut style = Style {
            color: false,
            width: 80,
        };
        assert_eq!(style.paint(Emphasis::Bad, "wrong"), "wrong");
        style.color = true;
        assert_eq!(
            style.paint(Emphasis::Bad, "wrong"),
            "\u{1b}[31mwrong\u{1b}[0m"
        );
        assert_eq!(style.paint(Emphasis::Plain, "so"), "so");
    }
}
