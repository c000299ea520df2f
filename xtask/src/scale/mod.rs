//! `cargo xtask scale`: many kept connections from one load process to the native server, and what each of them costs.
//!
//! The servers' connections are their open files, so several share the port, as many as the hard limit asks for. The load process keeps its
//! sockets in tables of io_uring, one for each thread, which the same limit bounds.

mod figures;
pub mod need;
pub mod servers;

use std::time::Duration;

use clap::Args;

use self::figures::Figures;
use self::need::{Machine, Need};
use self::servers::Servers;
use crate::error::{Error, none_found};
use crate::measuring::child::Interrupt;
use crate::measuring::load;
use crate::release;
use crate::workspace::Workspace;

/// Connections of each thread in the run that the other one's memory is compared with: as many as cost next to nothing.
const FEW: u32 = 10;

/// What a run may take beyond opening its connections and sending.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connections opened per second at least, or the run is ended: a tenth of the usual pace.
const SLOWEST_PER_S: u32 = 1_000;

/// How many connections, and what they carry.
#[derive(Debug, Args)]
pub struct Options {
    /// Connections that are kept open.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    connections: u32,
    /// Requests per second over all of them.
    #[arg(long, value_name = "PER_S", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// How long they are sent, in seconds.
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
}

/// Holds the connections, prints what came of it, and says which bar was missed.
pub fn run(workspace: &Workspace, options: &Options) -> Result<(), Error> {
    let found = |e: std::io::Error| Error::Found(vec![e.to_string()]);
    let machine = Machine::read().map_err(found)?;
    let need = Need::of(options.connections, machine);
    let floodmark = release::floodmark(workspace)?;
    let interrupt = Interrupt::catch().map_err(found)?;
    let servers = Servers::start(&floodmark, need.servers)?;
    let folder = tempfile::tempdir().map_err(found)?;
    let load = |connections: u32| {
        let limit =
            PATIENCE + Duration::from_secs((options.seconds + connections / SLOWEST_PER_S).into());
        let words = arguments(servers.url(), options, &need, connections);
        load::run(&floodmark, &words, folder.path(), limit, &interrupt)
    };
    let few = load(FEW * need.threads)?;
    let many = load(options.connections)?;
    drop(servers);
    let figures = Figures { few, many };
    println!("\n{figures}");
    none_found(figures.missed())
}

/// What stands behind `floodmark load`.
fn arguments(url: &str, options: &Options, need: &Need, connections: u32) -> Vec<String> {
    let words = format!(
        "{url} -c {connections} -t {} --rate {} -d {}s --hold --sources {} --warmup 0s --backend uring",
        need.threads,
        options.rate,
        options.seconds,
        need.sources()
    );
    words.split(' ').map(str::to_owned).collect()
}
