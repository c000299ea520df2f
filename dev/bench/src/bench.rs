//! Runs floodmark and other commands, and stops them when the user interrupts the measurement.

use std::error::Error;
use std::ffi::OsString;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use floodmark_host::{Child, Stop};
use floodmark_record::units::show_duration;
use floodmark_record::{Record, Run};

/// Any error that makes a measurement fail.
pub type Failure = Box<dyn Error>;

/// Interval between checks of the interrupt flag.
const POLL: Duration = Duration::from_millis(20);
/// Time allowed for `floodmark load` in addition to opening connections and sending requests.
const OVERHEAD: Duration = Duration::from_secs(60);
/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);

/// The repository, the measured binary and the interrupt flag.
pub struct Bench {
    /// Root of the repository; commands run in this directory.
    pub root: PathBuf,
    /// Cargo's target directory.
    pub target: PathBuf,
    /// Path of the measured `floodmark` binary.
    pub floodmark: PathBuf,
    /// Set by SIGINT and SIGTERM.
    pub stop: Stop,
}

impl Bench {
    /// Prepares to measure the binary `floodmark`. The default is the binary next to this
    /// executable.
    pub fn new(floodmark: Option<&Path>) -> Result<Self, Failure> {
        let executable = std::env::current_exe()?;
        let directory = executable.parent().unwrap_or(Path::new("."));
        let floodmark = floodmark.map_or(directory.join("floodmark"), Path::to_owned);
        Ok(Bench {
            root: repository()?,
            target: directory.parent().unwrap_or(directory).to_owned(),
            floodmark: floodmark
                .canonicalize()
                .map_err(|error| format!("{}: {error}", floodmark.display()))?,
            stop: Stop::on_signals()?,
        })
    }

    /// Runs a command in the repository's root and waits for it to exit. The command inherits
    /// stdout and stderr.
    ///
    /// # Errors
    /// The command cannot be started or exceeds `limit`, or the user interrupts the measurement.
    pub fn run(&self, mut command: Command, limit: Duration) -> Result<ExitStatus, Failure> {
        command.current_dir(&self.root).stdin(Stdio::null());
        command.env("PATH", self.path());
        let mut child = Child::start(command)?;
        let begin = Instant::now();
        while begin.elapsed() <= limit && !self.stop.is_set() {
            if let Some(status) = child.wait(POLL)? {
                return Ok(status);
            }
        }
        child.stop(GRACE)?;
        self.check_interrupt()?;
        let limit = show_duration(limit);
        Err(format!("stopped after {limit}: time limit exceeded").into())
    }

    /// Runs cargo in the repository and returns its output. Errors also contain the output.
    pub fn cargo(&self, words: &str) -> Result<String, Failure> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(words.split(' ')).current_dir(&self.root);
        let output = command.output()?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        if output.status.success() {
            Ok(text)
        } else {
            Err(format!("cargo {words}: {text}").into())
        }
    }

    /// Returns an error if the user has interrupted the measurement.
    pub fn check_interrupt(&self) -> Result<(), Failure> {
        if self.stop.is_set() {
            Err("interrupted; nothing was written".into())
        } else {
            Ok(())
        }
    }

    /// Runs an experiment, writes its result to the new directory `out`, and returns the record.
    /// The exit code is ignored if there is a record.
    pub fn experiment(
        &self,
        file: &Path,
        flags: &[&str],
        out: &Path,
        limit: Duration,
    ) -> Result<Record, Failure> {
        let mut run = Command::new(&self.floodmark);
        run.arg("run").args(flags).arg(file).arg("--out").arg(out);
        run.stdout(Stdio::null());
        let status = self.run(run, limit)?;
        floodmark_lab::read(out)
            .map_err(|error| format!("{}: {status}: {error}", file.display()).into())
    }

    /// Runs `floodmark load` with the flags `words` and returns the run, even if the run is
    /// invalid. The summary is printed unless `words` contains `--quiet`. `seconds` is the expected
    /// time for opening connections and sending requests.
    pub fn load(&self, words: &str, seconds: u32) -> Result<Run, Failure> {
        println!("$ floodmark load {words}");
        let directory = tempfile::tempdir()?;
        let out = directory.path().join("result");
        let mut load = Command::new(&self.floodmark);
        load.arg("load").args(words.split(' '));
        load.arg("--out").arg(&out);
        let status = self.run(load, OVERHEAD + Duration::from_secs(seconds.into()))?;
        let record = floodmark_lab::read(&out).map_err(|error| format!("{status}: {error}"))?;
        let run = record.runs.into_iter().next();
        run.ok_or_else(|| format!("floodmark load: {status}, but the record has no run").into())
    }

    /// Returns `PATH` with the measured binary's directory prepended, so that external clients can
    /// run floodmark.
    fn path(&self) -> OsString {
        let mut path = OsString::from(self.floodmark.parent().unwrap_or(Path::new("/")));
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        path
    }
}

/// Returns `passed` or `FAILED`.
pub fn word(passed: bool) -> &'static str {
    if passed { "passed" } else { "FAILED" }
}

/// Returns the root of the repository that this program was built from.
pub fn repository() -> Result<PathBuf, Failure> {
    Ok(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize()?)
}

/// Returns the names of a directory's entries, in alphabetical order.
pub fn names(directory: &Path) -> Result<Vec<String>, Failure> {
    let name = |entry: io::Result<DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = fs::read_dir(directory)?
        .map(name)
        .collect::<io::Result<_>>()?;
    names.sort_unstable();
    Ok(names)
}

/// Reads a file. Errors contain the path.
pub fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Writes a file. Errors contain the path.
pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Writes a generated file to the repository and prints the file's name.
pub fn update(root: &Path, file: &str, text: &str) -> Result<(), Failure> {
    write(&root.join(file), text)?;
    println!("{file} written");
    Ok(())
}
