//! Commands that floodmark itself starts: `floodmark delay`, a TCP proxy that adds latency, and
//! `floodmark slow`, which pauses processes periodically.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use clap::Args;
use floodmark_record::units::parse_duration;

use crate::exit::{Ending, stop_on_signals};
use crate::out;

/// Forward TCP connections with added latency; started by floodmark run
#[derive(Debug, Clone, Args)]
pub struct DelayArgs {
    /// Address and port to listen on; with port 0, a free port is selected and printed
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,

    /// Address and port of the server
    #[arg(long, value_name = "ADDR:PORT")]
    to: SocketAddr,

    /// Added one-way latency, with a unit; 0s adds none
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    by: Duration,
}

/// Runs the proxy until the process is killed.
pub fn delay(args: &DelayArgs) -> Result<(), Ending> {
    let failed =
        |error: std::io::Error| Ending::internal(format!("delay: {}: {error}", args.listen));
    let listener = TcpListener::bind(args.listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    out::print(&format!(
        "{}{address}\n",
        floodmark_lab::experiment::LISTENING
    ))?;
    floodmark_host::delay::serve(&listener, args.to, args.by).map_err(failed)
}

/// Stop processes for 1 ms of every 5 ms until stdin closes; started by floodmark run
#[derive(Debug, Clone, Args)]
pub struct SlowArgs {
    /// Processes to stop
    #[arg(value_name = "PID", required = true)]
    pids: Vec<u32>,
}

/// Pauses the processes periodically until stdin is closed.
pub fn slow(args: &SlowArgs) -> Result<(), Ending> {
    // Handle signals, so that no process remains paused.
    let stop = stop_on_signals()?;
    floodmark_host::slow::serve(&args.pids, std::io::stdin(), &stop)
        .map_err(|error| Ending::internal(format!("slow: cannot pause the processes: {error}")))
}
