//! How text is drawn: with or without colour, and how wide. Whoever owns the terminal finds that out and
//! passes it in; nothing here looks at a terminal or at `NO_COLOR`.

/// Narrower than this, text is drawn as if it were this wide and left to the terminal to wrap.
const LEAST_WIDTH: usize = 40;

/// How text is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether colours (ANSI SGR sequences) may be used.
    pub colour: bool,
    /// Columns that a line may take.
    pub width: usize,
}

impl Style {
    /// Columns to draw for.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.width.max(LEAST_WIDTH)
    }

    /// `text` in a colour, or as it is where colours are off.
    #[must_use]
    pub fn paint(&self, paint: Paint, text: &str) -> String {
        match paint.sgr() {
            Some(code) if self.colour => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            _ => text.to_owned(),
        }
    }
}

/// What a piece of text means, and so how it is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// Ordinary text.
    Plain,
    /// The figure that was asked for.
    Strong,
    /// What explains a figure.
    Faint,
    /// As it should be.
    Good,
    /// Worth a look.
    Warn,
    /// Not as it should be.
    Bad,
}

impl Paint {
    /// Only the eight basic colours: every terminal has them, and themes keep them readable.
    fn sgr(self) -> Option<&'static str> {
        match self {
            Paint::Plain => None,
            Paint::Strong => Some("1"),
            Paint::Faint => Some("2"),
            Paint::Good => Some("32"),
            Paint::Warn => Some("33"),
            Paint::Bad => Some("31"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_colour_means_no_escape_sequence() {
        let mut style = Style {
            colour: false,
            width: 80,
        };
        assert_eq!(style.paint(Paint::Bad, "wrong"), "wrong");
        style.colour = true;
        assert_eq!(style.paint(Paint::Bad, "wrong"), "\u{1b}[31mwrong\u{1b}[0m");
        assert_eq!(style.paint(Paint::Plain, "so"), "so");
    }
}
