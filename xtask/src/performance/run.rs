//! A run of floodmark, perhaps within another program.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use floodmark_record::{Record, Run};

use crate::command;
use crate::error::Error;
use crate::measuring::child::{self, Interrupt, Used};
use crate::measuring::nginx::Nginx;

/// Pause before each run, so that closed connections and late work of the last one are gone.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a run may take, under valgrind too.
const LIMIT: Duration = Duration::from_secs(180);

/// The backends, as their flag calls them.
pub const BACKENDS: [&str; 2] = ["uring", "epoll"];

/// A load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// As the page calls it.
    pub name: &'static str,
    /// Its flags.
    pub flags: &'static [&'static str],
    /// Whether it is HTTPS.
    pub secure: bool,
}

/// A connection that stays.
pub const KEPT: Load = Load {
    name: "kept",
    flags: &["-t", "1", "-c", "100"],
    secure: false,
};
/// A connection for each request.
pub const FRESH: Load = Load {
    name: "fresh",
    flags: &["-t", "1", "-c", "100", "--fresh"],
    secure: false,
};
/// HTTPS on connections that stay.
pub const HTTPS: Load = Load {
    name: "HTTPS kept",
    flags: &["-t", "1", "-c", "100", "--insecure"],
    secure: true,
};
/// A handshake for each request.
pub const HTTPS_FRESH: Load = Load {
    name: "HTTPS fresh",
    flags: &["-t", "1", "-c", "100", "--fresh", "--insecure"],
    secure: true,
};
/// The open model at a rate that leaves the thread idle most of the time.
pub const RATE: Load = Load {
    name: "5,000/s",
    flags: &["-t", "1", "--rate", "5000"],
    secure: false,
};
/// Two load threads.
pub const TWO_THREADS: Load = Load {
    name: "kept, 2 threads",
    flags: &["-t", "2", "-c", "100"],
    secure: false,
};

/// What runs need.
#[derive(Debug)]
pub struct Bench<'a> {
    /// The release build.
    pub floodmark: PathBuf,
    /// The server.
    pub server: &'a Nginx,
    /// Whether the user wants us to stop.
    pub interrupt: &'a Interrupt,
}

/// What floodmark is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The load.
    pub load: Load,
    /// On which backend.
    pub backend: &'a str,
    /// Its length: `-d 3s` or `-n 1000`.
    pub length: &'a [String],
}

impl Asked<'_> {
    /// Its words behind `floodmark`.
    fn words(&self, address: &str, folder: &str) -> Vec<String> {
        let scheme = if self.load.secure { "https" } else { "http" };
        let url = format!("{scheme}://{address}/");
        let mut words = vec!["load".to_owned(), url];
        words.extend(self.load.flags.iter().map(|&flag| flag.to_owned()));
        words.extend_from_slice(self.length);
        let rest = ["--backend", self.backend, "--warmup", "0s", "--quiet"];
        words.extend(rest.map(str::to_owned));
        words.extend(["--json", "-", "--out", folder].map(str::to_owned));
        words
    }

    /// As the page shows it.
    pub fn shown(&self) -> String {
        let mut command = Command::new("floodmark");
        command.args(self.words("HOST:PORT", "FOLDER"));
        command::line(&command)
    }
}

impl Bench<'_> {
    /// Runs it within `wrapper` (empty: as it is), its files in `folder`. The outer error ends the chore, the inner one is
    /// only of this run.
    pub fn run(
        &self,
        asked: Asked,
        wrapper: &[String],
        folder: &Path,
    ) -> Result<Result<(Used, Run), String>, Error> {
        let found = |e: std::io::Error| Error::Found(vec![e.to_string()]);
        self.interrupt.sleep(PAUSE).map_err(found)?;
        let mut command = match wrapper.split_first() {
            None => Command::new(&self.floodmark),
            Some((program, flags)) => {
                let mut command = Command::new(program);
                command.args(flags).arg(&self.floodmark);
                command
            }
        };
        let address = match asked.load.secure {
            true => self.server.secure(),
            false => self.server.plain(),
        };
        let out = folder.join("out").display().to_string();
        command.args(asked.words(&address.to_string(), &out));
        let used = match child::run(&mut command, folder, LIMIT, self.interrupt) {
            Ok(used) => used,
            Err(why) => {
                self.interrupt.check().map_err(found)?;
                return Ok(Err(why.to_string()));
            }
        };
        let record = serde_json::from_str::<Record>(&used.stdout);
        let run = record
            .ok()
            .and_then(|record| record.runs.into_iter().next());
        Ok(match run {
            Some(run) if run.requests.ok > 0 => Ok((used, run)),
            _ => Err(format!("{}: {}", used.status, complaint(&used.stderr))),
        })
    }
}

/// The line of floodmark's own that says what is wrong, of what a wrapper may have written much around.
fn complaint(stderr: &str) -> &str {
    let mut lines = stderr.lines();
    let said = lines.find(|line| line.starts_with("floodmark: ") || line.starts_with("error: "));
    said.or(stderr.lines().last()).unwrap_or("no word")
}

/// A folder that is gone when this is dropped.
pub fn folder() -> Result<tempfile::TempDir, Error> {
    tempfile::tempdir().map_err(|e| Error::Found(vec![e.to_string()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_complaint_is_floodmarks_own() {
        let said = "==1== Callgrind\nfloodmark: worker: waiting: no\nfloodmark: ended\n==1== Collected: 7\n";
        assert_eq!(complaint(said), "floodmark: worker: waiting: no");
        assert_eq!(complaint("==1== a\n==1== b\n"), "==1== b");
        assert_eq!(complaint(""), "no word");
    }
}
