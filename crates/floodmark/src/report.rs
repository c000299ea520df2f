//! `floodmark report`: renders a saved record as text, HTML or other files.

use std::path::{Path, PathBuf};

use clap::Args;
use floodmark_lab::{EVENTS, RECORD};
use floodmark_record::Record;
use floodmark_report::junit::RunFault;
use floodmark_report::tables::ResultTables;

use crate::endings;
use crate::exit::{Ending, HELP};
use crate::files::{self, Files};
use crate::out;
use crate::results::TableArgs;

/// Render a result: print its summary or tables, or write an HTML page or other files.
///
/// Reads only the result, so it also works on another host.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct ReportArgs {
    /// Result directory (load --out, run --out), or record file (--json)
    pub record: PathBuf,

    /// Tables.
    #[command(flatten)]
    pub tables: TableArgs,

    /// Output files.
    #[command(flatten)]
    pub files: Files,
}

/// Runs the command.
pub fn run(args: &ReportArgs) -> Result<(), Ending> {
    let files = &args.files;
    let at = &args.record;
    files.check_sources(&[at.clone(), at.join(EVENTS), at.join(RECORD)])?;
    files.check_writable()?;
    let record = floodmark_lab::read(at).map_err(Ending::usage)?;
    let tables = args
        .tables
        .render(files.use_stdout(), || ResultTables::of_record(&record))?;
    // Some loads of a search exceed the capacity.
    let fault: &RunFault<'_> = match record.capacity {
        Some(_) => &endings::run_server_fault,
        None => &endings::run_fault,
    };
    files.write(&record, fault, |e| Ending::usage(e))?;
    match tables {
        Some(tables) => out::print(&tables),
        None if files.is_empty() => show(&record, at),
        None => Ok(()),
    }
}

/// Prints the summary.
fn show(record: &Record, at: &Path) -> Result<(), Ending> {
    let next = files::next_step(record);
    out::show(false, |style| {
        floodmark_report::terminal::result(record, next.as_deref(), style)
    })?;
    if record.has_no_measurement() && record.skipped.is_empty() {
        Err(Ending::usage(format!(
            "{}: no measurement, because the run ended before the first one; repeat the run",
            at.display()
        )))
    } else {
        Ok(())
    }
}
