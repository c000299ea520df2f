//! Release builds of floodmark, the known-truth server and `floodmark-bench`.

use std::path::PathBuf;

use crate::command;
use crate::error::TaskError;
use crate::workspace::Workspace;

/// Builds all programs and returns the path of the named program. A joint build shares dependencies
/// between the programs. No program enables a feature that floodmark does not enable.
pub fn build(workspace: &Workspace, program: &str) -> Result<PathBuf, TaskError> {
    let mut build = command::cargo();
    build.args(["build", "--release", "--bins"]);
    for package in ["floodmark", "floodmark-truth", "floodmark-bench"] {
        build.args(["--package", package]);
    }
    command::run(build.current_dir(&workspace.root))?;
    Ok(workspace.target.join("release").join(program))
}
