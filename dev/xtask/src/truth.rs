//! `cargo xtask truth`: compares floodmark's record with the log of a server that injects known
//! faults.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::command;
use crate::error::TaskError;
use crate::workspace::Workspace;

/// Backends that must yield the same results.
const BACKENDS: [&str; 2] = ["uring", "epoll"];

/// EPERM, EACCES and ENOSYS as formatted by Rust. These errors mean that io_uring is forbidden or
/// missing.
const UNAVAILABLE: [&str; 3] = ["(os error 1)", "(os error 13)", "(os error 38)"];

/// Cases that test schedules, queues and judgments. Their results do not depend on the backend, so
/// the suite runs these cases on only one backend.
const INDEPENDENT: [&str; 3] = ["T3", "T8", "T9"];

/// Which cases to run.
#[derive(Debug, Clone, Copy)]
pub enum Cases<'a> {
    /// All cases on each backend.
    All,
    /// One case on each backend.
    Only(&'a str),
    /// All cases on the first backend. On every other backend, only cases that depend on the
    /// backend.
    Suite,
}

/// Runs cases on each backend, and returns a note with the reason for each ignored backend.
/// `floodmark-truth` must be in the same directory as `floodmark`. If `agents` is given, each load
/// is divided among these agents.
pub fn run(
    workspace: &Workspace,
    floodmark: &Path,
    cases: Cases<'_>,
    agents: Option<&str>,
) -> Result<Vec<String>, TaskError> {
    let mut ignored = Vec::new();
    let results = BACKENDS.map(|backend| match unavailable(floodmark, backend)? {
        Some(reason) => {
            ignored.push(format!("ignored {backend}: {reason}"));
            Ok(())
        }
        None => on_backend(workspace, floodmark, (backend, agents), cases),
    });
    for line in &ignored {
        println!("{line}");
    }
    TaskError::of_all(results)?;
    Ok(ignored)
}

/// Returns the reason why the kernel refuses a backend, or `None` if it does not. Any other failure
/// of floodmark also gives `None`.
fn unavailable(floodmark: &Path, backend: &str) -> Result<Option<String>, TaskError> {
    let directory = tempfile::tempdir().map_err(TaskError::file(&std::env::temp_dir()))?;
    let mut probe = Command::new(floodmark);
    probe.args(["load", "http://127.0.0.1:1/", "-n", "1", "--quiet", "--out"]);
    probe.arg(directory.path().join("probe"));
    probe.args(["--backend", backend]).stdin(Stdio::null());
    let output = probe.output().map_err(TaskError::start(&probe))?;
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Ok(is_refused_by_kernel(output.status.code(), &message).then_some(message))
}

/// Returns whether floodmark ended because the kernel refused the backend. A working backend
/// reports a refused connection instead.
fn is_refused_by_kernel(code: Option<i32>, message: &str) -> bool {
    let refused = code == Some(2) && message.contains("--backend epoll");
    refused && UNAVAILABLE.iter().any(|error| message.contains(error))
}

fn on_backend(
    workspace: &Workspace,
    floodmark: &Path,
    (backend, agents): (&str, Option<&str>),
    cases: Cases<'_>,
) -> Result<(), TaskError> {
    let mut run = Command::new(floodmark.with_file_name("floodmark-truth"));
    run.args(["cases", "--floodmark"]).arg(floodmark);
    run.args(["--backend", backend]);
    run.args(agents.iter().flat_map(|agents| ["--agents", agents]));
    match cases {
        Cases::Only(case) => drop(run.args(["--only", case])),
        Cases::Suite if backend != BACKENDS[0] => {
            run.args(INDEPENDENT.iter().flat_map(|case| ["--skip", case]));
        }
        Cases::All | Cases::Suite => {}
    }
    command::run(run.current_dir(&workspace.root)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPERM: i32 = 1;
    const EACCES: i32 = 13;
    const EINVAL: i32 = 22;
    const ENOSYS: i32 = 38;

    #[test]
    fn only_the_kernel_makes_a_backend_unavailable() {
        let message = |error: i32| {
            let error = std::io::Error::from_raw_os_error(error);
            format!("floodmark: --backend uring: words ({error}); a fix, or use --backend epoll")
        };
        for error in [EPERM, EACCES, ENOSYS] {
            assert!(is_refused_by_kernel(Some(2), &message(error)), "{error}");
        }
        assert!(!is_refused_by_kernel(Some(2), &message(EINVAL)));
        assert!(!is_refused_by_kernel(
            Some(3),
            "connection refused (os error 111)"
        ));
        assert!(!is_refused_by_kernel(Some(3), &message(EPERM)));
    }
}
