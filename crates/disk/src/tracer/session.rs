//! The main loop of a trace: handles each stop of the traced threads.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::calls::{self, RequestedCall};
use super::error::{TraceError, refused};
use super::fault::{FaultKind, FaultyCall};
use super::follower::Follower;
use super::ptrace::{self, Change, Stopped, Tid};
use super::started::{self, StartedCall};
use super::{TraceOptions, sockets};
use crate::trace::{Operation, Trace, TracedCall};

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
    /// Third argument as the process passed it, if the call runs with a smaller one. The call does
    /// not run if there is only an error.
    length: Option<u64>,
}

/// State of a trace.
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
    /// Thread whose call may change the watched folder.
    exclusive: Option<Tid>,
    /// Threads that are stopped at an entry until the exclusive call has returned.
    waiting: VecDeque<Tid>,
}

impl Session {
    pub(super) fn new(
        leader: Tid,
        follower: Follower,
        trace: Trace,
        options: TraceOptions,
    ) -> Self {
        Session {
            leader,
            follower,
            trace,
            options,
            position: 0,
            bytes: 0,
            faulty_calls: 0,
            threads: HashSet::from([leader]),
            sockets: HashSet::new(),
            running: HashMap::new(),
            exclusive: None,
            waiting: VecDeque::new(),
        }
    }

    /// Continues the stopped leader, and follows it until it exits.
    pub(super) fn run(mut self) -> Result<Trace, TraceError> {
        let result = self.follow();
        self.kill_all();
        self.trace.modes = self.follower.modes();
        result.map(|()| self.trace)
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
        let Some(call) = calls::decode(call) else {
            return resume(tid, 0, false);
        };
        let is_shared = matches!(
            call,
            RequestedCall::Send { .. }
                | RequestedCall::SendMessage { .. }
                | RequestedCall::Sync { .. }
                | RequestedCall::SyncAll { .. }
        );
        if self.exclusive.is_some() && !is_shared {
            self.waiting.push_back(tid);
            return Ok(());
        }
        let room = self.options.max_bytes.saturating_sub(self.bytes);
        let Some(started) = started::begin(&self.follower, tid, call, room)? else {
            return resume(tid, 0, false);
        };
        if started.is_exclusive() {
            self.exclusive = Some(tid);
        }
        if let StartedCall::Send { socket, .. } = started
            && self.sockets.insert(socket)
            && let Some(ports) = sockets::ports(tid, socket)
        {
            self.trace.ports.insert(socket, ports);
        }
        let injected = self.inject(tid, &call, &started)?;
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
        call: &RequestedCall,
        started: &StartedCall,
    ) -> Result<Injected, TraceError> {
        let none = Injected::default();
        let Some(fault) = self.options.fault else {
            return Ok(none);
        };
        // The third argument of a write, and the position if the call does not use the file's own.
        let (length, position) = match (fault.call, started, *call) {
            (FaultyCall::Sync, StartedCall::Sync { .. }, _) => (0, None),
            (
                FaultyCall::Write,
                StartedCall::Write { .. },
                RequestedCall::Write { length, offset, .. },
            ) => (length, offset),
            // The number of buffers.
            (
                FaultyCall::Write,
                StartedCall::Write { .. },
                RequestedCall::WriteVector { count, offset, .. },
            ) => (count, offset),
            _ => return Ok(none),
        };
        self.faulty_calls += 1;
        if !fault.applies(self.faulty_calls) {
            return Ok(none);
        }
        let change_failed = refused("change a call of the traced process");
        let error = fault.kind.error();
        // An input/output error can come after a part of the data. The file's own position would
        // then move, although the call fails.
        let is_partial = match fault.kind {
            FaultKind::Short => true,
            FaultKind::InputOutput => position.is_some(),
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
        // A system call keeps the registers of its arguments, so programs use them again.
        if let Some(length) = length {
            ptrace::set_third_argument(tid, length).map_err(change_failed())?;
        }
        self.position += 1;
        if let Some(error) = error {
            ptrace::set_result(tid, -i64::from(error)).map_err(change_failed())?;
            self.trace.first_error.get_or_insert(self.position);
        }
        let operations = started::finish(&mut self.follower, tid, call.started, result)?;
        for operation in operations {
            self.bytes += match &operation {
                Operation::Write { bytes, .. } | Operation::Send { bytes, .. } => {
                    bytes.len() as u64
                }
                _ => 0,
            };
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
