//! A child process in a process group of its own, which ends with us however we end.
//!
//! Three things see to it: [`Child::stop`] asks and then kills the whole group; dropping a [`Child`] kills the group; and where we
//! are killed ourselves, the kernel sends the child SIGKILL (`PR_SET_PDEATHSIG`).
//!
//! Two limits of the last one, both of the kernel (prctl(2)): it fires when the *thread* that started the child ends, so start a
//! child from a thread that outlives it (the main thread); and it is not inherited, so grandchildren are only reached by the
//! first two.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::signals::Stop;

/// Longest pause between two looks at a child that is waited for.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// How long a child that was asked to end may take where somebody waits for us.
pub const HURRIED: Duration = Duration::from_secs(1);

/// Why a child could not be started or waited for.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// It did not start.
    #[error("cannot start {program}: {source}{}", mend(source))]
    Start {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// Its log cannot be written.
    #[error("cannot write the log {path}: {source}")]
    Log {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be signalled or waited for.
    #[error("cannot {what} process {pid}: {source}")]
    Control {
        /// What was to be done.
        what: &'static str,
        /// The process.
        pid: u32,
        /// What the system said.
        source: io::Error,
    },
}

fn mend(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; is it installed and on the PATH?",
        io::ErrorKind::PermissionDenied => "; is it executable?",
        _ => "",
    }
}

/// A signal that a child is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT: end and report.
    Interrupt,
    /// SIGTERM: end.
    Terminate,
    /// SIGKILL.
    Kill,
}

impl Signal {
    fn number(self) -> libc::c_int {
        match self {
            Self::Interrupt => libc::SIGINT,
            Self::Terminate => libc::SIGTERM,
            Self::Kill => libc::SIGKILL,
        }
    }
}

/// A running or ended child, leader of a process group of its own, so that a Ctrl-C on the terminal does not reach it: whoever
/// holds this passes on what it should know with [`Child::signal`].
#[derive(Debug)]
pub struct Child {
    inner: std::process::Child,
    /// Set once the child was reaped; its id may name another process from then on and is not signalled any more.
    ended: Option<ExitStatus>,
    used: Option<Used>,
}

/// What a child that has ended used, with all descendants that were waited for (wait4(2)).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Used {
    /// CPU in user mode, seconds.
    pub user_s: f64,
    /// CPU in the kernel, seconds.
    pub system_s: f64,
    /// Peak resident memory of the largest of these processes, bytes.
    pub peak_rss_bytes: u64,
}

impl Used {
    fn of(usage: &libc::rusage) -> Self {
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Used {
            user_s: seconds(usage.ru_utime),
            system_s: seconds(usage.ru_stime),
            // In KiB (getrusage(2)).
            peak_rss_bytes: usage.ru_maxrss.cast_unsigned() * 1024,
        }
    }
}

impl Child {
    /// Starts a command with whatever stdin, stdout and stderr it was given.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(mut command: Command) -> Result<Self, ChildError> {
        let parent = std::process::id();
        command.process_group(0);
        // SAFETY: the closure runs in the child between fork and exec and only makes system calls that are async-signal-safe;
        // it neither allocates nor takes a lock.
        unsafe {
            command.pre_exec(move || {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                // Where the parent died before the call above, no signal will come: end here.
                if libc::getppid().cast_unsigned() != parent {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
                Ok(())
            });
        }
        let inner = command.spawn().map_err(|source| ChildError::Start {
            program: command.get_program().to_string_lossy().into_owned(),
            source,
        })?;
        Ok(Self {
            inner,
            ended: None,
            used: None,
        })
    }

    /// Starts a command without stdin, its stdout and stderr in a new file.
    ///
    /// # Errors
    /// The file cannot be made or the program not be started.
    pub fn start_logged(mut command: Command, log: &Path) -> Result<Self, ChildError> {
        let failed = |source| ChildError::Log {
            path: log.to_owned(),
            source,
        };
        let file = File::create(log).map_err(failed)?;
        let second = file.try_clone().map_err(failed)?;
        command.stdin(Stdio::null()).stdout(file).stderr(second);
        Self::start(command)
    }

    /// What it used, once it has ended. Descendants that nobody waited for, such as those that were killed with it, are not in it.
    #[must_use]
    pub fn used(&self) -> Option<Used> {
        self.used
    }

    /// Its process id, which is the id of its group too.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.inner.id()
    }

    /// Its stdin, where that is a pipe and was not taken before. Dropping it closes the pipe.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.inner.stdin.take()
    }

    /// Its stdout, where that is a pipe and was not taken before.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.inner.stdout.take()
    }

    /// Its stderr, where that is a pipe and was not taken before.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.inner.stderr.take()
    }

    /// Sends a signal to the child alone; nothing where it has ended.
    ///
    /// # Errors
    /// The child has become another user's.
    pub fn signal(&self, signal: Signal) -> Result<(), ChildError> {
        self.send(self.leader(), signal)
    }

    /// Waits for the child to end, so long at most; none where it still runs then. What is left of its group when it ends
    /// is killed.
    ///
    /// # Errors
    /// The child cannot be waited for.
    pub fn wait(&mut self, longest: Duration) -> Result<Option<ExitStatus>, ChildError> {
        let begin = Instant::now();
        self.wait_while(|| longest.saturating_sub(begin.elapsed()))
    }

    /// Waits for the child as long as there is time left.
    fn wait_while(
        &mut self,
        left: impl Fn() -> Duration,
    ) -> Result<Option<ExitStatus>, ChildError> {
        let mut pause = Duration::from_millis(1);
        while !self.has_ended()? {
            let left = left();
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        self.reap().map(Some)
    }

    /// Asks the whole group to end (SIGTERM), waits `grace` for the child, then kills what is left of the group.
    ///
    /// # Errors
    /// The group cannot be signalled or the child not be waited for.
    pub fn stop(&mut self, grace: Duration) -> Result<ExitStatus, ChildError> {
        self.stop_or_hurry(grace, &Stop::new())
    }

    /// As [`Child::stop`], but from when `hurry` is set on the child has [`HURRIED`] at most: somebody waits for us to end.
    ///
    /// # Errors
    /// Those of [`Child::stop`].
    pub fn stop_or_hurry(
        &mut self,
        grace: Duration,
        hurry: &Stop,
    ) -> Result<ExitStatus, ChildError> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        self.send(-self.leader(), Signal::Terminate)?;
        let begin = Instant::now();
        let hurried = Cell::new(None);
        let left = || {
            if hurry.is_set() && hurried.get().is_none() {
                hurried.set(Some(begin.elapsed() + HURRIED));
            }
            let end = hurried.get().map_or(grace, |end| grace.min(end));
            end.saturating_sub(begin.elapsed())
        };
        match self.wait_while(left)? {
            Some(status) => Ok(status),
            None => self.reap(),
        }
    }

    fn leader(&self) -> libc::pid_t {
        self.inner.id().cast_signed()
    }

    fn send(&self, to: libc::pid_t, signal: Signal) -> Result<(), ChildError> {
        if self.ended.is_some() {
            return Ok(());
        }
        // SAFETY: kill takes plain numbers and touches no memory of ours. The child has not been reaped, so neither its id nor
        // that of its group can name anything else.
        if unsafe { libc::kill(to, signal.number()) } == 0 {
            return Ok(());
        }
        let source = io::Error::last_os_error();
        if source.raw_os_error() == Some(libc::ESRCH) {
            return Ok(());
        }
        Err(self.failed("signal", source))
    }

    /// Whether the child has ended, without reaping it: as long as it is a zombie, its id and group stay ours.
    fn has_ended(&self) -> Result<bool, ChildError> {
        if self.ended.is_some() {
            return Ok(true);
        }
        // SAFETY: all zero is a valid siginfo_t, a plain C struct.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: `info` is a valid siginfo_t that the call fills.
        let result = unsafe { libc::waitid(libc::P_PID, self.inner.id(), &raw mut info, flags) };
        if result != 0 {
            let source = io::Error::last_os_error();
            if source.kind() == io::ErrorKind::Interrupted {
                return Ok(false);
            }
            return Err(self.failed("wait for", source));
        }
        // SAFETY: waitid succeeded, so the process id is set, to 0 where nothing has ended.
        Ok(unsafe { info.si_pid() } != 0)
    }

    /// Kills what is left of the group and takes the child's status.
    fn reap(&mut self) -> Result<ExitStatus, ChildError> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        self.send(-self.leader(), Signal::Kill)?;
        // Where it still reads, it may wait for the end of this.
        drop(self.inner.stdin.take());
        let mut status = 0;
        // SAFETY: all zero is a valid rusage, a plain C struct.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: status and usage are valid places that the call fills; the child is ours and was not reaped before.
            let reaped = unsafe { libc::wait4(self.leader(), &raw mut status, 0, &raw mut usage) };
            if reaped == self.leader() {
                break;
            }
            let source = io::Error::last_os_error();
            if source.kind() != io::ErrorKind::Interrupted {
                return Err(self.failed("wait for", source));
            }
        }
        let status = ExitStatus::from_raw(status);
        self.ended = Some(status);
        self.used = Some(Used::of(&usage));
        Ok(status)
    }

    fn failed(&self, what: &'static str, source: io::Error) -> ChildError {
        ChildError::Control {
            what,
            pid: self.pid(),
            source,
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Nobody is left to tell of a failure, and SIGKILL does not fail on a child of ours.
        let _ = self.reap();
    }
}

#[cfg(test)]
#[path = "child_tests.rs"]
mod tests;
