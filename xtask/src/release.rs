//! Release builds: floodmark as users run it, the known-truth server and the measurements.

use std::path::PathBuf;

use crate::command;
use crate::error::ChoreError;
use crate::workspace::Workspace;

/// Builds all programs and returns the path of one. They are built together, so that they share
/// their dependencies; none enables a feature that floodmark does not enable.
pub fn build(workspace: &Workspace, program: &str) -> Result<PathBuf, ChoreError> {
    let mut build = command::cargo();
    build.args(["build", "--release", "--bins"]);
    for package in ["floodmark", "floodmark-truth", "floodmark-bench"] {
        build.args(["--package", package]);
    }
    command::run(build.current_dir(&workspace.root))?;
    Ok(workspace.target.join("release").join(program))
}
