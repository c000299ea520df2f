//! The tables of a result as Markdown, JSON Lines or CSV.
//!
//! The names of tables and columns are stable. They are documented in docs/guide/ci.md.

use floodmark_record::Record;
use floodmark_record::comparison::{ComparisonReport, TrendReport};
use serde_json::Value;

use crate::csv;
use crate::markdown;
use crate::model::cases::{self, ConditionCase};
use crate::model::document::{Blocks, ColumnCell, Table, data, listed, text_cell};
use crate::model::{capacity, comparison, crash, gate, run, summary, sweep, trend, tuning};

/// Name of the table of conditions.
const CONDITIONS: &str = "conditions";

/// The tables of a result with their names. The first table answers the command's question.
#[derive(Debug)]
pub struct ResultTables(Vec<(&'static str, Table)>);

impl ResultTables {
    /// Returns the tables of a record. A table without rows is left out.
    #[must_use]
    pub fn of_record(record: &Record) -> Self {
        let runs = record.runs.iter().map(|run| (String::new(), run));
        let conditions = cases::conditions(record);
        let conditions = conditions.iter();
        let conditions = conditions.flat_map(|suite| condition_rows(&suite.name, &suite.cases));
        let settings = record.tuning.as_ref().map(tuning::settings);
        let steps = tuning::of(record).map(|(tuning, of)| tuning::steps(tuning, &of));
        let pairs = record.gate.as_ref().map(gate::table);
        let skipped = record.skipped.iter().map(|reason| {
            let has_failed = record.failures.contains(reason);
            vec![
                text_cell("reason", "reason", reason),
                data("has_failed", has_failed),
            ]
        });
        ResultTables::of([
            ("trial_capacities", capacity::trial_capacities(record)),
            ("capacities", capacity::searches_table(record)),
            ("tuning_settings", settings.unwrap_or_default()),
            ("tuning_steps", steps.unwrap_or_default()),
            ("gate_pairs", pairs.unwrap_or_default()),
            ("crash_rounds", crash::table(&record.crash)),
            ("runs", summary::table(runs)),
            ("requests", run::all_requests(record)),
            ("steps", run::all_steps(record)),
            ("sweeps", sweep::points(record)),
            ("ratios", comparison::table(&record.comparisons)),
            ("claims", comparison::claims_table(&record.claims)),
            (CONDITIONS, Table::of_data(conditions)),
            ("capacity_trials", capacity::all_trials(record)),
            ("skipped", Table::of_data(skipped)),
        ])
    }

    /// Returns the tables of a comparison.
    #[must_use]
    pub fn of_comparison(compared: &ComparisonReport) -> Self {
        let suite = cases::comparison_name(compared);
        let conditions = condition_rows(&suite, &cases::thresholds(&compared.thresholds));
        ResultTables::of([
            ("ratios", comparison::table(&compared.comparisons)),
            (CONDITIONS, Table::of_data(conditions)),
        ])
    }

    /// Returns the tables of trends.
    #[must_use]
    pub fn of_trends(report: &TrendReport) -> Self {
        ResultTables::of([
            ("trend_changes", trend::changes_table(report)),
            ("trend_figures", trend::figures_table(report)),
        ])
    }

    fn of<const N: usize>(tables: [(&'static str, Table); N]) -> Self {
        let tables = tables.into_iter();
        ResultTables(tables.filter(|(_, table)| !table.rows.is_empty()).collect())
    }

    /// Returns the names of the tables.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|(name, _)| *name).collect()
    }

    /// Keeps only the table with the given name. Returns `None` if there is none.
    #[must_use]
    pub fn only(self, name: &str) -> Option<Self> {
        let table = self.0.into_iter().find(|(of, _)| *of == name)?;
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
        for (name, table) in &self.0 {
            blocks.subheading(&name.replace('_', " "));
            blocks.tables([table.listed()]);
        }
        markdown::draw(&blocks)
    }

    /// Returns one JSON object per row. Its first member, `table`, names the table.
    #[must_use]
    pub fn json_lines(&self) -> String {
        let mut out = String::new();
        for (name, table) in &self.0 {
            let named = table.named();
            for row in &table.rows {
                out.push_str(&format!("{{\"table\":{}", Value::from(*name)));
                for i in &named {
                    let (name, value) = (table.columns[*i].name, &row.cells[*i].value);
                    out.push_str(&format!(",{}:{value}", Value::from(name)));
                }
                out.push_str("}\n");
            }
        }
        out
    }

    /// Returns each table as CSV (RFC 4180, with LF line endings): a header line, followed by a
    /// line per row. A missing value is empty.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut out = String::new();
        for (_, table) in &self.0 {
            let named = table.named();
            let mut line = |fields: Vec<String>| out.push_str(&(fields.join(",") + "\n"));
            let names = named.iter().map(|i| table.columns[*i].name.to_owned());
            line(names.collect());
            for row in &table.rows {
                let fields = named.iter().map(|i| field(&row.cells[*i].value));
                line(fields.collect());
            }
        }
        out
    }
}

/// Returns the rows of the conditions in a suite.
fn condition_rows(suite: &str, cases: &[ConditionCase]) -> Vec<Vec<ColumnCell>> {
    let row = |case: &ConditionCase| {
        let outcome = case.outcome.name();
        vec![
            text_cell("suite", "suite", suite),
            text_cell("condition", "condition", &case.name),
            listed("outcome", "outcome", outcome, outcome.replace('_', " ")),
            text_cell("detail", "detail", &case.detail),
        ]
    };
    cases.iter().map(row).collect()
}

fn field(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => csv::quoted(text).into_owned(),
        Value::Number(number) if number.is_f64() => csv::number(number.as_f64()),
        value => value.to_string(),
    }
}

#[cfg(test)]
#[path = "tables_tests.rs"]
mod tests;
