//! A program that is started on a port, waited for and stopped: the server of a trial, or the store behind it.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use floodmark_host::child::HURRIED;
use floodmark_host::{Child, Lease, Side, Stop};
use floodmark_record::units::show_duration;

use super::Ended;
use crate::manifest::{Filler, Start};

/// Pause between two questions whether a server is ready.
const PAUSE: Duration = Duration::from_millis(20);

/// Longest line of a log that is shown.
const LONGEST_LINE: usize = 200;

/// Signal number of SIGKILL, by which a server ends that does not end by itself.
const SIGKILL: i32 = 9;

/// What is to be started.
#[derive(Debug)]
pub struct Launch<'a> {
    /// What it is called where it does not start.
    pub name: &'a str,
    /// How.
    pub start: &'a Start,
    /// The folder that its command runs in.
    pub folder: &'a Path,
    /// The side that it runs on.
    pub side: &'a Side,
    /// The address that it listens on.
    pub host: Ipv4Addr,
    /// The port that it insists on; a free one where it does not.
    pub port: Option<u16>,
    /// What placeholders stand for, but for port and folder.
    pub filler: Filler,
}

/// Where a program's files go.
#[derive(Debug)]
pub struct Places<'a> {
    /// Its output.
    pub log: PathBuf,
    /// Files of its run.
    pub run: PathBuf,
    /// Notes of what runs.
    pub leases: &'a Path,
}

/// A running program. Dropping it kills what it started.
#[derive(Debug)]
pub struct Launched {
    child: Child,
    lease: Lease,
    log: PathBuf,
    address: SocketAddr,
    stop_within: Duration,
    /// Dropped last.
    _run: Run,
}

/// The folder of a run's files, which goes with it where nothing was put into it.
#[derive(Debug)]
struct Run(PathBuf);

impl Drop for Run {
    fn drop(&mut self) {
        // It stays where it holds something.
        let _ = fs::remove_dir(&self.0);
    }
}

/// Whether what listens at an address is ready; if not, why.
pub type Ready<'a> = dyn Fn(SocketAddr) -> Result<(), String> + 'a;

impl Launch<'_> {
    /// Starts it and waits until it is ready.
    pub fn run(
        self,
        places: Places<'_>,
        ready: &Ready<'_>,
        stop: &Stop,
    ) -> Result<Launched, Ended> {
        let failed = |what: String| Ended::Failed(format!("{} does not start: {what}", self.name));
        let address = self
            .side
            .within(|| free_address(self.host, self.port))
            .unwrap_or_else(|error| Err(error.to_string()))
            .map_err(failed)?;
        let mut filler = self.filler.clone();
        filler.set("port", address.port().to_string());
        filler.set("run", places.run.display().to_string());
        prepare(self.start, &filler, &places.run).map_err(failed)?;
        let run = Run(places.run);
        let words = self.start.command.iter().map(|word| filler.fill(word));
        let words: Vec<String> = words.collect();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(self.folder);
        let child = self.side.start_logged(command, &places.log);
        let child = child.map_err(|error| failed(error.to_string()))?;
        let lease = Lease::take(places.leases, &child)
            .map_err(|error| failed(no_lease(places.leases, &error)))?;
        let mut launched = Launched {
            child,
            lease,
            log: places.log,
            address,
            stop_within: self.start.stop_within,
            _run: run,
        };
        match launched.await_ready(self.start.ready_within, ready, stop) {
            Ok(()) => Ok(launched),
            Err(Ended::Failed(what)) => Err(failed(what)),
            Err(Ended::Interrupted) => Err(Ended::Interrupted),
        }
    }
}

impl Launched {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process that was started; what serves is it or one of its descendants.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// The file with its output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    fn await_ready(
        &mut self,
        within: Duration,
        ready: &Ready<'_>,
        stop: &Stop,
    ) -> Result<(), Ended> {
        let begin = Instant::now();
        loop {
            if let Some(how) = self.ended() {
                return Err(Ended::Failed(format!(
                    "it ended before it was ready ({how}); it must stay in the foreground{}",
                    self.said()
                )));
            }
            if stop.is_set() {
                return Err(Ended::Interrupted);
            }
            let Err(why) = ready(self.address) else {
                return Ok(());
            };
            if begin.elapsed() > within {
                let mend = match self.address.ip().is_loopback() {
                    true => "",
                    false => "; with hosts = \"separate\" a server must listen on {host}:{port}",
                };
                let said = self.said();
                return Err(Ended::Failed(format!(
                    "it was not ready within {} ({}: {why}{mend}){said}",
                    show_duration(within),
                    self.address
                )));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// How it ended, where it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        // One that cannot be waited for is found out by its silence.
        self.child.wait(Duration::ZERO).ok().flatten()
    }

    /// Its last word and where the others are. One that was killed had no time for a last word: what it said before was of other
    /// things.
    pub fn said(&mut self) -> String {
        let killed = self.ended().and_then(|status| status.signal()) == Some(SIGKILL);
        let last = if killed {
            String::new()
        } else {
            last_line(&self.log)
        };
        format!("{last}; its log is {}", self.log.display())
    }

    /// Ends it, sooner once `stop` is set; a line where that took force, which begins with `what` it is.
    pub fn stop(mut self, what: &str, stop: &Stop) -> Option<String> {
        // One that ended by itself, or by another's hand, has been told of by whoever found it so.
        if self.ended().is_some() {
            return None;
        }
        let stopped = self.child.stop_or_hurry(self.stop_within, stop);
        drop(self.lease);
        let within = match stop.is_set() {
            true => self.stop_within.min(HURRIED),
            false => self.stop_within,
        };
        let within = show_duration(within);
        match stopped {
            Ok(status) if status.signal() == Some(SIGKILL) => Some(format!(
                "{what} did not end within {within} of SIGTERM and was killed; its log is {}",
                self.log.display()
            )),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        }
    }
}

/// Why a child is not kept running: it could not be noted in the folder of leases.
pub fn no_lease(folder: &Path, error: &std::io::Error) -> String {
    format!(
        "{}: {error}; name another folder with TMPDIR",
        folder.display()
    )
}

/// A free port of an address, or the given one where nobody listens on it.
pub fn free_address(host: Ipv4Addr, port: Option<u16>) -> Result<SocketAddr, String> {
    let wanted = SocketAddr::from((host, port.unwrap_or(0)));
    // A listener that has accepted nothing leaves no TIME_WAIT: the port is free again at once.
    TcpListener::bind(wanted)
        .and_then(|listener| listener.local_addr())
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::AddrInUse => format!(
                "port {} is busy: something listens on it already; end that, or give another port",
                wanted.port()
            ),
            _ => format!("no port of {host} can be had: {error}"),
        })
}

/// Makes the folder of a run's files and copies those that are filled in.
fn prepare(start: &Start, filler: &Filler, run: &Path) -> Result<(), String> {
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(run).map_err(|error| failed(run, error))?;
    for path in &start.files {
        let text = fs::read_to_string(path).map_err(|error| failed(path, error))?;
        let copy = run.join(path.file_name().unwrap_or_default());
        fs::write(&copy, filler.fill(&text)).map_err(|error| failed(&copy, error))?;
    }
    Ok(())
}

/// A line without the sequences that colour it on a terminal (ECMA-48: ESC, [, digits and semicolons, a letter).
fn without_colours(line: &str) -> String {
    let mut rest = line;
    let mut plain = String::new();
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        rest = rest
            .strip_prefix(|c: char| c.is_ascii_alphabetic())
            .unwrap_or(rest);
    }
    plain + rest
}

/// The last line of a log that says anything, as ` – it said "…"`; empty where there is none.
pub fn last_line(log: &Path) -> String {
    quoted(lines(log).last())
}

/// The same of a build: what Maven says last is where to read about errors, and the first of them is what is wrong.
pub fn error_line(log: &Path) -> String {
    let lines = lines(log);
    let error = lines.iter().find(|line| line.starts_with("[ERROR]"));
    quoted(error.or(lines.last()))
}

fn quoted(line: Option<&String>) -> String {
    line.map_or_else(String::new, |line| {
        let line: String = line.chars().take(LONGEST_LINE).collect();
        format!(" – it said \"{line}\"")
    })
}

/// The lines of a log that say anything. Only its end is read: a log may be long.
fn lines(log: &Path) -> Vec<String> {
    const END: u64 = 4096;
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = fs::File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(END)))?;
        let mut bytes = Vec::new();
        file.take(END).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines = text
        .lines()
        .map(|line| without_colours(line).trim().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_says_what_is_wrong_is_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        for (text, said) in [
            ("one\ntwo\n\n", " – it said \"two\""),
            ("\u{1b}[0m\u{1b}[0m\n", ""),
            (
                "a\n\u{1b}[31;1mred\u{1b}[0m thing\u{1b}[",
                " – it said \"red thing\"",
            ),
        ] {
            fs::write(&log, text).unwrap();
            assert_eq!(last_line(&log), said, "{text:?}");
        }
        let maven = "fine\n[ERROR] A.scala:3: not found\n[ERROR] [Help 1] somewhere\n\u{1b}[0m";
        fs::write(&log, maven).unwrap();
        let said = " – it said \"[ERROR] A.scala:3: not found\"";
        assert_eq!(error_line(&log), said);
        assert_eq!(last_line(&folder.path().join("none")), "");
    }
}
