//! `floodmark-truth serve SCENARIO` starts the truth server. `floodmark-truth cases` runs cases T1
//! to T10.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser};
use floodmark_host::Stop;
use floodmark_truth::{Scenario, TruthServer, run_cases};

#[derive(Parser)]
#[command(about = "A server with known faults, and the cases that compare floodmark with it")]
enum TruthCommand {
    /// Serve a scenario until SIGINT or SIGTERM
    Serve(ServeArguments),
    /// Compare the figures of a floodmark binary with the server's log
    Cases(CaseArguments),
}

#[derive(Args)]
struct ServeArguments {
    /// Scenario as JSON, such as {"service":{"fixed":{"delay_us":1000}}}; {} responds with 200 immediately
    #[arg(default_value = "{}")]
    scenario: String,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Append the log to this file on exit, as one line of JSON
    #[arg(long, value_name = "FILE")]
    append: Option<PathBuf>,
}

#[derive(Args)]
struct CaseArguments {
    /// Path of the floodmark binary
    #[arg(long)]
    floodmark: PathBuf,
    /// Run only this case, such as T2
    #[arg(long)]
    only: Option<String>,
    /// Skip this case (repeatable)
    #[arg(long)]
    skip: Vec<String>,
    /// Backend of floodmark [default: auto]
    #[arg(long)]
    backend: Option<String>,
    /// Divide each load among these agents, such as local:2 [default: a single process]
    #[arg(long)]
    agents: Option<String>,
    /// Write the reports to this file as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = match TruthCommand::parse() {
        TruthCommand::Serve(arguments) => serve(&arguments).map(|()| true),
        TruthCommand::Cases(arguments) => cases(arguments),
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

fn serve(arguments: &ServeArguments) -> Result<(), Box<dyn std::error::Error>> {
    let scenario: Scenario = serde_json::from_str(&arguments.scenario)?;
    let stop = Stop::on_signals()?;
    let server = TruthServer::start_at(arguments.listen, scenario)?;
    println!("listening on {}", server.address());
    while !stop.is_set() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let log = server.stop()?;
    if let Some(path) = &arguments.append {
        let mut file = File::options().create(true).append(true).open(path)?;
        file.write_all((serde_json::to_string(&log)? + "\n").as_bytes())?;
    }
    Ok(())
}

fn cases(arguments: CaseArguments) -> Result<bool, Box<dyn std::error::Error>> {
    let CaseArguments {
        floodmark,
        only,
        skip,
        backend,
        agents,
        json,
    } = arguments;
    let reports = run_cases(&floodmark, backend, agents, only.as_deref(), &skip);
    if reports.is_empty() {
        return Err(format!(
            "--only {}: unknown case",
            only.as_deref().unwrap_or_default()
        )
        .into());
    }
    if let Some(path) = json {
        std::fs::write(path, serde_json::to_vec_pretty(&reports)?)?;
    }
    Ok(reports.iter().all(|report| report.passed))
}
