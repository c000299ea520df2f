//! `cargo xtask scale`: many kept connections from one load process to the native server, and what each of them costs.
//!
//! The servers' connections are their open files, so several share the port, as many as the hard limit asks for. The load process keeps its
//! sockets in tables of io_uring, one for each thread, which the same limit bounds.

mod figures;
mod need;
mod servers;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::Args;
use floodmark_record::{Record, Run};

use self::figures::Figures;
use self::need::{Machine, Need};
use self::servers::Servers;
use crate::command;
use crate::error::{Error, none_found};
use crate::measuring::child::{self, Interrupt};
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
    let load = |connections| -> Result<Run, Error> {
        let file = folder.path().join("record.json");
        let mut command = Command::new(&floodmark);
        command
            .args(arguments(servers.url(), options, &need, connections))
            .args(["--quiet", "--json"])
            .arg(&file)
            .arg("--out")
            .arg(folder.path().join(format!("result-{connections}")));
        println!("$ {}", command::line(&command));
        let limit =
            PATIENCE + Duration::from_secs((options.seconds + connections / SLOWEST_PER_S).into());
        let used = child::run(&mut command, folder.path(), limit, &interrupt).map_err(found)?;
        // An invalid run (4) has its figures too; they are shown, and the run counts as missed.
        if !matches!(used.status.code(), Some(0 | 4)) {
            eprint!("{}", used.stderr);
            return Err(Error::Failed {
                command: command::line(&command),
                status: used.status,
                said: used.stderr.lines().map(str::to_owned).collect(),
            });
        }
        record(&file)
    };
    let few = load(FEW * need.threads)?;
    let many = load(options.connections)?;
    drop(servers);
    let figures = Figures { few, many };
    println!("\n{figures}");
    none_found(figures.missed())
}

/// `floodmark load` with its flags.
fn arguments(url: &str, options: &Options, need: &Need, connections: u32) -> Vec<String> {
    let words = format!(
        "load {url} -c {connections} -t {} --rate {} -d {}s --hold --sources {} --warmup 0s --backend uring",
        need.threads,
        options.rate,
        options.seconds,
        need.sources()
    );
    words.split(' ').map(str::to_owned).collect()
}

/// The one run of a record.
fn record(file: &Path) -> Result<Run, Error> {
    let text = fs::read_to_string(file).map_err(|source| Error::Read {
        path: file.to_owned(),
        source,
    })?;
    let unread = |why: String| Error::Output {
        command: "floodmark load".to_owned(),
        why,
    };
    let record: Record = serde_json::from_str(&text).map_err(|e| unread(e.to_string()))?;
    let mut runs = record.runs.into_iter();
    runs.next().ok_or_else(|| unread("no run".to_owned()))
}
