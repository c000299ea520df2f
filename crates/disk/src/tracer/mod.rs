//! Runs a process under ptrace and records its file calls and sends.
//!
//! A seccomp filter stops a thread only at the calls in `calls.rs`. `follower.rs` maps inodes and
//! paths to files, `started.rs` reads the arguments of a call, and `session.rs` is the main loop.

mod calls;
mod error;
mod fault;
mod follower;
mod launch;
mod ptrace;
mod session;
mod sockets;
mod started;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use floodmark_host::Signal;
use rustix::process::pidfd_send_signal;

use crate::trace::Trace;
use follower::Follower;
use session::Session;

pub use error::TraceError;
pub use fault::{DiskFault, FaultKind, FaultyCall};

/// Pause between two checks whether the process has ended.
const END_PAUSE: Duration = Duration::from_millis(1);

/// Options of a trace.
#[derive(Debug, Clone)]
pub struct TraceOptions {
    /// Maximum number of bytes that the process may write to the watched folder and send in total.
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
    /// Starts a program and records what it and its children change in `folder` and send on sockets.
    ///
    /// The program runs without privileges from set-user-ID bits or file capabilities
    /// (`PR_SET_NO_NEW_PRIVS`). Its stdin, stdout and stderr must not be pipes to this process. When
    /// the program exits, its children are killed.
    ///
    /// # Errors
    /// The folder cannot be read, the program cannot be started, or the kernel does not allow ptrace
    /// or seccomp.
    pub fn start(
        command: Command,
        folder: &Path,
        options: TraceOptions,
    ) -> Result<Self, TraceError> {
        let (follower, base) = Follower::read(folder)?;
        let (sender, receiver) = mpsc::sync_channel(1);
        let run = move || {
            let (leader, process) = launch::launch(command)?;
            // Sending cannot fail, because the receiver is waiting.
            let _ = sender.send(process);
            let trace = Trace {
                base,
                ..Trace::default()
            };
            Session::new(leader, follower, trace, options).run()
        };
        let thread = thread::Builder::new().name("tracer".to_owned());
        let thread = thread
            .spawn(run)
            .map_err(error::refused("start the thread that traces"))?;
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
            Err(error) => Err(error::refused("signal the process")(error.into())),
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
            // SIGKILL cannot be refused for this process's own child.
            let _ = self.signal(Signal::KILL);
            let _ = join(thread);
        }
    }
}

fn join(thread: JoinHandle<Result<Trace, TraceError>>) -> Result<Trace, TraceError> {
    thread.join().unwrap_or(Err(TraceError::Panicked))
}
