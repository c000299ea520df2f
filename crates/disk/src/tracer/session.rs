//! The main loop of a trace: starts the program, and handles each stop of its threads.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::{fs, io};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use seccompiler::{BpfProgram, apply_filter};

use super::calls::{self, StartedCall};
use super::follower::{self, Follower};
use super::ptrace::{self, Change, RawCall, Stopped, Tid};
use super::{FaultKind, FaultyCall, TraceError, TraceOptions, refused};
use crate::trace::{BaseNode, Operation, Trace, TracedCall};

/// A call that has begun in a thread.
struct RunningCall {
    began: u64,
    started: StartedCall,
    injected: Injected,
}

/// How a fault changes a call.
#[derive(Debug, Clone, Copy, Default)]
struct Injected {
    /// Error number that the call returns.
    error: Option<i32>,
    /// Third argument that the process passed, if the call runs with a smaller one. If there is an
    /// error but no length, the call does not run.
    length: Option<u64>,
}

/// State of a trace.
#[derive(Default)]
pub(super) struct Session {
    leader: Tid,
    follower: Follower,
    trace: Trace,
    options: TraceOptions,
    /// Position of the last entry or exit.
    position: u64,
    bytes: u64,
    /// Number of calls so far that the fault could apply to.
    faulty_calls: u64,
    /// Threads that have stopped at least once.
    threads: HashSet<Tid>,
    /// Inode numbers of the sockets whose ports were looked up.
    sockets: HashSet<u64>,
    running: HashMap<Tid, RunningCall>,
    /// Thread that is running an exclusive call, if any. Until this call returns, no other call may
    /// change the watched directory.
    exclusive: Option<Tid>,
    /// Threads that are stopped at an entry until the exclusive call has returned.
    waiting: VecDeque<Tid>,
}

impl Session {
    /// Starts a program and follows it until it exits. Calls `started` with a file descriptor that
    /// refers to the process.
    pub(super) fn run(
        command: Command,
        follower: Follower,
        base: Vec<BaseNode>,
        options: TraceOptions,
        started: impl FnOnce(OwnedFd),
    ) -> Result<Trace, TraceError> {
        let (leader, process) = launch(command)?;
        started(process);
        let mut session = Session {
            leader,
            follower,
            options,
            threads: HashSet::from([leader]),
            ..Session::default()
        };
        session.trace.base = base;
        let result = session.follow();
        session.kill_all();
        session.trace.modes = session.follower.modes();
        result.map(|()| session.trace)
    }

    fn follow(&mut self) -> Result<(), TraceError> {
        resume(self.leader, 0, false)?;
        while let Some(change) = ptrace::wait().map_err(refused("wait for the traced process"))? {
            match change {
                Change::Ended(tid, status) => {
                    self.forget(tid)?;
                    if tid == self.leader {
                        self.trace.own_exit = Some(ExitStatus::from_raw(status));
                        return Ok(());
                    }
                }
                Change::Stopped(tid, stopped) => self.handle(tid, stopped)?,
            }
        }
        Ok(())
    }

    fn handle(&mut self, tid: Tid, stopped: Stopped) -> Result<(), TraceError> {
        let is_new = self.threads.insert(tid);
        match stopped {
            Stopped::Entry => self.enter(tid),
            Stopped::Exit => self.exit(tid),
            Stopped::Event => {
                self.forget_missing()?;
                resume(tid, 0, false)
            }
            // The kernel stops each new thread with this signal.
            Stopped::Signal(libc::SIGSTOP) if is_new => resume(tid, 0, false),
            Stopped::Signal(signal) => {
                let stop_at_exit = self.running.contains_key(&tid);
                resume(tid, signal, stop_at_exit)
            }
        }
    }

    fn enter(&mut self, tid: Tid) -> Result<(), TraceError> {
        let Ok(call) = ptrace::requested_call(tid) else {
            // The thread was killed.
            return resume(tid, 0, false);
        };
        if self.exclusive.is_some() && !calls::is_shared(call) {
            self.waiting.push_back(tid);
            return Ok(());
        }
        let room = self.options.max_bytes.saturating_sub(self.bytes);
        let Some(started) = calls::begin(&self.follower, tid, call, room)? else {
            return resume(tid, 0, false);
        };
        if started.is_exclusive() {
            self.exclusive = Some(tid);
        }
        if let StartedCall::Known(Operation::Send { socket, .. }) = started
            && self.sockets.insert(socket)
            && let Some(ports) = follower::ports(tid, socket)
        {
            self.trace.ports.insert(socket, ports);
        }
        let injected = self.inject(tid, call, &started)?;
        self.position += 1;
        let call = RunningCall {
            began: self.position,
            started,
            injected,
        };
        self.running.insert(tid, call);
        resume(tid, 0, true)
    }

    /// Injects the fault, if it applies to the call.
    fn inject(
        &mut self,
        tid: Tid,
        call: RawCall,
        started: &StartedCall,
    ) -> Result<Injected, TraceError> {
        let none = Injected::default();
        let Some(fault) = self.options.fault else {
            return Ok(none);
        };
        // The third argument of a write is its length or its number of buffers.
        let length = match (fault.call, started) {
            (FaultyCall::Sync, StartedCall::Sync { .. }) => 0,
            (FaultyCall::Write, StartedCall::Known(Operation::Write { .. })) => call.arguments[2],
            _ => return Ok(none),
        };
        self.faulty_calls += 1;
        if !fault.applies(self.faulty_calls) {
            return Ok(none);
        }
        let change_failed = refused("change a call of the traced process");
        let error = fault.kind.error();
        // An I/O error can occur after part of the data has been written. A failing write at the
        // file's position would then move this position, so only a write at an offset is partial.
        let is_partial = match fault.kind {
            FaultKind::Short => true,
            FaultKind::InputOutput => calls::offset_argument(call).is_some(),
            FaultKind::NoSpace => false,
        };
        if is_partial && length > 1 {
            ptrace::set_third_argument(tid, length / 2).map_err(change_failed)?;
            let length = Some(length);
            return Ok(Injected { error, length });
        }
        if error.is_some() {
            ptrace::skip_call(tid).map_err(change_failed)?;
        }
        let length = None;
        Ok(Injected { error, length })
    }

    fn exit(&mut self, tid: Tid) -> Result<(), TraceError> {
        let Some(call) = self.running.remove(&tid) else {
            return resume(tid, 0, false);
        };
        let change_failed = || refused("change a call of the traced process");
        let Injected { error, length } = call.injected;
        let result = match (error, length) {
            (Some(error), None) => -i64::from(error),
            // If the thread was killed, it cannot use the result.
            _ => ptrace::call_result(tid).unwrap_or(-i64::from(libc::EINTR)),
        };
        // System calls preserve the argument registers, so programs rely on their values
        // afterwards.
        if let Some(length) = length {
            ptrace::set_third_argument(tid, length).map_err(change_failed())?;
        }
        self.position += 1;
        if let Some(error) = error {
            ptrace::set_result(tid, -i64::from(error)).map_err(change_failed())?;
            self.trace.first_error.get_or_insert(self.position);
        }
        if let Some(operation) = calls::finish(&mut self.follower, tid, call.started, result) {
            if let Operation::Write { bytes, .. } | Operation::Send { bytes, .. } = &operation {
                self.bytes += bytes.len() as u64;
            }
            self.trace.calls.push(TracedCall {
                began: call.began,
                ended: self.position,
                operation,
            });
        }
        resume(tid, 0, false)?;
        self.release(tid)
    }

    /// Ends an exclusive call, and handles the calls that waited for it.
    fn release(&mut self, tid: Tid) -> Result<(), TraceError> {
        if self.exclusive == Some(tid) {
            self.exclusive = None;
        }
        while self.exclusive.is_none()
            && let Some(next) = self.waiting.pop_front()
        {
            self.enter(next)?;
        }
        Ok(())
    }

    fn forget(&mut self, tid: Tid) -> Result<(), TraceError> {
        self.threads.remove(&tid);
        self.running.remove(&tid);
        self.waiting.retain(|waiting| *waiting != tid);
        self.release(tid)
    }

    /// Forgets threads that an exec has ended without a report.
    fn forget_missing(&mut self) -> Result<(), TraceError> {
        match self.exclusive {
            Some(tid) if !fs::exists(format!("/proc/{tid}")).unwrap_or(true) => self.forget(tid),
            _ => Ok(()),
        }
    }

    /// Kills and reaps everything that is still traced.
    fn kill_all(&self) {
        for tid in &self.threads {
            // SAFETY: the call takes no pointer. The thread is traced and not reaped, so its ID
            // cannot have been reused.
            unsafe { libc::kill(*tid, libc::SIGKILL) };
        }
        while let Ok(Some(change)) = ptrace::wait() {
            if let Change::Stopped(tid, _) = change {
                // A thread that appeared meanwhile.
                // SAFETY: as above.
                unsafe { libc::kill(tid, libc::SIGKILL) };
                let _ = ptrace::resume(tid, 0, false);
            }
        }
    }
}

fn resume(tid: Tid, signal: i32, stop_at_exit: bool) -> Result<(), TraceError> {
    ptrace::resume(tid, signal, stop_at_exit).map_err(refused("continue the traced process"))
}

/// Starts a program that the calling thread traces, and leaves it stopped. Only this thread can
/// control the program.
fn launch(mut command: Command) -> Result<(Tid, OwnedFd), TraceError> {
    let program = command.get_program().to_owned();
    let start_error = |reason: String| TraceError::Start {
        program: program.to_string_lossy().into_owned(),
        reason,
    };
    // If exec failed, the filter would also stop the write that reports the child's error, so check
    // the program first.
    if !is_executable(&program) {
        let reason = "no such program, or not executable; install it, or use its full path";
        return Err(start_error(reason.to_owned()));
    }
    let filters = calls::filters().map_err(|error| start_error(error.to_string()))?;
    command.process_group(0);
    // SAFETY: between fork and exec, the closure makes only async-signal-safe system calls. The
    // filter programs are built before the fork.
    unsafe {
        command.pre_exec(move || {
            ptrace::trace_me()?;
            filters.iter().try_for_each(install)
        });
    }
    let child = command.spawn().map_err(refused("trace a new process"))?;
    let leader = child.id().cast_signed();
    let process = Pid::from_child(&child);
    match ptrace::wait().map_err(refused("wait for the traced process"))? {
        Some(Change::Stopped(tid, Stopped::Signal(libc::SIGTRAP))) if tid == leader => {}
        Some(Change::Stopped(..)) => {
            let reason = "its file has an unknown format, or its interpreter is missing";
            return Err(start_error(reason.to_owned()));
        }
        Some(Change::Ended(..)) | None => {
            return Err(start_error("it ended at once".to_owned()));
        }
    }
    ptrace::set_options(leader).map_err(refused("trace a process"))?;
    let process = pidfd_open(process, PidfdFlags::empty());
    let process = process.map_err(|error| refused("open the traced process")(error.into()))?;
    Ok((leader, process))
}

fn install(filter: &BpfProgram) -> io::Result<()> {
    apply_filter(filter).map_err(|error| match error {
        seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
        // No other error occurs for a non-empty filter.
        _ => io::Error::from_raw_os_error(libc::EINVAL),
    })
}

fn is_executable(program: &OsStr) -> bool {
    let is_file = |path: &Path| {
        let metadata = path.metadata();
        metadata.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    let path = Path::new(program);
    if path.components().count() > 1 {
        return is_file(path);
    }
    let directories = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&directories).any(|directory| is_file(&directory.join(path)))
}
