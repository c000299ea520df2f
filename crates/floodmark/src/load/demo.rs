//! `floodmark load --demo`: loads the native hello server over kept and then over fresh
//! connections.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use floodmark_host::{Child, Stop};
use floodmark_plan::target;

use super::args::LoadArgs;
use super::measure;
use crate::exit::{Ending, own_program};
use crate::files::Files;
use crate::out;

/// Default duration of each demo load: the minimum for which a steady state can be determined.
const DURATION: Duration = Duration::from_secs(8);

/// Maximum time to wait for the server to stop.
const GRACE: Duration = Duration::from_secs(6);

/// Runs the demo.
pub fn run(args: &LoadArgs, open_files: Option<u64>, stop: &Stop) -> Result<(), Ending> {
    let mut command = Command::new(own_program()?);
    command
        .args(["serve", "hello", "--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    if args.shared.output.quiet {
        command.stderr(Stdio::null());
    }
    let mut server = Child::start(command).map_err(Ending::internal)?;
    let stdout = server
        .stdout()
        .ok_or_else(|| Ending::internal("the demo server has no stdout"))?;
    let mut line = String::new();
    BufReader::new(stdout)
        .read_line(&mut line)
        .map_err(|e| Ending::internal(format!("the demo server: {e}")))?;
    let Some(address) = line.trim().strip_prefix("listening on ") else {
        return Err(Ending::server(
            "the demo server did not start; to see why, run: floodmark serve hello",
        ));
    };
    let url = format!("{address}/");
    if !args.shared.output.quiet {
        out::note(&format!(
            "demo: floodmark's hello server listens on {url}\n"
        ));
    }
    let mut outcome = Ok(());
    for fresh in [false, true] {
        outcome = outcome.and(load(args, &url, fresh, open_files, stop));
        if stop.is_set() {
            break;
        }
    }
    server.stop(GRACE).map_err(Ending::internal)?;
    outcome
}

fn load(
    args: &LoadArgs,
    url: &str,
    fresh: bool,
    open_files: Option<u64>,
    stop: &Stop,
) -> Result<(), Ending> {
    let is_default = args.duration.is_none()
        && args.requests.is_none()
        && args.burst.is_none()
        && !args.schedule_has_length();
    let mut args = args.clone();
    args.duration = args.duration.or(is_default.then_some(DURATION));
    args.shared.connection.fresh = fresh;
    // The demo writes no output files.
    args.shared.output.files = Files::default();
    let spec = args.spec();
    let resolved = target::resolve(url, &spec)?;
    let planned = floodmark_plan::plan(&spec, resolved, open_files).map_err(Ending::usage)?;
    let outcome = measure(&args, &planned, stop);
    if !args.shared.output.quiet && !fresh {
        out::print("\n")?;
    }
    outcome
}
