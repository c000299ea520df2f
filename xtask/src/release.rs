//! The command as users run it, and the server whose truth is known.

use std::path::PathBuf;

use crate::command;
use crate::error::Error;
use crate::workspace::Workspace;

/// Builds the release `floodmark` and says where it is.
pub fn floodmark(workspace: &Workspace) -> Result<PathBuf, Error> {
    build(workspace)?;
    Ok(workspace.target.join("release").join("floodmark"))
}

/// Builds the release `floodmark-truth` and says where it is.
pub fn truth(workspace: &Workspace) -> Result<PathBuf, Error> {
    build(workspace)?;
    Ok(workspace.target.join("release").join("floodmark-truth"))
}

/// Both together, which share what they are made of: `floodmark-truth` has no feature that changes `floodmark`, and alone it would be
/// built of other ones. No other package is.
fn build(workspace: &Workspace) -> Result<(), Error> {
    let mut build = command::cargo();
    build.args(["build", "--release", "--package", "floodmark"]);
    build.args(["--package", "floodmark-truth"]);
    command::run(build.current_dir(&workspace.root))
}
