//! `floodmark worker`: one load process, started by floodmark itself. See [`WorkerInput`] for the
//! protocol.

mod agent;

use std::fmt::Display;
use std::io::{self, BufRead, Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use floodmark_host::{Child, raise_open_files, stdin_is_closed};
use floodmark_load::alternating;
use floodmark_load::budget::FileLimit;
use floodmark_load::worker::{self, RateControl, StopFlag};
use floodmark_record::plan::{Model, Plan, Schedule};
use floodmark_record::worker_input::{WorkerCommand, WorkerInput};
use floodmark_record::{Event, Timetable};

use crate::exit::Ending;

/// Interval between checks of a guarded agent and of stdin.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum time for a guarded agent to end after stdin is closed.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Run one load process (plan on stdin, events on stdout); started by other commands
#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// Send a share of a load that a coordinator divides among several agents
    #[arg(long)]
    agent: bool,

    /// Run the agent in a child process that is killed if it outlives its stdin
    #[arg(long, requires = "agent", hide = true)]
    guard: bool,
}

/// Runs the plan from stdin and writes its events to stdout.
pub fn run(args: &WorkerArgs) -> Result<(), Ending> {
    match (args.agent, args.guard) {
        (true, true) => guard(),
        (true, false) => agent::run(),
        (false, _) => run_alone(),
    }
}

fn run_alone() -> Result<(), Ending> {
    let mut input = read_input(&read_line()?)?;
    let files = raise_limit(&input);
    let stop = StopFlag::default();
    let rates = RateControl::default();
    let (requested, adjusted) = (stop.clone(), rates.clone());
    // This thread is never joined, because a blocked read cannot be canceled.
    let reader = std::thread::Builder::new().spawn(move || {
        for line in io::stdin().lock().lines() {
            match line.as_deref().map(WorkerCommand::parse) {
                Ok(Some(WorkerCommand::Rate(rate))) => adjusted.change(rate),
                Ok(None) => {}
                Ok(Some(WorkerCommand::Stop)) | Err(_) => break,
            }
        }
        requested.stop();
    });
    reader.map_err(no_thread)?;
    let lost = stop.clone();
    let emit = |event: Event| {
        let line = event.to_line().map_err(io::Error::from);
        let written = line.and_then(|line| write_line(&line));
        if written.is_err() {
            lost.stop();
        }
    };
    match input.other.take() {
        None => worker::run(input, files, &stop, &rates, None, emit),
        Some(other) => alternating::run(&input, &other, &stop, emit),
    }
    .map_err(failed)
}

/// Runs the agent in a child process, which inherits stdin and stdout. Kills the agent if it is
/// still running [`END_TIMEOUT`] after stdin is closed: a stopped agent (SIGSTOP) cannot notice
/// that its connection is closed.
fn guard() -> Result<(), Ending> {
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["worker", "--agent"]);
    let mut agent = Child::start(command).map_err(failed)?;
    let mut closed: Option<Instant> = None;
    loop {
        match agent.wait(POLL_INTERVAL).map_err(failed)? {
            Some(status) if status.success() => return Ok(()),
            // The agent has printed the reason.
            Some(status) => return Err(failed(format!("the agent ended ({status})"))),
            None => {}
        }
        if closed.is_none() && stdin_is_closed() {
            closed = Some(Instant::now());
        }
        if closed.is_some_and(|since| since.elapsed() > END_TIMEOUT) {
            // Dropping the child kills it, even if it is stopped.
            return Err(failed("the agent did not end and was killed"));
        }
    }
}

fn failed(error: impl Display) -> Ending {
    Ending::internal(format!("worker: {error}"))
}

fn no_thread(error: io::Error) -> Ending {
    Ending::internal(format!("worker: cannot start a thread: {error}"))
}

/// Writes a line to stdout at once.
fn write_line(line: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(line)?;
    stdout.flush()
}

/// Reads a line from stdin. Returns an empty string at the end of stdin.
fn read_line() -> Result<String, Ending> {
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    read.map_err(|e| Ending::internal(format!("worker: stdin: {e}")))?;
    Ok(line)
}

/// Reads the worker's input, which starts with `line` and may continue on stdin.
fn read_input(line: &str) -> Result<WorkerInput, Ending> {
    let mut input = WorkerInput::from_json(line.as_bytes()).map_err(|e| {
        Ending::usage(format!(
            "worker: stdin does not start with a valid plan: {e}; use floodmark load"
        ))
    })?;
    read_timetable(&mut input.plan)?;
    Ok(input)
}

/// Raises the limit on open files to what the worker needs.
fn raise_limit(input: &WorkerInput) -> Option<FileLimit> {
    // Ignore an invalid request here, because the run itself rejects it.
    let sides = 1 + u64::from(input.other.is_some());
    let needed = sides * worker::files_needed(&input.plan).unwrap_or(0);
    raise_open_files(needed).ok().map(|raised| FileLimit {
        before: raised.before,
        now: raised.now,
    })
}

/// Reads the arrivals of a replay, which follow the plan on stdin.
fn read_timetable(plan: &mut Plan) -> Result<(), Ending> {
    let Model::Open {
        schedule: Schedule::Replay { replay, .. },
        ..
    } = &mut plan.model
    else {
        return Ok(());
    };
    let mut bytes = Vec::new();
    let read = io::stdin()
        .lock()
        .take(replay.timetable_bytes.0)
        .read_to_end(&mut bytes);
    read.map_err(|e| Ending::internal(format!("worker: stdin: {e}")))?;
    replay.timetable = Timetable::decode(&bytes, &replay.timetable_checksum)
        .map_err(|e| Ending::usage(format!("worker: {e}; use floodmark load")))?;
    Ok(())
}
