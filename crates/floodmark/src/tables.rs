//! The tables of a result on stdout: `--format` and `--table`.

use clap::{Args, ValueEnum};
use floodmark_report::tables::ResultTables;

use crate::exit::Ending;

/// Format of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// Markdown with the most important columns
    Md,
    /// JSON Lines: one object per row
    Json,
    /// CSV: one table
    Csv,
}

/// Choice of tables and their format.
#[derive(Debug, Clone, Default, Args)]
pub struct TableArgs {
    /// Print the result's tables instead of the summary
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<TableFormat>,

    /// Table to print, such as runs or conditions [default: all; with --format csv, the first]
    #[arg(long, value_name = "NAME", requires = "format")]
    pub table: Option<String>,
}

impl TableArgs {
    /// Returns the tables as text, or `None` without `--format`. If `stdout_is_taken`, an output
    /// file goes to stdout.
    ///
    /// # Errors
    /// Fails if the result lacks the table, has no table, or stdout is taken.
    pub fn render(
        &self,
        stdout_is_taken: bool,
        tables: impl FnOnce() -> ResultTables,
    ) -> Result<Option<String>, Ending> {
        let Some(format) = self.format else {
            return Ok(None);
        };
        if stdout_is_taken {
            return Err(Ending::usage(
                "--format: an output file also goes to stdout (-); name a file instead",
            ));
        }
        let tables = tables();
        let names = tables.names().join(", ");
        if names.is_empty() {
            return Err(Ending::usage(
                "--format: the result has no tables, because nothing was measured; repeat the run",
            ));
        }
        let tables = match (&self.table, format) {
            (Some(name), _) => tables.only(name).ok_or_else(|| {
                Ending::usage(format!(
                    "--table {name}: the result has no such table; its tables are {names}"
                ))
            })?,
            (None, TableFormat::Csv) => tables.first(),
            (None, TableFormat::Md | TableFormat::Json) => tables,
        };
        Ok(Some(match format {
            TableFormat::Md => tables.markdown(),
            TableFormat::Json => tables.json_lines(),
            TableFormat::Csv => tables.csv(),
        }))
    }
}
