//! Measurements of floodmark itself. `cargo xtask` builds and starts this program.

mod bench;
mod capacity;
mod conditions;
mod confidence;
mod confusion;
mod contracts;
mod difference;
mod experiment;
mod golden;
mod http2_servers;
mod monitoring;
mod peers;
mod performance;
mod rates;
mod scale;
mod schema;
mod slowed;
mod statistics;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::bench::{Bench, Failure};

/// Measurements of floodmark itself
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
enum Measurement {
    /// Compare a server with itself and with a copy slowed by 5 %
    Aa(difference::DifferenceOptions),
    /// Use a share of one CPU in bursts of random length
    Burn(capacity::burn::BurnOptions),
    /// Count how often the search for a server's capacity is right
    Capacity(capacity::CapacityOptions),
    /// Judge the cases that run on every change
    Causes {
        /// Measure with this floodmark binary [default: the binary next to this program]
        #[arg(long, value_name = "PATH")]
        floodmark: Option<PathBuf>,
    },
    /// Count how often a comparison of two versions decides correctly
    Compare(difference::CompareOptions),
    /// Fit the confidence model to the stored results, and measure its reliability
    Confidence(confidence::ConfidenceOptions),
    /// Count how often the verdict names the known cause of a fault
    Confusion(confusion::ConfusionOptions),
    /// Check a running server against a workload's contract
    Contract(contracts::contract::ContractOptions),
    /// Count how often a gate fails for a slower server and for an identical one
    Gate(difference::GateOptions),
    /// Judge and render the stored results, and show differences from the expected output
    Golden(golden::GoldenOptions),
    /// Compare loads over HTTP/2 with the access logs of servers, and write docs/http2-servers.md
    Http2Servers(http2_servers::Http2ServersOptions),
    /// Compare floodmark with other load generators, and write docs/peers.md
    Peers(peers::PeersOptions),
    /// Measure how floodmark spends time on a request, and write docs/performance.md
    Performance(performance::PerformanceOptions),
    /// Load web frameworks at a fixed rate, with the default number of connections and with fixed
    /// numbers
    Rates(rates::RateOptions),
    /// Measure the cost per connection with many kept connections
    Scale(scale::ScaleOptions),
    /// Print the JSON Schemas and the guide with the table of causes
    Schema,
    /// Run a command and keep it stopped for a fraction of the time
    Slowed(slowed::SlowedOptions),
    /// Check every system against the contracts of its workloads
    Systems,
    /// Measure the cost of monitoring the server
    Watching(monitoring::MonitoringOptions),
}

fn main() -> ExitCode {
    match run(&Measurement::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a measurement and returns whether all requirements were met.
fn run(measurement: &Measurement) -> Result<bool, Failure> {
    let bench = || Bench::new(None);
    match measurement {
        Measurement::Aa(options) => difference::aa(options),
        Measurement::Burn(options) => capacity::burn::run(options),
        Measurement::Capacity(options) => capacity::run(options),
        Measurement::Causes { floodmark } => confusion::causes(&Bench::new(floodmark.as_deref())?),
        Measurement::Compare(options) => difference::compare(options),
        Measurement::Confidence(options) => confidence::run(options),
        Measurement::Confusion(options) => confusion::run(&bench()?, options),
        Measurement::Contract(options) => Ok(contracts::contract::run(options)),
        Measurement::Gate(options) => difference::gate(options),
        Measurement::Golden(options) => golden::run(options),
        Measurement::Http2Servers(options) => http2_servers::run(&bench()?, options),
        Measurement::Peers(options) => peers::run(&bench()?, options).map(|()| true),
        Measurement::Performance(options) => performance::run(&bench()?, options).map(|()| true),
        Measurement::Rates(options) => rates::run(options),
        Measurement::Scale(options) => scale::run(&bench()?, options),
        Measurement::Schema => schema::run().map(|()| true),
        Measurement::Slowed(options) => slowed::run(options),
        Measurement::Systems => contracts::run(&bench()?),
        Measurement::Watching(options) => monitoring::run(options),
    }
}
