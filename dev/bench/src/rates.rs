//! `cargo xtask rates`: loads web frameworks at 60 % of their maximum throughput, with the default
//! number of connections and with fixed numbers (docs/decisions/0054-connections-at-a-rate.md).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use floodmark_record::{Record, Run};

use crate::bench::{Bench, Failure, word, write};
use crate::statistics::estimate;
use crate::table::{cell, table};

/// Directories that the experiments refer to, relative to the repository's root.
const LINKS: [(&str, &str); 2] = [("cases/systems", "systems"), ("stores", "stores")];

/// Offered rate as a share of the maximum throughput.
const SHARE: f64 = 0.6;

/// Fixed numbers of connections.
const CONNECTIONS: [u32; 3] = [50, 100, 200];

/// Maximum p99 with the default number of connections, relative to the best fixed number.
const MAX_P99: f64 = 1.5;

/// Maximum number of connections that the default opens, relative to the number that Little's law
/// requires.
const MAX_OPENED: f64 = 4.0;

/// Warm-up before each measurement, long enough for a JIT compiler.
const WARMUP: Duration = Duration::from_secs(5);

/// Maximum time to start and stop a server process. The first start also builds the server.
const OVERHEAD: Duration = Duration::from_secs(60);
const BUILD: Duration = Duration::from_secs(900);

/// Name of the trial with the default number of connections.
const DEFAULT: &str = "default";

/// A framework with its name and the manifest lines of its trials.
struct Framework {
    name: &'static str,
    server: &'static str,
}

impl Framework {
    /// Returns the manifest lines of a trial whose load has these keys.
    fn trial(&self, name: &str, load: &str) -> String {
        let server = self.server;
        format!("[[trial]]\nname = {name:?}\n{server}\nload = {{ {load} }}\n")
    }
}

/// Starlette is the framework that FastAPI is built on.
const FRAMEWORKS: [Framework; 5] = [
    Framework {
        name: "Express",
        server: "system = \"node-express\"\nworkload = \"hello\"",
    },
    Framework {
        name: "Flask, gunicorn",
        server: "system = \"wsgi-flask\"\nworkload = \"hello\"\nsetting = { server = \"gunicorn-gthread\" }",
    },
    Framework {
        name: "Starlette, uvicorn",
        server: "system = \"asgi-uvicorn\"\nworkload = \"hello\"",
    },
    Framework {
        name: "Go net/http",
        server: "system = \"go-orders\"\nworkload = \"hello\"",
    },
    Framework {
        name: "Spring Boot",
        server: "system = \"tomcat-spring\"\nworkload = \"bars\"\nstore = { name = \"postgresql\" }",
    },
];

/// Options of `cargo xtask rates`.
#[derive(Debug, Args)]
pub struct RateOptions {
    /// Measure only frameworks whose names contain this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Number of server processes for each number of connections
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    processes: u32,
    /// Duration of each measurement, in seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Program to measure [default: a release build of this checkout]
    #[arg(long, value_name = "FILE")]
    floodmark: Option<PathBuf>,
}

/// Measures the frameworks, prints a table and returns whether all requirements were met.
pub fn run(options: &RateOptions) -> Result<bool, Failure> {
    let chosen: Vec<&Framework> = FRAMEWORKS
        .iter()
        .filter(|of| of.name.contains(&options.only))
        .collect();
    if chosen.is_empty() {
        let names = FRAMEWORKS.map(|of| format!("{:?}", of.name)).join(", ");
        let only = &options.only;
        return Err(format!("--only {only}: no framework matches; use a part of {names}").into());
    }
    let bench = Bench::new(options.floodmark.as_deref())?;
    let directory = tempfile::tempdir()?;
    for (target, link) in LINKS {
        symlink(bench.root.join(target), directory.path().join(link))?;
    }
    let mut results = Vec::new();
    for framework in chosen {
        let result = measure(&bench, options, framework, directory.path())?;
        println!("{}", result.cells().join(" "));
        results.push(result);
    }
    let heads =
        "framework | rate/s | p99 default, ms | best p99, ms | ratio | opened | needed | result";
    println!("{}", table(heads, results.iter().map(RateResult::cells)));
    Ok(results.iter().all(RateResult::passed))
}

/// Medians over the processes of a framework. A median is `None` if a process has no figure.
struct RateResult {
    name: &'static str,
    rate: f64,
    /// p99 response time in µs, with the default number of connections.
    p99_us: Option<f64>,
    /// Lowest p99 response time in µs with a fixed number of connections.
    best_us: Option<f64>,
    /// Number of connections that the default opened.
    opened: Option<f64>,
    /// Number of connections that Little's law requires: rate × mean service time.
    needed: Option<f64>,
}

impl RateResult {
    fn of(name: &'static str, rate: f64, record: &Record) -> Self {
        let median = |trial: &str, of: fn(&Run) -> Option<f64>| {
            let figures: Option<Vec<f64>> = record.runs_of(trial).map(of).collect();
            Some(estimate(figures?)?.median)
        };
        let p99 = |trial: &str| median(trial, |run| run.response_time_us.p99);
        let fixed = CONNECTIONS.iter().filter_map(|n| p99(&n.to_string()));
        let service_us = median(DEFAULT, |run| run.service_time_us.mean);
        RateResult {
            name,
            rate,
            p99_us: p99(DEFAULT),
            best_us: fixed.reduce(f64::min),
            opened: median(DEFAULT, |run| Some(run.connections.opened as f64)),
            needed: service_us.map(|us| rate * us / 1e6),
        }
    }

    fn ratio(&self) -> Option<f64> {
        Some(self.p99_us? / self.best_us?)
    }

    fn passed(&self) -> bool {
        let (Some(ratio), Some(opened), Some(needed)) = (self.ratio(), self.opened, self.needed)
        else {
            return false;
        };
        // A load has at least one connection.
        ratio <= MAX_P99 && opened <= MAX_OPENED * needed.max(1.0)
    }

    fn cells(&self) -> Vec<String> {
        let ms = |us| cell(us, |us: f64| format!("{:.2}", us / 1e3));
        vec![
            self.name.to_owned(),
            format!("{:.0}", self.rate),
            ms(self.p99_us),
            ms(self.best_us),
            cell(self.ratio(), |ratio| format!("{ratio:.2}")),
            cell(self.opened, |n| format!("{n:.0}")),
            cell(self.needed, |n| format!("{n:.1}")),
            word(self.passed()).to_owned(),
        ]
    }
}

/// Measures the maximum throughput of a framework, and then its response times at the rate.
fn measure(
    bench: &Bench,
    options: &RateOptions,
    framework: &Framework,
    directory: &Path,
) -> Result<RateResult, Failure> {
    let trial = |name: &str, load: &str| framework.trial(name, load);
    let experiment = |trials: &str, processes: u32, count: u32| {
        let text = format!(
            "question = \"Which number of connections suits {}?\"\n[load]\nduration = \"{}s\"\nwarmup = \"{}s\"\n\
             [place]\nprocesses = {processes}\n{trials}",
            framework.name,
            options.seconds,
            WARMUP.as_secs()
        );
        let file = directory.join("experiment.toml");
        write(&file, &text)?;
        let out = directory.join("result");
        let each = Duration::from_secs(options.seconds) + WARMUP + OVERHEAD;
        let limit = BUILD + each * processes * count;
        let record = bench.experiment(&file, &["--quiet"], &out, limit)?;
        fs::remove_dir_all(&out)?;
        Ok::<_, Failure>(record)
    };
    let closed = experiment(&trial("closed", "connections = 50"), 1, 1)?;
    let maximum = closed.runs.first().and_then(|run| run.throughput_per_s);
    let maximum = maximum.ok_or_else(|| format!("{}: no throughput", framework.name))?;
    let rate = (SHARE * maximum).round().max(1.0);
    let fixed =
        CONNECTIONS.map(|n| trial(&n.to_string(), &format!("rate = {rate}, connections = {n}")));
    let trials = trial(DEFAULT, &format!("rate = {rate}")) + &fixed.concat();
    let count = 1 + CONNECTIONS.len() as u32;
    let record = experiment(&trials, options.processes, count)?;
    Ok(RateResult::of(framework.name, rate, &record))
}

#[cfg(test)]
mod tests {
    use floodmark_lab::manifest::Experiment;

    use super::*;
    use crate::bench::repository;

    #[test]
    fn a_missing_figure_fails() {
        let result = |needed| RateResult {
            name: "x",
            rate: 1_000.0,
            p99_us: Some(30.0),
            best_us: Some(20.0),
            opened: Some(8.0),
            needed,
        };
        assert!(result(Some(2.0)).passed());
        assert!(!result(Some(1.9)).passed());
        assert!(!result(None).passed());
        let lost = RateResult {
            best_us: None,
            ..result(Some(2.0))
        };
        assert!(!lost.passed());
    }

    #[test]
    fn every_framework_is_an_experiment() {
        let root = repository().unwrap();
        let directory = tempfile::tempdir().unwrap();
        for (target, link) in LINKS {
            symlink(root.join(target), directory.path().join(link)).unwrap();
        }
        let file = directory.path().join("experiment.toml");
        for framework in &FRAMEWORKS {
            let trial = framework.trial(DEFAULT, "rate = 100");
            write(&file, &format!("question = \"?\"\n{trial}")).unwrap();
            let experiment = Experiment::read(&file).unwrap();
            assert_eq!(experiment.trials.len(), 1);
        }
    }
}
