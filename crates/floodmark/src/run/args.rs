//! The flags of `floodmark run`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use floodmark_plan::values::{attempts, count_within, positive_duration};

use crate::session::OutputArgs;

/// Run an experiment: build, start, load and stop its servers in turn, and print one table.
///
/// An experiment is a TOML file; `floodmark init experiment` writes one to start from. Servers run
/// one at a time on 127.0.0.1, and each round restarts them all (A B A B). If a trial fails, the
/// others continue.
#[derive(Debug, Clone, Args)]
#[command(after_help = crate::exit::HELP)]
pub struct RunArgs {
    /// Experiment file, or the name of an experiment (in ./experiments, or embedded)
    pub experiment: String,

    /// Run only trials with this trial name or system name; repeatable [default: all]
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,

    /// Number of consecutive measurements of each server process, at most 10k [default: set by the
    /// experiment]
    #[arg(long, value_name = "N", value_parser = attempts)]
    pub attempts: Option<u32>,

    /// Number of processes per server, started one after another, at most 1k [default: set by the
    /// experiment]
    #[arg(long, value_name = "N", value_parser = processes)]
    pub processes: Option<u32>,

    /// Number of crash rounds per trial, at most 10k [default: set by the experiment]
    #[arg(long, value_name = "N", value_parser = attempts)]
    pub rounds: Option<u32>,

    /// Duration of the load in each measurement, with a unit [default: set by the experiment]
    #[arg(short, long, value_name = "TIME", value_parser = positive_duration)]
    pub duration: Option<Duration>,

    /// Time limit of the gate, or of each search for a capacity, with a unit [default: set by the
    /// experiment]
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    pub budget: Option<Duration>,

    /// Prove each cause after the measurement by making one change at a time: doubling the
    /// connections, or stopping the client, server or store for 1 ms of every 5 ms. Takes a minute
    /// or more per process
    #[arg(long)]
    pub prove: bool,

    /// Exit with 1 if a published claim does not hold; inconclusive claims are ignored
    #[arg(long)]
    pub fail_on_claims: bool,

    /// Result.
    #[command(flatten)]
    pub output: OutputArgs,

    /// Resume the interrupted experiment in this result folder; fully measured server processes and
    /// complete crash rounds are not repeated [default: none]
    #[arg(long, value_name = "FOLDER", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
}

fn processes(text: &str) -> Result<u32, String> {
    count_within(text, 1..=1_000).map(|n| n as u32)
}
