//! The parts of a document: text with emphasis and labeled lines, tables, and blocks in reading
//! order.
//!
//! Tables consist of typed cells for the terminal, the page, Markdown, CSV and JSON Lines. A column
//! with a name is part of `floodmark report --format csv`; its cells hold values for programs. A
//! column with a heading has text for people.

use std::borrow::Borrow;
use std::collections::BTreeSet;

use floodmark_record::plan::Plan;
use floodmark_record::times::Times;
use floodmark_record::units::show_count;
use serde::Serialize;
use serde_json::Value;

use super::chart::Chart;
use super::figures::{NOT_MEASURED, optional, time};

/// Visual emphasis of text. The emphasis does not change the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emphasis {
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

/// Text with a single style of emphasis. No-break spaces keep a figure next to its unit.
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

    /// Returns the text without emphasis.
    pub(crate) fn text(&self) -> String {
        let texts = self.spans.iter().map(|span| span.text.as_str());
        let texts = texts.filter(|text| !text.is_empty());
        texts.collect::<Vec<_>>().join(" ")
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
    let lines = |texts: T| texts.into_iter().map(|text| line(label, text));
    gathered_lines(named.into_iter().map(|(name, texts)| (name, lines(texts))))
}

/// Returns each distinct line once and groups lines with the same label. A line starts with the
/// names that it belongs to, unless it belongs to all names.
pub(crate) fn gathered_lines<N: Ord + Clone + Borrow<str>, L: IntoIterator<Item = TextLine>>(
    named: impl IntoIterator<Item = (N, L)>,
) -> Vec<TextLine> {
    let mut found: Vec<(TextLine, Vec<N>)> = Vec::new();
    let mut all = BTreeSet::new();
    for (name, lines) in named {
        all.insert(name.clone());
        for line in lines {
            match found.iter_mut().find(|(known, _)| *known == line) {
                Some((_, names)) if names.contains(&name) => {}
                Some((_, names)) => names.push(name.clone()),
                None => {
                    let last = found.iter().rposition(|(of, _)| of.label == line.label);
                    let place = last.map_or(found.len(), |last| last + 1);
                    found.insert(place, (line, vec![name.clone()]));
                }
            }
        }
    }
    let of_names =
        |(line, names): (TextLine, Vec<N>)| line.of(&names_unless_all(&names, all.len()));
    found.into_iter().map(of_names).collect()
}

/// Lists names, or returns an empty string if it would list all of them.
pub(crate) fn names_unless_all<N: Borrow<str>>(names: &[N], all: usize) -> String {
    if names.len() == all {
        String::new()
    } else {
        names.join(", ")
    }
}

/// Detail level of a column or row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Detail {
    /// Shown everywhere.
    Essential,
    /// Shown only if there is enough room.
    Roomy,
    /// Shown only on the page.
    Page,
    /// Shown in no document, only by `floodmark report --format`.
    Tables,
}

/// Level of detail of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Figures, cause, next step, failures and validity.
    Short,
    /// Also the evidence, the traffic, and the resource usage of client and server.
    Full,
}

/// A cell. The supplement is dropped if there is not enough room.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cell {
    /// Value for programs; null if not measured or not applicable. Text is not escaped.
    pub(crate) value: Value,
    pub(crate) span: Span,
    pub(crate) supplement: String,
}

impl Cell {
    pub(crate) fn new(text: impl Into<String>, supplement: Option<String>) -> Self {
        Cell {
            supplement: supplement.unwrap_or_default(),
            ..plain(text).into()
        }
    }
}

impl From<Span> for Cell {
    fn from(span: Span) -> Self {
        Cell {
            value: Value::Null,
            span,
            supplement: String::new(),
        }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        plain(text).into()
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        plain(text).into()
    }
}

/// Name, heading and detail level of a column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Column {
    /// Stable name with the unit; empty if programs don't need the column.
    pub(crate) name: &'static str,
    pub(crate) head: String,
    pub(crate) detail: Detail,
    /// Whether `floodmark report --format md` shows the column.
    is_listed: bool,
}

/// A cell with its column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ColumnCell(Column, Cell);

impl ColumnCell {
    /// Shows the cell in documents with the given detail level.
    pub(crate) fn at(mut self, detail: Detail) -> Self {
        self.0.detail = detail;
        self
    }

    /// Shows the cell in all documents.
    pub(crate) fn essential(self) -> Self {
        self.at(Detail::Essential)
    }
}

/// Returns a cell that only programs read. The value is null if the number is not finite or the
/// text is empty.
pub(crate) fn data(name: &'static str, value: impl Serialize) -> ColumnCell {
    let column = Column {
        name,
        head: String::new(),
        detail: Detail::Tables,
        is_listed: false,
    };
    let value = serde_json::to_value(value).ok();
    let value = value.filter(|value| value != "").unwrap_or_default();
    let cell = Cell::from("");
    ColumnCell(column, Cell { value, ..cell })
}

/// Returns a cell that `floodmark report --format md` shows.
pub(crate) fn listed(
    name: &'static str,
    head: impl Into<String>,
    value: impl Serialize,
    cell: impl Into<Cell>,
) -> ColumnCell {
    let ColumnCell(column, Cell { value, .. }) = data(name, value);
    let column = Column {
        head: head.into(),
        is_listed: true,
        ..column
    };
    let cell = cell.into();
    ColumnCell(column, Cell { value, ..cell })
}

/// Returns a cell that is shown only in documents.
pub(crate) fn shown(head: impl Into<String>, cell: impl Into<Cell>) -> ColumnCell {
    let column = Column {
        name: "",
        head: head.into(),
        detail: Detail::Essential,
        is_listed: false,
    };
    ColumnCell(column, cell.into())
}

/// Returns a listed cell with text, such as the name that records use for an enum's value.
pub(crate) fn text_cell(name: &'static str, head: &str, text: impl Serialize) -> ColumnCell {
    let ColumnCell(_, Cell { value, .. }) = data(name, text);
    let text = value.as_str().unwrap_or_default().to_owned();
    listed(name, head, value, text)
}

/// Returns a listed cell with a count.
pub(crate) fn count_cell(name: &'static str, head: &str, n: impl Into<u64>) -> ColumnCell {
    let n = n.into();
    listed(name, head, n, show_count(n))
}

/// Returns a listed cell with a number.
pub(crate) fn number_cell(
    name: &'static str,
    head: &str,
    value: Option<f64>,
    show: impl Fn(f64) -> String,
) -> ColumnCell {
    listed(name, head, value, optional(value, show))
}

/// Returns a listed cell with a statistic of `times` in microseconds. A percentile that falls among
/// requests without a response is emphasized.
pub(crate) fn time_cell(
    name: &'static str,
    head: &str,
    us: Option<f64>,
    (times, plan): (&Times, &Plan),
) -> ColumnCell {
    let is_censored = us.is_none() && times.censored > 0;
    let text = time(us, times, plan);
    listed(name, head, us, Emphasis::Bad.when(is_censored).span(text))
}

/// A row with one cell per column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Explanation of the name; shown only on the page.
    pub(crate) about: Vec<String>,
    pub(crate) detail: Detail,
    pub(crate) cells: Vec<Cell>,
}

impl Row {
    pub(crate) fn new(name: impl Into<String>, cells: Vec<Cell>) -> Self {
        Row {
            name: name.into(),
            about: Vec::new(),
            detail: Detail::Essential,
            cells,
        }
    }
}

/// A table.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Table {
    /// Heading of the row names.
    pub(crate) caption: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
    /// Explanation of the table; may be empty.
    pub(crate) note: String,
    /// Appended to the note if the supplements are shown.
    pub(crate) supplement_note: &'static str,
    /// Text shown while the table is collapsed; `None` for a table that is always open.
    pub(crate) collapsed: Option<String>,
}

impl Table {
    /// Creates a table for documents. All columns have the same detail level.
    pub(crate) fn new<H: Into<String>>(
        heads: impl IntoIterator<Item = H>,
        rows: impl IntoIterator<Item = Row>,
    ) -> Self {
        let column = |head: H| shown(head, "").0;
        Table {
            columns: heads.into_iter().map(column).collect(),
            rows: rows.into_iter().collect(),
            ..Table::default()
        }
    }

    /// Creates a table with the columns of its first row. All rows have the same columns. Documents
    /// don't show columns without text.
    pub(crate) fn of(
        rows: impl IntoIterator<Item = (String, Vec<ColumnCell>)>,
        note: &str,
    ) -> Self {
        let mut table = Table::default();
        for (name, cells) in rows {
            let cells = cells.into_iter();
            let (columns, cells) = cells.map(|ColumnCell(column, cell)| (column, cell)).unzip();
            if table.rows.is_empty() {
                table.columns = columns;
            }
            table.rows.push(Row::new(name, cells));
        }
        note.clone_into(&mut table.note);
        for (i, column) in table.columns.iter_mut().enumerate() {
            let mut texts = table.rows.iter().map(|row| &row.cells[i].span.text);
            if texts.all(String::is_empty) {
                column.detail = Detail::Tables;
            }
        }
        table
    }

    /// Creates a table for `floodmark report --format`, whose rows have no names.
    pub(crate) fn of_data(rows: impl IntoIterator<Item = Vec<ColumnCell>>) -> Self {
        Table::of(rows.into_iter().map(|cells| (String::new(), cells)), "")
    }

    /// Returns the positions of the columns that a document with the given detail level shows.
    pub(crate) fn shown(&self, detail: Detail) -> Vec<usize> {
        self.positions(|column| column.detail <= detail)
    }

    /// Returns the positions of the columns for programs.
    pub(crate) fn named(&self) -> Vec<usize> {
        self.positions(|column| !column.name.is_empty())
    }

    fn positions(&self, keep: impl Fn(&Column) -> bool) -> Vec<usize> {
        let columns = (0..).zip(&self.columns);
        let kept = columns.filter(|(_, column)| keep(column));
        kept.map(|(i, _)| i).collect()
    }

    /// Returns the listed columns as plain text. The first column names the rows. Columns without
    /// any text are left out.
    pub(crate) fn listed(&self) -> Table {
        let text = |row: &Row, i: usize| row.cells[i].span.text.clone();
        let is_blank = |text: String| text.is_empty() || text == NOT_MEASURED;
        let listed = self.positions(|column| column.is_listed).into_iter();
        let listed: Vec<usize> = listed
            .filter(|i| !self.rows.iter().all(|row| is_blank(text(row, *i))))
            .collect();
        let Some((first, others)) = listed.split_first() else {
            return Table::default();
        };
        let rows = self.rows.iter().map(|row| {
            let cells = others.iter().map(|i| text(row, *i).into());
            Row::new(text(row, *first), cells.collect())
        });
        let heads = others.iter().map(|i| self.columns[*i].head.as_str());
        Table::new(heads, rows).captioned(&self.columns[*first].head)
    }

    /// Returns the note, with or without the note on the supplements.
    pub(crate) fn note(&self, supplements: bool) -> String {
        if supplements {
            format!("{}{}", self.note, self.supplement_note)
        } else {
            self.note.clone()
        }
    }

    /// Returns the table, or `None` if it has no rows.
    pub(crate) fn not_empty(self) -> Option<Self> {
        (!self.rows.is_empty()).then_some(self)
    }

    pub(crate) fn captioned(mut self, caption: &str) -> Self {
        caption.clone_into(&mut self.caption);
        self
    }

    /// Keeps at most `limit` rows. A note states how many more rows the record contains.
    pub(crate) fn limited(mut self, limit: usize) -> Self {
        if let Some(more) = self.rows.len().checked_sub(limit).filter(|n| *n > 0) {
            self.rows.truncate(limit);
            let separator = if self.note.is_empty() { "" } else { "; " };
            self.note = format!("{more} more in the record{separator}{}", self.note);
        }
        self
    }
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
    pub(crate) fn of_lines(lines: impl IntoIterator<Item = TextLine>) -> Self {
        Blocks(lines.into_iter().map(Block::Line).collect())
    }

    /// Returns the notes followed by the charts, or no blocks if there are no charts.
    pub(crate) fn of_charts(
        charts: impl IntoIterator<Item = Chart>,
        notes: impl IntoIterator<Item = String>,
    ) -> Self {
        let mut blocks = Blocks::default();
        let charts = Vec::from_iter(charts);
        if !charts.is_empty() {
            let notes = notes.into_iter().map(|note| vec![faint(note)]);
            blocks.0.extend(notes.map(Block::Paragraph));
            blocks.0.push(Block::Charts(charts));
        }
        blocks
    }

    /// Splits the blocks into groups: consecutive lines form one group, and every other block is a
    /// group of its own.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[Block]> {
        let is_line = |block: &Block| matches!(block, Block::Line(_));
        self.0.chunk_by(move |a, b| is_line(a) && is_line(b))
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
    /// Lower and upper end of the error bar, if known.
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
        let ends = self.bars.iter();
        let ends = ends.map(|bar| bar.range.map_or(bar.per_s, |(_, high)| high));
        let highest = self.bars.iter().map(|bar| bar.per_s).fold(0.0, f64::max);
        let end = ends.fold(f64::MIN_POSITIVE, f64::max);
        end.min(MOST_BEYOND * highest).max(f64::MIN_POSITIVE)
    }
}
