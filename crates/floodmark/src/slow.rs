//! `floodmark slow`: stops processes for a part of the time; started by floodmark itself.

use clap::Args;
use floodmark_host::Stop;

use crate::exit::Ending;

/// Stop processes for 1 ms of each 5 ms until stdin ends; started by floodmark run
#[derive(Debug, Clone, Args)]
pub struct SlowArgs {
    /// The processes
    #[arg(value_name = "PID", required = true)]
    pids: Vec<u32>,
}

/// Runs the command until its stdin ends.
pub fn run(args: &SlowArgs) -> Result<(), Ending> {
    // Whoever ends it by a signal does not mean to leave them stopped.
    Stop::on_signals()
        .and_then(|stop| floodmark_host::slow::serve(&args.pids, std::io::stdin(), &stop))
        .map_err(|error| Ending::failed(format!("slow: processes cannot be stopped: {error}")))
}
