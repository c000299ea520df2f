//! Tables: rows of typed cells for the terminal, the page, Markdown, CSV and JSON Lines.
//!
//! A column with a name is part of `floodmark report --format csv`; its cells hold values for
//! programs.
//! A column with a heading has text for people.

use floodmark_record::plan::Plan;
use floodmark_record::times::Times;
use floodmark_record::units::show_count;
use serde::Serialize;
use serde_json::Value;

use super::figures::{NOT_MEASURED, optional, time};
use super::text::{Emphasis, Span, plain};

/// Detail level of a column or row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Detail {
    /// Everywhere.
    Essential,
    /// Only if there is enough room.
    Roomy,
    /// Only on the page.
    Page,
    /// In no document, only in `floodmark report --format`.
    Tables,
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
    /// Shows the cell in documents with the given detail.
    pub(crate) fn at(mut self, detail: Detail) -> Self {
        self.0.detail = detail;
        self
    }

    /// Shows the cell in all documents.
    pub(crate) fn essential(self) -> Self {
        self.at(Detail::Essential)
    }
}

/// Returns a cell that only programs read. The value is null if the number is not finite or the text
/// is empty.
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

/// Returns a cell that only documents show.
pub(crate) fn shown(head: impl Into<String>, cell: impl Into<Cell>) -> ColumnCell {
    let column = Column {
        name: "",
        head: head.into(),
        detail: Detail::Essential,
        is_listed: false,
    };
    ColumnCell(column, cell.into())
}

/// Returns a listed cell with text, such as the name of an enum's value in records.
pub(crate) fn text(name: &'static str, head: &str, text: impl Serialize) -> ColumnCell {
    let ColumnCell(_, Cell { value, .. }) = data(name, text);
    let text = value.as_str().unwrap_or_default().to_owned();
    listed(name, head, value, text)
}

/// Returns a listed cell with a count.
pub(crate) fn count(name: &'static str, head: &str, n: impl Into<u64>) -> ColumnCell {
    let n = n.into();
    listed(name, head, n, show_count(n))
}

/// Returns a listed cell with a number.
pub(crate) fn number(
    name: &'static str,
    head: &str,
    value: Option<f64>,
    show: impl Fn(f64) -> String,
) -> ColumnCell {
    listed(name, head, value, optional(value, show))
}

/// Returns a listed cell with a statistic of `times` in microseconds. A percentile among timed-out
/// requests is emphasized.
pub(crate) fn time_of(
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
#[derive(Debug, Clone, PartialEq)]
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
    /// Creates a table for documents. Its columns have the same detail level.
    pub(crate) fn new<H: Into<String>>(
        heads: impl IntoIterator<Item = H>,
        rows: impl IntoIterator<Item = Row>,
    ) -> Self {
        let column = |head: H| shown(head, "").0;
        Table {
            caption: String::new(),
            columns: heads.into_iter().map(column).collect(),
            rows: rows.into_iter().collect(),
            note: String::new(),
            supplement_note: "",
            collapsed: None,
        }
    }

    /// Creates a table with the columns of its first row. All rows have the same columns. Documents
    /// don't show columns without text.
    pub(crate) fn of(
        rows: impl IntoIterator<Item = (String, Vec<ColumnCell>)>,
        note: &str,
    ) -> Self {
        let mut table = Table::new([""; 0], []);
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

    /// Returns the positions of the columns that a document with the given detail shows.
    pub(crate) fn shown(&self, detail: Detail) -> Vec<usize> {
        self.positions(|column| column.detail <= detail)
    }

    /// Returns the positions of the columns for programs.
    pub(crate) fn named(&self) -> Vec<usize> {
        self.positions(|column| !column.name.is_empty())
    }

    fn positions(&self, keep: impl Fn(&Column) -> bool) -> Vec<usize> {
        let columns = self.columns.iter().enumerate();
        columns
            .filter(|(_, column)| keep(column))
            .map(|(i, _)| i)
            .collect()
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
            return Table::new([""; 0], []);
        };
        let rows = self.rows.iter().map(|row| {
            let cells = others.iter().map(|i| text(row, *i).into());
            Row::new(text(row, *first), cells.collect())
        });
        let heads = others.iter().map(|i| self.columns[*i].head.as_str());
        Table::new(heads, rows).captioned(&self.columns[*first].head)
    }

    /// Returns the note of a table with or without its supplements.
    pub(crate) fn note(&self, supplements: bool) -> String {
        if supplements {
            format!("{}{}", self.note, self.supplement_note)
        } else {
            self.note.clone()
        }
    }

    /// Returns the table, or `None` without rows.
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
