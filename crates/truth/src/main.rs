//! `floodmark-truth serve SCENARIO` starts a known-truth server; `floodmark-truth cases` runs T1 to T10.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Parser, Subcommand};
use floodmark_truth::{Scenario, Server, run_cases};
use signal_hook::consts::{SIGINT, SIGTERM};

#[derive(Parser)]
#[command(about = "A server whose truth is known, and the cases that hold floodmark against it")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a scenario on a free port of 127.0.0.1 until SIGTERM
    Serve {
        /// As JSON, such as {"service":{"fixed":{"delay_us":1000}}}; {} is the fastest 200 there is
        #[arg(default_value = "{}")]
        scenario: String,
        /// Where the log goes at the end, as JSON
        #[arg(long)]
        log: Option<PathBuf>,
    },
    /// Run the cases T1 to T10 against a floodmark binary
    Cases {
        /// The binary to hold against the truth
        #[arg(long)]
        floodmark: PathBuf,
        /// Only this case, such as T2
        #[arg(long)]
        only: Option<String>,
        /// Not this case (may be repeated)
        #[arg(long)]
        skip: Vec<String>,
        /// The backend that floodmark is to use; without it the best there is
        #[arg(long)]
        backend: Option<String>,
        /// Also write the reports here, as JSON
        #[arg(long)]
        json: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Serve { scenario, log } => serve(&scenario, log.as_deref()).map(|()| true),
        Command::Cases {
            floodmark,
            only,
            skip,
            backend,
            json,
        } => cases(&floodmark, backend, only.as_deref(), &skip, json.as_deref()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("floodmark-truth: {error}");
            ExitCode::from(2)
        }
    }
}

fn serve(scenario: &str, log: Option<&Path>) -> Result<(), Box<dyn std::error::Error>> {
    let scenario: Scenario = serde_json::from_str(scenario)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let server = Server::start(scenario)?;
    println!("listening on {}", server.address());
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let done = server.stop()?;
    if let Some(path) = log {
        let file = std::io::BufWriter::new(std::fs::File::create(path)?);
        serde_json::to_writer(file, &done)?;
    }
    Ok(())
}

fn cases(
    floodmark: &Path,
    backend: Option<String>,
    only: Option<&str>,
    skip: &[String],
    json: Option<&Path>,
) -> Result<bool, Box<dyn std::error::Error>> {
    let reports = run_cases(floodmark, backend, only, skip);
    if reports.is_empty() {
        return Err(format!("no case is called {}", only.unwrap_or("so")).into());
    }
    if let Some(path) = json {
        std::fs::write(path, serde_json::to_vec_pretty(&reports)?)?;
    }
    Ok(reports.iter().all(|report| report.passed))
}
