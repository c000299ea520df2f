//! `floodmark worker`: one load process, started by floodmark itself. See [`WorkerInput`] for the
//! protocol.

use std::io::{self, BufRead, Read, Write};

use floodmark_host::raise_open_files;
use floodmark_load::budget::FileLimit;
use floodmark_load::worker::{self, StopFlag};
use floodmark_record::Timetable;
use floodmark_record::plan::{Model, Plan, Schedule};
use floodmark_record::worker_input::WorkerInput;

use crate::exit::Ending;

/// Runs the plan from stdin and writes its events to stdout.
pub fn run() -> Result<(), Ending> {
    let mut line = String::new();
    io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|e| Ending::internal(format!("worker: stdin: {e}")))?;
    let mut input: WorkerInput = serde_json::from_str(&line).map_err(|e| {
        Ending::usage(format!(
            "worker: stdin does not start with a valid plan: {e}; use floodmark load"
        ))
    })?;
    drop(line);
    read_timetable(&mut input.plan)?;
    // Ignore an invalid request here, because the run itself rejects it.
    let needed = worker::files_needed(&input.plan).unwrap_or(0);
    let files = raise_open_files(needed).ok().map(|raised| FileLimit {
        before: raised.before,
        now: raised.now,
    });
    let stop = StopFlag::default();
    let requested = stop.clone();
    // This thread is never joined, because a blocked read cannot be canceled.
    let reader = std::thread::Builder::new().spawn(move || {
        for line in io::stdin().lock().lines() {
            match line {
                Ok(line) if line.trim() != "stop" => {}
                _ => break,
            }
        }
        requested.stop();
    });
    reader.map_err(|e| Ending::internal(format!("worker: cannot start a thread: {e}")))?;
    let lost = stop.clone();
    worker::run(input, files, &stop, |event| {
        let written = serde_json::to_vec(&event)
            .map_err(io::Error::from)
            .and_then(|mut line| {
                line.push(b'\n');
                let mut stdout = io::stdout().lock();
                stdout.write_all(&line).and_then(|()| stdout.flush())
            });
        if written.is_err() {
            lost.stop();
        }
    })
    .map_err(|e| Ending::internal(format!("worker: {e}")))
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
