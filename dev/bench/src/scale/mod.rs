//! `cargo xtask scale`: measures the cost per connection with many kept connections in one load
//! process.
//!
//! Each connection is an open file of its server, so the hard limit on open files determines how
//! many servers share the port. The load process keeps its sockets in one io_uring table per
//! thread. The limit on open files also applies to each table.

mod capacity;
mod costs;
pub mod servers;

use clap::Args;

use self::costs::ConnectionCosts;
use self::servers::SharedPortServers;
use crate::bench::{Bench, Failure};

/// Connections per thread in the baseline run for memory.
const FEW: u32 = 10;

/// Minimum number of connections opened per second: a tenth of the usual rate.
const OPENED_PER_S: u32 = 1_000;

/// Options of `cargo xtask scale`.
#[derive(Debug, Args)]
pub struct ScaleOptions {
    /// Number of connections to keep open
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    connections: u32,
    /// Requests per second in total
    #[arg(long, value_name = "PER_S", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// Duration of the load, in seconds
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
}

/// Measures, prints the results and returns whether all limits were met.
pub fn run(bench: &Bench, options: &ScaleOptions) -> Result<bool, Failure> {
    let servers = SharedPortServers::start(bench, options.connections)?;
    let capacity = servers.capacity;
    let load = |connections: u32| {
        let seconds = options.seconds + connections / OPENED_PER_S;
        let words = format!(
            "{} -c {connections} -t {} --rate {} -d {}s --hold --sources {} --warmup 0s --backend uring",
            servers.url,
            capacity.threads,
            options.rate,
            options.seconds,
            capacity.sources()
        );
        bench.load(&words, seconds)
    };
    let costs = ConnectionCosts {
        few: load(FEW * capacity.threads)?,
        many: load(options.connections)?,
    };
    drop(servers);
    println!("\n{costs}");
    let exceeded = costs.exceeded();
    for line in &exceeded {
        println!("{line}");
    }
    Ok(exceeded.is_empty())
}
