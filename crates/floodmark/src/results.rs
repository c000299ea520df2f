//! Code shared by the commands that show stored results: the selection of results, their short
//! names, and the tables on stdout (`--format`, `--table`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use floodmark_diagnose::comparing::NamedRecord;
use floodmark_lab::{EVENTS, FoundResult, RECORD, read_each};
use floodmark_record::Record;
use floodmark_record::host::{Label, Labels};
use floodmark_report::tables::ResultTables;

use crate::exit::Ending;

/// Flags that select results.
#[derive(Debug, Args)]
pub struct ResultArgs {
    /// Directory of result directories, result directory (--out), or record file (--json);
    /// repeatable
    #[arg(value_name = "RESULT", required = true)]
    pub results: Vec<PathBuf>,

    /// Show only results with this label (load --label); repeatable [default: none]
    #[arg(long, value_name = "KEY=VALUE")]
    pub label: Vec<Label>,
}

/// Selected results.
pub struct Results {
    /// The records, with distinct names.
    pub named: Vec<NamedRecord>,
    /// Why other results cannot be shown.
    pub faults: Vec<String>,
    /// Files that the results were read from.
    pub sources: Vec<PathBuf>,
}

impl ResultArgs {
    /// Reads the results.
    ///
    /// # Errors
    /// A path cannot be read or contains no result, or no result can be read.
    pub fn read(&self) -> Result<Results, Ending> {
        let (mut read, mut faults, mut sources) = (Vec::new(), Vec::new(), Vec::new());
        for path in &self.results {
            for FoundResult { path, record } in read_each(path).map_err(Ending::usage)? {
                sources.extend([path.clone(), path.join(EVENTS), path.join(RECORD)]);
                match record {
                    Ok(record) if !record.tool.labels.contain(&self.label) => {}
                    Ok(record) => read.push((path, record)),
                    Err(error) => faults.push(error),
                }
            }
        }
        if let Some(error) = faults.pop_if(|_| read.is_empty()) {
            return Err(Ending::usage(error));
        }
        if read.is_empty() {
            let labels: Labels = self.label.iter().cloned().collect();
            return Err(Ending::usage(format!(
                "no result has the label {labels}; show a result's labels with floodmark report"
            )));
        }
        let names = names(read.iter().map(|(path, record)| (&**path, record)));
        let named = names.into_iter().zip(read);
        Ok(Results {
            named: named
                .map(|(name, (_, record))| NamedRecord { name, record })
                .collect(),
            faults: faults.iter().map(ToString::to_string).collect(),
            sources,
        })
    }
}

/// Returns a distinct name for each result: the name of its directory or file, or the whole path if
/// names are ambiguous, followed by its labels.
pub fn names<'a>(results: impl Iterator<Item = (&'a Path, &'a Record)>) -> Vec<String> {
    let (paths, records): (Vec<&Path>, Vec<&Record>) = results.unzip();
    let name = |path: &&Path| {
        let is_record = path.file_name().is_some_and(|name| name == RECORD);
        let named = if is_record {
            path.parent()
        } else {
            Some(*path)
        };
        let is_file = !is_record && path.is_file();
        let last = if is_file {
            path.file_stem()
        } else {
            named.and_then(Path::file_name)
        };
        last.map(|name| name.to_string_lossy().into_owned())
    };
    let short: Option<Vec<String>> = paths.iter().map(name).collect();
    let is_distinct = |names: &Vec<String>| BTreeSet::from_iter(names).len() == names.len();
    let whole = || {
        paths
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    };
    let names = short.filter(is_distinct).unwrap_or_else(whole).into_iter();
    let labeled = |(name, record): (String, &Record)| match &record.tool.labels {
        labels if labels.is_empty() => name,
        labels => format!("{name} ({labels})"),
    };
    names.zip(records).map(labeled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session;

    #[test]
    fn names_are_short_unless_ambiguous() {
        let record = session::empty_record(String::new());
        let of = |paths: &[&str]| names(paths.iter().map(|path| (Path::new(*path), &record)));
        assert_eq!(of(&["r/a", "r/b/record.json", "s/c/"]), ["a", "b", "c"]);
        assert_eq!(of(&["r/a", "s/a"]), ["r/a", "s/a"]);
        assert_eq!(of(&[".."]), [".."]);
    }
}

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
    /// Returns the tables as text, or `None` without `--format`. `stdout_is_taken` says whether
    /// another output is written to stdout.
    ///
    /// # Errors
    /// Fails if the result has no tables or lacks the requested table, or if stdout is taken.
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
                "--format: another output is already written to stdout (-); write it to a file instead",
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
