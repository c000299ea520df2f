//! `floodmark load` as a chore calls it: one run, and its record.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use floodmark_record::{Record, Run};

use super::child::{self, Interrupt};
use crate::command;
use crate::error::Error;

/// Runs `floodmark load` with `words` behind it, for at most `limit`, its files below `folder`.
pub fn run(
    floodmark: &Path,
    words: &[String],
    folder: &Path,
    limit: Duration,
    interrupt: &Interrupt,
) -> Result<Run, Error> {
    let found = |e: std::io::Error| Error::Found(vec![e.to_string()]);
    let folder = tempfile::tempdir_in(folder).map_err(found)?;
    let file = folder.path().join("record.json");
    let mut command = Command::new(floodmark);
    command.arg("load").args(words);
    println!("$ {}", command::line(&command));
    command
        .args(["--quiet", "--json"])
        .arg(&file)
        .arg("--out")
        .arg(folder.path().join("result"));
    let used = child::run(&mut command, folder.path(), limit, interrupt).map_err(found)?;
    // An invalid run (4) has its figures too, and the record says so.
    if !matches!(used.status.code(), Some(0 | 4)) {
        eprint!("{}", used.stderr);
        return Err(Error::Failed {
            command: command::line(&command),
            status: used.status,
            said: used.stderr.lines().map(str::to_owned).collect(),
        });
    }
    record(&file)
}

/// The one run of a record.
fn record(file: &Path) -> Result<Run, Error> {
    let text = fs::read_to_string(file).map_err(|source| Error::Read {
        path: file.to_owned(),
        source,
    })?;
    let unread = |why: String| Error::Output {
        command: "floodmark load".to_owned(),
        why,
    };
    let record: Record = serde_json::from_str(&text).map_err(|e| unread(e.to_string()))?;
    let mut runs = record.runs.into_iter();
    runs.next().ok_or_else(|| unread("no run".to_owned()))
}
