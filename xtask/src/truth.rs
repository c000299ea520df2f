//! `cargo xtask truth`: floodmark's record against the log of a server whose misdeeds are known.

use crate::command;
use crate::error::Error;
use crate::release;
use crate::workspace::Workspace;

/// Runs all cases, or one, with the release build of both sides.
pub fn run(workspace: &Workspace, only: Option<&str>) -> Result<(), Error> {
    let floodmark = release::floodmark(workspace)?;
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
    cases.arg(floodmark);
    if let Some(case) = only {
        cases.args(["--only", case]);
    }
    command::run(cases.current_dir(&workspace.root))
}
