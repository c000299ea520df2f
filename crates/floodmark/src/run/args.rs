//! The flags of `floodmark run`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::load::args::{attempts, count_from_one, positive_duration};

/// Run an experiment: build, start, load and stop its servers in turn, and draw one table.
///
/// An experiment is a TOML file; floodmark init experiment writes one to start from. Servers are started afresh in rounds over all
/// trials (A B A B), each on a port of 127.0.0.1. What goes wrong with one of them is one line; the others go on.
#[derive(Debug, Clone, Args)]
#[command(after_help = crate::exit::HELP)]
pub struct RunArgs {
    /// An experiment: a file, or the name of one in ./experiments
    pub experiment: String,

    /// Only this trial, by its own name or its system's; repeatable [default: all]
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,

    /// Measurements one after the other on each server process, at most 10k [default: as the experiment says]
    #[arg(long, value_name = "N", value_parser = attempts)]
    pub attempts: Option<u32>,

    /// Fresh starts of each server, at most 1k [default: as the experiment says]
    #[arg(long, value_name = "N", value_parser = processes)]
    pub processes: Option<u32>,

    /// How long each measurement sends, with a unit [default: as the experiment says]
    #[arg(short, long, value_name = "TIME", value_parser = positive_duration)]
    pub duration: Option<Duration>,

    /// After each process was measured, change parts of its setup in turn in short windows, to prove what limited it: twice the
    /// connections, the client, the server and the store stopped for a fifth of the time; a minute or more for each process
    #[arg(long)]
    pub prove: bool,

    /// Exit with 1 where a published claim does not hold; one that is undecided fails nothing
    #[arg(long)]
    pub fail_on_claims: bool,

    /// Folder to keep the result in, which holds none yet [default: a new one in the temporary folder, where the latest 20 are
    /// kept]
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,

    /// Go on with this result, which was cut short: server processes that it holds whole are not measured again
    /// [default: none]
    #[arg(long, value_name = "FOLDER", conflicts_with = "out")]
    pub resume: Option<PathBuf>,

    /// Write a page to look at, whole in itself: tables, curves, environment [default: none]
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write the record as JSON; - for stdout, and nothing else there [default: none]
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Print neither progress nor table
    #[arg(short, long)]
    pub quiet: bool,
}

fn processes(text: &str) -> Result<u32, String> {
    match count_from_one(text)? {
        n if n > 1_000 => Err("at most 1000".to_owned()),
        n => Ok(n as u32),
    }
}
