//! Runs the programs of an experiment: starts a program, writes its output to a log, waits until it
//! listens on a port or exits, and stops it.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use floodmark_host::child::HURRIED_TIMEOUT;
use floodmark_host::{Child, ChildError, Lease, ProcessPlacement, Stop};
use floodmark_record::units::show_duration;

use super::StepError;
use crate::manifest::{Filler, Program};
use crate::server_log::quote_failure;

/// Interval between two checks of a process.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Lowest port for a program that is restarted.
const LOWEST_PORT: u16 = 10_000;

/// Maximum number of ports to try for a program that is restarted.
const PORT_TRIES: u64 = 100;

/// Signal number of SIGKILL.
const SIGKILL: i32 = 9;

/// What to start and how.
#[derive(Debug)]
pub struct ProgramSpec<'a> {
    /// Name for messages.
    pub name: &'a str,
    /// The program's manifest.
    pub program: &'a Program,
    /// Where the program runs.
    pub side: &'a ProcessPlacement,
    /// Address to listen on.
    pub host: Ipv4Addr,
    /// Fixed port; `None` for a free port.
    pub port: Option<u16>,
    /// Values of all placeholders except the port and the run directory.
    pub filler: Filler,
}

/// Paths of a program's files.
#[derive(Debug)]
pub struct ProgramPaths<'a> {
    /// Log of the program's output.
    pub log: PathBuf,
    /// Run directory of the program.
    pub run: PathBuf,
    /// Directory for the leases of running programs.
    pub leases: &'a Path,
}

/// A running program. Dropping this value kills the program's processes.
#[derive(Debug)]
pub struct RunningProgram {
    child: Child,
    lease: Lease,
    /// Path of the program's log.
    pub log: PathBuf,
    /// Length of the log when the program started, in bytes.
    log_start: u64,
    /// Address that the program listens on.
    pub address: SocketAddr,
    stop_within: Duration,
    /// Declared last, so that the run directory is dropped after the process.
    _run: RunDirectory,
}

/// Directory for a program's files. Dropping this value removes the directory if it is empty.
#[derive(Debug)]
struct RunDirectory(PathBuf);

impl Drop for RunDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Whether a program starts for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartOrder {
    /// The first start, with new files in the run directory and a new log.
    First,
    /// The first start after an interruption, with the state that the program left behind. Files
    /// with placeholders are new, because their values may differ.
    Resumed,
    /// A restart, with the files that the program left behind.
    Restart,
}

/// Checks whether a program is ready. The error message says why the program is not ready.
pub type ReadyCheck<'a> = dyn Fn(SocketAddr) -> Result<(), String> + 'a;

impl ProgramSpec<'_> {
    /// Starts the program and waits until it is ready.
    pub fn start(
        self,
        paths: ProgramPaths<'_>,
        order: StartOrder,
        ready: &ReadyCheck<'_>,
        stop: &Stop,
    ) -> Result<RunningProgram, StepError> {
        let prefix = format!("{} does not start", self.name);
        let within = self.program.start.ready_within();
        let started = self.spawn(paths, order).map_err(StepError::Failed);
        let ready = started.and_then(|mut program| {
            program.wait_until_ready(within, ready, stop)?;
            Ok(program)
        });
        ready.map_err(|error| error.of(&prefix))
    }

    /// Starts the program again with the files in its run directory, and appends to its log. Does
    /// not wait until the program is ready.
    pub fn restart(self, paths: ProgramPaths<'_>) -> Result<RunningProgram, StepError> {
        let prefix = format!("{} does not start again", self.name);
        let started = self.spawn(paths, StartOrder::Restart);
        started.map_err(|what| StepError::Failed(what).of(&prefix))
    }

    fn spawn(
        mut self,
        paths: ProgramPaths<'_>,
        order: StartOrder,
    ) -> Result<RunningProgram, String> {
        let address = within(self.side, || free_address(self.host, self.port))?;
        self.filler.set("port", address.port().to_string());
        self.filler.set("run", paths.run.display().to_string());
        self.prepare(&paths.run, order)?;
        let run = RunDirectory(paths.run);
        let Program { package, start, .. } = self.program;
        let words = self.filler.fill_words(&start.command);
        let command = command(self.side, &words, &package.directory);
        let (log_start, child) = if order == StartOrder::First {
            (0, Child::start_logged(command, &paths.log))
        } else {
            let log_start = fs::metadata(&paths.log).map_or(0, |log| log.len());
            (log_start, Child::start_appending(command, &paths.log))
        };
        let (child, lease) = leased(child, paths.leases)?;
        Ok(RunningProgram {
            child,
            lease,
            log: paths.log,
            log_start,
            address,
            stop_within: start.stop_within(),
            _run: run,
        })
    }

    /// Creates the run directory and copies the manifest's files to it.
    fn prepare(&self, run: &Path, order: StartOrder) -> Result<(), String> {
        let failed = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
        fs::create_dir_all(run).map_err(|error| failed(run, error))?;
        if order == StartOrder::Restart {
            // The program may keep its state in these files.
            return Ok(());
        }
        for name in &self.program.start.files {
            let (path, copy) = (
                self.program.directory.join(name.as_str()),
                run.join(name.as_str()),
            );
            let text = fs::read_to_string(&path).map_err(|error| failed(&path, error))?;
            let filled = self.filler.fill(&text);
            if order == StartOrder::Resumed && filled == text && copy.exists() {
                // The program may keep its state in this file.
                continue;
            }
            fs::write(&copy, filled).map_err(|error| failed(&copy, error))?;
        }
        Ok(())
    }
}

impl RunningProgram {
    /// Returns the PID of the started process. Either this process or one of its descendants
    /// accepts connections.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Waits until the program is ready.
    pub fn wait_until_ready(
        &mut self,
        timeout: Duration,
        ready: &ReadyCheck<'_>,
        stop: &Stop,
    ) -> Result<(), StepError> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.exit_status() {
                let last_words = self.last_words();
                return Err(StepError::Failed(format!(
                    "exited before it was ready ({status}){last_words}; run the program in the foreground"
                )));
            }
            if stop.is_set() {
                return Err(StepError::Interrupted);
            }
            let Err(why) = ready(self.address) else {
                return Ok(());
            };
            if begin.elapsed() > timeout {
                let fix = if self.address.ip().is_loopback() {
                    ""
                } else {
                    "; with hosts = \"separate\", the program must listen on {host}:{port}"
                };
                let last_words = self.last_words();
                return Err(StepError::Failed(format!(
                    "not ready within {}: {}: {why}{fix}{last_words}",
                    show_duration(timeout),
                    self.address
                )));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns the exit status if the program has exited.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.wait(Duration::ZERO).ok().flatten()
    }

    /// Quotes the log line that best explains a failure, and adds the log's path. Ignores lines
    /// logged before the program started. For a killed program, returns only the path, because the
    /// log does not explain why the program was killed.
    pub fn last_words(&mut self) -> String {
        let killed = self.exit_status().and_then(|status| status.signal()) == Some(SIGKILL);
        let line = if killed {
            String::new()
        } else {
            quote_failure(&self.log, self.log_start)
        };
        format!("{line}; see {}", self.log.display())
    }

    /// Stops the program, and shortens the grace period once `stop` is set. Returns a message if
    /// the program had to be killed.
    pub fn stop(mut self, name: &str, stop: &Stop) -> Option<String> {
        // A program that exited earlier has already been reported.
        if self.exit_status().is_some() {
            return None;
        }
        let stopped = self.child.stop_or_hurry(self.stop_within, stop);
        drop(self.lease);
        let within = if stop.is_set() {
            self.stop_within.min(HURRIED_TIMEOUT)
        } else {
            self.stop_within
        };
        match stopped {
            Ok(status) if status.signal() == Some(SIGKILL) => Some(format!(
                "{name} ignored SIGTERM for {} and was killed; see {}",
                show_duration(within),
                self.log.display()
            )),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        }
    }
}

/// How waiting for a child ended.
#[derive(Debug)]
pub enum WaitEnd {
    /// The child exited.
    Exited(ExitStatus),
    /// The stop flag was set and the child was stopped.
    Interrupted,
    /// The timeout expired and the child was stopped.
    TimedOut,
}

/// Runs `work` on the host of a role.
pub fn within<T: Send>(
    side: &ProcessPlacement,
    work: impl FnOnce() -> Result<T, String> + Send,
) -> Result<T, String> {
    let done = side.within(work);
    done.unwrap_or_else(|error| Err(error.to_string()))
}

/// Returns a command that runs in a directory on the host of a role.
pub fn command(side: &ProcessPlacement, words: &[String], directory: &Path) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(directory);
    side.place(&mut command);
    command
}

/// Takes a lease for a child. If floodmark is killed, the next floodmark run finds the lease and
/// kills the process.
pub fn leased(child: Result<Child, ChildError>, leases: &Path) -> Result<(Child, Lease), String> {
    let child = child.map_err(|error| error.to_string())?;
    let lease = Lease::take(leases, &child).map_err(|error| {
        format!(
            "{}: {error}; choose another directory with TMPDIR",
            leases.display()
        )
    })?;
    Ok((child, lease))
}

/// Waits until a child exits. If `stop` is set or the timeout expires, stops the child. Kills the
/// child if it is still running after the grace period.
pub fn wait(
    child: &mut Child,
    timeout: Duration,
    grace: Duration,
    stop: &Stop,
) -> Result<WaitEnd, ChildError> {
    let begin = Instant::now();
    loop {
        let end = match child.wait(POLL_INTERVAL)? {
            Some(status) => return Ok(WaitEnd::Exited(status)),
            None if stop.is_set() => WaitEnd::Interrupted,
            None if begin.elapsed() > timeout => WaitEnd::TimedOut,
            None => continue,
        };
        // The exit status no longer matters.
        let _ = child.stop(grace);
        return Ok(end);
    }
}

/// Finds a free port that the kernel does not assign to outgoing connections, so that a program can
/// listen on it again after a restart. Otherwise, a client that connects to the port of a stopped
/// server could be assigned that port as its source port, and would then connect to itself. Falls
/// back to any free port.
pub fn restartable_address(host: Ipv4Addr) -> Result<SocketAddr, String> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let lowest = range.split_whitespace().next();
    let lowest: u16 = lowest.and_then(|low| low.parse().ok()).unwrap_or(0);
    let below = LOWEST_PORT..lowest;
    let span = below.len() as u64;
    // A different first port in each process avoids most conflicts between floodmark processes.
    let first = RandomState::new().hash_one(host);
    let mut ports =
        (0..span.min(PORT_TRIES)).map(|i| below.start + ((first % span + i) % span) as u16);
    let found = ports.find_map(|port| free_address(host, Some(port)).ok());
    found.map_or_else(|| free_address(host, None), Ok)
}

/// Finds a free port on a host, or checks that the given port is free.
pub fn free_address(host: Ipv4Addr, port: Option<u16>) -> Result<SocketAddr, String> {
    let address = SocketAddr::from((host, port.unwrap_or(0)));
    // Binding a port without accepting a connection leaves no socket in TIME_WAIT, so the port is
    // free again immediately.
    TcpListener::bind(address)
        .and_then(|listener| listener.local_addr())
        .map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "port {} is in use; end the program that listens on it, or choose another port",
                address.port()
            ),
            _ => format!("no free port on {host}: {error}"),
        })
}
