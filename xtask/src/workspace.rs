//! What cargo knows of this workspace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::command;
use crate::error::Error;

/// Packages of the workspace without what they depend on: needs neither a lock file nor a network.
const METADATA: [&str; 4] = ["metadata", "--format-version", "1", "--no-deps"];

/// The part of `cargo metadata` that the chores need.
#[derive(Debug, Deserialize)]
pub struct Workspace {
    /// The workspace's packages.
    pub packages: Vec<Package>,
    /// The folder of the root manifest.
    #[serde(rename = "workspace_root")]
    pub root: PathBuf,
    /// Where cargo builds; follows `CARGO_TARGET_DIR`.
    #[serde(rename = "target_directory")]
    pub target: PathBuf,
}

/// A package of the workspace.
#[derive(Debug, Deserialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its `Cargo.toml`.
    pub manifest_path: PathBuf,
    /// What it depends on directly, optional ones included.
    pub dependencies: Vec<Dependency>,
    /// What is built of it.
    pub targets: Vec<Target>,
}

/// Something that is built of a package.
#[derive(Debug, Deserialize)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// `bin`, `lib`, `test` and so on.
    pub kind: Vec<String>,
}

/// A direct dependency.
#[derive(Debug, Deserialize)]
pub struct Dependency {
    /// The package's name, whatever it is called in the code.
    pub name: String,
    /// `dev`, `build`, or none for a normal one.
    pub kind: Option<String>,
}

impl Workspace {
    /// The workspace of the current folder.
    pub fn read() -> Result<Self, Error> {
        metadata(command::cargo().args(METADATA))
    }

    /// The workspace of a manifest.
    pub fn at(manifest: &Path) -> Result<Self, Error> {
        metadata(
            command::cargo()
                .args(METADATA)
                .arg("--manifest-path")
                .arg(manifest),
        )
    }

    /// The names of its binaries.
    pub fn binaries(&self) -> Vec<String> {
        let targets = self.packages.iter().flat_map(|package| &package.targets);
        let binaries = targets.filter(|target| target.kind.iter().any(|kind| kind == "bin"));
        binaries.map(|target| target.name.clone()).collect()
    }

    /// The text of a file given by its path from the root.
    pub fn text(&self, path: &str) -> Result<String, Error> {
        let path = self.root.join(path);
        fs::read_to_string(&path).map_err(|source| Error::Read { path, source })
    }

    /// A path as it is seen from the root.
    pub fn relative<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.root).unwrap_or(path)
    }
}

fn metadata(command: &mut Command) -> Result<Workspace, Error> {
    let text = command::capture(command)?;
    serde_json::from_str(&text).map_err(|e| Error::Output {
        command: command::line(command),
        why: e.to_string(),
    })
}
