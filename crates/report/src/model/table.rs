//! Tables: columns with headings, rows with names, and detail levels.

use super::{Emphasis, Span};

/// Detail level of a column or row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Detail {
    /// Everywhere.
    Essential,
    /// Only if there is enough room.
    Roomy,
    /// Only on the page.
    Page,
}

/// Text of a cell. The supplement is dropped if there is not enough room.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TableCell {
    pub(crate) span: Span,
    pub(crate) supplement: String,
}

impl TableCell {
    pub(crate) fn new(text: impl Into<String>, supplement: Option<String>) -> Self {
        TableCell {
            span: Emphasis::Plain.span(text),
            supplement: supplement.unwrap_or_default(),
        }
    }
}

impl From<Span> for TableCell {
    fn from(span: Span) -> Self {
        TableCell {
            span,
            supplement: String::new(),
        }
    }
}

impl From<String> for TableCell {
    fn from(text: String) -> Self {
        TableCell::new(text, None)
    }
}

/// A column heading.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TableColumn {
    pub(crate) head: String,
    pub(crate) detail: Detail,
}

/// A row with one cell per column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TableRow {
    pub(crate) name: String,
    /// Explanation of the name; shown only on the page.
    pub(crate) about: Vec<String>,
    pub(crate) detail: Detail,
    pub(crate) cells: Vec<TableCell>,
}

impl TableRow {
    pub(crate) fn new(name: impl Into<String>, cells: Vec<TableCell>) -> Self {
        TableRow {
            name: name.into(),
            about: Vec::new(),
            detail: Detail::Essential,
            cells,
        }
    }
}

/// A cell with the heading and detail level of its column.
pub(crate) type ColumnCell = (&'static str, Detail, TableCell);

/// A table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FigureTable {
    /// Heading of the row names.
    pub(crate) caption: String,
    pub(crate) columns: Vec<TableColumn>,
    pub(crate) rows: Vec<TableRow>,
    /// Explanation of the table; may be empty.
    pub(crate) note: String,
    /// Appended to the note if the supplements are shown.
    pub(crate) supplement_note: &'static str,
    /// Text shown while the table is collapsed; `None` for a table that is always open.
    pub(crate) collapsed: Option<String>,
}

impl FigureTable {
    /// Creates a table whose columns have the same detail level.
    pub(crate) fn new<H: Into<String>>(
        columns: impl IntoIterator<Item = H>,
        rows: impl IntoIterator<Item = TableRow>,
    ) -> Self {
        let column = |head: H| TableColumn {
            head: head.into(),
            detail: Detail::Essential,
        };
        FigureTable {
            caption: String::new(),
            columns: columns.into_iter().map(column).collect(),
            rows: rows.into_iter().collect(),
            note: String::new(),
            supplement_note: "",
            collapsed: None,
        }
    }

    /// Returns the note of a table with or without its supplements.
    pub(crate) fn note(&self, supplements: bool) -> String {
        match supplements {
            true => format!("{}{}", self.note, self.supplement_note),
            false => self.note.clone(),
        }
    }

    /// Creates a table with the columns of its first row. All rows have the same columns. Columns
    /// without text are dropped.
    pub(crate) fn of(
        rows: impl IntoIterator<Item = (String, Vec<ColumnCell>)>,
        note: &str,
    ) -> Self {
        let mut table = FigureTable::new([""; 0], []);
        for (name, columns) in rows {
            let column = |(head, detail, _): &ColumnCell| TableColumn {
                head: (*head).to_owned(),
                detail: *detail,
            };
            table.columns = columns.iter().map(column).collect();
            let cells = columns.into_iter().map(|(_, _, cell)| cell).collect();
            table.rows.push(TableRow::new(name, cells));
        }
        note.clone_into(&mut table.note);
        for i in (0..table.columns.len()).rev() {
            let mut texts = table.rows.iter().map(|row| &row.cells[i].span.text);
            if texts.all(String::is_empty) {
                table.columns.remove(i);
                for row in &mut table.rows {
                    row.cells.remove(i);
                }
            }
        }
        table
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
