//! `floodmark load --demo`: the native hello server in a process of its own, loaded with kept and with fresh connections.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use floodmark_host::{Child, Stop};

use super::args::LoadArgs;
use super::{ending, measure, plan, show, target};
use crate::exit::{Ending, Exit};
use crate::out;

/// How long each of the two loads takes where nothing is asked for.
const LENGTH: Duration = Duration::from_secs(5);

/// How long the server may take to end.
const GRACE: Duration = Duration::from_secs(6);

/// Runs the demonstration.
pub fn run(args: &LoadArgs, open_files: Option<u64>, stop: &Stop) -> Result<(), Ending> {
    let program = std::env::current_exe()
        .map_err(|e| Ending::failed(format!("floodmark cannot find itself: {e}")))?;
    let mut command = Command::new(program);
    command
        .args(["serve", "hello", "--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    if args.quiet {
        command.stderr(Stdio::null());
    }
    let mut server = Child::start(command).map_err(Ending::failed)?;
    let stdout = server
        .stdout()
        .ok_or_else(|| Ending::failed("the demo server has no output"))?;
    let mut line = String::new();
    BufReader::new(stdout)
        .read_line(&mut line)
        .map_err(|e| Ending::failed(format!("the demo server: {e}")))?;
    let Some(address) = line.trim().strip_prefix("listening on ") else {
        return Err(Ending {
            exit: Exit::Server,
            message: "the demo server did not start; try floodmark serve hello, which says why"
                .to_owned(),
        });
    };
    let url = format!(
        "http://{}/",
        address.trim_start_matches("http://").trim_end_matches('/')
    );
    if !args.quiet {
        out::note(&format!("demo: floodmark's own hello server is at {url}\n"));
    }
    let mut outcome = Ok(());
    for fresh in [false, true] {
        outcome = outcome.and(one(args, &url, fresh, open_files, stop));
        if stop.is_set() {
            break;
        }
    }
    server.stop(GRACE).map_err(Ending::failed)?;
    outcome
}

fn one(
    args: &LoadArgs,
    url: &str,
    fresh: bool,
    open_files: Option<u64>,
    stop: &Stop,
) -> Result<(), Ending> {
    let default_length = args.duration.is_none()
        && args.requests.is_none()
        && args.burst.is_none()
        && !args.changing.have_length();
    let args = LoadArgs {
        fresh,
        duration: if default_length {
            Some(LENGTH)
        } else {
            args.duration
        },
        ..args.clone()
    };
    let planned = plan::plan(&args, target::resolve(url, &args)?, open_files)?;
    let measured = measure(&args, &planned, stop)?;
    show(&args, &measured.record);
    if !args.quiet && !fresh {
        out::print("\n");
    }
    ending(&args, measured, stop)
}
