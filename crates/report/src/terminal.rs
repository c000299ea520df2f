//! Terminal text: labels next to wrapped text, and tables that drop columns if the terminal is too
//! narrow.
//!
//! [`plain::line`] escapes everything, so text from servers and URLs cannot control the terminal.

use floodmark_record::Record;
use floodmark_record::comparison::{ComparisonReport, TrendReport};
use floodmark_record::disk::DiskResult;
use floodmark_record::host::HostFinding;
use floodmark_record::run::Run;
use floodmark_record::verdict::Verdict;

use crate::model;
pub use crate::model::document::Extent;
use crate::model::document::{Block, Blocks, Cell, Detail, Emphasis, Span, Table, TextLine};
use crate::plain;

/// Minimum width of drawn text, in columns. A narrower terminal wraps the text.
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

/// Returns the SGR code of an emphasis. Uses only the eight basic colors, which every terminal
/// supports and themes keep readable.
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

/// Width of the label before a value, in characters.
const LABEL: usize = 13;

/// Columns between the cells of a table.
const GAP: usize = 2;

/// No-break space; printed as an ordinary space.
const NO_BREAK: char = '\u{a0}';

/// Draws the summary of a record. `next` is the recommended next step.
#[must_use]
pub fn summary(record: &Record, next: Option<&str>, extent: Extent, style: Style) -> String {
    draw(&model::summary::document(record, next, extent), style)
}

/// Draws the result of any command. `next` is the recommended next step.
#[must_use]
pub fn result(record: &Record, next: Option<&str>, style: Style) -> String {
    draw(&model::document(record, next), style)
}

/// Draws the result of a record's experiment. Returns an empty string for other records.
#[must_use]
pub fn experiment(record: &Record, style: Style) -> String {
    let document = match record.tuning {
        Some(_) => model::tuning::document(record),
        None => model::experiment::document(record),
    };
    draw(&document, style)
}

/// Draws the result of `floodmark capacity`.
#[must_use]
pub fn capacity(record: &Record, style: Style) -> String {
    draw(&model::capacity::document(record), style)
}

/// Draws what limited each run. `None` stands for a run without a verdict.
#[must_use]
pub fn why<'a>(
    judged: impl IntoIterator<Item = (&'a Run, Option<Verdict>)>,
    style: Style,
) -> String {
    draw(&model::verdict::document(judged), style)
}

/// Draws the comparison of two results.
#[must_use]
pub fn comparison(compared: &ComparisonReport, style: Style) -> String {
    draw(&model::comparison::document(compared), style)
}

/// Draws the trends of several results.
#[must_use]
pub fn trends(report: &TrendReport, style: Style) -> String {
    draw(&model::trend::document(report), style)
}

/// Draws the findings of `floodmark doctor`. Commands are never wrapped, so that they can be
/// pasted.
#[must_use]
pub fn doctor(findings: &[HostFinding], style: Style) -> String {
    draw(&model::doctor::document(findings), style)
}

/// Draws the result of `floodmark disk`.
#[must_use]
pub fn disk(result: &DiskResult, style: Style) -> String {
    draw(&model::disk::document(result), style)
}

/// Draws a document.
pub(crate) fn draw(blocks: &Blocks, style: Style) -> String {
    let mut canvas = Canvas {
        style,
        out: String::new(),
    };
    for block in &blocks.0 {
        match block {
            Block::Gap => canvas.out.push('\n'),
            Block::Paragraph(spans) => canvas.wrap(2, spans),
            Block::Line(line) => canvas.line(line),
            Block::Command(label, command) => {
                let text = format!("{label:<LABEL$}{}", plain::line(command));
                canvas.out.push_str(text.trim_end());
                canvas.out.push('\n');
            }
            Block::Table(table) => canvas.table(table),
            Block::Subheading(text) => canvas.wrap(2, &[Emphasis::Strong.span(text)]),
            Block::Section(heading, explanation) => {
                canvas.wrap(2, &[heading.clone(), explanation.clone()]);
            }
            Block::Ranking(_) | Block::Charts(_) => {}
        }
    }
    canvas.out
}

/// A drawing in progress.
struct Canvas {
    style: Style,
    out: String,
}

impl Canvas {
    /// Draws `label   value`, with the value wrapped to the right of the label.
    fn line(&mut self, line: &TextLine) {
        self.out
            .push_str(&format!("{:<LABEL$}", plain::line(&line.label)));
        self.wrap(LABEL, &line.spans);
    }

    /// Draws a table that fits the width. If there is not enough room, drops the supplements first,
    /// then columns.
    fn table(&mut self, table: &Table) {
        let room = self.style.columns();
        let (mut shown, mut width, mut note) = (Vec::new(), usize::MAX, String::new());
        for (supplements, detail) in [
            (true, Detail::Roomy),
            (false, Detail::Roomy),
            (false, Detail::Essential),
        ] {
            if width > room {
                shown = cells(table, supplements, detail);
                width = widths(&shown).iter().sum();
                note = table.note(supplements);
            }
        }
        let widths = widths(&shown);
        for row in &shown {
            let mut line = format!("{:<width$}", row[0].text, width = widths[0]);
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                let gap = width.saturating_sub(cell.text.chars().count());
                line.extend(std::iter::repeat_n(' ', gap));
                line.push_str(&self.style.paint(cell.emphasis, &cell.text));
            }
            self.out.push_str(line.trim_end());
            self.out.push('\n');
        }
        if !note.is_empty() {
            let note = Emphasis::Faint.span(format!("({note})"));
            self.line(&TextLine::new("", [note]));
        }
    }

    /// Wraps text between words. Long words such as URLs stay whole, so that they can be copied.
    fn wrap(&mut self, indent: usize, spans: &[Span]) {
        let painted = |span: &Span| self.style.paint(span.emphasis, &plain::line(&span.text));
        let spans = spans.iter().filter(|span| !span.text.is_empty());
        let text = glue_flags(&spans.map(painted).collect::<Vec<_>>().join(" "));
        let options = textwrap::Options::new(self.style.columns() - indent)
            .word_splitter(textwrap::WordSplitter::NoHyphenation)
            .break_words(false);
        let lines = textwrap::wrap(&text, options);
        let lines: Vec<&str> = lines.iter().map(|line| line.trim_start()).collect();
        let text = lines
            .join(&format!("\n{:indent$}", ""))
            .replace(NO_BREAK, " ");
        self.out.push_str(&text);
        self.out.truncate(self.out.trim_end_matches(' ').len());
        self.out.push('\n');
    }
}

/// Keeps each flag of a command on the same line as its value: `-t 2`, `--out DIRECTORY`.
fn glue_flags(text: &str) -> String {
    let is_flag = |word: &str| {
        let name = word.strip_prefix('-').unwrap_or_default();
        name.starts_with(|c: char| c == '-' || c.is_ascii_alphabetic())
            && name.ends_with(|c: char| c.is_ascii_alphabetic())
    };
    let mut glued = String::with_capacity(text.len());
    for word in text.split_inclusive(' ') {
        let bare = word.trim_end_matches(' ');
        glued.push_str(bare);
        if bare.len() < word.len() {
            glued.push(if is_flag(bare) { NO_BREAK } else { ' ' });
        }
    }
    glued
}

/// Returns the rows of a table as text. The headings come first, and names are in the first column.
fn cells(table: &Table, supplements: bool, detail: Detail) -> Vec<Vec<Span>> {
    let span =
        |emphasis: Emphasis, text: &str| emphasis.span(plain::line(text).replace(NO_BREAK, " "));
    let cell = |cell: &Cell| {
        let supplement = if supplements { &cell.supplement } else { "" };
        let text = format!("{} {supplement}", cell.span.text);
        span(cell.span.emphasis, text.trim_end())
    };
    let columns = table.shown(detail);
    let heads = columns.iter().map(|i| &table.columns[*i].head);
    let heads = heads.map(|head| span(Emphasis::Faint, head));
    let caption = [span(Emphasis::Plain, &table.caption)].into_iter();
    let mut rows = vec![Vec::from_iter(caption.chain(heads))];
    for row in table.rows.iter().filter(|row| row.detail <= detail) {
        let shown = columns.iter().map(|i| cell(&row.cells[*i]));
        let name = [span(Emphasis::Plain, &row.name)].into_iter();
        rows.push(name.chain(shown).collect());
    }
    rows
}

/// Returns the width of each column, including the gap before it. The first column is at least as
/// wide as a label.
fn widths(rows: &[Vec<Span>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let texts = rows.iter().filter_map(|row| row.get(column));
        let widest = texts.map(|span| span.text.chars().count()).max();
        match (column, widest.unwrap_or(0)) {
            (0, widest) => LABEL.max(widest),
            (_, widest) => widest + GAP,
        }
    };
    (0..columns).map(width).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::document::{Row, faint, line, plain};

    fn style(width: usize) -> Style {
        Style {
            color: false,
            width,
        }
    }

    /// Draws lines without colors.
    pub(crate) fn drawn(lines: impl IntoIterator<Item = TextLine>, width: usize) -> String {
        let mut blocks = Blocks::default();
        blocks.lines(lines);
        draw(&blocks, style(width))
    }

    /// Draws tables without colors.
    pub(crate) fn drawn_tables(tables: impl IntoIterator<Item = Table>, width: usize) -> String {
        let mut blocks = Blocks::default();
        blocks.tables(tables);
        draw(&blocks, style(width))
    }

    #[test]
    fn breaks_between_words_and_never_within_a_figure() {
        let text = drawn(
            [
                TextLine::new(
                    "client",
                    [plain("one two three four five six"), faint("4.4\u{a0}µs")],
                ),
                line("url", format!("at http://host/{}", "x".repeat(40))),
                line("next", "add some client threads: -t 2"),
            ],
            40,
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "client       one two three four five six");
        assert_eq!(lines[1], "             4.4 µs");
        assert_eq!(lines[2], "url          at");
        assert_eq!(lines[3].trim_start().len(), 52);
        assert_eq!(lines[4], "next         add some client threads:");
        assert_eq!(lines[5], "             -t 2");
    }

    #[test]
    fn passes_only_its_own_escape_sequences() {
        let mut blocks = Blocks::default();
        blocks.lines([TextLine::new(
            "next",
            [Emphasis::Bad.span("\u{1b}]0;owned\u{7}")],
        )]);
        let row = Row::new("x\u{1b}[2J", vec!["\u{1b}c".to_owned().into()]);
        blocks.tables([Table::new(["\u{1b}c"], [row])]);
        let style = Style {
            color: true,
            width: 80,
        };
        let text = draw(&blocks, style);
        let own = ["\u{1b}[31m", "\u{1b}[2m", "\u{1b}[0m"];
        let rest = own
            .iter()
            .fold(text.clone(), |text, own| text.replace(own, ""));
        assert!(
            !rest.contains('\u{1b}') && !rest.contains('\u{7}'),
            "{text:?}"
        );
    }

    #[test]
    fn columns_never_touch() {
        let cells = vec!["123,456,789".to_owned().into(), "x".to_owned().into()];
        let row = Row::new("a-name-longer-than-a-label", cells);
        let table = Table::new(["a", "b"], [row]);
        assert_eq!(
            drawn_tables([table], 80).lines().last(),
            Some("a-name-longer-than-a-label  123,456,789  x")
        );
    }

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
