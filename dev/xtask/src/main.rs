//! Development tasks for this repository. `cargo xtask test` runs all tests.

mod bench;
mod browser;
mod command;
mod deps;
mod dist;
mod error;
mod fuzz;
mod kubernetes;
mod modules;
mod pages;
mod passes;
mod suite;
mod test_programs;
mod tools;
mod truth;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

use crate::bench::BenchArguments;
use crate::error::TaskError;
use crate::pages::Mode;
use crate::workspace::Workspace;

/// Development tasks for this repository
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
enum Task {
    /// Run every test step, then print one table
    Test(suite::Selection),
    /// Check that the crates' dependencies follow ARCHITECTURE.md
    Deps,
    /// Compare floodmark with the known-truth server
    Truth {
        /// Run only this case, such as T2
        #[arg(long, value_name = "CASE")]
        only: Option<String>,
        /// Divide each load among these agents, such as local:2
        #[arg(long, value_name = "WHERE")]
        agents: Option<String>,
    },
    /// Run the fuzz targets on generated input for a limited time
    Fuzz {
        /// Time per target, in seconds
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
        seconds: u32,
    },
    /// Write the JSON Schemas and the guide's table of causes in docs/
    Schema(Mode),
    /// Write docs/cli.md from the help of every command
    Usage(Mode),
    /// Build release archives with static programs, completions and manual pages
    Dist(dist::DistArguments),
    /// Run the Kubernetes agent tests on a real single-node cluster (needs root and Go)
    Kubernetes {
        /// Run only tests whose names start with this text
        #[arg(long, value_name = "TEXT", default_value = "")]
        only: String,
    },
    /// Check report pages in Chromium: accessibility, cursor, zoom and width (needs root if
    /// Chromium, Node.js or npm must be installed)
    Browser,
    /// Check a running server against a workload's contract
    Contract(BenchArguments),
    /// Fit the confidence model to the stored results, and measure its reliability
    Confidence(BenchArguments),
    /// Count how often the verdict names the known cause of a fault
    Confusion(BenchArguments),
    /// Judge and render the stored results, and show differences from the expected output
    Golden(BenchArguments),
    /// Count how often the search for a server's capacity is right
    Capacity(BenchArguments),
    /// Compare loads over HTTP/2 with the access logs of servers, and write docs/http2-servers.md
    /// (needs root if servers must be installed)
    Http2Servers(BenchArguments),
    /// Compare floodmark with other load generators, and write docs/peers.md
    Peers(BenchArguments),
    /// Measure how floodmark spends time on a request, and write docs/performance.md
    Performance(BenchArguments),
    /// Load web frameworks at a fixed rate, with the default number of connections and with fixed
    /// numbers
    Rates(BenchArguments),
    /// Measure the cost per connection with many kept connections
    Scale(BenchArguments),
    /// Measure the cost of monitoring the server
    Watching(BenchArguments),
    /// Compare a server with itself and with a copy slowed by 5 %
    Aa(BenchArguments),
    /// Count how often a gate fails for a slower server and for an identical one
    Gate(BenchArguments),
    /// Count how often a comparison of two versions decides correctly
    Compare(BenchArguments),
}

fn main() -> ExitCode {
    match run(&Task::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a task. Returns `false` if the task failed and has already printed the reasons.
fn run(task: &Task) -> Result<bool, TaskError> {
    let workspace = Workspace::read(None)?;
    let bench = |name, arguments| bench::run(&workspace, name, arguments);
    match task {
        Task::Test(selection) => return Ok(suite::run(&workspace, selection)),
        Task::Deps => deps::check(&workspace)?,
        Task::Truth { only, agents } => {
            let cases = only
                .as_deref()
                .map_or(truth::Cases::All, truth::Cases::Only);
            let floodmark = workspace.build_release("floodmark")?;
            truth::run(&workspace, &floodmark, cases, agents.as_deref())?;
        }
        Task::Fuzz { seconds } => fuzz::run(&workspace, *seconds)?,
        Task::Schema(mode) => {
            pages::schema(
                &workspace,
                mode,
                &workspace.build_release("floodmark-bench")?,
            )?;
        }
        Task::Usage(mode) => {
            pages::usage(&workspace, mode, &workspace.build_release("floodmark")?)?
        }
        Task::Dist(arguments) => dist::run(&workspace, arguments)?,
        Task::Kubernetes { only } => kubernetes::run(&workspace, only)?,
        Task::Browser => browser::run(&workspace)?,
        Task::Contract(arguments) => return bench("contract", arguments),
        Task::Confidence(arguments) => return bench("confidence", arguments),
        Task::Confusion(arguments) => return bench("confusion", arguments),
        Task::Golden(arguments) => return bench("golden", arguments),
        Task::Capacity(arguments) => return bench("capacity", arguments),
        Task::Http2Servers(arguments) => return bench("http2-servers", arguments),
        Task::Peers(arguments) => return bench("peers", arguments),
        Task::Performance(arguments) => return bench("performance", arguments),
        Task::Scale(arguments) => return bench("scale", arguments),
        Task::Watching(arguments) => return bench("watching", arguments),
        Task::Aa(arguments) => return bench("aa", arguments),
        Task::Gate(arguments) => return bench("gate", arguments),
        Task::Rates(arguments) => return bench("rates", arguments),
        Task::Compare(arguments) => return bench("compare", arguments),
    }
    Ok(true)
}
