//! `floodmark delay`: a way to a server on which every byte takes longer; started by floodmark itself.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use clap::Args;
use floodmark_record::units::parse_duration;

use crate::exit::Ending;
use crate::out;

/// Pass connections on to a server, every byte so much later, either way; started by floodmark run
#[derive(Debug, Clone, Args)]
pub struct DelayArgs {
    /// Where to listen; port 0 is chosen and printed
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,

    /// The server
    #[arg(long, value_name = "ADDR:PORT")]
    to: SocketAddr,

    /// How much later; 0s for a proxy that delays nothing
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    by: Duration,
}

/// Runs the command until it is ended.
pub fn run(args: &DelayArgs) -> Result<(), Ending> {
    let failed = |error: std::io::Error| Ending::failed(format!("delay: {}: {error}", args.listen));
    let listener = TcpListener::bind(args.listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    out::print(&format!(
        "{}{address}\n",
        floodmark_lab::experiment::LISTENING
    ));
    floodmark_host::delay::serve(&listener, args.to, args.by).map_err(failed)
}
