//! `floodmark doctor`: what of this host will spoil a measurement.

use std::time::Duration;

use clap::Args;
use floodmark_diagnose::doctor::checkup;
use floodmark_observe::{Root, system_check::facts};

use crate::exit::{Ending, HELP};
use crate::out;

/// How long the machine is watched for other load.
const SAMPLE: Duration = Duration::from_secs(1);

/// Say what of this host will spoil a measurement, and the command that mends it.
///
/// It reads and watches for a second, and changes nothing.
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
        let text = serde_json::to_string_pretty(&checkup).map_err(Ending::failed)?;
        out::print(&format!("{text}\n"));
    } else {
        out::print(&floodmark_report::doctor::render(
            &checkup.findings,
            out::style(&std::io::stdout()),
        ));
    }
    Ok(())
}
