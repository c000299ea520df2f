//! `floodmark worker`: one load process. Started by floodmark itself; the protocol is in [`WorkerInput`].

use std::io::{self, BufRead, Read, Write};

use floodmark_host::raise_open_files;
use floodmark_load::budget::FileLimit;
use floodmark_load::worker::{self, StopFlag};
use floodmark_record::plan::{Plan, WorkerInput};
use floodmark_record::{Profile, Timetable};

use crate::exit::Ending;

/// Reads the plan, runs it, writes events.
pub fn run() -> Result<(), Ending> {
    let mut line = String::new();
    io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|e| Ending::failed(format!("worker: stdin: {e}")))?;
    let mut input: WorkerInput = serde_json::from_str(&line).map_err(|e| {
        Ending::usage(format!(
            "worker: the first line of stdin is no plan: {e}; see floodmark load"
        ))
    })?;
    read_timetable(&mut input.plan)?;
    // A request that cannot be put into bytes is refused by the run.
    let needed = worker::files_needed(&input.plan).unwrap_or(0);
    let files = raise_open_files(needed).ok().map(|raised| FileLimit {
        before: raised.before,
        now: raised.now,
    });
    let stop = StopFlag::default();
    let told = stop.clone();
    // Ends with the process: there is no way to take a thread out of a read.
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            match line {
                Ok(line) if line.trim() != "stop" => {}
                _ => break,
            }
        }
        told.stop();
    });
    let lost = stop.clone();
    worker::run(&input, files, &stop, |event| {
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
    .map_err(|e| Ending::failed(format!("worker: {e}")))
}

/// Reads the arrivals of a replay, which follow the plan.
fn read_timetable(plan: &mut Plan) -> Result<(), Ending> {
    let Some(Profile::Replay(replay)) = &mut plan.profile else {
        return Ok(());
    };
    let mut bytes = Vec::new();
    let read = io::stdin()
        .lock()
        .take(replay.timetable_bytes)
        .read_to_end(&mut bytes);
    read.map_err(|e| Ending::failed(format!("worker: stdin: {e}")))?;
    replay.timetable = Timetable::decode(&bytes, &replay.timetable_checksum)
        .map_err(|e| Ending::usage(format!("worker: {e}; see floodmark load")))?;
    Ok(())
}
