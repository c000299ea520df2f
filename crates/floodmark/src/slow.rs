//! `floodmark slow`: pauses processes periodically; started by floodmark itself.

use clap::Args;

use crate::exit::{Ending, stop_on_signals};

/// Stop processes for 1 ms of every 5 ms until stdin closes; started by floodmark run
#[derive(Debug, Clone, Args)]
pub struct SlowArgs {
    /// Processes to stop
    #[arg(value_name = "PID", required = true)]
    pids: Vec<u32>,
}

/// Runs the command until its stdin is closed.
pub fn run(args: &SlowArgs) -> Result<(), Ending> {
    // Handle signals, so that no process remains stopped.
    let stop = stop_on_signals()?;
    floodmark_host::slow::serve(&args.pids, std::io::stdin(), &stop)
        .map_err(|error| Ending::internal(format!("slow: cannot stop the processes: {error}")))
}
