//! Labelled, wrapped lines: the layout that summary and attempts share.

use crate::plain;
use crate::style::{Paint, Style};

/// Columns of the label before every value.
pub(crate) const LABEL: usize = 13;

/// A piece of a value. Breaks fall on spaces only; a figure and its unit are held together by [`glue`].
pub(crate) type Span = (Paint, String);

/// Text of one page. Everything passes [`plain::line`] on its way in, so nothing that a server or a URL
/// says can act on the terminal; the only escape sequences are the page's own colours.
pub(crate) struct Page {
    style: Style,
    out: String,
}

impl Page {
    pub(crate) fn new(style: Style) -> Self {
        Page {
            style,
            out: String::new(),
        }
    }

    pub(crate) fn columns(&self) -> usize {
        self.style.columns()
    }

    pub(crate) fn blank(&mut self) {
        self.out.push('\n');
    }

    /// `label   value`, the value wrapped beside the label.
    pub(crate) fn entry(&mut self, label: &str, spans: &[Span]) {
        self.out.push_str(&format!("{label:<LABEL$}"));
        self.wrap(LABEL, spans);
    }

    /// Text from the left edge; what does not fit goes on below, indented by two.
    pub(crate) fn headline(&mut self, spans: &[Span]) {
        self.wrap(2, spans);
    }

    /// Right-aligned cells beside a label, each with its own width.
    pub(crate) fn row(&mut self, label: &str, cells: &[(usize, Paint, String)]) {
        self.row_beside(LABEL, label, cells);
    }

    /// The same beside labels of another width.
    pub(crate) fn row_beside(
        &mut self,
        label_width: usize,
        label: &str,
        cells: &[(usize, Paint, String)],
    ) {
        let mut line = format!("{:<label_width$}", plain::line(label));
        // Too long a label takes its room from the gap before the first cell.
        let mut taken = line.chars().count() - label_width;
        for (width, paint, text) in cells {
            let text = plain::line(text);
            let gap = width.saturating_sub(text.chars().count());
            let pad = gap.saturating_sub(taken);
            taken -= gap - pad;
            line.extend(std::iter::repeat_n(' ', pad));
            line.push_str(&self.style.paint(*paint, &text));
        }
        self.out.push_str(line.trim_end());
        self.out.push('\n');
    }

    pub(crate) fn finish(self) -> String {
        self.out
    }

    /// Breaks between words where the next one would not fit; a word longer than the line stays whole, so
    /// that a URL can still be copied.
    fn wrap(&mut self, indent: usize, spans: &[Span]) {
        let mut column = 0;
        let room = self.columns() - indent;
        for (paint, text) in spans {
            let text = plain::line(text);
            // What of this span stands on the current line, coloured as one.
            let mut piece = String::new();
            for word in text.split(' ').filter(|word| !word.is_empty()) {
                let mut width = word.chars().count();
                let mut word = word.replace(HELD, " ");
                if column > 0 && column + 1 + width > room {
                    self.push(*paint, &mut piece);
                    self.out.push('\n');
                    self.out.extend(std::iter::repeat_n(' ', indent));
                    column = 0;
                    word = word.trim_start().to_owned();
                    width = word.chars().count();
                } else if column > 0 {
                    let to = if piece.is_empty() {
                        &mut self.out
                    } else {
                        &mut piece
                    };
                    to.push(' ');
                    column += 1;
                }
                piece.push_str(&word);
                column += width;
            }
            self.push(*paint, &mut piece);
        }
        self.out.truncate(self.out.trim_end_matches(' ').len());
        self.out.push('\n');
    }

    fn push(&mut self, paint: Paint, piece: &mut String) {
        if !piece.is_empty() {
            self.out.push_str(&self.style.paint(paint, piece));
            piece.clear();
        }
    }
}

/// The no-break space; shown as an ordinary one.
const HELD: char = '\u{a0}';

/// `text` as one word that no line break falls into.
pub(crate) fn glue(text: &str) -> String {
    text.replace(' ', "\u{a0}")
}

pub(crate) fn plain(text: impl Into<String>) -> Span {
    (Paint::Plain, text.into())
}

pub(crate) fn faint(text: impl Into<String>) -> Span {
    (Paint::Faint, text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaks_fall_between_words_and_never_within_a_figure() {
        let mut page = Page::new(Style {
            colour: false,
            width: 40,
        });
        page.entry(
            "client",
            &[plain("one two three four five six"), plain(glue("4.4 µs"))],
        );
        page.entry(
            "url",
            &[plain(format!("at http://host/{}", "x".repeat(40)))],
        );
        let text = page.finish();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "client       one two three four five six");
        assert_eq!(lines[1], "             4.4 µs");
        assert_eq!(lines[2], "url          at");
        assert_eq!(lines[3].trim_start().len(), 52);
    }

    #[test]
    fn only_our_own_escape_sequences_come_through() {
        let mut page = Page::new(Style {
            colour: true,
            width: 80,
        });
        page.entry("next", &[(Paint::Bad, "\u{1b}]0;owned\u{7}".to_owned())]);
        page.row("x\u{1b}[2J", &[(5, Paint::Plain, "\u{1b}c".to_owned())]);
        let text = page.finish();
        let ours = text.replace("\u{1b}[31m", "").replace("\u{1b}[0m", "");
        assert!(
            !ours.contains('\u{1b}') && !ours.contains('\u{7}'),
            "{text:?}"
        );
    }
}
