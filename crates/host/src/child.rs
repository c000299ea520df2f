//! Child processes that never outlive this process. Each child has its own process group.
//!
//! [`Child::stop`] sends SIGTERM and then SIGKILL to the group. Dropping a [`Child`] kills the
//! group.
//!
//! If this process is killed, the kernel kills the child (`PR_SET_PDEATHSIG`). This mechanism has
//! two limits, described in prctl(2):
//!
//! - The kernel sends the signal when the *thread* that started the child exits. Start children
//!   from the main thread.
//! - Grandchildren do not inherit the setting.

use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process, kill_process_group,
    set_parent_process_death_signal, waitid,
};

use crate::signals::Stop;

/// Maximum polling interval while waiting for a child.
const MAX_PAUSE: Duration = Duration::from_millis(20);

/// Maximum time to wait for a child to exit once the user has asked floodmark to stop.
pub const HURRIED_TIMEOUT: Duration = Duration::from_secs(1);

/// An error that occurred while starting or controlling a child process.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The program did not start.
    #[error("cannot start {program}: {source}{}", fix(source))]
    Start {
        /// The program.
        program: String,
        /// The cause.
        source: io::Error,
    },
    /// The log cannot be written.
    #[error("cannot write the log {path}: {source}")]
    Log {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A signal or wait failed.
    #[error("cannot {action} process {pid}: {source}")]
    Control {
        /// The operation.
        action: &'static str,
        /// The process ID.
        pid: u32,
        /// The cause.
        source: io::Error,
    },
}

fn fix(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; install it, or add its directory to PATH",
        io::ErrorKind::PermissionDenied => "; make it executable",
        _ => "",
    }
}

/// A child process, running or ended.
/// The child leads its own process group, so Ctrl-C in the terminal does not reach the child.
#[derive(Debug)]
pub struct Child {
    inner: std::process::Child,
    /// Exit status and usage, set when the child is reaped. After that, its process ID may be
    /// reused.
    ended: Option<(ExitStatus, ChildUsage)>,
}

/// Resource usage of an ended child and its reaped descendants (wait4(2)).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChildUsage {
    /// User CPU time in seconds.
    pub user_s: f64,
    /// System CPU time in seconds.
    pub system_s: f64,
    /// Peak resident memory of the largest process, in bytes.
    pub peak_rss_bytes: u64,
}

impl ChildUsage {
    fn of(usage: &libc::rusage) -> Self {
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        ChildUsage {
            user_s: seconds(usage.ru_utime),
            system_s: seconds(usage.ru_stime),
            // The unit of `ru_maxrss` is KiB (getrusage(2)).
            peak_rss_bytes: usage.ru_maxrss.cast_unsigned() * 1024,
        }
    }
}

impl Child {
    /// Starts a command with its configured stdin, stdout and stderr.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(mut command: Command) -> Result<Self, ChildError> {
        let parent = Some(getpid());
        command.process_group(0);
        // SAFETY: between fork and exec, the closure makes only async-signal-safe system calls. The
        // closure does not allocate or lock.
        unsafe {
            command.pre_exec(move || {
                set_parent_process_death_signal(Some(Signal::KILL))?;
                // If the parent died before the call above, the kernel sends no signal.
                if getppid() == parent {
                    Ok(())
                } else {
                    Err(Errno::SRCH.into())
                }
            });
        }
        let inner = command.spawn().map_err(|source| ChildError::Start {
            program: command.get_program().to_string_lossy().into_owned(),
            source,
        })?;
        Ok(Self { inner, ended: None })
    }

    /// Starts a command without stdin and writes its stdout and stderr to a new file.
    ///
    /// # Errors
    /// The file cannot be created, or the program cannot be started.
    pub fn start_logged(command: Command, log: &Path) -> Result<Self, ChildError> {
        Self::start_with_output(command, log, File::create(log))
    }

    /// Starts a command without stdin and appends its stdout and stderr to a file.
    ///
    /// # Errors
    /// The file cannot be written, or the program cannot be started.
    pub fn start_appending(command: Command, log: &Path) -> Result<Self, ChildError> {
        let file = File::options().create(true).append(true).open(log);
        Self::start_with_output(command, log, file)
    }

    fn start_with_output(
        mut command: Command,
        log: &Path,
        file: io::Result<File>,
    ) -> Result<Self, ChildError> {
        let failed = |source| ChildError::Log {
            path: log.to_owned(),
            source,
        };
        let file = file.map_err(failed)?;
        let second = file.try_clone().map_err(failed)?;
        command.stdin(Stdio::null()).stdout(file).stderr(second);
        Self::start(command)
    }

    /// Returns the resource usage. Returns `None` before the child is reaped. The usage does not
    /// include descendants that were not reaped, such as killed descendants.
    #[must_use]
    pub fn used(&self) -> Option<ChildUsage> {
        self.ended.map(|(_, used)| used)
    }

    /// Returns the process ID, which is also the ID of the child's process group.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.inner.id()
    }

    /// Takes the stdin pipe, if there is one. Dropping the pipe closes it.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.inner.stdin.take()
    }

    /// Takes the stdout pipe, if there is one.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.inner.stdout.take()
    }

    /// Takes the stderr pipe, if there is one.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.inner.stderr.take()
    }

    /// Sends a signal to the child only, not to its group. Does nothing after the child has ended.
    ///
    /// # Errors
    /// The kernel refuses the signal, because the child now runs as another user.
    pub fn signal(&self, signal: Signal) -> Result<(), ChildError> {
        self.send(kill_process, signal)
    }

    /// Waits up to `timeout` for the child to exit, then kills the rest of its group.
    /// Returns `None` on timeout.
    ///
    /// # Errors
    /// Waiting for the child fails.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<ExitStatus>, ChildError> {
        let begin = Instant::now();
        self.wait_while(|| timeout.saturating_sub(begin.elapsed()))
    }

    /// Waits for the child while `left` returns a positive duration.
    fn wait_while(
        &mut self,
        mut left: impl FnMut() -> Duration,
    ) -> Result<Option<ExitStatus>, ChildError> {
        let mut pause = Duration::from_millis(1);
        while !self.has_ended()? {
            let left = left();
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(MAX_PAUSE);
        }
        self.reap().map(Some)
    }

    /// Sends SIGTERM to the group, waits up to `grace` for the child, then kills the rest of the
    /// group.
    ///
    /// # Errors
    /// Sending a signal or waiting fails.
    pub fn stop(&mut self, grace: Duration) -> Result<ExitStatus, ChildError> {
        self.stop_or_hurry(grace, &Stop::new())
    }

    /// Works like [`Child::stop`], but waits at most [`HURRIED_TIMEOUT`] once `hurry` is set.
    ///
    /// # Errors
    /// Returns the same errors as [`Child::stop`].
    pub fn stop_or_hurry(
        &mut self,
        grace: Duration,
        hurry: &Stop,
    ) -> Result<ExitStatus, ChildError> {
        self.send(kill_process_group, Signal::TERM)?;
        let begin = Instant::now();
        let mut limit = grace;
        let left = || {
            if hurry.is_set() {
                limit = limit.min(begin.elapsed() + HURRIED_TIMEOUT);
            }
            limit.saturating_sub(begin.elapsed())
        };
        match self.wait_while(left)? {
            Some(status) => Ok(status),
            None => self.reap(),
        }
    }

    fn id(&self) -> Pid {
        Pid::from_child(&self.inner)
    }

    fn send(
        &self,
        kill: fn(Pid, Signal) -> rustix::io::Result<()>,
        signal: Signal,
    ) -> Result<(), ChildError> {
        // The process ID and the group ID are not reused until the child is reaped.
        if self.ended.is_some() {
            return Ok(());
        }
        match kill(self.id(), signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(self.failed("signal", error.into())),
        }
    }

    /// Returns whether the child has ended. Does not reap the child, because its ID could then be
    /// reused.
    fn has_ended(&self) -> Result<bool, ChildError> {
        if self.ended.is_some() {
            return Ok(true);
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.id()), options) {
            Ok(status) => Ok(status.is_some()),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(self.failed("wait for", error.into())),
        }
    }

    /// Kills the rest of the group and reaps the child.
    fn reap(&mut self) -> Result<ExitStatus, ChildError> {
        if let Some((status, _)) = self.ended {
            return Ok(status);
        }
        self.send(kill_process_group, Signal::KILL)?;
        // The child may be waiting for its stdin to close.
        drop(self.inner.stdin.take());
        let pid = self.id().as_raw_pid();
        let mut status = 0;
        // SAFETY: all zeros is a valid rusage, which is a plain C struct.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: the call writes to `status` and `usage`, and the child has not been reaped
            // yet. `rustix` has no wait4.
            let reaped = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
            if reaped == pid {
                break;
            }
            let source = io::Error::last_os_error();
            if source.kind() != io::ErrorKind::Interrupted {
                return Err(self.failed("wait for", source));
            }
        }
        let status = ExitStatus::from_raw(status);
        self.ended = Some((status, ChildUsage::of(&usage)));
        Ok(status)
    }

    fn failed(&self, action: &'static str, source: io::Error) -> ChildError {
        ChildError::Control {
            action,
            pid: self.pid(),
            source,
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Killing this process's own child does not fail.
        let _ = self.reap();
    }
}

#[cfg(test)]
#[path = "child_tests.rs"]
mod tests;
