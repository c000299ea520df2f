//! Text with emphasis, and labeled lines.

use std::borrow::Borrow;
use std::collections::BTreeSet;

/// Visual emphasis of text. The emphasis does not change the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Emphasis {
    /// Ordinary text.
    Plain,
    /// The main figure of a line.
    Strong,
    /// An explanation of a figure.
    Faint,
    /// A good result.
    Good,
    /// A warning.
    Warn,
    /// A failure.
    Bad,
    /// A step of a path, drawn as a box.
    Step,
}

impl Emphasis {
    /// Returns this emphasis if it applies, otherwise [`Emphasis::Plain`].
    pub(crate) fn when(self, applies: bool) -> Self {
        if applies { self } else { Emphasis::Plain }
    }

    /// Returns a span of `text` with this emphasis.
    pub(crate) fn span(self, text: impl Into<String>) -> Span {
        Span {
            emphasis: self,
            text: text.into(),
        }
    }
}

/// Text with one emphasis. No-break spaces keep a figure next to its unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) emphasis: Emphasis,
    pub(crate) text: String,
}

/// Returns a span without emphasis.
pub(crate) fn plain(text: impl Into<String>) -> Span {
    Emphasis::Plain.span(text)
}

/// Returns a span of explanatory text.
pub(crate) fn faint(text: impl Into<String>) -> Span {
    Emphasis::Faint.span(text)
}

/// A labeled line. A line without a label continues the previous one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextLine {
    pub(crate) label: String,
    pub(crate) spans: Vec<Span>,
}

impl TextLine {
    pub(crate) fn new(label: impl Into<String>, spans: impl Into<Vec<Span>>) -> Self {
        TextLine {
            label: label.into(),
            spans: spans.into(),
        }
    }

    /// Prepends the name of a run, except to a continuation line.
    pub(crate) fn of(mut self, name: &str) -> Self {
        if !name.is_empty() && !self.label.is_empty() {
            self.spans.insert(0, plain(format!("{name}:")));
        }
        self
    }
}

/// Returns a labeled line of plain text.
pub(crate) fn line(label: impl Into<String>, text: impl Into<String>) -> TextLine {
    TextLine::new(label, [plain(text)])
}

/// Returns a line for each distinct text. The line starts with the names that the text belongs to,
/// unless the text belongs to all names.
pub(crate) fn gathered<N: Ord + Clone + Borrow<str>, T: IntoIterator<Item = String>>(
    label: &str,
    named: impl IntoIterator<Item = (N, T)>,
) -> Vec<TextLine> {
    let mut found: Vec<(String, Vec<N>)> = Vec::new();
    let mut all = BTreeSet::new();
    for (name, texts) in named {
        all.insert(name.clone());
        for text in texts {
            match found.iter_mut().find(|(known, _)| *known == text) {
                Some((_, names)) if names.contains(&name) => {}
                Some((_, names)) => names.push(name.clone()),
                None => found.push((text, vec![name.clone()])),
            }
        }
    }
    let line = |(text, names): (String, Vec<N>)| {
        if names.len() == all.len() {
            line(label, text)
        } else {
            line(label, format!("{}: {text}", names.join(", ")))
        }
    };
    found.into_iter().map(line).collect()
}
