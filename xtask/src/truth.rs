//! `cargo xtask truth`: floodmark's record against the log of a server whose misdeeds are known.

use std::path::Path;

use crate::command;
use crate::error::Error;
use crate::release;
use crate::workspace::Workspace;

/// The backends that must give the same results.
const BACKENDS: [&str; 2] = ["uring", "epoll"];

/// Runs all cases, or one, on each backend, with the release build of both sides.
pub fn run(workspace: &Workspace, only: Option<&str>) -> Result<(), Error> {
    let floodmark = release::floodmark(workspace)?;
    for backend in BACKENDS {
        on_backend(workspace, &floodmark, backend, only)?;
    }
    Ok(())
}

fn on_backend(
    workspace: &Workspace,
    floodmark: &Path,
    backend: &str,
    only: Option<&str>,
) -> Result<(), Error> {
    let mut cases = command::cargo();
    cases.args([
        "run",
        "--release",
        "--package",
        "floodmark-truth",
        "--",
        "cases",
        "--floodmark",
    ]);
    cases.arg(floodmark).args(["--backend", backend]);
    if let Some(case) = only {
        cases.args(["--only", case]);
    }
    command::run(cases.current_dir(&workspace.root))
}
