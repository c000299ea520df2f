//! The command as users run it.

use std::path::PathBuf;

use crate::command;
use crate::error::Error;
use crate::workspace::Workspace;

/// Builds the release `floodmark` and says where it is.
///
/// It is built alone, so that no other package's features change it.
pub fn floodmark(workspace: &Workspace) -> Result<PathBuf, Error> {
    let mut build = command::cargo();
    build.args(["build", "--release", "--package", "floodmark"]);
    command::run(build.current_dir(&workspace.root))?;
    Ok(workspace.target.join("release").join("floodmark"))
}
