//! The workspace as described by `cargo metadata`, and its release build.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::command;
use crate::error::TaskError;

/// Arguments for `cargo metadata` that list only packages of the workspace. They require neither a
/// lock file nor network access.
const METADATA: [&str; 4] = ["metadata", "--format-version", "1", "--no-deps"];

/// The part of the `cargo metadata` output that tasks need.
#[derive(Debug, Deserialize)]
pub struct Workspace {
    /// Packages of the workspace.
    pub packages: Vec<Package>,
    /// Directory that contains the root manifest.
    #[serde(rename = "workspace_root")]
    pub root: PathBuf,
    /// Build directory. The variable `CARGO_TARGET_DIR` overrides the default.
    #[serde(rename = "target_directory")]
    pub target: PathBuf,
}

/// One package.
#[derive(Debug, Deserialize)]
pub struct Package {
    /// Name of the package.
    pub name: String,
    /// Path of its `Cargo.toml`.
    pub manifest_path: PathBuf,
    /// Direct dependencies, including optional dependencies.
    pub dependencies: Vec<Dependency>,
    /// Build targets of the package.
    pub targets: Vec<BuildTarget>,
}

/// A library, binary, test or example.
#[derive(Debug, Deserialize)]
pub struct BuildTarget {
    /// Name of the target.
    pub name: String,
    /// Kinds of the target: `bin`, `lib`, `test`, …
    pub kind: Vec<String>,
}

/// A direct dependency.
#[derive(Debug, Deserialize)]
pub struct Dependency {
    /// Name of the package. The name in the code may differ.
    pub name: String,
    /// Kind of the dependency: `dev`, `build`, or `None` for a normal dependency.
    pub kind: Option<String>,
}

impl Workspace {
    /// Reads the workspace of a manifest. The default is the workspace that contains the current
    /// directory.
    pub fn read(manifest: Option<&Path>) -> Result<Self, TaskError> {
        let mut cargo = command::cargo();
        cargo.args(METADATA);
        if let Some(manifest) = manifest {
            cargo.arg("--manifest-path").arg(manifest);
        }
        let text = command::capture(&mut cargo)?;
        serde_json::from_str(&text).map_err(|error| TaskError::output(&cargo, error))
    }

    /// Builds floodmark, `floodmark-truth` and the named program, and returns the path of the named
    /// program. A joint build shares dependencies between the programs. It does not change
    /// floodmark, because no other program enables a feature that floodmark does not enable.
    pub fn build_release(&self, program: &str) -> Result<PathBuf, TaskError> {
        let mut build = command::cargo();
        build.args(["build", "--release", "--bins"]);
        for package in BTreeSet::from(["floodmark", "floodmark-truth", program]) {
            build.args(["--package", package]);
        }
        command::run(build.current_dir(&self.root))?;
        Ok(self.target.join("release").join(program))
    }

    /// Returns the names of the workspace's binaries.
    pub fn binaries(&self) -> Vec<String> {
        let targets = self.packages.iter().flat_map(|package| &package.targets);
        let binaries = targets.filter(|target| target.kind.iter().any(|kind| kind == "bin"));
        binaries.map(|target| target.name.clone()).collect()
    }

    /// Reads a file by its path relative to the root.
    pub fn text(&self, path: &str) -> Result<String, TaskError> {
        let path = self.root.join(path);
        fs::read_to_string(&path).map_err(TaskError::file(&path))
    }

    /// Returns a path relative to the root.
    pub fn relative<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.root).unwrap_or(path)
    }
}
