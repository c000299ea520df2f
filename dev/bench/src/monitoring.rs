//! `cargo xtask watching`: measures the cost of monitoring, and whether monitoring slows the server
//! down.

use std::path::PathBuf;

use clap::Args;
use floodmark_record::Run;

use crate::bench::{Bench, Failure, word};
use crate::scale::SharedPortServers;
use crate::statistics::estimate;

/// Number of connections in closed-model runs.
const FEW: u32 = 100;

/// Number of held connections that share a fixed rate.
const MANY: u32 = 10_000;
const RATE_PER_S: u32 = 10_000;

/// Maximum CPU use of monitoring with few and with many connections, as a fraction of one CPU.
const MAX_SHARES: [f64; 2] = [0.01, 0.03];

/// Accepted range of the throughput ratio (with ÷ without monitoring). The whole interval must lie
/// within this range.
const RATIO: (f64, f64) = (0.97, 1.03);

/// Options of `cargo xtask watching`.
#[derive(Debug, Args)]
pub struct MonitoringOptions {
    /// Make fewer and shorter runs, for a rough result within a minute
    #[arg(long)]
    quick: bool,
    /// Program to measure [default: a release build of this checkout]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Measures, prints the results and returns whether all limits were met.
pub fn run(options: &MonitoringOptions) -> Result<bool, Failure> {
    let bench = &Bench::new(options.program.as_deref())?;
    // Use many short pairs, because the speed of a shared host changes within 30 s.
    let (pairs, seconds, cost_seconds) = if options.quick {
        (6, 2, 4)
    } else {
        (60, 4, 20)
    };
    let servers = SharedPortServers::start(bench, MANY)?;
    let load = |words: &str, seconds: u32| {
        let words = format!("{} {words} --warmup 0s -d {seconds}s --quiet", servers.url);
        bench.load(&words, seconds)
    };
    let closed = format!("-c {FEW} -t 1");
    let held = format!(
        "-c {MANY} -t {} --rate {RATE_PER_S} --hold --sources {}",
        servers.capacity.threads,
        servers.capacity.sources()
    );
    let costs = [
        (FEW, share(&load(&closed, cost_seconds)?)?),
        (MANY, share(&load(&held, cost_seconds)?)?),
    ];
    let unmonitored = format!("{closed} --no-watch");
    let throughput = |words: &str| -> Result<f64, Failure> {
        let per_s = load(words, seconds)?.throughput_per_s;
        let per_s = per_s.filter(|per_s| *per_s > 0.0);
        per_s.ok_or_else(|| "a run has no throughput; check the server and retry".into())
    };
    let mut ratios = Vec::new();
    for pair in 0..pairs {
        // Alternate the order, so that changes on the host affect both kinds of runs equally.
        ratios.push(match pair % 2 {
            0 => throughput(&closed)? / throughput(&unmonitored)?,
            _ => 1.0 / (throughput(&unmonitored)? / throughput(&closed)?),
        });
    }
    println!();
    let (text, mut passed) = judge(ratios);
    for ((connections, share), limit) in costs.into_iter().zip(MAX_SHARES) {
        passed &= share <= limit;
        println!(
            "monitoring {connections:>6} connections uses {:.2} % of one CPU, including setup; maximum {:.0} %: {}",
            100.0 * share,
            100.0 * limit,
            word(share <= limit)
        );
    }
    println!("{text}");
    Ok(passed)
}

/// Returns the CPU use of monitoring, as a fraction of one CPU.
fn share(run: &Run) -> Result<f64, Failure> {
    let monitored = run.watcher.filter(|_| run.server.is_some());
    let watcher = monitored.ok_or_else(|| format!("not monitored: {}", run.missing.join("; ")))?;
    Ok(watcher.cpu_s / watcher.wall_s)
}

/// Describes the throughput ratio, and returns whether the whole interval is within [`RATIO`].
fn judge(ratios: Vec<f64>) -> (String, bool) {
    let (low, high) = RATIO;
    let ratio = estimate(ratios);
    let Some((ratio, i)) = ratio.and_then(|ratio| Some((ratio, ratio.interval?))) else {
        return ("throughput: fewer than two pairs of runs".to_owned(), false);
    };
    let within = i.low >= low && i.high <= high;
    let text = format!(
        "throughput with ÷ without monitoring: median {:.4} of {} pairs, {:.1} % interval {:.4} to {:.4}, required {low:.2} to \
         {high:.2}: {}",
        ratio.median,
        ratio.count,
        100.0 * i.coverage,
        i.low,
        i.high,
        word(within)
    );
    (text, within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_interval_must_be_within_the_range() {
        let passes = |ratios: &[f64]| judge(ratios.to_vec()).1;
        assert!(passes(&[0.99, 1.0, 1.01, 1.0, 0.995, 1.005]));
        assert!(!passes(&[0.9; 6]));
        // The mean is 1, but the interval is too wide.
        assert!(!passes(&[0.9, 1.1, 0.9, 1.1, 1.0, 1.0]));
        assert!(!passes(&[]));
    }
}
