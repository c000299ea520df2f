//! Runs the worker, a child process that reads a plan from stdin and writes events to stdout.

use std::io::{BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use floodmark_host::{Child, ChildError, ProcessPlacement, Stop};
use floodmark_record::Event;
use floodmark_record::plan::Schedule;
use floodmark_record::units::Rate;
use floodmark_record::worker_input::{WorkerCommand, WorkerInput};

use crate::command::read_line;

/// Interval between two checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum time between a stop request and the last event.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of an event, in bytes. The largest event is the end event of a mix with 64
/// requests, which contains 7 histograms per request.
pub const EVENT_LIMIT: usize = 64 << 20;

/// Maximum number of events queued for the listener. The worker blocks when the queue is full.
const QUEUE_LIMIT: usize = 16;

/// Why a worker failed.
#[derive(Debug, thiserror::Error)]
pub enum WorkerFailure {
    /// The process could not be started or waited for.
    #[error("floodmark worker: {0}")]
    Child(#[from] ChildError),
    /// The path of the running program is unknown.
    #[error("cannot read /proc/self/exe: {0}; run floodmark where /proc is mounted")]
    Program(std::io::Error),
    /// The process exited before its last event.
    #[error("floodmark worker ended early ({0}); {hint}", hint = hint(*.0))]
    Died(ExitStatus),
    /// The thread that reads the events could not be started.
    #[error("cannot start a thread: {0}; raise the limits on threads and memory (ulimit -u, -v)")]
    Thread(std::io::Error),
    /// The plan or an event is invalid.
    #[error("floodmark worker sent an invalid event: {0}")]
    Invalid(String),
    /// Too few agents could send the load, or their results could not be joined.
    #[error("{0}")]
    Agents(String),
    /// The process ignored a stop request.
    #[error("floodmark worker did not stop within {} s and was killed", STOP_TIMEOUT.as_secs())]
    Stuck,
}

/// Runs a worker and forwards its events until the worker ends. `stop` ends the worker early.
pub fn run(
    side: &ProcessPlacement,
    input: &WorkerInput,
    stop: &Stop,
    on_event: impl FnMut(Event),
) -> Result<(), WorkerFailure> {
    run_adjustable(side, input, stop, None, on_event)
}

/// Runs a worker like [`run`]. Each rate from `rates` becomes the rate of the measurement.
pub fn run_adjustable(
    side: &ProcessPlacement,
    input: &WorkerInput,
    stop: &Stop,
    rates: Option<&Receiver<Rate>>,
    on_event: impl FnMut(Event),
) -> Result<(), WorkerFailure> {
    // The running program also contains the worker.
    let program = std::env::current_exe().map_err(WorkerFailure::Program)?;
    run_program(&program, side, input, stop, rates, on_event)
}

fn run_program(
    program: &Path,
    side: &ProcessPlacement,
    input: &WorkerInput,
    stop: &Stop,
    rates: Option<&Receiver<Rate>>,
    mut on_event: impl FnMut(Event),
) -> Result<(), WorkerFailure> {
    let mut command = Command::new(program);
    command
        .arg("worker")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    side.place(&mut command);
    let mut child = Child::start(command)?;
    let (Some(mut stdin), Some(stdout)) = (child.stdin(), child.stdout()) else {
        return Err(WorkerFailure::Invalid("its pipes are missing".into()));
    };
    let mut plan = input
        .to_json()
        .map_err(|error| WorkerFailure::Invalid(error.to_string()))?;
    plan.push(b'\n');
    if let Some(Schedule::Replay { replay, .. }) = input.plan.schedule() {
        plan.extend_from_slice(&replay.timetable.encode());
    }
    // If the worker has died, the code below detects this when the events end.
    let _ = stdin.write_all(&plan);
    drop(plan);

    let (sender, events) = sync_channel(QUEUE_LIMIT);
    let reader = thread::Builder::new()
        .spawn(move || read_events(stdout, &sender))
        .map_err(WorkerFailure::Thread)?;
    let mut ended = false;
    let mut stopping: Option<Instant> = None;
    let outcome = loop {
        match events.recv_timeout(POLL_INTERVAL) {
            Ok(Ok(event)) => {
                ended |= matches!(event, Event::End(_) | Event::Alternated(_));
                on_event(event);
            }
            Ok(Err(reason)) => break Err(WorkerFailure::Invalid(reason)),
            Err(RecvTimeoutError::Disconnected) => break Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if stop.is_set() && stopping.is_none() {
            stopping = Some(Instant::now());
            let _ = write!(stdin, "{}", WorkerCommand::Stop);
        }
        for rate in rates.into_iter().flat_map(Receiver::try_iter) {
            let _ = write!(stdin, "{}", WorkerCommand::Rate(rate));
        }
        if stopping.is_some_and(|since| since.elapsed() > STOP_TIMEOUT) {
            break Err(WorkerFailure::Stuck);
        }
    };
    drop((stdin, events));
    let status = child.stop(Duration::from_secs(2))?;
    // The pipe and the queue are closed, so the reader thread ends.
    let _ = reader.join();
    outcome?;
    if ended {
        Ok(())
    } else {
        Err(WorkerFailure::Died(status))
    }
}

/// Suggests how to find out why a worker died. A worker that exits itself prints the reason.
fn hint(status: ExitStatus) -> &'static str {
    match status.signal() {
        Some(_) => "another process or the kernel killed it; look for \"out of memory\" in dmesg",
        None => "see its messages above",
    }
}

/// Sends each event to `events`. Stops after sending the first error. Ignores an incomplete last
/// line.
fn read_events(stdout: impl Read, events: &SyncSender<Result<Event, String>>) {
    let mut reader = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        let event = match read_line(&mut reader, &mut line, EVENT_LIMIT) {
            Ok(true) => Event::from_line(&line).map_err(|error| error.to_string()),
            Ok(false) => return,
            Err(error) => Err(error.to_string()),
        };
        let invalid = event.is_err();
        if events.send(event).is_err() || invalid {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::Plan;
    use floodmark_record::tls::TlsCredentials;
    use std::fs;
    use std::net::SocketAddr;
    use std::os::unix::fs::PermissionsExt;

    const EVENT: &str = r#"{"event":"connecting","standing":0,"failed":0,"of":1}"#;

    /// Runs a shell script as the worker. Returns the number of events and the result.
    fn run_script(script: &str, stop: &Stop) -> (usize, Result<(), WorkerFailure>) {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("worker");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let address: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let input = WorkerInput {
            plan: Plan::of(address.into()),
            first_number: 1,
            answers_file: None,
            request_log: None,
            credentials: TlsCredentials::default(),
            outlasts_server: false,
            share: None,
            anyway: false,
            other: None,
        };
        let mut events = 0;
        let placement = ProcessPlacement::default();
        let outcome = run_program(&program, &placement, &input, stop, None, |_| {
            events += 1;
            // Stop at the second event of a flood.
            if events == 2 {
                stop.set();
            }
        });
        (events, outcome)
    }

    #[test]
    fn refuses_an_event_over_the_limit() {
        let (events, outcome) = run_script("exec cat /dev/zero", &Stop::new());
        let error = outcome.unwrap_err().to_string();
        assert_eq!(events, 0);
        let expected = format!("invalid event: a line is longer than {EVENT_LIMIT} bytes");
        assert!(error.ends_with(&expected), "{error}");
    }

    #[test]
    fn refuses_an_invalid_event_and_ends_a_blocked_worker() {
        let script = format!("echo '{EVENT}'; echo hello; while :; do echo '{EVENT}'; done");
        let (events, outcome) = run_script(&script, &Stop::new());
        assert_eq!(events, 1);
        assert!(
            matches!(outcome, Err(WorkerFailure::Invalid(_))),
            "{outcome:?}"
        );
    }

    #[test]
    fn detects_a_worker_that_dies_within_an_event() {
        let script = format!("echo '{EVENT}'; printf '{{\"event\"'; exit 9");
        let (events, outcome) = run_script(&script, &Stop::new());
        assert_eq!(events, 1);
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("ended early (exit status: 9)"), "{error}");
    }

    #[test]
    fn passes_a_stop_request_to_a_worker_that_floods_events() {
        let script =
            format!("read plan; ( while :; do echo '{EVENT}'; done ) & read stop; kill $!; exit 3");
        let (events, outcome) = run_script(&script, &Stop::new());
        assert!(events >= 2, "{events}");
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("ended early (exit status: 3)"), "{error}");
    }
}
