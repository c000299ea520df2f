//! Documents: blocks in reading order.

use super::chart::Chart;
use super::table::Table;
use super::text::{Emphasis, Span, TextLine, faint};

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

/// One row of a ranking.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RankedBar {
    pub(crate) name: String,
    /// Figure per second.
    pub(crate) per_s: f64,
    /// Lower and upper end of the line on the bar, if known.
    pub(crate) range: Option<(f64, f64)>,
    /// Cause and validity.
    pub(crate) about: Vec<Span>,
}

/// Figures as bars.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ranking {
    /// What the bars and the lines on them show.
    pub(crate) caption: String,
    pub(crate) bars: Vec<RankedBar>,
}

impl Ranking {
    /// Returns the upper end of the scale. Ranges that extend beyond it are cut off.
    pub(crate) fn largest(&self) -> f64 {
        const MOST_BEYOND: f64 = 1.25;
        let ends = self
            .bars
            .iter()
            .map(|bar| bar.range.map_or(bar.per_s, |(_, high)| high));
        let highest = self.bars.iter().map(|bar| bar.per_s).fold(0.0, f64::max);
        let end = ends.fold(f64::MIN_POSITIVE, f64::max);
        end.min(MOST_BEYOND * highest).max(f64::MIN_POSITIVE)
    }
}
