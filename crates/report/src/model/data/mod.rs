//! Tables for programs: stable column names with units, next to the text that people read.
//!
//! JSON Lines and CSV use the names and values of the cells; Markdown uses the headings and texts.

pub(crate) mod capacity;
pub(crate) mod gate;
pub(crate) mod judged;
pub(crate) mod runs;
pub(crate) mod trend;
pub(crate) mod tuning;

use floodmark_record::Record;
use floodmark_record::comparison::ComparisonReport;
use floodmark_record::plan::Plan;
use floodmark_record::times::Times;
use floodmark_record::trend::TrendReport;
use floodmark_record::units::show_count;
use serde::Serialize;

use super::figures::{NOT_MEASURED, optional, time};
use super::{FigureTable, TableCell, TableRow, cases};

/// A value of a table. Text is not escaped.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DataValue {
    /// Not measured, or not applicable.
    Missing,
    Text(String),
    Flag(bool),
    Count(u64),
    /// A finite number in the unit that the column's name states.
    Number(f64),
}

impl DataValue {
    fn number(value: Option<f64>) -> Self {
        let finite = value.filter(|value| value.is_finite());
        finite.map_or(DataValue::Missing, DataValue::Number)
    }

    fn text(text: impl Into<String>) -> Self {
        match text.into() {
            text if text.is_empty() => DataValue::Missing,
            text => DataValue::Text(text),
        }
    }
}

/// A cell with the name of its column. Markdown shows only cells with a heading.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DataCell {
    name: &'static str,
    value: DataValue,
    heading: Option<&'static str>,
    shown: String,
}

impl DataCell {
    /// Creates a cell that Markdown does not show.
    pub(crate) fn hidden(name: &'static str, value: DataValue) -> Self {
        DataCell {
            name,
            value,
            heading: None,
            shown: String::new(),
        }
    }

    /// Shows the cell as `text` in Markdown.
    pub(crate) fn shown(self, heading: &'static str, text: impl Into<String>) -> Self {
        DataCell {
            heading: Some(heading),
            shown: text.into(),
            ..self
        }
    }

    /// Creates a cell with text. Empty text is a missing value.
    pub(crate) fn text(name: &'static str, heading: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        let shown = text.clone();
        DataCell::hidden(name, DataValue::text(text)).shown(heading, shown)
    }

    /// Creates a cell with text that Markdown does not show.
    pub(crate) fn hidden_text(name: &'static str, text: impl Into<String>) -> Self {
        DataCell::hidden(name, DataValue::text(text))
    }

    pub(crate) fn count(name: &'static str, heading: &'static str, n: impl Into<u64>) -> Self {
        let n = n.into();
        DataCell::hidden(name, DataValue::Count(n)).shown(heading, show_count(n))
    }

    pub(crate) fn hidden_count(name: &'static str, n: impl Into<u64>) -> Self {
        DataCell::hidden(name, DataValue::Count(n.into()))
    }

    pub(crate) fn number(
        name: &'static str,
        heading: &'static str,
        value: Option<f64>,
        show: impl Fn(f64) -> String,
    ) -> Self {
        let shown = optional(value, show);
        DataCell::hidden_number(name, value).shown(heading, shown)
    }

    pub(crate) fn hidden_number(name: &'static str, value: Option<f64>) -> Self {
        DataCell::hidden(name, DataValue::number(value))
    }

    /// Creates a cell with a statistic of `times` in microseconds.
    pub(crate) fn time(
        name: &'static str,
        heading: &'static str,
        us: Option<f64>,
        (times, plan): (&Times, &Plan),
    ) -> Self {
        DataCell::hidden_number(name, us).shown(heading, time(us, times, plan))
    }
}

/// A table for programs with at least one row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DataTable {
    /// Name of the table, such as `runs`.
    pub(crate) name: &'static str,
    /// Rows. All rows have the same columns.
    rows: Vec<Vec<DataCell>>,
}

impl DataTable {
    /// Returns a table, or `None` if there are no rows.
    pub(crate) fn of(
        name: &'static str,
        rows: impl IntoIterator<Item = Vec<DataCell>>,
    ) -> Option<Self> {
        let rows: Vec<Vec<DataCell>> = rows.into_iter().collect();
        (!rows.is_empty()).then_some(DataTable { name, rows })
    }

    /// Returns the names of the columns.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &'static str> {
        self.rows[0].iter().map(|cell| cell.name)
    }

    /// Returns the rows as names and values.
    pub(crate) fn rows(
        &self,
    ) -> impl Iterator<Item = impl Iterator<Item = (&'static str, &DataValue)>> {
        let rows = self.rows.iter();
        rows.map(|row| row.iter().map(|cell| (cell.name, &cell.value)))
    }

    /// Returns the table as people read it. Columns without any text are left out.
    pub(crate) fn figures(&self) -> FigureTable {
        let is_blank = |cell: &DataCell| cell.shown.is_empty() || cell.shown == NOT_MEASURED;
        let is_shown = |i: &usize| {
            let has_text = self.rows.iter().any(|row| !is_blank(&row[*i]));
            self.rows[0][*i].heading.is_some() && has_text
        };
        let shown: Vec<usize> = (0..self.rows[0].len()).filter(is_shown).collect();
        let headings = shown.iter().filter_map(|i| self.rows[0][*i].heading);
        let rows = self.rows.iter().map(|row| {
            let mut texts = shown.iter().map(|i| row[*i].shown.clone());
            let name = texts.next().unwrap_or_default();
            TableRow::new(name, texts.map(TableCell::from).collect())
        });
        let caption = headings.clone().next().unwrap_or_default();
        FigureTable::new(headings.skip(1), rows).captioned(caption)
    }
}

/// Returns the name of an enum's value in records.
pub(crate) fn recorded_name(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).ok();
    let name = value.as_ref().and_then(serde_json::Value::as_str);
    name.unwrap_or_default().to_owned()
}

/// Returns the tables of a record. The first table answers the command's question.
pub(crate) fn of_record(record: &Record) -> Vec<DataTable> {
    let first = [
        capacity::of_trials(record),
        capacity::capacities(record),
        tuning::settings(record),
        tuning::steps(record),
        gate::pairs(record),
        judged::crash_rounds(record),
    ];
    let tables = [
        runs::table(record),
        runs::groups(record),
        runs::steps(record),
        tuning::sweeps(record),
        judged::ratios(&record.comparisons),
        judged::claims(record),
        judged::conditions(record),
        capacity::trials(record),
        judged::skipped(record),
    ];
    first.into_iter().chain(tables).flatten().collect()
}

/// Returns the tables of a comparison.
pub(crate) fn of_comparison(compared: &ComparisonReport) -> Vec<DataTable> {
    let suite = cases::comparison_name(compared);
    let conditions = judged::condition_rows(&suite, &cases::thresholds(&compared.thresholds));
    let tables = [
        judged::ratios(&compared.comparisons),
        DataTable::of(judged::CONDITIONS, conditions),
    ];
    tables.into_iter().flatten().collect()
}

/// Returns the tables of trends.
pub(crate) fn of_trends(report: &TrendReport) -> Vec<DataTable> {
    let tables = [trend::changes(report), trend::figures(report)];
    tables.into_iter().flatten().collect()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
