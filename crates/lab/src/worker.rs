//! The worker as a child process: a plan goes in, events come out.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use floodmark_host::{ChildError, Side, Stop};
use floodmark_record::Event;
use floodmark_record::plan::WorkerInput;

/// How often a request to stop is looked for.
const GLANCE: Duration = Duration::from_millis(20);

/// How long a worker that was told to stop may take: it only has to write down what it has.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// Why a worker gave no whole run.
#[derive(Debug, thiserror::Error)]
pub enum WorkerFailure {
    /// It could not be started or reaped.
    #[error("floodmark worker: {0}")]
    Child(#[from] ChildError),
    /// It ended without its last word.
    #[error("floodmark worker ended early ({status}); its messages are above")]
    Died {
        /// How.
        status: String,
    },
    /// It said something that is no event.
    #[error("floodmark worker spoke out of turn: {0}")]
    Garbled(String),
    /// It did not stop when told to.
    #[error("floodmark worker did not stop within 10 s and was ended")]
    Stuck,
}

/// Runs one worker on a side, passing on each of its events; `stop` tells it to end at once.
pub fn run(
    program: &Path,
    side: &Side,
    input: &WorkerInput,
    stop: &Stop,
    mut on_event: impl FnMut(Event),
) -> Result<(), WorkerFailure> {
    let mut command = Command::new(program);
    command
        .arg("worker")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let mut child = side.start(command)?;
    let (Some(mut stdin), Some(stdout)) = (child.stdin(), child.stdout()) else {
        return Err(WorkerFailure::Garbled("its pipes are missing".into()));
    };
    let mut line =
        serde_json::to_vec(input).map_err(|error| WorkerFailure::Garbled(error.to_string()))?;
    line.push(b'\n');
    if let Some(replay) = input.plan.replay() {
        line.extend_from_slice(&replay.timetable.encode());
    }
    // A worker that is dead already is found out by its silence.
    let _ = stdin.write_all(&line);
    drop(line);

    let (lines, events) = channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            let event = line
                .map_err(|e| e.to_string())
                .and_then(|l| serde_json::from_str::<Event>(&l).map_err(|e| e.to_string()));
            if lines.send(event).is_err() {
                return;
            }
        }
    });
    let mut ended = false;
    let mut told: Option<Instant> = None;
    let outcome = loop {
        match events.recv_timeout(GLANCE) {
            Ok(Ok(event)) => {
                ended |= matches!(event, Event::End(_));
                on_event(event);
            }
            Ok(Err(text)) => break Err(WorkerFailure::Garbled(text)),
            Err(RecvTimeoutError::Disconnected) => break Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if stop.is_set() && told.is_none() {
            told = Some(Instant::now());
            let _ = stdin.write_all(b"stop\n");
        }
        if told.is_some_and(|at| at.elapsed() > STOP_GRACE) {
            break Err(WorkerFailure::Stuck);
        }
    };
    drop(stdin);
    let status = child.stop(Duration::from_secs(2))?;
    // The pipe is at its end now, so the reader is too.
    let _ = reader.join();
    outcome?;
    if !ended {
        return Err(WorkerFailure::Died {
            status: status.to_string(),
        });
    }
    Ok(())
}

/// The program that is running now: the worker is the same program.
pub fn this_program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| PathBuf::from("floodmark"))
}
