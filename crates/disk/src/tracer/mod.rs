//! Runs a process under ptrace and records its file calls and sends.
//!
//! A seccomp filter stops a thread only at the calls in `calls.rs`, which also reads their
//! arguments. `follower.rs` maps inodes and paths to files, and `session.rs` is the main loop.

mod calls;
mod follower;
mod ptrace;
mod session;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use floodmark_host::Signal;
use rustix::process::pidfd_send_signal;

use crate::trace::Trace;
use follower::Follower;
use session::Session;

/// An error while tracing a process. The process has been killed.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The watched directory cannot be read.
    #[error("cannot read {}: {source}; check that the directory exists and is readable", .path.display())]
    Directory {
        /// The directory or a file in it.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The program cannot be started.
    #[error("cannot start {program}: {reason}")]
    Start {
        /// The program.
        program: String,
        /// The cause.
        reason: String,
    },
    /// The process changes the watched directory in a way that the tracer cannot follow.
    #[error("cannot trace the server: {0}")]
    Unsupported(String),
    /// The trace exceeds its limit.
    #[error("the server wrote and sent too much data while it was traced; send fewer requests")]
    Full,
    /// The kernel refuses to trace a process.
    #[error(
        "cannot {action}: {source}; allow ptrace and seccomp (for a container: --cap-add SYS_PTRACE)"
    )]
    Kernel {
        /// The operation.
        action: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The tracer thread panicked.
    #[error("the tracer panicked; report this bug and include the output")]
    Panicked,
}

/// Returns a function that creates the error for an action that the kernel refused.
fn refused(action: &'static str) -> impl FnOnce(io::Error) -> TraceError {
    move |source| TraceError::Kernel { action, source }
}

/// Kind of call that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultyCall {
    /// fsync and fdatasync of a file or directory in the watched directory.
    Sync,
    /// Writes to a file in the watched directory.
    Write,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The call fails with EIO. A write at an offset (pwrite) first writes half of its bytes.
    InputOutput,
    /// The call fails with ENOSPC.
    NoSpace,
    /// A write writes only half of its bytes. A sync, or a write of a single byte, succeeds.
    Short,
}

impl FaultKind {
    /// Returns the error number, or `None` if the call returns no error.
    fn error(self) -> Option<i32> {
        match self {
            FaultKind::InputOutput => Some(libc::EIO),
            FaultKind::NoSpace => Some(libc::ENOSPC),
            FaultKind::Short => None,
        }
    }
}

/// A fault of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskFault {
    /// Calls that can fail.
    pub call: FaultyCall,
    /// Position of the first failing call among the calls that can fail, starting at 1.
    pub first: u64,
    /// Whether all later calls fail too.
    pub is_lasting: bool,
    /// How the calls fail.
    pub kind: FaultKind,
}

impl DiskFault {
    /// Returns whether the call at position `number` among these calls fails.
    fn applies(&self, number: u64) -> bool {
        number == self.first || self.is_lasting && number > self.first
    }
}

/// Pause between two checks of whether the process has ended.
const END_PAUSE: Duration = Duration::from_millis(1);

/// Options of a trace.
#[derive(Debug, Clone)]
pub struct TraceOptions {
    /// Maximum total number of bytes that the process may write to the watched directory and send.
    /// The trace keeps them in memory. Default: 1 GiB.
    pub max_bytes: u64,
    /// A fault of the disk. Default: none.
    pub fault: Option<DiskFault>,
}

impl Default for TraceOptions {
    fn default() -> Self {
        TraceOptions {
            max_bytes: 1 << 30,
            fault: None,
        }
    }
}

/// A running process that is traced. Dropping this value kills the process and its children.
#[derive(Debug)]
pub struct Tracer {
    process: OwnedFd,
    thread: Option<JoinHandle<Result<Trace, TraceError>>>,
}

impl Tracer {
    /// Starts a program and records what it and its children change in `directory` and send on
    /// sockets.
    ///
    /// The program runs without privileges from set-user-ID bits or file capabilities
    /// (`PR_SET_NO_NEW_PRIVS`). Its stdin, stdout and stderr must not be pipes to this process.
    /// When the program exits, its children are killed.
    ///
    /// # Errors
    /// The directory cannot be read, the program cannot be started, or the kernel does not allow
    /// ptrace or seccomp.
    pub fn start(
        command: Command,
        directory: &Path,
        options: TraceOptions,
    ) -> Result<Self, TraceError> {
        let (follower, base) = Follower::read(directory)?;
        let (sender, receiver) = mpsc::sync_channel(1);
        let run = move || {
            Session::run(command, follower, base, options, |process| {
                // Sending cannot fail, because the receiver is waiting.
                let _ = sender.send(process);
            })
        };
        let thread = thread::Builder::new().name("tracer".to_owned());
        let thread = thread
            .spawn(run)
            .map_err(refused("start the tracer thread"))?;
        match receiver.recv() {
            Ok(process) => Ok(Tracer {
                process,
                thread: Some(thread),
            }),
            Err(_) => match join(thread) {
                Err(error) => Err(error),
                Ok(_) => Err(TraceError::Panicked),
            },
        }
    }

    /// Returns whether the process has ended, or was killed because it cannot be traced.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn signal(&self, signal: Signal) -> Result<(), TraceError> {
        match pidfd_send_signal(&self.process, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(refused("signal the process")(error.into())),
        }
    }

    /// Ends the process with SIGTERM, or with SIGKILL after `grace`, and returns the trace.
    ///
    /// # Errors
    /// The process cannot be traced, or the trace exceeds its limit.
    pub fn stop(mut self, grace: Duration) -> Result<Trace, TraceError> {
        let begin = Instant::now();
        let has_ended = self.has_ended();
        if !grace.is_zero() {
            self.signal(Signal::TERM)?;
        }
        while !self.has_ended() && begin.elapsed() < grace {
            thread::sleep(END_PAUSE);
        }
        self.signal(Signal::KILL)?;
        let mut trace = self.thread.take().map_or(Err(TraceError::Panicked), join)?;
        trace.own_exit = trace.own_exit.filter(|_| has_ended);
        Ok(trace)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // The kernel never refuses to send SIGKILL to a child of this process.
            let _ = self.signal(Signal::KILL);
            let _ = join(thread);
        }
    }
}

fn join(thread: JoinHandle<Result<Trace, TraceError>>) -> Result<Trace, TraceError> {
    thread.join().unwrap_or(Err(TraceError::Panicked))
}
