//! The tables of a result as Markdown, JSON Lines or CSV.
//!
//! The names of tables and columns are stable. They are documented in docs/guide/ci.md.

use floodmark_record::Record;
use floodmark_record::comparison::ComparisonReport;
use floodmark_record::trend::TrendReport;
use serde_json::Value;

use crate::csv;
use crate::markdown;
use crate::model::Blocks;
use crate::model::data::{self, DataTable, DataValue};

/// The tables of a result. The first table answers the command's question.
#[derive(Debug)]
pub struct ResultTables(Vec<DataTable>);

impl ResultTables {
    /// Returns the tables of a record. A table without rows is left out.
    #[must_use]
    pub fn of_record(record: &Record) -> Self {
        ResultTables(data::of_record(record))
    }

    /// Returns the tables of a comparison.
    #[must_use]
    pub fn of_comparison(compared: &ComparisonReport) -> Self {
        ResultTables(data::of_comparison(compared))
    }

    /// Returns the tables of trends.
    #[must_use]
    pub fn of_trends(report: &TrendReport) -> Self {
        ResultTables(data::of_trends(report))
    }

    /// Returns the names of the tables.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|table| table.name).collect()
    }

    /// Keeps only the table with the given name. Returns `None` if there is none.
    #[must_use]
    pub fn only(self, name: &str) -> Option<Self> {
        let table = self.0.into_iter().find(|table| table.name == name)?;
        Some(ResultTables(vec![table]))
    }

    /// Keeps only the first table.
    #[must_use]
    pub fn first(mut self) -> Self {
        self.0.truncate(1);
        self
    }

    /// Returns the tables as Markdown, each below a heading. Only the most important columns are
    /// shown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut blocks = Blocks::default();
        for table in &self.0 {
            blocks.subheading(&table.name.replace('_', " "));
            blocks.tables([table.figures()]);
        }
        markdown::draw(&blocks)
    }

    /// Returns one JSON object per row. Its first member, `table`, names the table.
    #[must_use]
    pub fn json_lines(&self) -> String {
        let mut out = String::new();
        for table in &self.0 {
            for row in table.rows() {
                out.push_str(&format!("{{\"table\":{}", Value::from(table.name)));
                for (name, value) in row {
                    out.push_str(&format!(",{}:{}", Value::from(name), json(value)));
                }
                out.push_str("}\n");
            }
        }
        out
    }

    /// Returns each table as CSV (RFC 4180, with LF line endings): a header line, followed by a line
    /// per row. A missing value is empty.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut out = String::new();
        for table in &self.0 {
            out.push_str(&table.columns().collect::<Vec<_>>().join(","));
            out.push('\n');
            for row in table.rows() {
                let fields = row.map(|(_, value)| field(value));
                out.push_str(&fields.collect::<Vec<_>>().join(","));
                out.push('\n');
            }
        }
        out
    }
}

fn json(value: &DataValue) -> Value {
    match value {
        DataValue::Missing => Value::Null,
        DataValue::Text(text) => text.as_str().into(),
        DataValue::Flag(flag) => (*flag).into(),
        DataValue::Count(n) => (*n).into(),
        DataValue::Number(number) => (*number).into(),
    }
}

fn field(value: &DataValue) -> String {
    match value {
        DataValue::Missing => String::new(),
        DataValue::Text(text) => csv::quoted(text).into_owned(),
        DataValue::Flag(flag) => flag.to_string(),
        DataValue::Count(n) => n.to_string(),
        DataValue::Number(number) => csv::number(Some(*number)),
    }
}

#[cfg(test)]
#[path = "tables_tests.rs"]
mod tests;
