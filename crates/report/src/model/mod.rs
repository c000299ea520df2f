//! The presentation model: the content of a result in reading order, with words, units, precision
//! and emphasis already chosen.
//!
//! Each part is built once from a record. The renderers (`terminal`, `html`) draw the parts without
//! computing figures or choosing words.

pub(crate) mod agents;
pub(crate) mod attempts;
pub(crate) mod capacity;
pub(crate) mod capacity_progress;
pub(crate) mod cases;
pub(crate) mod chart;
pub(crate) mod claims;
pub(crate) mod comparison;
pub(crate) mod crash;
pub(crate) mod disk;
pub(crate) mod doctor;
pub(crate) mod environment;
pub(crate) mod experiment;
pub(crate) mod figures;
pub(crate) mod gate;
pub(crate) mod groups;
pub(crate) mod ladder;
pub(crate) mod names;
pub(crate) mod outcomes;
pub(crate) mod page;
pub(crate) mod placement;
pub(crate) mod plan;
pub(crate) mod process_use;
pub(crate) mod ranking;
pub(crate) mod ratios;
pub(crate) mod repeat;
pub(crate) mod run;
pub(crate) mod steps;
pub(crate) mod summary;
pub(crate) mod sweep;
pub(crate) mod table;
pub(crate) mod times;
pub(crate) mod trend;
pub(crate) mod trial_capacities;
pub(crate) mod tuning;
pub(crate) mod verdict;

use std::borrow::Borrow;
use std::collections::BTreeSet;

use floodmark_record::Record;

pub(crate) use chart::Chart;
pub(crate) use ranking::Ranking;
pub(crate) use table::{Cell, Column, ColumnCell, Detail, Row, Table};

/// Returns the result of any command as a document. `next` is the recommended next step.
pub(crate) fn document(record: &Record, next: Option<&str>) -> Blocks {
    match &record.experiment {
        Some(_) if record.tuning.is_some() => tuning::document(record),
        Some(_) => experiment::document(record),
        None if record.capacity.is_some() => capacity::document(record),
        None => summary::document(record, next),
    }
}

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
    let line = |(text, names): (String, Vec<N>)| match names.len() == all.len() {
        true => line(label, text),
        false => line(label, format!("{}: {text}", names.join(", "))),
    };
    found.into_iter().map(line).collect()
}

/// A part of a document.
#[derive(Debug, Clone)]
pub(crate) enum Block {
    /// An empty line.
    Gap,
    /// Text over the full width.
    Paragraph(Vec<Span>),
    /// A labeled line.
    Line(TextLine),
    /// A labeled line that must not be wrapped.
    Command(String, String),
    /// A table.
    Table(Table),
    /// Heading and explanation of a section of a document.
    Section(Span, Span),
    /// A heading within a section of a page.
    Subheading(String),
    /// Loads ranked by their figure; shown only on the page.
    Ranking(Ranking),
    /// Charts next to each other; shown only on the page.
    Charts(Vec<Chart>),
}

/// Parts of a document in reading order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Blocks(pub(crate) Vec<Block>);

impl Blocks {
    /// Returns the notes followed by the charts, or no blocks if there are no charts.
    pub(crate) fn of_charts(charts: Vec<Chart>, notes: impl IntoIterator<Item = String>) -> Self {
        let mut blocks = Blocks::default();
        if !charts.is_empty() {
            notes
                .into_iter()
                .for_each(|note| blocks.paragraph([faint(note)]));
            blocks.0.push(Block::Charts(charts));
        }
        blocks
    }

    /// Limits each table to `rows` rows.
    pub(crate) fn limited(self, rows: usize) -> Self {
        let limited = |block| match block {
            Block::Table(table) => Block::Table(table.limited(rows)),
            other => other,
        };
        Blocks(self.0.into_iter().map(limited).collect())
    }

    pub(crate) fn gap(&mut self) {
        self.0.push(Block::Gap);
    }

    /// Starts a section with an explanation next to the heading.
    pub(crate) fn section(&mut self, heading: impl Into<String>, explanation: &str) {
        self.gap();
        let explanation = faint(format!("({explanation})"));
        self.0
            .push(Block::Section(Emphasis::Strong.span(heading), explanation));
    }

    pub(crate) fn paragraph(&mut self, spans: impl Into<Vec<Span>>) {
        self.0.push(Block::Paragraph(spans.into()));
    }

    pub(crate) fn lines(&mut self, lines: impl IntoIterator<Item = TextLine>) {
        self.0.extend(lines.into_iter().map(Block::Line));
    }

    /// Adds lines that describe the named run.
    pub(crate) fn lines_of(&mut self, name: &str, lines: impl IntoIterator<Item = TextLine>) {
        self.lines(lines.into_iter().map(|line| line.of(name)));
    }

    pub(crate) fn command(&mut self, label: &str, command: &str) {
        self.0
            .push(Block::Command(label.to_owned(), command.to_owned()));
    }

    pub(crate) fn subheading(&mut self, text: &str) {
        self.0.push(Block::Subheading(text.to_owned()));
    }

    pub(crate) fn tables(&mut self, tables: impl IntoIterator<Item = Table>) {
        self.0.extend(tables.into_iter().map(Block::Table));
    }
}
