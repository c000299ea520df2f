//! `cargo xtask watching`: what watching the server costs, and whether the server is slower for it.

mod figures;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use floodmark_record::Run;

use self::figures::{Cost, Figures};
use crate::error::Error;
use crate::measuring::child::Interrupt;
use crate::measuring::load;
use crate::release;
use crate::scale::need::{Machine, Need};
use crate::scale::servers::Servers;
use crate::workspace::Workspace;

/// What a run may take beyond its length: opening 10,000 connections, and ending them.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connections of the runs with and without watching, and of the first one whose cost is bounded.
const FEW: u32 = 100;

/// Connections of the second one whose cost is bounded; they are held open and share `RATE`.
const MANY: u32 = 10_000;
const RATE_PER_S: u32 = 10_000;

/// How long it takes and what is measured.
#[derive(Debug, Args)]
pub struct Options {
    /// Fewer and shorter runs, whose interval is wider: whether it works at all, within a minute.
    #[arg(long)]
    quick: bool,
    /// The floodmark that is measured [default: a release build of this checkout]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

impl Options {
    /// Pairs of runs with and without watching, seconds of each, and seconds of each run whose cost is read.
    ///
    /// Many pairs, since how fast a shared machine is changes from one half minute to the next.
    fn extent(&self) -> (usize, u32, u32) {
        if self.quick { (6, 2, 4) } else { (60, 4, 20) }
    }
}

/// Measures, prints, and says whether all bars were met.
pub fn run(workspace: &Workspace, options: &Options) -> Result<bool, Error> {
    let found = |e: std::io::Error| Error::Found(vec![e.to_string()]);
    let need = Need::of(MANY, Machine::read().map_err(found)?);
    let floodmark = match &options.program {
        Some(program) => program.clone(),
        None => release::floodmark(workspace)?,
    };
    let interrupt = Interrupt::catch().map_err(found)?;
    let folder = tempfile::tempdir().map_err(found)?;
    let servers = Servers::start(&floodmark, need.servers)?;
    let bench = Bench {
        floodmark: &floodmark,
        folder: folder.path(),
        url: servers.url(),
        interrupt: &interrupt,
    };
    let (pairs, seconds, of_costs) = options.extent();
    let closed = format!("-c {FEW} -t 1 --warmup 0s");
    let held = format!(
        "-c {MANY} -t {} --rate {RATE_PER_S} --hold --sources {} --warmup 0s",
        need.threads,
        need.sources()
    );
    let costs = vec![
        Cost::of(FEW, 0.01, &bench.load(&closed, of_costs)?)?,
        Cost::of(MANY, 0.03, &bench.load(&held, of_costs)?)?,
    ];
    let mut ratios = Vec::with_capacity(pairs);
    for pair in 0..pairs {
        let (mut with, mut without) = (None, None);
        // Each goes first as often as the other, so that what changes on the machine meets both alike.
        for watched in [pair % 2 == 0, pair % 2 != 0] {
            if watched {
                with = bench.load(&closed, seconds)?.throughput_per_s;
            } else {
                let words = format!("{closed} --no-watch");
                without = bench.load(&words, seconds)?.throughput_per_s;
            }
        }
        // A pair without a figure is a fault of floodmark's, not a ratio.
        match (with, without) {
            (Some(with), Some(without)) if without > 0.0 => ratios.push(with / without),
            _ => return Err(Error::Found(vec!["a run had no throughput".to_owned()])),
        }
    }
    drop(servers);
    let figures = Figures { costs, ratios };
    println!("\n{figures}");
    Ok(figures.met())
}

/// Where the load comes from and goes to.
struct Bench<'a> {
    floodmark: &'a Path,
    folder: &'a Path,
    url: &'a str,
    interrupt: &'a Interrupt,
}

impl Bench<'_> {
    fn load(&self, words: &str, seconds: u32) -> Result<Run, Error> {
        let words = format!("{} {words} -d {seconds}s", self.url);
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let limit = PATIENCE + Duration::from_secs(seconds.into());
        load::run(self.floodmark, &words, self.folder, limit, self.interrupt)
    }
}
