//! Runs the child processes of an experiment and writes their output to a log.

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use floodmark_host::{Child, ChildError, Lease, ProcessPlacement, Stop};

/// Interval between two checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

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

/// Starts a command in a folder and writes its output to a new file `log`. If floodmark is killed,
/// the next floodmark run finds the lease and kills the process.
pub fn start(
    side: &ProcessPlacement,
    words: &[String],
    folder: &Path,
    log: &Path,
    leases: &Path,
) -> Result<(Child, Lease), String> {
    let child = Child::start_logged(command(side, words, folder), log);
    leased(child, leases)
}

/// Works like [`start`], but appends to `log`.
pub fn start_again(
    side: &ProcessPlacement,
    words: &[String],
    folder: &Path,
    log: &Path,
    leases: &Path,
) -> Result<(Child, Lease), String> {
    let child = Child::start_appending(command(side, words, folder), log);
    leased(child, leases)
}

fn command(side: &ProcessPlacement, words: &[String], folder: &Path) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(folder);
    side.place(&mut command);
    command
}

fn leased(child: Result<Child, ChildError>, leases: &Path) -> Result<(Child, Lease), String> {
    let child = child.map_err(|error| error.to_string())?;
    let lease = Lease::take(leases, &child).map_err(|error| {
        format!(
            "{}: {error}; choose another folder with TMPDIR",
            leases.display()
        )
    })?;
    Ok((child, lease))
}

/// Waits until a child exits. If `stop` is set or the timeout expires, stops the child and kills it
/// after the given grace period.
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
