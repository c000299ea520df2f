//! `floodmark delay`: a TCP proxy that adds latency; started by floodmark itself.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use clap::Args;
use floodmark_record::units::parse_duration;

use crate::exit::Ending;
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

/// Runs the command until the process is killed.
pub fn run(args: &DelayArgs) -> Result<(), Ending> {
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
