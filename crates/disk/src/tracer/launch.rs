//! Starts the traced program with the seccomp filter.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use seccompiler::{BpfProgram, apply_filter};

use super::calls;
use super::error::{TraceError, refused};
use super::ptrace::{self, Change, Stopped, Tid};

/// Starts a program, which is then stopped and traced by the calling thread. Only this thread can
/// control the program.
pub(super) fn launch(mut command: Command) -> Result<(Tid, OwnedFd), TraceError> {
    let program = command.get_program().to_owned();
    let start_error = |reason: String| TraceError::Start {
        program: program.to_string_lossy().into_owned(),
        reason,
    };
    // If exec failed, the filter would also stop the child's report of the error, so check the
    // program first.
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
        // No other error occurs for a filter that is not empty.
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
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| is_file(&folder.join(path)))
}
