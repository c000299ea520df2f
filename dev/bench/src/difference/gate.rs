//! `cargo xtask gate`: counts how often a gate fails for identical servers, and for a server that
//! is stopped for 5 % of the time.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use floodmark_record::gate::{GateDecision, GateResult};

use super::{STOPPED_SHARE, slowed_server};
use crate::bench::{Bench, Failure, word, write};
use crate::proportion::Proportion;
use crate::table::cell;

/// Budget of each gate.
const BUDGET: Duration = Duration::from_secs(85);
/// Maximum time of a gate, including the start and the end of the experiment.
const MAX_TIME: Duration = Duration::from_secs(90);
/// Maximum proportion of gates that fail for identical servers.
const MAX_FALSE_ALARMS: f64 = 0.05;
/// Minimum proportion of gates that fail for the slower server.
const MIN_FOUND: f64 = 0.9;

/// Options of `cargo xtask gate`.
#[derive(Debug, Args)]
pub struct GateOptions {
    /// Number of gates of each kind
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1000))]
    times: u32,
    /// Program to measure [default: a release build of this checkout]
    #[arg(long, value_name = "FILE")]
    floodmark: Option<PathBuf>,
}

/// The gates of one kind.
#[derive(Default)]
struct GateSeries {
    failed: Vec<bool>,
    passed: Vec<bool>,
    longest: Duration,
    total: Duration,
}

impl GateSeries {
    fn add(&mut self, gate: &GateResult, time: Duration) {
        self.failed.push(gate.decision == GateDecision::Failed);
        self.passed.push(gate.decision == GateDecision::Passed);
        self.longest = self.longest.max(time);
        self.total += time;
    }

    fn failures(&self) -> Proportion {
        Proportion::of(self.failed.iter().copied())
    }

    fn describe(&self, name: &str) {
        let mean = self.total / self.failed.len().max(1) as u32;
        println!(
            "{name}: failed {}; passed {}; mean {mean:.0?}, maximum {:.0?}",
            self.failures(),
            Proportion::of(self.passed.iter().copied()),
            self.longest
        );
    }
}

/// Runs gates of both kinds in turn, prints the proportions with 95 % Wilson intervals, and returns
/// whether they meet the requirements.
pub fn run(options: &GateOptions) -> Result<bool, Failure> {
    let bench = Bench::new(options.floodmark.as_deref())?;
    let folder = tempfile::tempdir()?;
    let (mut identical, mut slower) = (GateSeries::default(), GateSeries::default());
    for time in 1..=options.times {
        for (name, share, series) in [
            ("identical", 0.0, &mut identical),
            ("slower", STOPPED_SHARE, &mut slower),
        ] {
            let begin = Instant::now();
            let gate = measure(&bench, &folder.path().join(format!("{name}-{time}")), share)?;
            let took = begin.elapsed();
            let range = gate.interval.as_ref();
            let range =
                range.map_or_else(String::new, |of| format!("{:.3} – {:.3}", of.low, of.high));
            println!(
                "{time:>3} {name}: {}, {} ({range}), {} pairs, {took:.0?}",
                gate.decision,
                cell(gate.ratio, |ratio| format!("{ratio:.3}")),
                gate.pairs.len()
            );
            series.add(&gate, took);
        }
    }
    identical.describe("identical");
    slower.describe("slower");
    let is_accurate =
        identical.failures().value() <= MAX_FALSE_ALARMS && slower.failures().value() >= MIN_FOUND;
    let is_short = identical.longest.max(slower.longest) <= MAX_TIME;
    println!("{}", word(is_accurate && is_short));
    Ok(is_accurate && is_short)
}

/// Runs the gate for a native server and a copy that is stopped for a share of the time.
fn measure(bench: &Bench, folder: &Path, share: f64) -> Result<GateResult, Failure> {
    fs::create_dir_all(folder)?;
    let executable = std::env::current_exe()?;
    let budget = BUDGET.as_secs();
    let text = format!(
        "question = \"Is the candidate as fast as the baseline?\"\n\
         [load]\nconnections = 16\nthreads = 1\nduration = \"1s\"\nwarmup = \"200ms\"\n\
         [gate]\nbudget = \"{budget}s\"\n\
         [[trial]]\nname = \"baseline\"\n{}\n[[trial]]\nname = \"candidate\"\n{}\n",
        slowed_server(&executable, 0.0),
        slowed_server(&executable, share)
    );
    let file = folder.join("gate.toml");
    write(&file, &text)?;
    let record = bench.experiment(&file, &["--quiet"], &folder.join("result"), 2 * MAX_TIME)?;
    fs::remove_dir_all(folder)?;
    record.gate.ok_or_else(|| "the record has no gate".into())
}
