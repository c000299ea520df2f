//! `floodmark doctor`: checks this host.

use std::time::Duration;

use clap::Args;
use floodmark_diagnose::doctor::checkup;
use floodmark_observe::{Root, system_check::facts};

use crate::exit::{Ending, HELP};
use crate::out;

/// Time spent sampling the host for other load.
const SAMPLE: Duration = Duration::from_secs(1);

/// Check this host for problems that distort measurements, and print commands to fix them.
///
/// Samples the host for one second and changes nothing.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct DoctorArgs {
    /// Print facts and findings as JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(args: &DoctorArgs) -> Result<(), Ending> {
    let checkup = checkup(facts(&Root::host(), SAMPLE));
    if args.json {
        let text = serde_json::to_string_pretty(&checkup).map_err(Ending::internal)?;
        out::print(&format!("{text}\n"))
    } else {
        out::show(false, |style| {
            floodmark_report::terminal::doctor(&checkup.findings, style)
        })
    }
}
