//! `floodmark-truth serve SCENARIO` starts the truth server. `floodmark-truth cases` runs cases T1
//! to T16.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser};
use floodmark_host::Stop;
use floodmark_truth::{CaseOptions, Scenario, TruthServer, run_cases};

#[derive(Parser)]
#[command(about = "A server with known faults, and the cases that compare floodmark with it")]
enum TruthCommand {
    /// Serve a scenario until SIGINT or SIGTERM
    Serve(ServeArguments),
    /// Compare the figures of a floodmark binary with the server's log
    Cases(CaseOptions),
}

#[derive(Args)]
struct ServeArguments {
    /// Scenario as JSON, such as {"service":{"fixed":{"delay_us":1000}}}; {} responds with 200
    /// immediately
    #[arg(default_value = "{}")]
    scenario: String,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Append the log to this file on exit, as one line of JSON
    #[arg(long, value_name = "FILE")]
    append: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = match TruthCommand::parse() {
        TruthCommand::Serve(arguments) => serve(&arguments).map(|()| true),
        TruthCommand::Cases(options) => cases(&options),
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

fn cases(options: &CaseOptions) -> Result<bool, Box<dyn std::error::Error>> {
    run_cases(options).ok_or_else(|| {
        let only = options.only.as_deref().unwrap_or_default();
        format!("--only {only}: unknown case").into()
    })
}
