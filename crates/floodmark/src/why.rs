//! `floodmark why`: what limited the runs of a record, judged anew.

use std::path::PathBuf;

use clap::Args;

use crate::exit::{Ending, HELP};
use crate::out;

/// Say what limited each run of a record, by what evidence, and what to do next.
///
/// It reads the record and nothing else, so it can be done on another machine and at any later time. Where the evidence does not
/// suffice it says so.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct WhyArgs {
    /// A result folder (load --out, run --out), or a file with a record (--json)
    pub record: PathBuf,
}

/// Runs the command.
pub fn run(args: &WhyArgs) -> Result<(), Ending> {
    let record = floodmark_lab::read(&args.record).map_err(Ending::usage)?;
    let judged = record.runs.iter().map(|run| {
        (
            run,
            floodmark_diagnose::why::verdict(run, &record.environment),
        )
    });
    let style = out::style(&std::io::stdout());
    out::print(&floodmark_report::why::of_runs(judged, style));
    Ok(())
}
