//! `floodmark report`: what a record looks like, made again at any later time.

use std::path::PathBuf;

use clap::Args;
use floodmark_lab::{EVENTS, RECORD};

use crate::exit::{Ending, HELP};
use crate::files::{self, Files};
use crate::out;

/// Draw a record: a page to look at and hand on, or other files.
///
/// It reads the record and nothing else, so it can be done on another machine. Without a file to write the summary is printed.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct ReportArgs {
    /// A result folder (load --out), or a file with a record (load --json)
    pub record: PathBuf,

    /// Write a page to look at, whole in itself: tables, curves, environment [default: none]
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write the record as JSON, folded from a result's events where it has none yet; - for stdout [default: none]
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write the figures of each second as CSV [default: none]
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Write the distribution of response times in HdrHistogram's percentile format [default: none]
    #[arg(long, value_name = "FILE")]
    pub hdr: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &ReportArgs) -> Result<(), Ending> {
    let files = Files {
        html: args.html.as_deref(),
        json: args.json.as_deref(),
        csv: args.csv.as_deref(),
        hdr: args.hdr.as_deref(),
    };
    let at = &args.record;
    files.spares(&[at.clone(), at.join(EVENTS), at.join(RECORD)])?;
    files.writable()?;
    let record = floodmark_lab::read(at).map_err(Ending::usage)?;
    if files.none() {
        let style = out::style(&std::io::stdout());
        out::print(&match record.experiment {
            Some(_) => floodmark_report::experiment::of_record(&record, style),
            None => {
                let next = files::next_step(&record);
                floodmark_report::summary::of_record(&record, next.as_deref(), style)
            }
        });
        return Ok(());
    }
    files.write(&record, |e| Ending::usage(e))
}
