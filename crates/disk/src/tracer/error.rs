//! Errors while tracing a process.

use std::io;
use std::path::PathBuf;

/// An error while a process is traced. The process has been killed.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The watched folder cannot be read.
    #[error("cannot read {}: {source}; check that the folder exists and is readable", .path.display())]
    Folder {
        /// The folder or a file in it.
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
    /// The process changes the watched folder in a way that the tracer cannot follow.
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
    /// The thread that traces panicked.
    #[error("the tracer panicked; report this bug and include the output")]
    Panicked,
}

/// Returns the error for a refused operation.
pub(super) fn refused(action: &'static str) -> impl FnOnce(io::Error) -> TraceError {
    move |source| TraceError::Kernel { action, source }
}
