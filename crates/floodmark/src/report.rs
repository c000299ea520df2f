//! `floodmark report`: renders a saved record as text, HTML or other files.

use std::path::PathBuf;

use clap::Args;
use floodmark_lab::{EVENTS, RECORD};

use crate::exit::{Ending, HELP};
use crate::files::{self, Files};
use crate::out;

/// Render a result: print its summary, or write an HTML page or other files.
///
/// Reads only the result, so it also works on another host.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct ReportArgs {
    /// Result folder (load --out, run --out), or record file (--json)
    pub record: PathBuf,

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
    if files.is_empty() {
        out::show(false, |style| match record.experiment {
            Some(_) => floodmark_report::terminal::experiment(&record, style),
            None if record.capacity.is_some() => {
                floodmark_report::terminal::capacity(&record, style)
            }
            None => {
                let next = files::next_step(&record);
                floodmark_report::terminal::summary(&record, next.as_deref(), style)
            }
        })?;
        return match record.has_no_measurement() && record.skipped.is_empty() {
            true => Err(Ending::usage(format!(
                "{}: no measurement, because the run ended before the first one; repeat the run",
                at.display()
            ))),
            false => Ok(()),
        };
    }
    files.write(&record, |e| Ending::usage(e))
}
